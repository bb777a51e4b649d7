/* test_mask.c - masks against the plain reader of tests/support/gramwalk.h: random grammars, vocabularies and texts,
 * with caches of any size; and what happens at ends, dead ends, limits and preemption. */
#include "common/mem.h"
#include "proto/gram.h"
#include "proto/limits.h"
#include "tests/support/gramwalk.h"
#include "tests/support/leak.h"
#include "worker/mask.h"
#include "worker/maskplace.h"
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
	uint64_t left = gramwalk_left(w), kept = n_left > 1 && left < n_left ? 2 : 1; /* the next token and, with room for it, the stop id */

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
				if (!steered || next.is_whole || gramwalk_left(&next) <= n_left - kept) {
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

/* ---- ends, dead ends, limits ---- */

/* A grammar of the texts of a builder's rule 0. */
static struct strbuf finished(struct gramb *b)
{
	struct errbuf err = {0};
	struct strbuf wire;

	strbuf_init(&wire, LIMIT_GRAMMAR_BYTES);
	if (gramb_finish(b, &wire, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	gramb_free(b);
	return wire;
}

/* Rule 0 calls a rule of one byte lo..hi, min to max times. */
static struct strbuf counted(uint8_t lo, uint8_t hi, uint32_t min, uint32_t max)
{
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
	uint32_t root = gramb_rule(b), byte = gramb_rule(b), s = gramb_state(b, root);

	gramb_call(b, gramb_start(b, root), byte, min, max, s);
	gramb_final(b, s);
	s = gramb_state(b, byte);
	gramb_byte(b, gramb_start(b, byte), lo, hi, s);
	gramb_final(b, s);
	return finished(b);
}

static struct strbuf one_text(const char *text)
{
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);

	gramb_final(b, gramb_text(b, gramb_start(b, gramb_rule(b)), text, strlen(text)));
	return finished(b);
}

struct token_row {
	const char *text;
	enum tokbytes_kind kind;
};

/* 0 and 1 end an output; the rest is a few texts. */
static const struct token_row rows[] = {
	{"<end>", TOKBYTES_SPECIAL}, {"<eot>", TOKBYTES_SPECIAL}, {"a", TOKBYTES_PLAIN},       {"b", TOKBYTES_PLAIN},
	{"ab", TOKBYTES_PLAIN},      {"abc", TOKBYTES_ADDED},     {"a", TOKBYTES_UNUSED},      {"ab", TOKBYTES_SPECIAL},
	{"", TOKBYTES_PLAIN},        {"a", TOKBYTES_PLAIN},       {"<think>", TOKBYTES_ADDED}, {"c", TOKBYTES_PLAIN},
};
enum { END, EOT, A, B, AB, ABC, A_UNUSED, AB_SPECIAL, EMPTY, A_AGAIN, THINK, C };

static struct masks *row_masks(size_t bytes_max)
{
	struct tokbytes *t = vocab_new();

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) vocab_add(t, rows[i].text, strlen(rows[i].text), rows[i].kind);
	return masks_new(t, bytes_max);
}

static struct mask_seq *started(struct masks *m, struct strbuf *wire)
{
	struct errbuf err = {0};
	struct mask_seq *s;

	if (masks_start(m, wire->data, wire->len, NULL, 0, &s, &err) != ST_OK) fail_msg("%s", err.text);
	return s;
}

/* The mask of a place is exactly these tokens (a bit each). */
static void expect_mask(struct masks *m, struct mask_seq *s, const uint32_t *stop_ids, uint32_t n_stop, uint32_t n_left,
			uint64_t want, bool want_more)
{
	uint64_t bits[1] = {~0ull};
	bool may_go_on = !want_more;
	uint32_t n = mask_fill(m, s, stop_ids, n_stop, n_left, bits, &may_go_on);

	if (bits[0] != want) fail_msg("tokens %lx instead of %lx", bits[0], want);
	assert_int_equal(n, __builtin_popcountll(want));
	assert_int_equal(may_go_on, want_more);
}
#define BIT(i) (1ull << (i))

static void ends_and_control_tokens(void **state)
{
	static const uint32_t stop[] = {END, EOT}, plain_stop[] = {END, AB, 4000000000u};
	struct masks *m = row_masks(MIB);
	struct strbuf wire = counted('a', 'b', 1, 3);
	struct mask_seq *s = started(m, &wire);

	/* Not at the beginning: no end yet. Texts of one token in several ids are all of them. */
	expect_mask(m, s, stop, 2, 100, BIT(A) | BIT(A_AGAIN) | BIT(B) | BIT(AB), true);
	mask_append(m, s, AB);
	expect_mask(m, s, stop, 2, 100, BIT(END) | BIT(EOT) | BIT(A) | BIT(A_AGAIN) | BIT(B), true);
	expect_mask(m, s, NULL, 0, 100, BIT(A) | BIT(A_AGAIN) | BIT(B), true);
	/* A stop id that is text, too, is for the end. */
	mask_append(m, s, END);
	expect_mask(m, s, plain_stop, 3, 100, BIT(END) | BIT(AB) | BIT(A) | BIT(A_AGAIN) | BIT(B), true);
	mask_append(m, s, A);
	expect_mask(m, s, stop, 2, 100, BIT(END) | BIT(EOT), false);
	expect_mask(m, s, NULL, 0, 100, 0, false); /* all is said */
	mask_append(m, s, EOT);
	expect_mask(m, s, stop, 1, 100, BIT(END), false);
	masks_end(m, s);

	/* Where it may not end, a stop id that is text is not drawn: the output would end there. */
	s = started(m, &wire);
	expect_mask(m, s, plain_stop, 3, 100, BIT(A) | BIT(A_AGAIN) | BIT(B), true);
	masks_end(m, s);
	strbuf_release(&wire);
	masks_free(m);
}

static void added_tokens_are_text(void **state)
{
	struct masks *m = row_masks(MIB);
	struct strbuf wire = one_text("abc<think>");
	struct mask_seq *s = started(m, &wire);

	expect_mask(m, s, NULL, 0, 100, BIT(A) | BIT(A_AGAIN) | BIT(AB) | BIT(ABC), true);
	mask_append(m, s, ABC);
	expect_mask(m, s, NULL, 0, 100, BIT(THINK), true);
	masks_end(m, s);
	strbuf_release(&wire);
	masks_free(m);
}

static void other_tokens_lead_to_a_dead_end(void **state)
{
	static const uint32_t foreign[] = {B, END, A_UNUSED, AB_SPECIAL, EMPTY, THINK, 4000000000u};
	static const uint32_t stop[] = {END};
	struct masks *m = row_masks(MIB);
	struct strbuf wire = one_text("aa");

	for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
		struct mask_seq *s = started(m, &wire), *again;
		struct errbuf err = {0};

		mask_append(m, s, A);
		mask_append(m, s, foreign[i]);
		expect_mask(m, s, stop, 1, 100, 0, false);
		mask_append(m, s, A); /* nothing brings it back */
		expect_mask(m, s, stop, 1, 100, 0, false);
		masks_end(m, s);
		/* The same as output of a request that comes again: it is not what the grammar would have given. */
		assert_int_equal(masks_start(m, wire.data, wire.len, (uint32_t[]){A, foreign[i]}, 2, &again, &err),
				 ST_CORRUPT);
		assert_null(again);
		assert_non_null(strstr(err.text, "output token 1, "));
	}
	strbuf_release(&wire);
	masks_free(m);
}

