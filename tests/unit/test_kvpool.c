/* test_kvpool.c - blocks are handed out, shared, cached, found and evicted in the documented order. */
#include "executor/kvpool.h"

#include "tests/support/leak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t *content(uint32_t first)
{
	static uint32_t tokens[KVPOOL_BLOCK];
	uint32_t i;

	for (i = 0; i < KVPOOL_BLOCK; i++) tokens[i] = first + i;
	return tokens;
}

static void expect_counts(const struct kvpool *p, uint32_t n_free, uint32_t n_cached, uint32_t n_used)
{
	assert_int_equal(p->n_free, n_free);
	assert_int_equal(p->n_cached, n_cached);
	assert_int_equal(p->n_used, n_used);
	assert_int_equal(kvpool_available(p), n_free + n_cached);
	kvpool_check(p);
}

static uint32_t take(struct kvpool *p)
{
	uint32_t b = KVPOOL_NONE;

	assert_int_equal(kvpool_alloc(p, &b), ST_OK);
	assert_true(kvpool_is_used(p, b));
	kvpool_check(p);
	return b;
}

static void blocks_come_in_order_and_run_out(void **state)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 4, 5, 16, 17, 100};
	struct kvpool p;
	uint32_t i, k, b;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		kvpool_init(&p, sizes[i], true);
		expect_counts(&p, sizes[i], 0, 0);
		for (k = 0; k < sizes[i]; k++) {
			assert_int_equal(take(&p), k);
			expect_counts(&p, sizes[i] - k - 1, 0, k + 1);
		}
		b = 77;
		assert_int_equal(kvpool_alloc(&p, &b), ST_AGAIN);
		assert_int_equal(b, 77);
		for (k = 0; k < sizes[i]; k++) {
			kvpool_unref(&p, k);
			assert_false(kvpool_is_used(&p, k));
			expect_counts(&p, k + 1, 0, sizes[i] - k - 1);
		}
		/* The last one given back comes first. */
		for (k = 0; k < sizes[i]; k++) assert_int_equal(take(&p), sizes[i] - k - 1);
		kvpool_release(&p);
		assert_null(p.blocks);
		assert_int_equal(p.n_blocks, 0);
	}
}

static void references_count(void **state)
{
	struct kvpool p;
	uint32_t b;

	kvpool_init(&p, 2, true);
	b = take(&p);
	kvpool_ref(&p, b);
	kvpool_ref(&p, b);
	expect_counts(&p, 1, 0, 1);
	kvpool_unref(&p, b);
	kvpool_unref(&p, b);
	assert_true(kvpool_is_used(&p, b));
	expect_counts(&p, 1, 0, 1);
	kvpool_unref(&p, b);
	assert_false(kvpool_is_used(&p, b));
	expect_counts(&p, 2, 0, 0);
	kvpool_release(&p);
}

static void published_content_is_found_while_used_and_cached(void **state)
{
	struct kvpool_chain root = kvpool_root("", 0), chain, chain2;
	struct kvpool p;
	uint32_t a, b;

	kvpool_init(&p, 4, true);
	a = take(&p);
	b = take(&p);
	assert_int_equal(kvpool_find(&p, root, content(1)), KVPOOL_NONE);
	chain = kvpool_publish(&p, a, root, content(1));
	chain2 = kvpool_publish(&p, b, chain, content(1)); /* equal tokens, another place */
	assert_int_equal(chain.lo, 1);
	assert_int_equal(chain.hi, 0);
	assert_int_equal(chain2.lo, 2);
	assert_int_equal(kvpool_chain(&p, b).lo, 2);
	assert_int_equal(kvpool_chain(&p, b).hi, 0);
	assert_int_equal(kvpool_find(&p, root, content(1)), a);
	assert_int_equal(kvpool_find(&p, chain, content(1)), b);
	assert_int_equal(kvpool_find(&p, chain2, content(1)), KVPOOL_NONE);
	assert_int_equal(kvpool_find(&p, root, content(2)), KVPOOL_NONE);
	expect_counts(&p, 2, 0, 2);
	kvpool_unref(&p, b);
	kvpool_unref(&p, a);
	expect_counts(&p, 2, 2, 0);
	assert_int_equal(kvpool_find(&p, root, content(1)), a);
	kvpool_ref(&p, a);
	expect_counts(&p, 2, 1, 1);
	kvpool_ref(&p, b);
	expect_counts(&p, 2, 0, 2);
	kvpool_release(&p);
}

