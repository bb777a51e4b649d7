/* workerproc.h - the worker process: boots from the supervisor's descriptors, then runs its rank until it is told to
 * end. */
#ifndef SLUICE_WORKERPROC_H
#define SLUICE_WORKERPROC_H

#include "common/base.h"
#include "proto/config.h"
#include "worker/engine.h"

/* The engine that these options ask for; borrows their texts. */
void workerproc_options(const struct config *c, bool null_device, struct engine_opts *out);

/* Returns the exit code, enum child_exit. */
int workerproc_run(bool null_device);

#endif