static void bad_grammars_are_refused(void **state)
{
	struct masks *m = row_masks(MIB);
	struct errbuf err = {0};
	struct mask_stats stats;
	struct mask_seq *s;

	assert_int_equal(masks_start(m, "not a grammar, I fear", 21, NULL, 0, &s, &err), ST_CORRUPT);
	assert_null(s);
	masks_stats(m, &stats);
	assert_int_equal(stats.n_grammars, 0);
	masks_free(m);
}

static void outputs_are_steered_to_their_end(void **state)
{
	/* At least four of a and b, at most nine: with n tokens left, after a token at most n - 1 bytes may be missing.
	 */
	struct masks *m = row_masks(MIB);
	struct strbuf wire = counted('a', 'b', 4, 9);
	struct mask_seq *s = started(m, &wire);
	uint64_t all = BIT(A) | BIT(A_AGAIN) | BIT(B) | BIT(AB);

	expect_mask(m, s, NULL, 0, 4, all, true);
	mask_append(m, s, A);
	expect_mask(m, s, NULL, 0, 3, all, true);
	mask_append(m, s, B);
	mask_append(m, s, A);
	expect_mask(m, s, NULL, 0, 1, all, true);
	masks_end(m, s);
	/* Two tokens for four bytes: only the pair leaves few enough... but a byte each is what is counted on: out of
	 * reach, no steering. */
	s = started(m, &wire);
	expect_mask(m, s, NULL, 0, 3, all, true);
	expect_mask(m, s, NULL, 0, 0, all, true);
	masks_end(m, s);
	strbuf_release(&wire);

	/* "a" then "b" then the end, or "c" and then a long way. */
	{
		struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
		uint32_t root = gramb_rule(b), at = gramb_start(b, root);

		gramb_final(b, gramb_text(b, at, "ab", 2));
		gramb_final(b, gramb_text(b, at, "caaaaaaa", 8));
		wire = finished(b);
	}
	s = started(m, &wire);
	expect_mask(m, s, NULL, 0, 8, BIT(A) | BIT(A_AGAIN) | BIT(AB) | BIT(C), true);
	expect_mask(m, s, NULL, 0, 7, BIT(A) | BIT(A_AGAIN) | BIT(AB), true);
	/* A stop id takes one more. */
	expect_mask(m, s, (const uint32_t[]){STOP_ID}, 1, 9, BIT(A) | BIT(A_AGAIN) | BIT(AB) | BIT(C), true);
	expect_mask(m, s, (const uint32_t[]){STOP_ID}, 1, 8, BIT(A) | BIT(A_AGAIN) | BIT(AB), true);
	expect_mask(m, s, (const uint32_t[]){STOP_ID}, 1, 2, BIT(A) | BIT(A_AGAIN) | BIT(AB), true);
	expect_mask(m, s, NULL, 0, 2, BIT(A) | BIT(A_AGAIN) | BIT(AB), true);
	expect_mask(m, s, NULL, 0, 1, BIT(A) | BIT(A_AGAIN) | BIT(AB) | BIT(C), true); /* too late */
	masks_end(m, s);
	strbuf_release(&wire);
	masks_free(m);
}

