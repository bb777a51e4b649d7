/* planproc.h - `sluice-worker-... --plan RANKS --FLAG=VALUE ...`: what this worker would plan, for `sluice inspect
 * --memory`. */
#ifndef SLUICE_PLANPROC_H
#define SLUICE_PLANPROC_H

#include "common/base.h"

/* The words are those of `sluice serve`. Writes lines of a word and a number (bytes, tokens) to stdout, or one line
 * "error TEXT". Returns the exit code. */
int planproc_run(int argc, char **argv, bool null_device);
bool planproc_is_asked(int argc, char **argv);

#endif
