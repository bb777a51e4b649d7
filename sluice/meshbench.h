/* meshbench.h - `sluice bench --mesh`: what the mesh itself costs on this machine, beside HTTP and the device. */
#ifndef SLUICE_MESHBENCH_H
#define SLUICE_MESHBENCH_H

/* argv[0] is the word "bench"; --mesh is among the others. Returns the exit code. */
int meshbench_main(int argc, char **argv);

#endif
