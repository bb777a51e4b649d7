/* meshbench.c - see meshbench.h: the options, the order of what is measured, the tables. */
#include "sluice/meshbench.h"

#include "common/child.h"
#include "sluice/cmdopts.h"
#include "sluice/meshload.h"
#include "sluice/meshwake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct meshbench_opts {
	struct cmdserver server; /* model alone is looked at */
	bool mesh;
	int64_t n_frontends, step_us, running;
	double seconds, wake_seconds;
	const char *json;
};

static const struct cmdopt meshbench_rows[] = {
	{"mesh", CMDOPT_SWITCH, offsetof(struct meshbench_opts, mesh), 0, 0, NULL, "this benchmark"},
	{"num-frontends", CMDOPT_COUNT, offsetof(struct meshbench_opts, n_frontends), 1, 16, "K", "lanes that results go to [2]"},
	{"null-step-us", CMDOPT_COUNT, offsetof(struct meshbench_opts, step_us), 100, 1e6, "US", "of the device whose time the executor is to hide [2000]"},
	{"running", CMDOPT_COUNT, offsetof(struct meshbench_opts, running), 1, 8192, "N", "requests of a step, everywhere [256, 1024 and 4096; overlap: 1024]"},
	{"seconds", CMDOPT_NUMBER, offsetof(struct meshbench_opts, seconds), 0.1, 600, "S", "of each load [3]"},
	{"wake-seconds", CMDOPT_NUMBER, offsetof(struct meshbench_opts, wake_seconds), 0.01, 600, "S", "of each rate of wake-ups; the 99th percentile of few of them is the largest [10]"},
	{"json", CMDOPT_TEXT, offsetof(struct meshbench_opts, json), 0, 0, "FILE", "write the results as JSON, too; -: to stdout, instead of the tables"},
};

static const struct cmdopts meshbench_cmdopts = {
	.name = "bench",
	.usage = "bench --mesh MODEL [options]",
	.intro = "Runs the real executor and a worker of the null device (no arithmetic) on this machine, plays frontends that only take\n"
		 "results, and prints\n"
		 "  routed   results a second, and the executor's own time by running request and step, in microseconds: taking results\n"
		 "           and deciding steps; writing messages; handing them to ring and sockets. CPU: of the whole process\n"
		 "  overlap  with a device that sleeps --null-step-us a step, and goes on at once when the next step is there: the executor's\n"
		 "           own time and the real time of a step; of the ideal: max(executor, device) / step, 1 when the shorter one is hidden\n"
		 "  wake     from a push into the step ring to its reader, and the reader's CPU, beside a bare futex: pushes of both alternate, both\n"
		 "           readers have the same core, another one than the pushes",
	.rows = meshbench_rows,
	.n_rows = ARRAY_LEN(meshbench_rows),
	.examples = "  sluice bench --mesh model.gguf\n"
		    "  sluice bench --mesh model.gguf --num-frontends 8 --json mesh.json\n",
};

static const uint32_t meshbench_sizes[] = {256, 1024, 4096}; /* without --running */
static const uint32_t meshbench_rates[] = {1, 10, 100, 1000};

#define MESHBENCH_SIZES ARRAY_LEN(meshbench_sizes)
#define MESHBENCH_RATES ARRAY_LEN(meshbench_rates)
#define MESHBENCH_OVERLAP 1024 /* requests, likewise */

struct meshbench {
	const struct meshbench_opts *opts;
	uint32_t sizes[MESHBENCH_SIZES], n_sizes;
	struct meshload_result loads[MESHBENCH_SIZES], overlap;
	struct meshwake_result wakes[MESHBENCH_RATES];
};

static double us_each(uint64_t ns, uint64_t n)
{
	return n ? (double)ns / 1e3 / (double)n : 0;
}

static double a_second(uint64_t n, uint64_t ns)
{
	return ns ? (double)n * 1e9 / (double)ns : 0;
}

static double overlap_cpu_us(const struct meshbench *b)
{
	const struct meshload_result *r = &b->overlap;

	return us_each(r->schedule_ns + r->encode_ns + r->send_ns, r->n_steps);
}

/* Of the ideal throughput that was reached. */
static double overlap_reached(const struct meshbench *b)
{
	double step_us = us_each(b->overlap.ns, b->overlap.n_steps);

	return step_us > 0 ? fmax(overlap_cpu_us(b), (double)b->opts->step_us) / step_us : 0;
}

static void print_tables(const struct meshbench *b)
{
	printf("routed   running   results/s   steps/s   us a request and step: schedule   encode   send   executor CPU   worker CPU\n");
	for (size_t i = 0; i < b->n_sizes; i++) {
		const struct meshload_result *r = &b->loads[i];

		printf("         %7u   %9.0f   %7.0f   %32.3f   %6.3f   %4.3f   %12.3f   %10.3f\n", b->sizes[i],
		       a_second(r->n_results, r->ns), a_second(r->n_steps, r->ns), us_each(r->schedule_ns, r->n_results),
		       us_each(r->encode_ns, r->n_results), us_each(r->send_ns, r->n_results), us_each(r->executor_cpu_ns, r->n_results),
		       us_each(r->worker_cpu_ns, r->n_results));
	}
	printf("\noverlap  device us   executor us   step us   of the ideal\n");
	printf("         %9lld   %11.0f   %7.0f   %12.3f\n", (long long)b->opts->step_us, overlap_cpu_us(b),
	       us_each(b->overlap.ns, b->overlap.n_steps), overlap_reached(b));
	printf("\nwake     a second   ring us: p50      p99    CPU %%   futex us: p50      p99    CPU %%\n");
	for (size_t i = 0; i < MESHBENCH_RATES; i++) {
		const struct meshwake_result *w = &b->wakes[i];

		printf("         %8u   %12.1f   %6.1f   %6.3f   %13.1f   %6.1f   %6.3f\n", w->rate, w->ring.p50_us, w->ring.p99_us,
		       100 * w->ring.cpu, w->futex.p50_us, w->futex.p99_us, 100 * w->futex.cpu);
	}
}

