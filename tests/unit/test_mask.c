/* test_mask.c - masks against the plain reader of tests/support/gramwalk.h: random grammars, vocabularies and texts,
 * with caches of any size; and what happens at ends, dead ends, limits and preemption. */
#include "common/mem.h"
#include "proto/gram.h"
#include "proto/limits.h"
#include "tests/support/gramwalk.h"
#include "tests/support/leak.h"
#include "worker/mask.h"
#include "worker/masktrie.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

static uint32_t below(uint32_t n)
{
	return gramwalk_below(&seed, n);
}

/* ---- vocabularies ---- */

#define TOKENS_MAX    128
#define TOKEN_LEN_MAX 40
#define STOP_ID       0

/* Token 0 is the end; the others are added in the order in which they come. */
static struct tokbytes *vocab_new(void)
{
	struct tokbytes *t = mem_new(struct tokbytes);

	t->offs = mem_array(uint32_t, TOKENS_MAX + 1);
	t->kinds = mem_array(uint8_t, TOKENS_MAX);
	t->bytes = mem_array(char, TOKENS_MAX *TOKEN_LEN_MAX);
	return t;
}

static void vocab_add(struct tokbytes *t, const char *s, size_t len, enum tokbytes_kind kind)
{
	CHECK(t->n < TOKENS_MAX && len <= TOKEN_LEN_MAX);
	memcpy(t->bytes + t->offs[t->n], s, len);
	t->kinds[t->n] = (uint8_t)kind;
	t->offs[t->n + 1] = t->offs[t->n] + (uint32_t)len;
	t->n++;
}

static struct tokbytes *vocab_copy(const struct tokbytes *t)
{
	struct tokbytes *copy = vocab_new();

	for (uint32_t i = 0; i < t->n; i++) {
		size_t len;
		const char *s = tokbytes_of(t, i, &len);

		vocab_add(copy, s, len, t->kinds[i]);
	}
	return copy;
}

/* All single bytes of the alphabet, and random longer tokens, a few of them twice. */
static struct tokbytes *vocab_random(const char *alphabet)
{
	struct tokbytes *t = vocab_new();
	size_t n_letters = strlen(alphabet);
	char text[TOKEN_LEN_MAX];

	vocab_add(t, "<end>", 5, TOKBYTES_SPECIAL);
	vocab_add(t, "a", 1, TOKBYTES_SPECIAL);
	vocab_add(t, "", 0, TOKBYTES_PLAIN);
	vocab_add(t, "aa", 2, TOKBYTES_UNUSED);
	for (size_t i = 0; i < n_letters; i++) vocab_add(t, alphabet + i, 1, TOKBYTES_PLAIN);
	for (uint32_t n = 10 + below(80); n > 0; n--) {
		size_t len = 1 + below(below(3) ? 4 : 30), base = 0;

		if (t->n > 8 && below(2)) { /* the beginning of another one */
			const char *s = tokbytes_of(t, 4 + below(t->n - 4), &base);

			memcpy(text, s, base);
		}
		while (base < len) text[base++] = alphabet[below(below(2) ? 2 : (uint32_t)n_letters)];
		vocab_add(t, text, base, below(5) ? TOKBYTES_PLAIN : TOKBYTES_ADDED);
	}
	return t;
}

/* ---- grammars ---- */

static void random_edge(struct gramb *b, uint32_t n_rules, uint32_t from, uint32_t to, bool may_be_empty)
{
	static const uint32_t counts[] = {0, 1, 1, 1, 2, 3, 5, 10, 18, 25, 40};
	uint32_t kind = below(10), min, max;

	if (kind < 5) {
		uint8_t lo = (uint8_t)('a' + below(4));

		gramb_byte(b, from, lo, (uint8_t)(lo + below((uint32_t)('e' - lo))), to);
	} else if (kind < 6 && may_be_empty) {
		gramb_empty(b, from, to);
	} else {
		min = counts[below(ARRAY_LEN(counts))];
		max = below(3) ? counts[below(ARRAY_LEN(counts))] : GRAM_NO_END;
		if (max < min || max == 0) max = min ? min : 1;
		gramb_call(b, from, below(n_rules), min, max, to);
	}
}

/* False: it came out as one that is refused. */
static bool random_grammar(struct strbuf *wire)
{
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
	uint32_t n_rules = 1 + below(5), first[6];
	int rc;

	for (uint32_t r = 0; r < n_rules; r++) gramb_rule(b);
	for (uint32_t r = 0; r < n_rules; r++) {
		uint32_t n = 1 + below(4), end;

		for (uint32_t i = 0; i < n; i++) first[i] = i ? gramb_state(b, r) : gramb_start(b, r);
		end = gramb_state(b, r);
		gramb_final(b, end);
		for (uint32_t i = 0; i < n; i++)
			random_edge(b, n_rules, first[i], i + 1 < n ? first[i + 1] : end, i > 0);
		for (uint32_t extra = below(4); extra > 0; extra--)
			random_edge(b, n_rules, first[below(n)], below(3) ? end : first[below(n)], true);
		/* Something to read first makes most of them free of left recursion. */
		if (below(3) == 0) gramb_final(b, first[below(n)]);
	}
	strbuf_init(wire, LIMIT_GRAMMAR_BYTES);
	rc = gramb_finish(b, wire, NULL, NULL, NULL);
	gramb_free(b);
	if (rc != ST_OK) strbuf_release(wire);
	return rc == ST_OK;
}

/* ---- the comparison ---- */

#define WAYS_MAX 100 /* the plain reader becomes slow: outputs with more are given up */
#define OVER     UINT32_MAX

