/* chatcmd.h - `sluice chat`: talk to a server in the terminal. */
#ifndef SLUICE_CHATCMD_H
#define SLUICE_CHATCMD_H

/* argv[0] is the word "chat". Returns the exit code. */
int chatcmd_main(int argc, char **argv);

#endif