static json_t *side_json(const struct meshwake_side *s)
{
	return json_pack("{s:f, s:f, s:f}", "p50_us", s->p50_us, "p99_us", s->p99_us, "cpu", s->cpu);
}

static json_t *to_json(const struct meshbench *b)
{
	json_t *loads = json_array(), *wakes = json_array();

	for (size_t i = 0; i < b->n_sizes; i++) {
		const struct meshload_result *r = &b->loads[i];

		json_array_append_new(loads, json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "running", (int)b->sizes[i],
						       "results_per_s", a_second(r->n_results, r->ns), "steps_per_s", a_second(r->n_steps, r->ns),
						       "schedule_us", us_each(r->schedule_ns, r->n_results), "encode_us",
						       us_each(r->encode_ns, r->n_results), "send_us", us_each(r->send_ns, r->n_results),
						       "executor_cpu_us", us_each(r->executor_cpu_ns, r->n_results), "worker_cpu_us",
						       us_each(r->worker_cpu_ns, r->n_results)));
	}
	for (size_t i = 0; i < MESHBENCH_RATES; i++)
		json_array_append_new(wakes, json_pack("{s:i, s:o, s:o}", "per_s", (int)b->wakes[i].rate, "ring", side_json(&b->wakes[i].ring),
						       "futex", side_json(&b->wakes[i].futex)));
	return json_pack("{s:o, s:{s:f, s:f, s:f, s:f}, s:o}", "routed", loads, "overlap", "device_us", (double)b->opts->step_us, "executor_us",
			 overlap_cpu_us(b), "step_us", us_each(b->overlap.ns, b->overlap.n_steps), "of_ideal", overlap_reached(b), "wake", wakes);
}

static int report(const struct meshbench *b)
{
	const char *path = b->opts->json;
	json_t *j;
	int rc;

	if (!path || path[0] != '-' || path[1]) print_tables(b);
	if (!path) return EXIT_OK;
	j = to_json(b);
	rc = path[0] == '-' && !path[1] ? json_dumpf(j, stdout, JSON_INDENT(2)) : json_dump_file(j, path, JSON_INDENT(2));
	json_decref(j);
	return rc == 0 ? EXIT_OK : cmdopts_fail("bench", EXIT_FAILED, "cannot write %s", path);
}

static void choose_sizes(struct meshbench *b)
{
	if (b->opts->running) b->sizes[b->n_sizes++] = (uint32_t)b->opts->running;
	else
		for (size_t i = 0; i < MESHBENCH_SIZES; i++) b->sizes[b->n_sizes++] = meshbench_sizes[i];
}

static int measure(struct meshbench *b, const char *model, struct errbuf *err)
{
	struct meshload_opts load = {.model = model,
				     .n_frontends = (uint32_t)b->opts->n_frontends,
				     .ns = (uint64_t)(b->opts->seconds * 1e9)};
	int rc = ST_OK;

	choose_sizes(b);
	/* First: they fork, and what comes next starts threads. */
	for (size_t i = 0; i < MESHBENCH_RATES && rc == ST_OK; i++)
		rc = meshwake_run(meshbench_rates[i], (uint32_t)ceil(b->opts->wake_seconds * meshbench_rates[i]), &b->wakes[i], err);
	for (size_t i = 0; i < b->n_sizes && rc == ST_OK; i++) {
		load.n_requests = b->sizes[i];
		rc = meshload_run(&load, &b->loads[i], err);
	}
	load.n_requests = b->opts->running ? (uint32_t)b->opts->running : MESHBENCH_OVERLAP;
	load.step_us = (uint32_t)b->opts->step_us;
	return rc == ST_OK ? meshload_run(&load, &b->overlap, err) : rc;
}

int meshbench_main(int argc, char **argv)
{
	struct meshbench_opts o = {.n_frontends = 2, .step_us = 2000, .seconds = 3, .wake_seconds = 10};
	struct meshbench b = {.opts = &o};
	struct errbuf err = {{0}};
	char *text;
	bool help;
	int rc = cmdopts_parse(&meshbench_cmdopts, &o, argc, argv, &text, &help);

	if (rc == EXIT_OK && !help && !text && !o.server.model) rc = cmdopts_fail("bench", EXIT_USAGE, "--mesh needs a model; see sluice bench --mesh --help");
	if (rc == EXIT_OK && !help) {
		if (measure(&b, text ? text : o.server.model, &err) != ST_OK) rc = cmdopts_fail("bench", EXIT_FAILED, "%s", err.text);
		else rc = report(&b);
	}
	free(text);
	return rc;
}
