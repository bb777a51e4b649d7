/* test_bpe.c - merging with the queue against the plain way, over random merges and words. */
#include "common/mem.h"
#include "frontend/bpe.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static uint32_t seed = 12345;

static uint32_t next_random(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

#define LETTERS    4
#define TOKENS_MAX 400
#define MERGES_MAX 800

/* Random tokens over a few letters, and for random ones of them every way to join two tokens to it, in any order: also
 * merges whose parts come later than they do, which no trained vocabulary has but a file may. */
struct random_bpe {
	char texts[TOKENS_MAX][24], merge_texts[MERGES_MAX][50];
	struct gguf_str tokens[TOKENS_MAX];
	struct vocab_merge merges[MERGES_MAX];
	struct vocab_lists l;
	struct vocab vocab;
	struct bpe bpe;
};

static bool known(const struct random_bpe *r, const char *text)
{
	for (size_t i = 0; i < r->l.n_tokens; i++)
		if (strcmp(r->texts[i], text) == 0) return true;
	return false;
}

static void random_init(struct random_bpe *r)
{
	struct vocab_index index;
	struct errbuf err = {0};

	memset(r, 0, sizeof(*r));
	r->l = (struct vocab_lists){.file = "random", .tokens = r->tokens, .merges = r->merges};
	for (int i = 0; i < LETTERS; i++) r->texts[r->l.n_tokens++][0] = (char)('a' + i);
	for (int tries = 0; tries < 3000 && r->l.n_tokens < TOKENS_MAX && r->l.n_merges < MERGES_MAX; tries++) {
		char left[24], right[24], joined[50];

		memcpy(left, r->texts[next_random((uint32_t)r->l.n_tokens)], sizeof(left));
		memcpy(right, r->texts[next_random((uint32_t)r->l.n_tokens)], sizeof(right));
		snprintf(joined, sizeof(joined), "%s%s", left, right);
		if (strlen(joined) > 12) continue;
		if (!known(r, joined)) memcpy(r->texts[r->l.n_tokens++], joined, strlen(joined) + 1);
		snprintf(r->merge_texts[r->l.n_merges++], 50, "%s %s", left, right);
	}
	for (size_t i = 0; i < r->l.n_tokens; i++) r->tokens[i] = (struct gguf_str){r->texts[i], strlen(r->texts[i])};
	for (size_t i = 0; i < r->l.n_merges; i++)
		assert_true(vocab_split_merge((struct gguf_str){r->merge_texts[i], strlen(r->merge_texts[i])}, &r->merges[i]));
	for (size_t i = r->l.n_merges; i-- > 1;) {
		size_t k = next_random((uint32_t)i + 1);
		struct vocab_merge m = r->merges[i];

		r->merges[i] = r->merges[k];
		r->merges[k] = m;
	}
	if (vocab_init(&r->vocab, &index, &r->l, &err) != ST_OK) fail_msg("%s", err.text);
	if (bpe_init(&r->bpe, &r->vocab, &index, &err) != ST_OK) fail_msg("%s", err.text);
	vocab_index_release(&index);
}

static void random_release(struct random_bpe *r)
{
	bpe_release(&r->bpe);
	vocab_release(&r->vocab);
}

static void the_queue_merges_as_the_plain_way_does(void **state)
{
	static struct random_bpe r;
	static uint32_t plain[3000], queue[3000], both[3000];
	static uint64_t pairs[3000];
	struct bpe_scratch scratch = {0};
	size_t n_merged = 0;

	for (int vocab = 0; vocab < 40; vocab++) {
		random_init(&r);
		for (int word = 0; word < 200; word++) {
			size_t n = 1 + next_random(word % 20 == 0 ? 3000 : 100), n_plain, n_queue, n_both;

			for (size_t i = 0; i < n; i++)
				plain[i] = queue[i] = both[i] = next_random(word % 3 ? LETTERS : 2);
			n_plain = bpe_merge_plain(&r.bpe, plain, n, pairs);
			n_queue = bpe_merge_queue(&r.bpe, queue, n, &scratch);
			n_both = bpe_merge(&r.bpe, both, n, &scratch);
			assert_int_equal(n_queue, n_plain);
			assert_int_equal(n_both, n_plain);
			assert_memory_equal(queue, plain, n_plain * sizeof(*plain));
			assert_memory_equal(both, plain, n_plain * sizeof(*plain));
			n_merged += n - n_plain;
		}
		random_release(&r);
	}
	assert_true(n_merged > 100000);
	bpe_scratch_release(&scratch);
}

static void no_merges_leave_a_word_as_it_is(void **state)
{
	struct gguf_str tokens[] = {{"a", 1}, {"b", 1}};
	struct vocab_lists l = {.file = "none", .tokens = tokens, .n_tokens = 2};
	struct vocab_index index;
	struct vocab v;
	struct bpe b;
	struct bpe_scratch scratch = {0};
	uint32_t ids[100] = {0, 1, 0, 1};

	assert_int_equal(vocab_init(&v, &index, &l, NULL), ST_OK);
	assert_int_equal(bpe_init(&b, &v, &index, NULL), ST_OK);
	assert_int_equal(bpe_merge(&b, ids, 4, &scratch), 4);
	assert_int_equal(bpe_merge(&b, ids, 100, &scratch), 100);
	assert_int_equal(bpe_merge(&b, ids, 1, &scratch), 1);
	vocab_index_release(&index);
	bpe_scratch_release(&scratch);
	bpe_release(&b);
	vocab_release(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_queue_merges_as_the_plain_way_does),
		cmocka_unit_test(no_merges_leave_a_word_as_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
