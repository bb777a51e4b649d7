/* benchcmd.c - `sluice bench`: measures a server under load, any that speaks OpenAI's API. */
#include "sluice/benchcmd.h"

#include "common/child.h"
#include "sluice/benchrun.h"
#include "sluice/client.h"
#include "sluice/meshbench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct cmdopt bench_rows[] = {
	{"endpoint", CMDOPT_TEXT, offsetof(struct bench_opts, endpoint), 0, 0, "PATH", "/v1/completions or /v1/chat/completions [/v1/completions]"},
	{"num-prompts", CMDOPT_COUNT, offsetof(struct bench_opts, n_prompts), 1, 1e6, "N", "requests [100]"},
	{"max-concurrency", CMDOPT_COUNT, offsetof(struct bench_opts, concurrency), 1, 20000, "N", "requests at a time; default: all"},
	{"request-rate", CMDOPT_NUMBER, offsetof(struct bench_opts, rate), 1e-3, INFINITY, "R", "requests a second, at random times (open loop); inf: closed loop [inf]"},
	{"burstiness", CMDOPT_NUMBER, offsetof(struct bench_opts, burstiness), 0.01, 1000, "B", "1: Poisson; below: burstier, above: more regular [1]"},
	{"random-input-len", CMDOPT_COUNT, offsetof(struct bench_opts, input_len), 1, 1e6, "N", "tokens of a prompt [128]"},
	{"random-output-len", CMDOPT_COUNT, offsetof(struct bench_opts, output_len), 1, 1e6, "N", "tokens of an answer [128]"},
	{"random-prefix-len", CMDOPT_COUNT, offsetof(struct bench_opts, prefix_len), 0, 1e6, "N", "more tokens in front, the same in all prompts [0]"},
	{"temperature", CMDOPT_NUMBER, offsetof(struct bench_opts, temperature), 0, 100, "T", "[0]"},
	{"seed", CMDOPT_COUNT, offsetof(struct bench_opts, seed), 0, 9e15, "N", "of prompts and times [0]"},
	{"no-ignore-eos", CMDOPT_SWITCH, offsetof(struct bench_opts, no_ignore_eos), 0, 0, NULL, "let answers end by themselves"},
	{"percentiles", CMDOPT_TEXT, offsetof(struct bench_opts, percentiles), 0, 0, "P,P,...", "[50,90,99]"},
	{"json", CMDOPT_TEXT, offsetof(struct bench_opts, json), 0, 0, "FILE", "write the results as JSON, too; -: to stdout, instead of the table"},
	{"quiet", CMDOPT_SWITCH, offsetof(struct bench_opts, quiet), 0, 0, NULL, "no progress"},
};

static const struct cmdopts bench_cmdopts = {
	.name = "bench",
	.usage = "bench [options]",
	.intro = "Sends random prompts, streams the answers, and prints throughput and latencies.\n"
		 "`sluice bench --mesh MODEL` measures executor, worker and rings of this machine instead, without a server; see sluice bench --mesh --help.",
	.rows = bench_rows,
	.n_rows = ARRAY_LEN(bench_rows),
	.examples = "  sluice bench --max-concurrency 16\n"
		    "  sluice bench --num-prompts 500 --request-rate 20 --random-input-len 512 --random-output-len 64\n"
		    "  sluice bench --url http://10.0.0.7:8000 --endpoint /v1/chat/completions --json result.json\n",
};

int benchcmd_main(int argc, char **argv)
{
	struct bench_opts o = {.endpoint = "/v1/completions",
			       .n_prompts = 100,
			       .rate = INFINITY,
			       .burstiness = 1,
			       .input_len = 128,
			       .output_len = 128,
			       .percentiles = "50,90,99"};
	struct bench_result result = {0};
	struct client *c;
	json_t *models;
	char *text;
	bool help;
	int rc;

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--mesh") == 0) return meshbench_main(argc, argv);
	rc = cmdopts_parse(&bench_cmdopts, &o, argc, argv, &text, &help);

	if (rc == EXIT_OK && text) rc = cmdopts_fail("bench", EXIT_USAGE, "what is %s? see sluice bench --help", text);
	free(text);
	if (rc != EXIT_OK || help) return rc;
	if (!o.concurrency && o.n_prompts > 20000) return cmdopts_fail("bench", EXIT_USAGE, "more than 20000 requests need --max-concurrency");
	if (!benchreport_may(&o)) return cmdopts_fail("bench", EXIT_USAGE, "--percentiles must be at most 16 numbers up to 100, as in 50,90,99");
	rc = cmdopts_open("bench", &o.server, &c, &models);
	if (rc != EXIT_OK) return rc;
	rc = benchrun(&o, c, &result);
	if (rc == EXIT_OK) rc = benchreport(&o, &result);
	benchrun_release(&result);
	json_decref(models);
	client_close(c);
	return rc;
}
