/* edge.h - the executor process around its core: sockets, rings, timers, the status page. Translates and nothing else. */
#ifndef SLUICE_EDGE_H
#define SLUICE_EDGE_H

#include "proto/boot.h"

/* Runs until told to stop. Returns the exit code. */
int edge_run(struct boot *boot);

#endif
