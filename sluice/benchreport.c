/* benchreport.c - what a load run means: throughput, and the distribution of TTFT, TPOT, ITL and end-to-end latency.
 *
 * TTFT: first text after the request's start. TPOT: time per output token after the first one, a value a request. ITL: between
 * neighbouring chunks, a value a chunk. In an open loop a request starts when it is due, so time that it waited for a free
 * connection counts. Percentiles are of the requests that went well, nearest rank. */
#include "sluice/benchrun.h"

#include "common/child.h"
#include "common/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_PERCENTILES_MAX 16

struct bench_series {
	const char *title, *name;
	double *v; /* milliseconds, sorted */
	size_t n;
};

struct bench_percentiles {
	double p[BENCH_PERCENTILES_MAX];
	size_t n;
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double series_mean(const struct bench_series *s)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < s->n; i++) sum += s->v[i];
	return s->n ? sum / (double)s->n : 0;
}

static double series_at(const struct bench_series *s, double percentile)
{
	size_t rank = (size_t)ceil(percentile / 100 * (double)s->n);

	return s->n ? s->v[rank > 0 ? rank - 1 : 0] : 0;
}

static bool read_percentiles(const char *text, struct bench_percentiles *out)
{
	char *end;

	out->n = 0;
	for (;;) {
		double v = strtod(text, &end);

		if (end == text || !(v > 0 && v <= 100) || out->n == BENCH_PERCENTILES_MAX) return false;
		out->p[out->n++] = v;
		if (*end == 0) return true;
		if (*end != ',') return false;
		text = end + 1;
	}
}

enum { TTFT, TPOT, ITL, E2EL, N_SERIES };

static void series_make(const struct bench_result *r, struct bench_series s[N_SERIES])
{
	static const char *const titles[] = {"Time to first token (TTFT)", "Time per output token (TPOT)", "Inter-token latency (ITL)", "End-to-end latency (E2EL)"};
	static const char *const names[] = {"ttft", "tpot", "itl", "e2el"};
	size_t i;

	for (i = 0; i < N_SERIES; i++) s[i] = (struct bench_series){titles[i], names[i], mem_array(double, max_size(i == ITL ? r->n_itl : r->n, 1)), 0};
	for (i = 0; i < r->n; i++) {
		const struct bench_request *q = &r->requests[i];

		if (!q->ok) continue;
		s[TTFT].v[s[TTFT].n++] = (q->first_s - q->start_s) * 1e3;
		s[E2EL].v[s[E2EL].n++] = (q->end_s - q->start_s) * 1e3;
		if (q->n_out > 1) s[TPOT].v[s[TPOT].n++] = (q->last_s - q->first_s) * 1e3 / (double)(q->n_out - 1);
	}
	for (i = 0; i < r->n_itl; i++) s[ITL].v[s[ITL].n++] = r->itl_s[i] * 1e3;
	for (i = 0; i < N_SERIES; i++) qsort(s[i].v, s[i].n, sizeof(double), by_value);
}

struct bench_totals {
	uint64_t n_ok, n_in, n_out;
};

static struct bench_totals totals_of(const struct bench_result *r)
{
	struct bench_totals t = {0};
	size_t i;

	for (i = 0; i < r->n; i++) {
		if (!r->requests[i].ok) continue;
		t.n_ok++;
		t.n_in += r->requests[i].n_in;
		t.n_out += r->requests[i].n_out;
	}
	return t;
}