/* The shortest way needs a byte that no token is: any way is better than none. */
static void a_vocabulary_without_a_byte(void **state)
{
	struct masks *m = row_masks(MIB);
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
	uint32_t root = gramb_rule(b), at = gramb_start(b, root);
	struct strbuf wire;
	struct mask_seq *s;

	gramb_final(b, gramb_text(b, at, "x", 1));
	gramb_final(b, gramb_text(b, at, "abcabcabc", 9));
	wire = finished(b);
	s = started(m, &wire);
	expect_mask(m, s, NULL, 0, 3, BIT(A) | BIT(A_AGAIN) | BIT(AB) | BIT(ABC), true);
	masks_end(m, s);
	strbuf_release(&wire);
	masks_free(m);
}

/* ---- what it costs ---- */

static uint64_t walks(const struct masks *m)
{
	struct mask_stats stats;

	masks_stats(m, &stats);
	return stats.n_walks;
}

static void far_counts_share_their_masks(void **state)
{
	struct masks *m = row_masks(16 * MIB);
	struct strbuf wire = counted('a', 'c', 1000, 4000);
	struct mask_seq *s = started(m, &wire);
	uint32_t stop = END;
	uint64_t all = BIT(A) | BIT(A_AGAIN) | BIT(B) | BIT(AB) | BIT(ABC) | BIT(C);

	for (uint32_t i = 0; i < 3990; i++) {
		expect_mask(m, s, &stop, 1, 1 << 20, i < 1000 ? all : all | BIT(END), true);
		mask_append(m, s, A);
	}
	/* Of 3,990 places those near 1,000 are told apart, and that a count is far off is found out a few times. */
	assert_true(walks(m) < 40);
	for (uint32_t i = 3990; i < 4000; i++) mask_append(m, s, B);
	expect_mask(m, s, &stop, 1, 100, BIT(END), false);
	masks_end(m, s);
	strbuf_release(&wire);
	masks_free(m);
}