static void salts_have_roots_of_their_own(void **state)
{
	static const char *const salts[] = {"", "a", "b", "ab"};
	struct kvpool p;
	uint32_t i, k, blocks[ARRAY_LEN(salts)];

	kvpool_init(&p, 8, true);
	for (i = 0; i < ARRAY_LEN(salts); i++) {
		struct kvpool_chain root = kvpool_root(salts[i], strlen(salts[i]));

		assert_int_equal(root.hi & 1, 1); /* never a block's chain */
		assert_int_equal(kvpool_find(&p, root, content(9)), KVPOOL_NONE);
		blocks[i] = take(&p);
		kvpool_publish(&p, blocks[i], root, content(9));
		for (k = 0; k <= i; k++)
			assert_int_equal(kvpool_find(&p, kvpool_root(salts[k], strlen(salts[k])), content(9)), blocks[k]);
	}
	/* Both halves of a root count. */
	assert_int_equal(kvpool_find(&p, (struct kvpool_chain){kvpool_root("a", 1).lo, kvpool_root("b", 1).hi}, content(9)),
			 KVPOOL_NONE);
	assert_int_equal(kvpool_find(&p, (struct kvpool_chain){kvpool_root("b", 1).lo, kvpool_root("a", 1).hi}, content(9)),
			 KVPOOL_NONE);
	kvpool_release(&p);
}

static void a_twin_stays_unpublished(void **state)
{
	struct kvpool_chain root = kvpool_root("", 0), chain;
	struct kvpool p;
	uint32_t a, b, c;

	kvpool_init(&p, 4, true);
	a = take(&p);
	b = take(&p);
	c = take(&p);
	kvpool_publish(&p, a, root, content(1));
	chain = kvpool_publish(&p, b, root, content(1));
	assert_int_equal(chain.lo, kvpool_chain(&p, a).lo); /* what follows b hangs on a */
	kvpool_publish(&p, c, chain, content(2));
	assert_int_equal(kvpool_find(&p, kvpool_chain(&p, a), content(2)), c);
	kvpool_unref(&p, b);
	expect_counts(&p, 2, 0, 2); /* free, not cached */
	kvpool_unref(&p, a);
	expect_counts(&p, 2, 1, 1);
	kvpool_release(&p);
}

static void the_least_recently_used_is_evicted(void **state)
{
	struct kvpool_chain root = kvpool_root("", 0);
	struct kvpool p;
	uint32_t i;

	kvpool_init(&p, 4, true);
	for (i = 0; i < 4; i++) kvpool_publish(&p, take(&p), root, content(100 * i));
	kvpool_unref(&p, 2);
	kvpool_unref(&p, 0);
	kvpool_unref(&p, 3);
	kvpool_unref(&p, 1);
	expect_counts(&p, 0, 4, 0);
	kvpool_ref(&p, 3); /* used from the middle and back: now the most recent */
	expect_counts(&p, 0, 3, 1);
	kvpool_unref(&p, 3);
	kvpool_ref(&p, 2); /* from the front */
	kvpool_unref(&p, 2);
	kvpool_ref(&p, 2); /* from the back */
	kvpool_unref(&p, 2);
	expect_counts(&p, 0, 4, 0);
	assert_int_equal(take(&p), 0);
	assert_int_equal(kvpool_find(&p, root, content(0)), KVPOOL_NONE);
	assert_int_equal(kvpool_find(&p, root, content(100)), 1);
	assert_int_equal(take(&p), 1);
	assert_int_equal(take(&p), 3);
	assert_int_equal(kvpool_find(&p, root, content(300)), KVPOOL_NONE);
	assert_int_equal(kvpool_find(&p, root, content(200)), 2);
	/* What is free goes first. */
	kvpool_unref(&p, 1);
	expect_counts(&p, 1, 1, 2);
	assert_int_equal(take(&p), 1);
	assert_int_equal(take(&p), 2);
	expect_counts(&p, 0, 0, 4);
	/* The number of evicted content does not come back. */
	kvpool_publish(&p, 0, root, content(0));
	assert_int_equal(kvpool_chain(&p, 0).lo, 5);
	kvpool_release(&p);
}

