/* operatorcmd.h - `sluice scale`, `sluice reload` and `sluice drain`: what an operator says to a running mesh. */
#ifndef SLUICE_OPERATORCMD_H
#define SLUICE_OPERATORCMD_H

int scalecmd_main(int argc, char **argv);
int reloadcmd_main(int argc, char **argv);
int draincmd_main(int argc, char **argv);

#endif
