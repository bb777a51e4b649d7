/* maskbench.c - what masks of constrained decoding cost, token by token, without a model's arithmetic.
 *
 *   maskbench MODEL [rounds]
 *
 * For each grammar a text of it is cut into the model's tokens, and the mask before each token is filled: first with
 * nothing kept (cold), then again and again (warm). */
#include "model/gguf.h"
#include "common/mem.h"
#include "frontend/gramc.h"
#include "frontend/tokenizer.h"
#include "proto/limits.h"
#include "worker/mask.h"
#include "worker/masktrie.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static NORETURN void maskbench_fail(const char *what)
{
	fprintf(stderr, "maskbench: %s\n", what);
	exit(1);
}

/* Of this thread alone, so that a busy machine does not blur it. */
static uint64_t maskbench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static const char record_schema[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"email\":{"
				    "\"type\":\"string\",\"maxLength\":60},"
				    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"role\":{\"enum\":["
				    "\"admin\",\"editor\",\"viewer\"]},"
				    "\"score\":{\"type\":\"number\"},\"active\":{\"type\":\"boolean\"},\"tags\":{"
				    "\"type\":\"array\",\"items\":{\"type\":\"string\"},"
				    "\"maxItems\":8},\"bio\":{\"type\":\"string\",\"maxLength\":4000},\"address\":{"
				    "\"type\":\"object\",\"properties\":{\"street\":"
				    "{\"type\":\"string\"},\"city\":{\"type\":\"string\"},\"zip\":{\"type\":\"string\","
				    "\"pattern\":\"^[0-9]{5}$\"}},\"required\":"
				    "[\"street\",\"city\",\"zip\"],\"additionalProperties\":false}},\"required\":["
				    "\"name\",\"email\",\"age\",\"role\",\"score\",\"active\","
				    "\"tags\",\"bio\",\"address\"],\"additionalProperties\":false}";
static const char record_text[] =
	"{\"name\": \"Ada Lovelace\", \"email\": \"ada.lovelace@analytical-engines.example\", \"age\": 36, \"role\": "
	"\"editor\", \"score\": "
	"97.25, \"active\": true, \"tags\": [\"mathematics\", \"poetry\", \"first of her kind\"], \"bio\": \"Augusta "
	"Ada King, Countess of "
	"Lovelace, was an English mathematician and writer, chiefly known for her work on Charles Babbage's proposed "
	"mechanical "
	"general-purpose computer, the Analytical Engine. She was the first to recognise that the machine had "
	"applications beyond "
	"pure calculation.\\nShe said: \\\"That brain of mine is something more than merely mortal.\\\"\", "
	"\"address\": {\"street\": "
	"\"12 St James's Square\", \"city\": \"London\", \"zip\": \"12345\"}}";
static const char free_text[] = "{\"title\": \"Weather\", \"days\": [{\"day\": 1, \"sky\": \"clear\", \"low\": -3.5, "
				"\"high\": 12}, {\"day\": 2, \"sky\": \"rain, "
				"later snow\", \"low\": -1, \"high\": 4e0}], \"note\": null, \"warnings\": [], "
				"\"nested\": {\"a\": {\"b\": {\"c\": [[[true]]]}}}}";

struct maskbench_case {
	const char *name, *text;
	enum { CASE_SCHEMA, CASE_OBJECT, CASE_REGEX, CASE_EBNF } kind;
	const char *source;
};

static const struct maskbench_case cases[] = {
	{"record by schema", record_text, CASE_SCHEMA, record_schema},
	{"any JSON object", free_text, CASE_OBJECT, NULL},
	{"expression", "Ada.Lovelace_1815@mail.example.org", CASE_REGEX,
	 "[A-Za-z0-9._%+-]{1,64}@([A-Za-z0-9-]{1,30}\\.){1,4}[a-z]{2,6}"},
	{"free text, at most 2000",
	 "The quick brown fox jumps over the lazy dog, and then it sleeps until the sun comes up again.", CASE_REGEX,
	 "[^\\n]{10,2000}"},
	{"EBNF, arithmetic", "(12 + 345) * (6 - 78 / 9) + 10 * (11 + (12 - 13))", CASE_EBNF,
	 "root ::= term ((\" + \" | \" - \") term)*\nterm ::= factor ((\" * \" | \" / \") factor)*\nfactor ::= [0-9]+ "
	 "| \"(\" root \")\""},
};

static void maskbench_compile(const struct maskbench_case *c, struct strbuf *wire)
{
	struct gramc_opts o = {.bytes_max = LIMIT_GRAMMAR_BYTES, .any_whitespace = true};
	struct errbuf err = {0};
	json_t *schema;
	int rc = ST_OK;

	strbuf_init(wire, LIMIT_GRAMMAR_BYTES);
	switch (c->kind) {
	case CASE_SCHEMA:
		schema = json_loads(c->source, 0, NULL);
		rc = gramc_schema(wire, schema, &o, &err);
		json_decref(schema);
		break;
	case CASE_OBJECT:
		rc = gramc_json_object(wire, &o, &err);
		break;
	case CASE_REGEX:
		rc = gramc_regex(wire, c->source, strlen(c->source), &o, &err);
		break;
	case CASE_EBNF:
		rc = gramc_ebnf(wire, c->source, strlen(c->source), &o, &err);
		break;
	}
	if (rc != ST_OK) maskbench_fail(err.text);
}

struct maskbench_time {
	double mean_us, max_us, start_us, append_us;
};

static struct maskbench_time maskbench_pass(struct masks *m, const struct strbuf *wire, const struct token_vec *v,
					    uint64_t *bits)
{
	struct maskbench_time time = {0};
	struct errbuf err = {0};
	struct mask_seq *s;
	uint64_t from = maskbench_now_ns(), sum = 0, appends = 0;
	uint32_t stop = 0;
	bool may_go_on;

	if (masks_start(m, wire->data, wire->len, NULL, 0, &s, &err) != ST_OK) maskbench_fail(err.text);
	time.start_us = (double)(maskbench_now_ns() - from) / 1e3;
	for (size_t i = 0; i < v->len; i++) {
		uint64_t ns;

		from = maskbench_now_ns();
		mask_fill(m, s, &stop, 1, 100000, bits, &may_go_on);
		ns = maskbench_now_ns() - from;
		sum += ns;
		if ((double)ns / 1e3 > time.max_us) time.max_us = (double)ns / 1e3;
		if (!(bits[v->ids[i] / 64] >> v->ids[i] % 64 & 1)) maskbench_fail("a token of the text is not allowed");
		from = maskbench_now_ns();
		mask_append(m, s, v->ids[i]);
		appends += maskbench_now_ns() - from;
	}
	masks_end(m, s);
	time.mean_us = (double)sum / 1e3 / (double)v->len;
	time.append_us = (double)appends / 1e3 / (double)v->len;
	return time;
}

static void maskbench_case(const struct maskbench_case *c, const struct gguf *g, const struct tokenizer *t, int rounds)
{
	struct tokbytes *bytes;
	struct maskbench_time cold, warm = {0};
	struct mask_stats stats;
	struct token_vec v;
	struct strbuf wire;
	struct masks *m;
	uint64_t *bits = mem_array(uint64_t, mask_words(tokenizer_vocab_size(t)));

	maskbench_compile(c, &wire);
	if (tokbytes_from_gguf(&bytes, g, NULL) != ST_OK) maskbench_fail("no vocabulary");
	token_vec_init(&v, SIZE_MAX);
	tokenizer_encode(t, c->text, strlen(c->text), false, &v);
	m = masks_new(bytes, 128 * MIB);
	cold = maskbench_pass(m, &wire, &v, bits);
	for (int i = 0; i < rounds; i++) warm = maskbench_pass(m, &wire, &v, bits);
	masks_stats(m, &stats);
	printf("%-24s %6zu bytes %4zu tokens   start %7.1f us   cold %7.1f us (most %7.1f)   warm %6.2f us (%8.0f/s)   "
	       "append %5.2f us   "
	       "kept %6.2f MiB\n",
	       c->name, wire.len, v.len, cold.start_us, cold.mean_us, cold.max_us, warm.mean_us, 1e6 / warm.mean_us,
	       warm.append_us, (double)stats.bytes / MIB);
	masks_free(m);
	token_vec_release(&v);
	strbuf_release(&wire);
	free(bits);
}

int main(int argc, char **argv)
{
	struct errbuf err = {0};
	struct tokenizer *t;
	struct tokbytes *bytes;
	struct masktrie trie;
	struct gguf *g;
	uint64_t from;

	if (argc < 2) maskbench_fail("MODEL [rounds]");
	if (gguf_open(&g, argv[1], &err) != ST_OK || tokenizer_from_gguf(&t, g, &err) != ST_OK ||
	    tokbytes_from_gguf(&bytes, g, &err) != ST_OK)
		maskbench_fail(err.text);
	from = maskbench_now_ns();
	masktrie_init(&trie, bytes);
	printf("%u tokens, %u trie nodes, %.1f MiB, made in %.1f ms; longest token %u bytes\n", bytes->n, trie.n,
	       (double)masktrie_bytes(&trie) / MIB, (double)(maskbench_now_ns() - from) / 1e6, trie.depth_max);
	masktrie_release(&trie);
	tokbytes_free(bytes);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) maskbench_case(&cases[i], g, t, argc > 2 ? atoi(argv[2]) : 20);
	tokenizer_free(t);
	gguf_close(g);
	return 0;
}
