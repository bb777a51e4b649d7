/* completecmd.h - `sluice complete`: have a server continue a text. */
#ifndef SLUICE_COMPLETECMD_H
#define SLUICE_COMPLETECMD_H

/* argv[0] is the word "complete". Returns the exit code. */
int completecmd_main(int argc, char **argv);

#endif
