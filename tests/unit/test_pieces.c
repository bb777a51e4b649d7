/* test_pieces.c - what a choice has said: neighbours join, calls keep their arguments, ids are ids. */
#include "frontend/pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* All pieces in one line: kind, the call's number, text. */
static void expect(const struct pieces *p, const char *want)
{
	char got[1024] = "";
	size_t i, n = 0;

	for (i = 0; i < p->n; i++) {
		const struct piece *x = &p->list[i];
		bool of_call = x->kind == PIECE_CALL || x->kind == PIECE_ARGS;

		n += (size_t)snprintf(got + n, sizeof(got) - n, "%s%c", i ? " " : "", "trca"[x->kind]);
		if (of_call) n += (size_t)snprintf(got + n, sizeof(got) - n, "%u", x->call);
		n += (size_t)snprintf(got + n, sizeof(got) - n, ":%.*s", (int)x->text.len, x->text.data);
		assert_int_equal(strlen(x->id), x->kind == PIECE_CALL ? PIECES_ID_LEN : 0);
	}
	assert_string_equal(got, want);
}

static void test_neighbours_join(void **state)
{
	struct pieces p;

	pieces_init(&p);
	expect(&p, "");
	pieces_text(&p, "", 0);
	pieces_reasoning(&p, NULL, 0);
	expect(&p, "");
	assert_int_equal(pieces_bytes(&p), 0);
	pieces_reasoning(&p, "h", 1);
	pieces_reasoning(&p, "m", 1);
	pieces_text(&p, "a", 1);
	pieces_text(&p, "", 0);
	pieces_text(&p, "b\0c", 3);
	pieces_reasoning(&p, "x", 1);
	assert_int_equal(pieces_bytes(&p), 7);
	assert_int_equal(p.n, 3);
	assert_memory_equal(p.list[1].text.data, "ab\0c", 4);
	pieces_release(&p);
}

static void test_calls(void **state)
{
	struct pieces p;

	pieces_init(&p);
	pieces_args(&p, "{}", 2); /* of no call */
	expect(&p, "");
	assert_true(pieces_call(&p, "f", 1, 1));
	pieces_args(&p, "{\"a\"", 4);
	pieces_args(&p, "", 0);
	pieces_args(&p, ":1}", 3);
	assert_true(pieces_call(&p, "g", 1, 2));
	assert_true(pieces_call(&p, "g", 1, 3)); /* two calls are never one piece */
	pieces_args(&p, "{", 1);
	pieces_text(&p, "x", 1);
	pieces_args(&p, "}", 1);
	expect(&p, "c0:f a0:{\"a\":1} c1:g c2:g a2:{ t:x a2:}");
	pieces_release(&p);
}

/* Taken in between: numbers go on, and arguments still belong to their call. */
static void test_reset(void **state)
{
	struct pieces p;

	pieces_init(&p);
	assert_true(pieces_call(&p, "f", 1, 1));
	pieces_args(&p, "{", 1);
	pieces_reset(&p);
	expect(&p, "");
	assert_int_equal(pieces_bytes(&p), 0);
	pieces_args(&p, "}", 1);
	assert_true(pieces_call(&p, "g", 1, 1));
	expect(&p, "a0:} c1:g");
	pieces_release(&p);
}

static void test_drop(void **state)
{
	struct pieces p;

	pieces_init(&p);
	pieces_reasoning(&p, "r", 1);
	pieces_text(&p, "a", 1);
	pieces_reasoning(&p, "s", 1);
	pieces_text(&p, "b", 1);
	pieces_drop(&p, PIECE_REASONING);
	expect(&p, "t:a t:b");
	pieces_drop(&p, PIECE_TEXT);
	expect(&p, "");
	pieces_drop(&p, PIECE_TEXT);
	pieces_release(&p);
}

static void test_limit(void **state)
{
	struct pieces p;
	int i;

	pieces_init(&p);
	for (i = 0; i < PIECES_CALLS_MAX; i++) assert_true(pieces_call(&p, "f", 1, (uint64_t)i));
	pieces_reset(&p);
	assert_false(pieces_call(&p, "f", 1, 1));
	expect(&p, "");
	pieces_release(&p);
}

/* Letters and digits, the same for the same number, different ones for near numbers. */
static void test_ids(void **state)
{
	char ids[200][PIECES_ID_LEN + 1];
	struct pieces p;
	int i, k;

	for (i = 0; i < 200; i++) {
		pieces_init(&p);
		assert_true(pieces_call(&p, "f", 1, (uint64_t)i / 2));
		strcpy(ids[i], p.list[0].id);
		pieces_release(&p);
		assert_memory_equal(ids[i], "call_", 5);
		for (k = 5; k < PIECES_ID_LEN; k++) assert_true((ids[i][k] >= '0' && ids[i][k] <= '9') || ((ids[i][k] | 32) >= 'a' && (ids[i][k] | 32) <= 'z'));
		for (k = 0; k < i; k++) assert_int_equal(strcmp(ids[i], ids[k]) == 0, k / 2 == i / 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_neighbours_join),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
