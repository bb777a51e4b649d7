/* test_engine_grammar.c - constrained draws through the whole engine: outputs that a grammar allows and nothing else, with allowed ids
 * and minima beside it; and the requests that end by themselves, without a harm to the others in the step. */
#include "tests/support/stepper.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include "common/mem.h"
#include "proto/gram.h"
#include "worker/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EOS    2
#define A_BYTE 3 /* the token of byte b is 3 + b */
#define LEN    5 /* of the prompt */

static const uint32_t prompt[LEN] = {70, 80, 90, 100, 110}, stop[1] = {EOS};

struct rig {
	struct engine *e;
	struct stepper s;
	struct strbuf grammar;
};

/* What follows a grammar: the texts x, then y... of which each is one of the two bytes given, and then the end. */
static void rig_grammar(struct rig *r, const char *pairs)
{
	struct gramb *b = gramb_new(MIB);
	uint32_t rule = gramb_rule(b), state = gramb_start(b, rule), next;
	struct errbuf err;

	for (; *pairs; pairs += 2, state = next) {
		next = gramb_state(b, rule);
		gramb_byte(b, state, (uint8_t)pairs[0], (uint8_t)pairs[0], next);
		gramb_byte(b, state, (uint8_t)pairs[1], (uint8_t)pairs[1], next);
	}
	gramb_final(b, state);
	strbuf_init(&r->grammar, MIB);
	if (gramb_finish(b, &r->grammar, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	gramb_free(b);
}

static void rig_open(struct rig *r, bool null_device, const char *pairs)
{
	struct errbuf err = {{0}};
	struct engine_opts o;
	struct tiny_llama t;
	char *path = test_file_temp("tiny.gguf");

	*r = (struct rig){0};
	tiny_llama_init(&t);
	tiny_llama_save(&t, path);
	engine_opts_init(&o);
	o.model = path;
	o.n_threads = 1;
	o.batched_tokens_max = 32;
	o.seqs_max = 4;
	o.null_device = null_device;
	if (engine_load(&r->e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	if (engine_kv_init(r->e, 16, &err) != ST_OK) fail_msg("%s", err.text);
	stepper_init(&r->s);
	rig_grammar(r, pairs);
	free(path);
}

static void rig_close(struct rig *r)
{
	engine_free(r->e);
	stepper_release(&r->s);
	strbuf_release(&r->grammar);
}

static struct stepper_params rig_params(const struct rig *r, uint32_t n_output_max)
{
	return (struct stepper_params){.temperature = 1.5f,
				       .top_p = 1,
				       .seed = 9,
				       .n_stop = 1,
				       .stop_ids = stop,
				       .n_output_max = n_output_max,
				       .grammar = r->grammar.data,
				       .n_grammar = (uint32_t)r->grammar.len};
}

static void rig_add(struct rig *r, uint32_t slot, const struct stepper_params *p)
{
	stepper_add(&r->s, slot, prompt, LEN, LEN, p);
	stepper_grow_range(&r->s, slot, 4 * slot, 2);
}

/* Draws the next token of slots 0 to n - 1, of which `done` tokens are there. */
static void rig_draw(struct rig *r, uint32_t n, uint32_t done, uint32_t *tokens)
{
	struct msg_step_result m;

	for (uint32_t i = 0; i < n; i++) stepper_run(&r->s, i, done ? LEN + done - 1 : 0, done ? 1 : LEN, true);
	if (engine_step(r->e, stepper_message(&r->s), &m) != ST_OK) fail_msg("%s", engine_why(r->e));
	stepper_next(&r->s);
	assert_int_equal(m.tokens.n, n);
	for (uint32_t i = 0; i < n; i++) tokens[i] = col_u32(m.tokens, i);
}

static void outputs_follow_their_grammar(void **state)
{
	static const char pairs[] = "axbyc.";

	for (int null_device = 0; null_device < 2; null_device++) {
		for (int minimum = 0; minimum < 2; minimum++) {
			struct stepper_params p, free_one = stepper_greedy();
			uint32_t tokens[2];
			struct rig r;

			rig_open(&r, null_device, pairs);
			p = rig_params(&r, 20);
			p.n_output_min = minimum ? 10 : 0; /* the grammar's end is the end all the same */
			p.repetition = 1.5f;
			rig_add(&r, 0, &p);
			rig_add(&r, 1, &free_one); /* beside one that is free */
			for (uint32_t i = 0; i < 3; i++) {
				rig_draw(&r, 2, i, tokens);
				assert_true(tokens[0] == A_BYTE + (uint32_t)pairs[2 * i] ||
					    tokens[0] == A_BYTE + (uint32_t)pairs[2 * i + 1]);
				assert_true(tokens[1] < TINY_LLAMA_TOKENS);
			}
			rig_draw(&r, 2, 3, tokens);
			assert_int_equal(tokens[0], EOS);
			rig_close(&r);
		}
	}
}

/* In the middle of a grammar, as after a preemption. */
static void a_replay_goes_on_in_the_grammar(void **state)
{
	const uint32_t known[] = {70, 80, 90, 100, 110, A_BYTE + 'x', A_BYTE + 'b'};
	struct stepper_params p;
	struct msg_step_result m;
	struct rig r;

	rig_open(&r, false, "axbyc.");
	p = rig_params(&r, 20);
	stepper_add(&r.s, 0, known, 7, LEN, &p);
	stepper_grow_range(&r.s, 0, 0, 1);
	stepper_run(&r.s, 0, 0, 7, true);
	assert_int_equal(engine_step(r.e, stepper_message(&r.s), &m), ST_OK);
	assert_true(col_u32(m.tokens, 0) == A_BYTE + 'c' || col_u32(m.tokens, 0) == A_BYTE + '.');
	rig_close(&r);
}

/* Each of these ends alone: beside it runs one that goes on. */
static void what_cannot_go_on_says_why(void **state)
{
	static const uint32_t other[] = {A_BYTE + 'q'};
	static const uint32_t wrong[] = {70, 80, 90, 100, 110};
	static const struct {
		const char *what;
		bool with_allowed, with_bad_bytes, with_wrong_output, without_grammar;
		uint32_t token;
	} rows[] = {
		{"the allowed id is not in the grammar", true, false, false, false, TOKEN_NOT_ALLOWED},
		{"no grammar at all", false, true, false, false, TOKEN_BAD_GRAMMAR},
		{"output that it does not allow", false, false, true, false, TOKEN_BAD_GRAMMAR},
		{"only a stop id is allowed, and that too early", true, false, false, true, TOKEN_NOT_ALLOWED},
	};

	for (int null_device = 0; null_device < 2; null_device++) {
		for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
			struct stepper_params p, fine;
			uint32_t tokens[2];
			struct rig r;

			rig_open(&r, null_device, "axbyc.");
			p = fine = rig_params(&r, 20);
			if (rows[i].with_allowed) {
				p.n_allowed = 1;
				p.allowed_ids = rows[i].without_grammar ? stop : other;
			}
			if (rows[i].without_grammar) {
				p.n_grammar = 0;
				p.n_output_min = 5;
			}
			if (rows[i].with_bad_bytes) {
				p.grammar = "not a grammar";
				p.n_grammar = 13;
			}
			stepper_add(&r.s, 0, wrong, LEN, rows[i].with_wrong_output ? LEN - 1 : LEN, &p);
			stepper_grow_range(&r.s, 0, 0, 2);
			rig_add(&r, 1, &fine);
			rig_draw(&r, 2, 0, tokens);
			if (tokens[0] != rows[i].token) fail_msg("%s: token %x", rows[i].what, tokens[0]);
			assert_true(tokens[1] == A_BYTE + 'a' || tokens[1] == A_BYTE + 'x');
			rig_draw(&r, 2, 1, tokens); /* the step behind it is under way already */
			assert_true(tokens[1] == A_BYTE + 'b' || tokens[1] == A_BYTE + 'y');
			rig_close(&r);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(outputs_follow_their_grammar),
		cmocka_unit_test(a_replay_goes_on_in_the_grammar),
		cmocka_unit_test(what_cannot_go_on_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