static void strings_in_different_places_share_their_walks(void **state)
{
	/* "<" x* ">" as a rule that is called from twenty places, each behind another text. */
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
	uint32_t root = gramb_rule(b), at = gramb_start(b, root), string = gramb_rule(b), s1;
	struct masks *m = row_masks(16 * MIB);
	struct strbuf wire;
	struct mask_seq *s;

	s1 = gramb_state(b, string);
	gramb_byte(b, gramb_start(b, string), 'a', 'a', s1);
	gramb_byte(b, s1, 'b', 'b', s1);
	gramb_final(b, gramb_text(b, s1, "c", 1));
	for (int i = 0; i < 20; i++) {
		uint32_t next = gramb_state(b, root);

		gramb_call(b, at, string, 1, 1, next);
		at = gramb_text(b, next, i % 2 ? "a" : "b", 1);
	}
	gramb_final(b, at);
	wire = finished(b);
	s = started(m, &wire);
	for (int i = 0; i < 20; i++) {
		uint64_t kept;

		mask_append(m, s, A);
		kept = walks(m);
		expect_mask(m, s, NULL, 0, 1000, BIT(B) | BIT(C), true);
		if (i > 1) assert_true(walks(m) - kept <= 1); /* only what goes on behind the string */
		mask_append(m, s, C);
		mask_append(m, s, i % 2 ? A : B);
	}
	masks_end(m, s);
	strbuf_release(&wire);
	masks_free(m);
}

static void calls_in_last_position_leave_no_frames(void **state)
{
	/* text: "a" text | "b" - right recursion, which reads a million bytes with what it had for the first. */
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
	uint32_t root = gramb_rule(b), end = gramb_state(b, root);
	struct maskscratch x = {0};
	struct maskframes frames;
	struct maskplace p = {0};
	struct strbuf wire;
	struct gram *g;

	gramb_final(b, end);
	gramb_byte(b, gramb_start(b, root), 'b', 'b', end);
	gramb_call(b, gramb_text(b, gramb_start(b, root), "a", 1), root, 1, 1, end);
	wire = finished(b);
	assert_int_equal(gram_load(&g, wire.data, wire.len, NULL), ST_OK);
	maskframes_init(&frames, g);
	maskplace_start(&p, &frames, &x);
	for (int i = 0; i < 1000000; i++) maskplace_read(&p, p.ways, p.n, &frames, &x, 'a');
	assert_int_equal(p.n, 1);
	assert_int_equal(frames.n, 1);
	maskplace_read(&p, p.ways, p.n, &frames, &x, 'b');
	assert_true(p.ends);
	maskplace_release(&p);
	maskframes_release(&frames);
	maskscratch_release(&x);
	gram_free(g);
	strbuf_release(&wire);
}

/* ---- bounds ---- */

