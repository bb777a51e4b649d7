/* program.h - where the programs of this installation lie. */
#ifndef SLUICE_PROGRAM_H
#define SLUICE_PROGRAM_H

#include "common/base.h"
#include "common/errbuf.h"
#include "proto/config.h"

#include <sys/types.h>

/* Path of "sluice-NAME", beside this program or in SLUICE_BIN_DIR. ST_NOT_FOUND: missing or not executable. */
int program_find(char *out, size_t cap, const char *name, struct errbuf *err) MUST_CHECK;

/* Starts the program at `path` with its standard output in a pipe: *out is the reading end, *pid to be waited for, both the caller's. */
int program_start(const char *path, char *const *argv, pid_t *pid, int *out, struct errbuf *err) MUST_CHECK;

/* Runs the program for a moment to ask whether it fits this one (boot_fit()): whether it starts at all, and has the same protocol and status
 * page. Waits up to PROGRAM_FIT_MS. */
#define PROGRAM_FIT_MS 5000 /* it prints a line; libraries may have to come from a slow disk */
int program_check(const char *name, struct errbuf *err) MUST_CHECK;

/* NAME of the worker of --device: "worker-cpu". */
const char *program_worker(uint32_t device);

#endif
