/* benchcmd.h - `sluice bench`: measure a server under load. */
#ifndef SLUICE_BENCHCMD_H
#define SLUICE_BENCHCMD_H

/* argv[0] is the word "bench". Returns the exit code. */
int benchcmd_main(int argc, char **argv);

#endif
