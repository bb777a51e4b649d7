/* workerproc.h - the worker process: boots from the supervisor's descriptors, then runs its rank until it is told to
 * end. */
#ifndef SLUICE_WORKERPROC_H
#define SLUICE_WORKERPROC_H

#include "common/base.h"

/* Returns the exit code, enum child_exit. */
int workerproc_run(bool null_device);

#endif