/* The mask as it should be. Returns the number of tokens besides the stop id; OVER. */
static uint32_t plain_mask(const struct gramwalk *w, const struct tokbytes *t, uint32_t n_left, uint64_t *bits)
{
	uint64_t left = gramwalk_left(w);

	for (int steered = left <= n_left; steered >= 0; steered--) {
		uint32_t n = 0;

		memset(bits, 0, mask_words(t->n) * sizeof(*bits));
		for (uint32_t i = 0; i < t->n; i++) {
			struct gramwalk next;
			size_t len;
			const char *s = tokbytes_of(t, i, &len);

			if (len == 0 || (t->kinds[i] != TOKBYTES_PLAIN && t->kinds[i] != TOKBYTES_ADDED)) continue;
			gramwalk_fork(&next, w);
			if (gramwalk_read(&next, s, len))
				if (!steered || next.is_whole || gramwalk_left(&next) <= n_left - 1) {
					bits[i / 64] |= 1ull << i % 64;
					n++;
				}
			if (next.is_over) {
				gramwalk_release(&next);
				return OVER;
			}
			gramwalk_release(&next);
		}
		if (n > 0 || w->is_whole || !steered) return n;
	}
	return 0;
}

struct engine_copy {
	struct masks *m;
	struct mask_seq *s;
};

static uint32_t pick(const uint64_t *bits, uint32_t vocab, uint32_t n)
{
	uint32_t k = below(n);

	for (uint32_t i = 0; i < vocab; i++)
		if (bits[i / 64] >> i % 64 & 1 && k-- == 0) return i;
	abort();
}

static void check_mask(struct engine_copy *e, const struct tokbytes *t, uint32_t n_left, const uint64_t *want,
		       uint32_t n_want, bool ends, const char *name)
{
	uint64_t got[TOKENS_MAX / 64];
	uint32_t stop = STOP_ID, n;
	bool may_go_on;

	n = mask_fill(e->m, e->s, &stop, 1, n_left, got, &may_go_on);
	for (uint32_t i = 0; i < t->n; i++) {
		bool in = got[i / 64] >> i % 64 & 1, should = i == STOP_ID ? ends : want[i / 64] >> i % 64 & 1;
		size_t len;
		const char *s = tokbytes_of(t, i, &len);

		if (in != should)
			fail_msg("%s: token %u \"%.*s\" is %s", name, i, (int)len, s, in ? "too much" : "missing");
	}
	assert_int_equal(n, n_want + ends);
	assert_int_equal(may_go_on, n_want > 0);
}

/* One random output. Returns its tokens. */
static uint32_t compare_one(const struct tokbytes *t, struct engine_copy *copies, size_t n_copies,
			    const struct strbuf *wire, const struct gram *g, uint32_t n_max)
{
	uint32_t output[200], n = 0;
	struct gramwalk w;
	uint64_t want[TOKENS_MAX / 64];
	bool can_end, over = false;

	gramwalk_init(&w, g);
	w.n_max = WAYS_MAX;
	can_end = gramwalk_left(&w) <= n_max;
	for (size_t i = 0; i < n_copies; i++)
		assert_int_equal(masks_start(copies[i].m, wire->data, wire->len, NULL, 0, &copies[i].s, NULL), ST_OK);
	while (n < n_max) {
		uint32_t n_want = plain_mask(&w, t, n_max - n, want), token;
		size_t len;
		const char *s;

		over = n_want == OVER;
		if (over) break;
		for (size_t i = 0; i < n_copies; i++)
			check_mask(&copies[i], t, n_max - n, want, n_want, w.is_whole,
				   i ? "little memory" : "much memory");
		if (n_want == 0 || (w.is_whole && below(8) == 0)) break;
		token = output[n++] = pick(want, t->n, n_want);
		s = tokbytes_of(t, token, &len);
		gramwalk_read(&w, s, len);
		for (size_t i = 0; i < n_copies; i++) mask_append(copies[i].m, copies[i].s, token);
		if (below(6) == 0) { /* preempted, and started again with its output */
			struct engine_copy *e = &copies[below((uint32_t)n_copies)];

			masks_end(e->m, e->s);
			assert_int_equal(masks_start(e->m, wire->data, wire->len, output, n, &e->s, NULL), ST_OK);
		}
	}
	/* Whoever has tokens enough gets a whole output. */
	if (can_end && !over) assert_true(w.is_whole);
	for (size_t i = 0; i < n_copies; i++) masks_end(copies[i].m, copies[i].s);
	gramwalk_release(&w);
	return n;
}

static void masks_are_those_of_the_plain_reader(void **state)
{
	uint64_t n_tokens = 0, n_grammars = 0;
	size_t before = leak_bytes_used();

	for (int round = 0; round < 60; round++) {
		struct tokbytes *t = vocab_random("abcde");
		/* Enough for everything; nothing is ever kept. */
		struct engine_copy copies[2] = {{.m = masks_new(vocab_copy(t), 64 * MIB)},
						{.m = masks_new(vocab_copy(t), 0)}};

		for (int tries = 0; tries < 100; tries++) {
			struct strbuf wire;
			struct gram *g;

			if (!random_grammar(&wire)) continue;
			assert_int_equal(gram_load(&g, wire.data, wire.len, NULL), ST_OK);
			for (int i = 0; i < 3; i++) n_tokens += compare_one(t, copies, 2, &wire, g, 1 + below(60));
			n_grammars++;
			gram_free(g);
			strbuf_release(&wire);
		}
		masks_free(copies[0].m);
		masks_free(copies[1].m);
		tokbytes_free(t);
	}
	if (n_grammars < 500 || n_tokens < 10000) fail_msg("only %lu grammars, %lu tokens", n_grammars, n_tokens);
	assert_int_equal(leak_bytes_used(), before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(masks_are_those_of_the_plain_reader),
	};

	leak_exact(argv);
	if (argc > 1) seed = strtoull(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
