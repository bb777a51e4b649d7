/* tinyset.h - the tiny checkpoints of the golden data (tiny/README.md): every family and number format. */
#ifndef SLUICE_TINYSET_H
#define SLUICE_TINYSET_H

#include "common/base.h"
#include "worker/engine.h"

#include <jansson.h>
#include <stdio.h>

struct tinyset {
	const char *name;
	bool gguf;
	bool q8;    /* default activations round inputs of its products */
	bool moe;   /* a flipped route moves single steps far */
	bool sharp; /* attention and logits so pointed that rounding shows several times as much as in the others */
};

extern const struct tinyset tinysets[];
extern const size_t tinysets_n;

/* Options with its path (into `path`, at least 1024 bytes) and the level of SLUICE_KERNELS; false, with a line, when it
 * is not there. */
bool tinyset_opts(const struct tinyset *t, struct engine_opts *o, char *path, size_t cap);
FILE *tinyset_cases(const struct tinyset *t); /* golden.jsonl; fclose() it */
json_t *tinyset_info(const struct tinyset *t);

/* A cmocka program: `n` functions for each checkpoint, whose initial state is its struct; arguments are names to run
 * alone. */
typedef void tinyset_test(void **state);
int tinyset_main(const char *group, tinyset_test *const *tests, const char *const *names, size_t n, int argc,
		 char **argv);

#endif