static void a_child_of_an_evicted_block_is_not_found(void **state)
{
	struct kvpool_chain root = kvpool_root("", 0), old;
	struct kvpool p;
	uint32_t a, b;

	kvpool_init(&p, 2, true);
	a = take(&p);
	b = take(&p);
	old = kvpool_publish(&p, a, root, content(1));
	kvpool_publish(&p, b, old, content(2));
	kvpool_unref(&p, a); /* in the wrong order: the parent goes first */
	assert_int_equal(take(&p), a);
	kvpool_publish(&p, a, root, content(1));
	assert_int_not_equal(kvpool_chain(&p, a).lo, old.lo);
	assert_int_equal(kvpool_find(&p, kvpool_chain(&p, a), content(2)), KVPOOL_NONE);
	kvpool_release(&p);
}

/* Few buckets, so that contents share them: tokens and parents are compared, removal works anywhere in a bucket. */
static void collisions_do_not_mix_contents(void **state)
{
	struct kvpool_chain root = kvpool_root("", 0), chains[64];
	struct kvpool p;
	uint32_t i, blocks[64];

	kvpool_init(&p, 64, true);
	p.n_buckets = 2;
	for (i = 0; i < 64; i++) {
		blocks[i] = take(&p);
		chains[i] = kvpool_publish(&p, blocks[i], i % 2 ? chains[i - 1] : root, content(i / 2 * 50));
		kvpool_check(&p);
	}
	for (i = 0; i < 64; i++) {
		assert_int_equal(kvpool_find(&p, i % 2 ? chains[i - 1] : root, content(i / 2 * 50)), blocks[i]);
		assert_int_equal(kvpool_find(&p, i % 2 ? chains[i - 1] : root, content(i / 2 * 50 + 1)), KVPOOL_NONE);
	}
	for (i = 0; i < 64; i++) kvpool_unref(&p, blocks[i * 29 % 64]);
	for (i = 0; i < 64; i++) {
		uint32_t k;

		assert_int_equal(take(&p), blocks[i * 29 % 64]);
		for (k = 0; k < 64; k++)
			if (k != i && p.blocks[blocks[k * 29 % 64]].serial)
				assert_int_equal(p.blocks[blocks[k * 29 % 64]].serial, chains[k * 29 % 64].lo);
	}
	expect_counts(&p, 0, 0, 64);
	kvpool_release(&p);
}

static void the_last_token_of_a_block_counts(void **state)
{
	struct kvpool_chain root = kvpool_root("", 0);
	uint32_t tokens[KVPOOL_BLOCK], i;
	struct kvpool p;

	kvpool_init(&p, 1, true); /* one bucket */
	memcpy(tokens, content(1), sizeof(tokens));
	kvpool_publish(&p, take(&p), root, tokens);
	for (i = 0; i < KVPOOL_BLOCK; i++) {
		tokens[i]++;
		assert_int_equal(kvpool_find(&p, root, tokens), KVPOOL_NONE);
		tokens[i]--;
	}
	assert_int_equal(kvpool_find(&p, root, tokens), 0);
	kvpool_release(&p);
}

static void without_a_cache_nothing_is_published(void **state)
{
	struct kvpool_chain root = kvpool_root("", 0), chain;
	struct kvpool p;
	uint32_t b;

	kvpool_init(&p, 2, false);
	b = take(&p);
	chain = kvpool_publish(&p, b, root, content(1));
	assert_int_equal(chain.lo, root.lo);
	assert_int_equal(chain.hi, root.hi);
	assert_int_equal(kvpool_find(&p, root, content(1)), KVPOOL_NONE);
	kvpool_unref(&p, b);
	expect_counts(&p, 2, 0, 0);
	kvpool_release(&p);
}

static void release_leaves_nothing(void **state)
{
	size_t before = leak_bytes_used();
	struct kvpool p;

	kvpool_init(&p, 1000, true);
	take(&p);
	kvpool_release(&p);
	assert_int_equal(leak_bytes_used(), before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_come_in_order_and_run_out),
		cmocka_unit_test(references_count),
		cmocka_unit_test(published_content_is_found_while_used_and_cached),
		cmocka_unit_test(salts_have_roots_of_their_own),
		cmocka_unit_test(a_twin_stays_unpublished),
		cmocka_unit_test(the_least_recently_used_is_evicted),
		cmocka_unit_test(a_child_of_an_evicted_block_is_not_found),
		cmocka_unit_test(collisions_do_not_mix_contents),
		cmocka_unit_test(the_last_token_of_a_block_counts),
		cmocka_unit_test(without_a_cache_nothing_is_published),
		cmocka_unit_test(release_leaves_nothing),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