static void nesting_is_bounded(void **state)
{
	/* list: "a" list "b" | "c" */
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
	uint32_t root = gramb_rule(b), s1 = gramb_state(b, root), stop = END, n;
	struct masks *m = row_masks(16 * MIB);
	struct strbuf wire;
	struct mask_seq *s;

	gramb_final(b, gramb_text(b, gramb_start(b, root), "c", 1));
	gramb_call(b, gramb_text(b, gramb_start(b, root), "a", 1), root, 1, 1, s1);
	gramb_final(b, gramb_text(b, s1, "b", 1));
	wire = finished(b);
	s = started(m, &wire);
	for (n = 0; n < MASKPLACE_DEPTH_MAX; n++) mask_append(m, s, A);
	expect_mask(m, s, &stop, 1, 1 << 20, BIT(A) | BIT(A_AGAIN) | BIT(C), true);
	mask_append(m, s, C);
	for (n = 0; n < MASKPLACE_DEPTH_MAX; n++) mask_append(m, s, B);
	expect_mask(m, s, &stop, 1, 1 << 20, BIT(END), false);
	masks_end(m, s);
	s = started(m, &wire);
	for (n = 0; n < MASKPLACE_DEPTH_MAX + 1; n++) mask_append(m, s, A);
	expect_mask(m, s, &stop, 1, 1 << 20, 0, false);
	masks_end(m, s);
	strbuf_release(&wire);
	masks_free(m);
}

/* A root that calls n rules, which all begin with "a". */
static struct strbuf ambiguous(uint32_t n)
{
	struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
	uint32_t root = gramb_rule(b), end = gramb_state(b, root);

	gramb_final(b, end);
	for (uint32_t i = 0; i < n; i++) gramb_empty(b, gramb_text(b, gramb_start(b, root), "ab", 2), end);
	return finished(b);
}

static void ambiguity_is_bounded(void **state)
{
	struct masks *m = row_masks(16 * MIB);
	struct strbuf wire = ambiguous(MASKPLACE_WAYS_MAX);
	struct errbuf err = {0};
	struct mask_seq *s = started(m, &wire);

	expect_mask(m, s, NULL, 0, 100, BIT(A) | BIT(A_AGAIN) | BIT(AB), true);
	mask_append(m, s, A); /* all ways at once */
	expect_mask(m, s, NULL, 0, 100, BIT(B), true);
	masks_end(m, s);
	strbuf_release(&wire);

	/* One more is too many, wherever it is met. */
	wire = ambiguous(MASKPLACE_WAYS_MAX + 1);
	s = started(m, &wire);
	expect_mask(m, s, NULL, 0, 100, 0, false);
	masks_end(m, s);
	strbuf_release(&wire);
	{
		struct gramb *b = gramb_new(LIMIT_GRAMMAR_BYTES);
		uint32_t root = gramb_rule(b), end = gramb_state(b, root);

		gramb_final(b, end);
		for (uint32_t i = 0; i <= MASKPLACE_WAYS_MAX; i++) {
			uint32_t at = gramb_state(b, root);

			gramb_empty(b, gramb_start(b, root), at);
			gramb_empty(b, gramb_text(b, at, "ab", 2), end);
			gramb_byte(b, at, 'a', 'a', end);
		}
		wire = finished(b);
	}
	assert_int_equal(masks_start(m, wire.data, wire.len, NULL, 0, &s, &err), ST_LIMIT);
	assert_non_null(strstr(err.text, "begins in more than"));
	strbuf_release(&wire);
	masks_free(m);
}

static void memory_is_bounded(void **state)
{
	size_t bytes_max = 200 * KIB, before = leak_bytes_used();
	struct masks *m = row_masks(bytes_max);
	struct strbuf first = counted('a', 'b', 1, 2);
	struct mask_seq *kept = started(m, &first);
	struct mask_stats stats;
	uint64_t most = 0;

	for (uint32_t i = 0; i < 3000; i++) {
		struct strbuf wire = counted('a', (uint8_t)('b' + i % 100), i % 7, 10 + i);
		struct mask_seq *s = started(m, &wire);

		expect_mask(m, s, NULL, 0, 100000,
			    BIT(A) | BIT(A_AGAIN) | BIT(B) | BIT(AB) | (i % 100 ? BIT(C) | BIT(ABC) : 0), true);
		masks_stats(m, &stats);
		assert_true(stats.bytes <= bytes_max);
		most = max_u64(most, stats.n_grammars);
		masks_end(m, s);
		strbuf_release(&wire);
	}
	assert_true(most > 10); /* those that are not used stay while there is room */
	expect_mask(m, kept, NULL, 0, 100, BIT(A) | BIT(A_AGAIN) | BIT(B) | BIT(AB), true);
	masks_end(m, kept);
	strbuf_release(&first);
	masks_free(m);
	assert_int_equal(leak_bytes_used(), before);
}

