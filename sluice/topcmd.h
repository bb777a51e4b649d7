/* topcmd.h - `sluice top`: a running mesh, live in the terminal. */
#ifndef SLUICE_TOPCMD_H
#define SLUICE_TOPCMD_H

int topcmd_main(int argc, char **argv);

#endif
