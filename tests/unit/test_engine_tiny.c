/* test_engine_tiny.c - the engine's promise with every tiny checkpoint: a request's logits depend on the model, its
 * tokens and nothing else, bit for bit (see test_engine.c), whatever the mixers, experts, recurrent states and KV
 * groups. Arguments: names to run alone. */
#include "tests/support/enginerig.h"
#include "tests/support/tinyset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef SLUICE_SAN
#define MOST_THREADS 2
#else
#define MOST_THREADS 3
#endif

static void the_same_bits(void **state)
{
	const struct tinyset *t = *state;
	struct engine_opts o;
	char path[1024];

	if (!tinyset_opts(t, &o, path, sizeof(path))) skip();
	enginerig_all_ways(&(struct enginerig_setup){.path = path,
						     .level = o.level_max,
						     .act = KACT_Q8,
						     .kv_type = GGTYPE_F16,
						     .large = true,
						     .threads = MOST_THREADS});
}

/* Of the types that have a rounding of their own, in company and in pieces. With sanitizers one of the three for each
 * checkpoint, in turn. */
static void the_same_bits_with_small_kv_types(void **state)
{
	static const enum ggtype types[] = {GGTYPE_BF16, GGTYPE_F8_E4M3, GGTYPE_I8};
	const struct tinyset *t = *state;
	struct engine_opts o;
	char path[1024];
	size_t from = 0, to = ARRAY_LEN(types);

	if (!tinyset_opts(t, &o, path, sizeof(path))) skip();
#ifdef SLUICE_SAN
	from = strlen(t->name) % ARRAY_LEN(types);
	to = from + 1;
#endif
	for (size_t i = from; i < to; i++)
		enginerig_all_ways(&(struct enginerig_setup){.path = path,
							     .level = o.level_max,
							     .act = KACT_Q8,
							     .kv_type = types[i],
							     .large = true,
							     .threads = 1});
}

/* Fills blocks of the windowed groups, the first n of slot 0's, by another sequence, as the executor may once they lie
 * behind the window. */
static void overwrite(struct enginerig *r, uint32_t n)
{
	const struct kvgroups *g = engine_kvgroups(r->e);
	struct stepper_params p = stepper_greedy();
	uint32_t full[ENGINERIG_SEQ_BLOCKS], windowed[ENGINERIG_SEQ_BLOCKS];
	struct msg_step_result res;

	if (n == 0) return;
	stepper_add(&r->s, 5, r->prompt + 1, n * KBLOCK_LEN, n * KBLOCK_LEN, &p);
	for (uint32_t k = 0; k < kvgroups_n(g); k++) {
		for (uint32_t i = 0; i < n; i++) {
			full[i] = k * ENGINERIG_BLOCKS + 40 + i;
			windowed[i] = k * ENGINERIG_BLOCKS + i;
		}
		stepper_grow_group(&r->s, 5, k, k < g->n_full ? full : windowed, n);
	}
	stepper_run(&r->s, 5, 0, n * KBLOCK_LEN, false);
	enginerig_step(r, &res);
	stepper_remove(&r->s, 5);
}

static void blocks_behind_a_window_may_be_anybodys(void **state)
{
	const struct tinyset *t = *state;
	struct stepper_params p = {.temperature = 0.8f, .top_p = 0.95f, .seed = 42};
	struct enginerig_outcome want;
	struct msg_step_result res;
	struct engine_opts o;
	struct enginerig r;
	uint32_t window, n_written = 0;
	char path[1024];

	if (!tinyset_opts(t, &o, path, sizeof(path))) skip();
	enginerig_open(
		&r,
		&(struct enginerig_setup){.path = path, .level = o.level_max, .act = KACT_Q8, .kv_type = GGTYPE_F16},
		1);
	window = engine_kvgroups(r.e)->window;
	if (window) {
		want = enginerig_request(&r, &(struct enginerig_way){0});
		stepper_add(&r.s, 0, r.prompt, ENGINERIG_PROMPT, ENGINERIG_PROMPT, &p);
		stepper_grow_range(&r.s, 0, 0, ENGINERIG_SEQ_BLOCKS);
		for (uint32_t at = 0, n; at < ENGINERIG_PROMPT; at += n) {
			n = min_u32(9, ENGINERIG_PROMPT - at);
			stepper_run(&r.s, 0, at, n, at + n == ENGINERIG_PROMPT);
			enginerig_step(&r, &res);
			if (at + n == ENGINERIG_PROMPT) break;
			/* The next token sees window - 1 positions before its own. */
			n_written = at + n + 1 > window ? (at + n + 1 - window) / KBLOCK_LEN : 0;
			overwrite(&r, n_written);
		}
		assert_true(n_written >= 2);
		assert_int_equal(col_u64(res.hashes, 0), want.hashes[0]);
		assert_int_equal(col_u32(res.tokens, 0), want.tokens[0]);
	}
	enginerig_close(&r);
}

int main(int argc, char **argv)
{
	static tinyset_test *const tests[] = {the_same_bits, the_same_bits_with_small_kv_types,
					      blocks_behind_a_window_may_be_anybodys};
	static const char *const names[] = {"gives the same bits", "gives the same bits with small KV types",
					    "sees its window alone"};

	return tinyset_main("engine_tiny", tests, names, ARRAY_LEN(tests), argc, argv);
}
