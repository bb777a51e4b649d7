/* chatcmd.h - `sluice chat`: talk to a server in the terminal. */
#ifndef SLUICE_CHATCMD_H
#define SLUICE_CHATCMD_H

int chatcmd_main(int argc, char **argv);

#endif
