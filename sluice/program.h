/* program.h - where the programs of this installation lie. */
#ifndef SLUICE_PROGRAM_H
#define SLUICE_PROGRAM_H

#include "common/base.h"
#include "common/errbuf.h"
#include "proto/config.h"

/* Path of "sluice-NAME", beside this program or in SLUICE_BIN_DIR. ST_NOT_FOUND: missing or not executable. */
int program_find(char *out, size_t cap, const char *name, struct errbuf *err) MUST_CHECK;

/* NAME of the worker of --device: "worker-cpu". */
const char *program_worker(uint32_t device);

#endif
