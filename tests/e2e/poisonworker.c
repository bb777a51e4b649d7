/* poisonworker.c - a worker that dies of one token: as if a kernel could not cope with it. For test_poison.py.
 *
 * It is the worker of the CPU, linked so that each step passes here once it is prepared (ld --wrap). The token is POISON_TOKEN of the
 * environment. */
#include "worker/batch.h"
#include "worker/workerproc.h"

#include <stdlib.h>

int __real_batch_take(struct batch *b, const struct msg_step *step, struct batch_run *run);
int __wrap_batch_take(struct batch *b, const struct msg_step *step, struct batch_run *run);

int __wrap_batch_take(struct batch *b, const struct msg_step *step, struct batch_run *run)
{
	const char *poison = getenv("POISON_TOKEN");
	int rc = __real_batch_take(b, step, run);

	if (rc != ST_OK || !poison) return rc;
	for (uint32_t i = 0; i < run->n_tokens; i++)
		if (((const uint32_t *)(const void *)(run->input + run->token_ids))[i] == strtoul(poison, NULL, 10)) abort();
	return rc;
}

int main(void)
{
	return workerproc_run(false);
}
