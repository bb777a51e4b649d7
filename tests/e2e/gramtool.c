/* gramtool.c - compiles schemas for tests that are written in Python: lines of JSON in, lines of JSON out.
 *
 *   gramtool [MODEL.gguf]
 *   {"schema": ..., "exact": true, "compact": true, "texts": ["...", ...], "random": 5, "tokens": 5, "seed": 1, "len": 200}
 *   {"rc": 0, "error": "", "bytes": 1234, "us": 80, "accepts": [true, ...], "samples": ["...", ...]}
 *
 * texts: is each of them a text of the grammar? random: that many texts of it, which after len bytes take the shortest way to an end.
 * tokens: that many which are made as the worker makes them, of at most len of the model's tokens, each drawn from those that its mask
 * allows. us: of the compilation, the thread's own time. */
#include "model/gguf.h"
#include "common/mem.h"
#include "frontend/gramc.h"
#include "common/jsonbig.h"
#include "proto/limits.h"
#include "tests/support/gramtry.h"
#include "tests/support/gramwalk.h"
#include "worker/mask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MASK_BYTES (64 * MIB)
#define STOP_ONE_IN 4 /* where the output may end */

static struct masks *masks;
static uint32_t vocab, stop_id;
static struct tokbytes *tokens; /* owned by masks */

static void open_model(const char *path)
{
	struct errbuf err = {{0}};
	struct gguf *file;

	if (gguf_open(&file, path, &err) != ST_OK || tokbytes_from_gguf(&tokens, file, &err) != ST_OK) {
		fprintf(stderr, "gramtool: %s\n", err.text);
		exit(1);
	}
	gguf_close(file);
	vocab = tokens->n;
	while (stop_id < vocab && tokens->kinds[stop_id] != TOKBYTES_SPECIAL) stop_id++;
	masks = masks_new(tokens, MASK_BYTES);
}

/* The k-th of the allowed tokens. */
static uint32_t pick(const uint64_t *bits, uint32_t k)
{
	uint32_t word = 0;

	while (k >= (uint32_t)__builtin_popcountll(bits[word])) k -= (uint32_t)__builtin_popcountll(bits[word++]);
	for (uint64_t w = bits[word];; w &= w - 1)
		if (k-- == 0) return word * 64 + (uint32_t)__builtin_ctzll(w);
}

/* False: the grammar was followed into a dead end, or there were not enough tokens for it from the start. */
static bool write_tokens(const struct strbuf *wire, uint32_t n_left, uint64_t *seed, struct strbuf *out)
{
	uint64_t *bits = mem_array(uint64_t, mask_words(vocab));
	struct errbuf err = {{0}};
	struct mask_seq *seq;
	bool may_go_on, is_whole = false;

	CHECK(masks_start(masks, wire->data, wire->len, NULL, 0, &seq, &err) == ST_OK);
	for (; n_left > 0 && !is_whole; n_left--) {
		uint32_t n = mask_fill(masks, seq, &stop_id, 1, n_left, bits, &may_go_on), token;
		bool may_stop = bits[stop_id / 64] >> (stop_id % 64) & 1;
		size_t len;
		const char *s;

		if (n == 0) break;
		token = may_stop && (!may_go_on || gramwalk_below(seed, STOP_ONE_IN) == 0) ? stop_id : pick(bits, gramwalk_below(seed, n));
		is_whole = token == stop_id;
		s = tokbytes_of(tokens, token, &len);
		if (!is_whole) strbuf_append(out, s, len);
		mask_append(masks, seq, token);
	}
	/* The last token may be one of the text: an output may end with its limit. */
	if (!is_whole && mask_fill(masks, seq, &stop_id, 1, 1, bits, &may_go_on)) is_whole = bits[stop_id / 64] >> (stop_id % 64) & 1;
	masks_end(masks, seq);
	free(bits);
	return is_whole;
}

static void ask(const struct gram *g, const struct strbuf *wire, const json_t *in, json_t *out)
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
	for (n = json_integer_value(json_object_get(in, "tokens")); n > 0; n--) {
		struct strbuf s;

		strbuf_init(&s, 4 * MIB);
		json_array_append_new(samples, write_tokens(wire, (uint32_t)(len ? len : 200), &seed, &s) ? json_stringn(s.data ? s.data : "", s.len)
													  : json_null());
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
	o.any_whitespace = !json_is_true(json_object_get(in, "compact"));
	strbuf_init(&wire, LIMIT_GRAMMAR_BYTES);
	began = cpu_ns();
	rc = gramc_schema(&wire, json_object_get(in, "schema"), &o, &err);
	json_object_set_new(out, "us", json_integer((json_int_t)((cpu_ns() - began) / NS_PER_US)));
	json_object_set_new(out, "rc", json_integer(rc));
	json_object_set_new(out, "error", json_string(err.text));
	json_object_set_new(out, "bytes", json_integer((json_int_t)wire.len));
	if (rc == ST_OK) {
		CHECK(gram_load(&g, wire.data, wire.len, &err) == ST_OK);
		ask(g, &wire, in, out);
	}
	json_dumpf(out, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
	gram_free(g);
	strbuf_release(&wire);
	json_decref(out);
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t len;

	if (argc > 1) open_model(argv[1]);

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
	masks_free(masks);
	return 0;
}