static void print_table(const struct bench_opts *o, const struct bench_result *r, const struct bench_totals *t, const struct bench_series *s,
			const struct bench_percentiles *ps)
{
	size_t i, k;
	char name[32];

	printf("============ Serving benchmark ============\n");
	printf("%-30s %12llu\n", "Successful requests", (unsigned long long)t->n_ok);
	printf("%-30s %12llu\n", "Failed requests", (unsigned long long)(r->n - t->n_ok));
	if (o->concurrency) printf("%-30s %12lld\n", "Concurrency at most", (long long)o->concurrency);
	if (isfinite(o->rate)) printf("%-30s %12.2f\n", "Request rate wanted (req/s)", o->rate);
	printf("%-30s %12.2f\n", "Duration (s)", r->duration_s);
	printf("%-30s %12llu\n", "Input tokens", (unsigned long long)t->n_in);
	printf("%-30s %12llu\n", "Output tokens", (unsigned long long)t->n_out);
	printf("%-30s %12.2f\n", "Requests (req/s)", (double)t->n_ok / r->duration_s);
	printf("%-30s %12.2f\n", "Output tokens (tok/s)", (double)t->n_out / r->duration_s);
	printf("%-30s %12.2f\n", "All tokens (tok/s)", (double)(t->n_in + t->n_out) / r->duration_s);
	for (i = 0; i < N_SERIES; i++) {
		printf("-- %s, ms\n", s[i].title);
		printf("%-30s %12.2f\n", "mean", series_mean(&s[i]));
		for (k = 0; k < ps->n; k++) {
			if (ps->p[k] == 50) snprintf(name, sizeof(name), "median");
			else snprintf(name, sizeof(name), "P%g", ps->p[k]);
			printf("%-30s %12.2f\n", name, series_at(&s[i], ps->p[k]));
		}
	}
	printf("===========================================\n");
	if (!r->ids_prompts && strstr(o->endpoint, "chat") == NULL) printf("prompts were words: the server has no /tokenize\n");
	if (r->error[0]) printf("first error: %s\n", r->error);
}

static json_t *make_json(const struct bench_opts *o, const struct bench_result *r, const struct bench_totals *t, const struct bench_series *s,
			 const struct bench_percentiles *ps)
{
	json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:f, s:f, s:f}", "model", o->server.model, "endpoint", o->endpoint, "num_prompts",
			      (json_int_t)r->n, "completed", (json_int_t)t->n_ok, "failed", (json_int_t)(r->n - t->n_ok), "duration", r->duration_s,
			      "total_input_tokens", (json_int_t)t->n_in, "total_output_tokens", (json_int_t)t->n_out, "request_throughput",
			      (double)t->n_ok / r->duration_s, "output_throughput", (double)t->n_out / r->duration_s, "total_token_throughput",
			      (double)(t->n_in + t->n_out) / r->duration_s);
	char key[64];
	size_t i, k;

	json_object_set_new(j, "max_concurrency", o->concurrency ? json_integer(o->concurrency) : json_null());
	json_object_set_new(j, "request_rate", isfinite(o->rate) ? json_real(o->rate) : json_string("inf"));
	for (i = 0; i < N_SERIES; i++) {
		snprintf(key, sizeof(key), "mean_%s_ms", s[i].name);
		json_object_set_new(j, key, json_real(series_mean(&s[i])));
		for (k = 0; k < ps->n; k++) {
			if (ps->p[k] == 50) snprintf(key, sizeof(key), "median_%s_ms", s[i].name);
			else snprintf(key, sizeof(key), "p%g_%s_ms", ps->p[k], s[i].name);
			json_object_set_new(j, key, json_real(series_at(&s[i], ps->p[k])));
		}
	}
	if (r->error[0]) json_object_set_new(j, "first_error", json_string(r->error));
	return j;
}

static int write_json(const char *path, const json_t *j)
{
	FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
	int rc;

	if (!f) return cmdopts_fail("bench", EXIT_FAILED, "%s cannot be written: %s", path, strerror(errno));
	rc = json_dumpf(j, f, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && fputc('\n', f) != EOF ? EXIT_OK : EXIT_FAILED;
	if (f != stdout && fclose(f) != 0) rc = EXIT_FAILED;
	return rc == EXIT_OK ? rc : cmdopts_fail("bench", EXIT_FAILED, "%s could not be written", path);
}

bool benchreport_may(const struct bench_opts *o)
{
	struct bench_percentiles ps;

	return read_percentiles(o->percentiles, &ps);
}

int benchreport(const struct bench_opts *o, const struct bench_result *r)
{
	struct bench_totals t = totals_of(r);
	struct bench_series s[N_SERIES];
	struct bench_percentiles ps;
	json_t *j;
	size_t i;
	int rc = EXIT_OK;

	CHECK(read_percentiles(o->percentiles, &ps));
	series_make(r, s);
	if (!o->json || strcmp(o->json, "-") != 0) print_table(o, r, &t, s, &ps);
	if (o->json) {
		j = make_json(o, r, &t, s, &ps);
		rc = write_json(o->json, j);
		json_decref(j);
	}
	for (i = 0; i < N_SERIES; i++) free(s[i].v);
	return rc;
}