static void the_same_bytes_are_one_grammar(void **state)
{
	struct masks *m = row_masks(MIB);
	struct strbuf one = one_text("ab"), other = one_text("ac");
	struct mask_seq *s[3] = {started(m, &one), started(m, &one), started(m, &other)};
	struct mask_stats stats;

	masks_stats(m, &stats);
	assert_int_equal(stats.n_grammars, 2);
	mask_append(m, s[0], A);
	expect_mask(m, s[0], NULL, 0, 10, BIT(B), true);
	expect_mask(m, s[1], NULL, 0, 10, BIT(A) | BIT(A_AGAIN) | BIT(AB), true);
	for (int i = 0; i < 3; i++) masks_end(m, s[i]);
	strbuf_release(&one);
	strbuf_release(&other);
	masks_free(m);
}

/* ---- the trie ---- */

static void the_trie_has_every_text(void **state)
{
	for (int round = 0; round < 50; round++) {
		struct tokbytes *t = vocab_random("abc");
		struct masktrie trie;
		uint32_t n_seen = 0, n_text = 0;
		char path[TOKEN_LEN_MAX];

		masktrie_init(&trie, t);
		for (uint32_t i = 1; i < trie.n; i++) {
			const struct masktrie_node *node = &trie.nodes[i];
			uint16_t deepest = node->depth;

			path[node->depth - 1] = (char)node->byte;
			assert_true(node->skip > i && node->skip <= trie.n);
			for (uint32_t k = i + 1; k < node->skip; k++) {
				assert_true(trie.nodes[k].depth > node->depth);
				deepest = trie.nodes[k].depth > deepest ? trie.nodes[k].depth : deepest;
			}
			assert_int_equal(node->deepest, deepest);
			if (node->skip < trie.n) assert_true(trie.nodes[node->skip].depth <= node->depth);
			for (uint32_t k = node->tokens; k < trie.nodes[i + 1].tokens; k++, n_seen++) {
				size_t len;
				const char *s = tokbytes_of(t, trie.ids[k], &len);

				assert_int_equal(len, node->depth);
				assert_memory_equal(s, path, len);
				assert_true(t->kinds[trie.ids[k]] == TOKBYTES_PLAIN ||
					    t->kinds[trie.ids[k]] == TOKBYTES_ADDED);
			}
		}
		for (uint32_t i = 0; i < t->n; i++)
			n_text += (t->kinds[i] == TOKBYTES_PLAIN || t->kinds[i] == TOKBYTES_ADDED) &&
				  t->offs[i + 1] > t->offs[i];
		assert_int_equal(n_seen, n_text);
		masktrie_release(&trie);
		tokbytes_free(t);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(masks_are_those_of_the_plain_reader),
		cmocka_unit_test(ends_and_control_tokens),
		cmocka_unit_test(added_tokens_are_text),
		cmocka_unit_test(other_tokens_lead_to_a_dead_end),
		cmocka_unit_test(bad_grammars_are_refused),
		cmocka_unit_test(outputs_are_steered_to_their_end),
		cmocka_unit_test(a_vocabulary_without_a_byte),
		cmocka_unit_test(far_counts_share_their_masks),
		cmocka_unit_test(strings_in_different_places_share_their_walks),
		cmocka_unit_test(calls_in_last_position_leave_no_frames),
		cmocka_unit_test(nesting_is_bounded),
		cmocka_unit_test(ambiguity_is_bounded),
		cmocka_unit_test(memory_is_bounded),
		cmocka_unit_test(the_same_bytes_are_one_grammar),
		cmocka_unit_test(the_trie_has_every_text),
	};

	leak_exact(argv);
	if (argc > 1) seed = strtoull(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
