/* gramtool.c - compiles schemas for tests that are written in Python: lines of JSON in, lines of JSON out.
 *
 *   {"schema": ..., "exact": true, "texts": ["...", ...], "random": 5, "seed": 1, "len": 200}
 *   {"rc": 0, "error": "", "bytes": 1234, "us": 80, "accepts": [true, ...], "samples": ["...", ...]}
 *
 * texts: is each of them a text of the grammar? random: that many texts of it, which after len bytes take the shortest way to
 * an end. */
#include "frontend/gramc.h"
#include "frontend/jsonbig.h"
#include "proto/limits.h"
#include "tests/support/gramtry.h"
#include "tests/support/gramwalk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void ask(const struct gram *g, const json_t *in, json_t *out)
{
	json_t *accepts = json_array(), *samples = json_array(), *text;
	uint64_t seed = (uint64_t)json_integer_value(json_object_get(in, "seed"));
	size_t len = (size_t)json_integer_value(json_object_get(in, "len")), i;
	json_int_t n;

	json_array_foreach(json_object_get(in, "texts"), i, text)
		json_array_append_new(accepts, json_boolean(gramwalk_accepts(g, json_string_value(text), json_string_length(text))));
	for (n = json_integer_value(json_object_get(in, "random")); n > 0; n--) {
		struct strbuf s;

		strbuf_init(&s, 4 * MIB);
		gramwalk_random(g, &seed, len ? len : 200, &s);
		json_array_append_new(samples, json_stringn(s.data ? s.data : "", s.len));
		strbuf_release(&s);
	}
	json_object_set_new(out, "accepts", accepts);
	json_object_set_new(out, "samples", samples);
}

/* The thread's own time: what other programs do does not count. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void answer(const json_t *in)
{
	struct gramc_opts o = gramtry_opts;
	struct errbuf err = {{0}};
	json_t *out = json_object();
	struct gram *g = NULL;
	struct strbuf wire;
	uint64_t began;
	int rc;

	o.exact_types = json_is_true(json_object_get(in, "exact"));
	strbuf_init(&wire, LIMIT_GRAMMAR_BYTES);
	began = cpu_ns();
	rc = gramc_schema(&wire, json_object_get(in, "schema"), &o, &err);
	json_object_set_new(out, "us", json_integer((json_int_t)((cpu_ns() - began) / NS_PER_US)));
	json_object_set_new(out, "rc", json_integer(rc));
	json_object_set_new(out, "error", json_string(err.text));
	json_object_set_new(out, "bytes", json_integer((json_int_t)wire.len));
	if (rc == ST_OK) {
		CHECK(gram_load(&g, wire.data, wire.len, &err) == ST_OK);
		ask(g, in, out);
	}
	json_dumpf(out, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
	gram_free(g);
	strbuf_release(&wire);
	json_decref(out);
}

int main(void)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t len;

	while ((len = getline(&line, &cap, stdin)) > 0) {
		json_error_t err;
		json_t *in = jsonbig_load(line, (size_t)len, 0, &err);

		if (!in) {
			fprintf(stderr, "gramtool: %s\n", err.text);
			return 1;
		}
		answer(in);
		json_decref(in);
	}
	free(line);
	return 0;
}
