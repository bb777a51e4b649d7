/* fuzz_gram.c - any bytes as a grammar: refused, or one whose masks are those of the plain reader
 * (tests/support/gramwalk.h) on a random walk, with caches that keep everything and ones that keep nothing.
 *
 * The bytes' sum chooses the walk. Grammars that need long outputs or are too ambiguous for the plain reader are only
 * loaded. Seeds: corpus/gram, grammars of frontend/gramc.h's kinds. */
#include "common/mem.h"
#include "proto/gram.h"
#include "tests/support/gramwalk.h"
#include "worker/mask.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 512
#define WAYS_MAX   64
#define STEPS_MAX  12
#define N_LEFT     40 /* output tokens */
#define STOP_ID    0

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const words[] = {"\"",
				    "\": ",
				    "\", \"",
				    "{\"",
				    "\"}",
				    "}}",
				    "]]",
				    ", ",
				    "true",
				    "false",
				    "null",
				    "name",
				    "12",
				    "34.5",
				    "-1",
				    "e+10",
				    "\\u00",
				    "\\\"",
				    "\xe2\x82\xac",
				    "\xf0\x9f\x98\x80",
				    "\xe2\x82",
				    "    ",
				    "aaaaaaaaaaaaaaaaaaaa",
				    "abababababababababababab",
				    "the end of a long token with spaces"};

/* The end, all single bytes, and some words. */
static struct tokbytes *vocab(void)
{
	struct tokbytes *t = mem_new(struct tokbytes);
	uint32_t at = 0;

	t->offs = mem_array(uint32_t, TOKENS_MAX);
	t->kinds = mem_array(uint8_t, TOKENS_MAX);
	t->bytes = mem_array(char, 4096);
	t->kinds[t->n++] = TOKBYTES_SPECIAL;
	for (unsigned b = 0; b < 256; b++) {
		t->offs[t->n++] = at;
		t->bytes[at++] = (char)b;
	}
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		t->offs[t->n++] = at;
		memcpy(t->bytes + at, words[i], strlen(words[i]));
		at += (uint32_t)strlen(words[i]);
	}
	t->offs[t->n] = at;
	return t;
}

/* Should the token be allowed? -1: too ambiguous to say. */
static int plain_allows(const struct gramwalk *w, const char *s, size_t len, uint64_t cost_max)
{
	struct gramwalk next;
	int allowed;

	gramwalk_fork(&next, w);
	allowed = gramwalk_read(&next, s, len) && gramwalk_left(&next) <= cost_max;
	if (next.is_over) allowed = -1;
	gramwalk_release(&next);
	return allowed;
}

struct side {
	struct masks *m;
	struct mask_seq *s;
	uint64_t bits[TOKENS_MAX / 64];
	uint32_t n;
};

/* Compares the masks of a place. False: the plain reader cannot go on. */
static bool compare(const struct gramwalk *w, struct side *sides, const struct tokbytes *t, uint32_t n_left)
{
	uint64_t left = gramwalk_left(w), cost_max = left <= n_left ? n_left - 1 : UINT64_MAX - 1;
	uint32_t stop = STOP_ID, n = 0;
	bool may_go_on;

	if (n_left > 1 && left < n_left) cost_max = n_left - 2; /* one is kept for the stop id */
	for (int i = 0; i < 2; i++)
		sides[i].n = mask_fill(sides[i].m, sides[i].s, &stop, 1, n_left, sides[i].bits, &may_go_on);
	CHECK(memcmp(sides[0].bits, sides[1].bits, mask_words(t->n) * sizeof(uint64_t)) == 0);
	for (uint32_t id = 0; id < t->n; id++) {
		size_t len;
		const char *s = tokbytes_of(t, id, &len);
		int want = id == STOP_ID ? w->is_whole : plain_allows(w, s, len, cost_max);

		if (want < 0) return false;
		CHECK((int)(sides[0].bits[id / 64] >> id % 64 & 1) == want);
		n += (uint32_t)want;
	}
	CHECK(n == sides[0].n && n > 0);
	return true;
}

static void walk(const struct gram *g, const uint8_t *data, size_t size, struct side *sides, const struct tokbytes *t)
{
	struct gramwalk w;
	uint64_t seed = size;

	for (size_t i = 0; i < size; i++) seed = seed * 31 + data[i];
	gramwalk_init(&w, g);
	w.n_max = WAYS_MAX;
	for (uint32_t step = 0; step < STEPS_MAX && w.n <= WAYS_MAX; step++) {
		uint32_t k, token = 0;
		const char *s;
		size_t len;

		if (!compare(&w, sides, t, N_LEFT - step)) break;
		k = gramwalk_below(&seed, sides[0].n);
		while (!(sides[0].bits[token / 64] >> token % 64 & 1) || k-- > 0) token++;
		if (token == STOP_ID) break;
		s = tokbytes_of(t, token, &len);
		CHECK(gramwalk_read(&w, s, len));
		for (int i = 0; i < 2; i++) mask_append(sides[i].m, sides[i].s, token);
	}
	gramwalk_release(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t bytes_max[2] = {64 * MIB, 0};
	struct side sides[2] = {0};
	struct errbuf err = {0};
	struct tokbytes *t;
	struct gram *g;
	int rc[2];

	if (gram_load(&g, data, size, &err) != ST_OK) {
		CHECK(err.text[0]);
		return 0;
	}
	t = vocab();
	for (int i = 0; i < 2; i++) {
		sides[i].m = masks_new(vocab(), bytes_max[i]);
		rc[i] = masks_start(sides[i].m, data, size, NULL, 0, &sides[i].s, &err);
	}
	CHECK(rc[0] == rc[1] && (rc[0] == ST_OK || rc[0] == ST_LIMIT));
	if (rc[0] == ST_OK && g->state_min[g->rule_start[0]] < N_LEFT) walk(g, data, size, sides, t);
	for (int i = 0; i < 2; i++) {
		if (sides[i].s) masks_end(sides[i].m, sides[i].s);
		masks_free(sides[i].m);
	}
	tokbytes_free(t);
	gram_free(g);
	return 0;
}
