/* planproc.c - see planproc.h. The engine plans here as it does before it loads, so the numbers are those that serving
 * will have. */
#include "worker/planproc.h"

#include "common/child.h"
#include "common/log.h"
#include "worker/workerproc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool planproc_is_asked(int argc, char **argv)
{
	return argc > 2 && strcmp(argv[1], "--plan") == 0;
}

static void planproc_print(const struct kvplan_in *in)
{
	const struct kvplan_shape *shape = in->shape;

	printf("available %" PRIu64 "\nweights %" PRIu64 "\nactivations %" PRIu64 "\nworkspace %" PRIu64
	       "\nstate %" PRIu64 "\n",
	       in->available, in->weights, in->activations, in->workspace, in->state);
	printf("tokens_ahead %" PRIu64 "\nmodel_len_max %u\ncontext_len %u\nseqs_max %u\nauto_max %" PRIu64 "\n",
	       in->tokens_ahead, in->model_len_max, in->context_len, in->seqs_max, in->auto_max);
	printf("kv_type %u\nshape_len %u\nblock_bytes %" PRIu64 "\n", (unsigned)shape->kv_type, shape->model_len_max,
	       shape->block_bytes);
}

static int planproc_plan(const struct config *c, uint32_t tp, bool null_device, struct errbuf *err)
{
	struct errbuf unused;
	struct engine_opts opts;
	struct engine *e;
	struct kvplan plan;
	int rc;

	workerproc_options(c, null_device, &opts);
	opts.tp = tp;
	rc = engine_measure(&e, &opts, err);
	if (rc != ST_OK) return rc;
	rc = engine_kvplan(e, &plan, &unused); /* whoever asked makes the plan again, and says so */
	planproc_print(&plan.in);
	engine_free(e);
	return ST_OK;
}

int planproc_run(int argc, char **argv, bool null_device)
{
	unsigned long tp = strtoul(argv[2], NULL, 10);
	struct errbuf err = {{0}};
	struct config c;
	bool help;
	int rc;

	log_init("worker", LOG_ERROR);
	config_init(&c);
	rc = config_from_args(&c, argc - 3, argv + 3, &help, &err);
	if (rc == ST_OK && (tp == 0 || tp > LIMIT_WORKERS))
		rc = err_set(&err, ST_INVALID, "%s is no number of ranks", argv[2]);
	if (rc == ST_OK) rc = planproc_plan(&c, (uint32_t)tp, null_device, &err);
	if (rc != ST_OK) printf("error %s\n", err.text);
	config_release(&c);
	return fflush(stdout) == 0 && rc == ST_OK ? EXIT_OK : EXIT_FAILED;
}
