/* enginerig.c - see enginerig.h. */
#include "tests/support/enginerig.h"

#include "common/mem.h"
#include "proto/gram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENGINERIG_OTHER_SLOT 99
#define ENGINERIG_SEQS       (ENGINERIG_NEIGHBOURS + 1)
#define ENGINERIG_BATCH      264 /* the whole prompt, and three tokens of each neighbour */

#ifdef SLUICE_SAN
#define SLOW 1 /* the sanitizers' builds run a part */
#else
#define SLOW 0
#endif

static uint64_t enginerig_rng = 1;

static uint32_t enginerig_rnd(uint32_t n)
{
	enginerig_rng = enginerig_rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((enginerig_rng >> 33) % n);
}

/* Any text of five bytes or more. */
static void enginerig_make_grammar(struct strbuf *out)
{
	struct gramb *b = gramb_new(MIB);
	uint32_t rule = gramb_rule(b), state = gramb_start(b, rule), next;
	struct errbuf err;

	for (int i = 0; i < 5; i++, state = next) {
		next = gramb_state(b, rule);
		gramb_byte(b, state, 0, 255, next);
	}
	gramb_byte(b, state, 0, 255, state);
	gramb_final(b, state);
	strbuf_init(out, MIB);
	if (gramb_finish(b, out, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	gramb_free(b);
}

static void enginerig_make_lists(struct enginerig *r)
{
	enginerig_make_grammar(&r->grammar);
	r->allowed = mem_array(uint32_t, r->n_tokens);
	for (uint32_t i = 0; i < r->n_tokens; i++) r->allowed[i] = i;
	r->stop = 2;
	for (uint32_t i = 0; i < 3; i++) r->bias_ids[i] = 40 * i + 3;
}

void enginerig_open(struct enginerig *r, const struct enginerig_setup *u, uint32_t threads)
{
	struct errbuf err = {{0}};
	struct engine_opts o;

	memset(r, 0, sizeof(*r));
	engine_opts_init(&o);
	o.model = u->path;
	o.n_threads = threads;
	o.level_max = u->level;
	o.act = u->act;
	o.kv_type = u->kv_type;
	o.batched_tokens_max = ENGINERIG_BATCH;
	o.seqs_max = ENGINERIG_SEQS;
	o.hash_logits = true;
	if (engine_load(&r->e, &o, NULL, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	stepper_init(&r->s);
	r->s.n_groups = max_u32(1, kvgroups_n(engine_kvgroups(r->e)));
	r->s.group_blocks = ENGINERIG_BLOCKS;
	if (engine_kv_init(r->e, r->s.n_groups * ENGINERIG_BLOCKS, &err) != ST_OK) fail_msg("%s", err.text);
	r->n_tokens = engine_spec(r->e)->n_tokens;
	enginerig_rng = 7;
	for (uint32_t i = 0; i < ENGINERIG_PROMPT; i++) r->prompt[i] = enginerig_rnd(r->n_tokens);
	enginerig_make_lists(r);
}

void enginerig_close(struct enginerig *r)
{
	engine_free(r->e);
	stepper_release(&r->s);
	strbuf_release(&r->grammar);
	free(r->allowed);
}

void enginerig_step(struct enginerig *r, struct msg_step_result *out)
{
	if (engine_step(r->e, stepper_message(&r->s), out) != ST_OK) fail_msg("%s", engine_why(r->e));
	stepper_next(&r->s);
}

static void enginerig_enrich(const struct enginerig *r, struct stepper_params *p)
{
	static const float bias[] = {3, -4, 2.5f};

	p->repetition = 1.3f;
	p->presence = 0.4f;
	p->frequency = 0.7f;
	p->n_bias = ARRAY_LEN(bias);
	p->bias_ids = r->bias_ids;
	p->bias_values = bias;
	p->n_allowed = r->n_tokens * 3 / 4;
	p->allowed_ids = r->allowed;
	p->n_output_min = 4;
	p->n_stop = 1;
	p->stop_ids = &r->stop;
	p->n_output_max = ENGINERIG_PROMPT + ENGINERIG_OUTPUT; /* a neighbour's output is never at its end */
	p->grammar = r->grammar.data;
	p->n_grammar = (uint32_t)r->grammar.len;
}

/* Neighbours in slots 1..: some begin, all run a part of their prompt or draw a token, some end. */
static void enginerig_stir(struct enginerig *r)
{
	struct stepper_params p = {.temperature = 1, .top_p = 1, .seed = 5};

	if (r->rich) enginerig_enrich(r, &p);
	for (uint32_t i = 0; i < ENGINERIG_NEIGHBOURS; i++) {
		struct enginerig_neighbour *nb = &r->neighbours[i];
		uint32_t n;

		if (nb->n && (nb->at >= nb->n + ENGINERIG_OUTPUT || enginerig_rnd(20) == 0)) {
			stepper_remove(&r->s, 1 + i);
			nb->n = 0;
		}
		if (!nb->n) {
			*nb = (struct enginerig_neighbour){.n = 1 + enginerig_rnd(ENGINERIG_PROMPT)};
			p.temperature = (float)enginerig_rnd(2);
			for (uint32_t k = 0; k < nb->n; k++) nb->tokens[k] = enginerig_rnd(r->n_tokens);
			stepper_add(&r->s, 1 + i, nb->tokens, nb->n, nb->n, &p);
			stepper_grow_range(&r->s, 1 + i, (2 + i) * ENGINERIG_SEQ_BLOCKS, ENGINERIG_SEQ_BLOCKS);
		}
		n = nb->at < nb->n ? 1 + enginerig_rnd(min_u32(nb->n - nb->at, 3)) : 1;
		stepper_run(&r->s, 1 + i, nb->at, n, nb->at + n >= nb->n);
		nb->at += n;
	}
}

static void enginerig_shuffle(uint32_t blocks[ENGINERIG_SEQ_BLOCKS], bool scattered)
{
	for (uint32_t i = 0; i < ENGINERIG_SEQ_BLOCKS; i++) blocks[i] = i;
	for (uint32_t i = ENGINERIG_SEQ_BLOCKS - 1; scattered && i > 0; i--) {
		uint32_t k = enginerig_rnd(i + 1), b = blocks[i];

		blocks[i] = blocks[k];
		blocks[k] = b;
	}
}

static struct stepper_params enginerig_params(const struct enginerig *r, const struct enginerig_way *w)
{
	struct stepper_params p = {.temperature = 0.8f, .top_p = 0.95f, .seed = 42, .n_logprobs = w->logprobs ? 6 : 0};

	if (r->rich) enginerig_enrich(r, &p);
	p.n_prompt_logprobs = w->logprobs && r->rich ? 3 : 0;
	return p;
}

/* Runs positions [from, to) of the request, the last with a draw, in chunks. */
static void enginerig_run(struct enginerig *r, const struct enginerig_way *w, uint32_t from, uint32_t to,
			  struct msg_step_result *out)
{
	for (uint32_t at = from, n; at < to; at += n) {
		n = w->chunk ? min_u32(w->chunk, to - at) : to - at;
		if (w->neighbours) enginerig_stir(r);
		stepper_run(&r->s, r->slot, at, n, at + n == to);
		enginerig_step(r, out);
	}
}

/* The request's row in a result. */
static void enginerig_record(const struct enginerig *r, const struct msg_step_result *res, struct enginerig_outcome *o)
{
	for (uint32_t i = 0; i < res->slots.n; i++) {
		if (col_u32(res->slots, i) != r->slot) continue;
		assert_true(col_u32(res->tokens, i) < TOKEN_FAILED);
		o->tokens[o->n] = col_u32(res->tokens, i);
		o->hashes[o->n++] = col_u64(res->hashes, i);
		return;
	}
	fail_msg("the request has no row");
}

/* Fills blocks 0.. of the prompt by a sequence that is gone again, as a prefix cache would have it. */
static void enginerig_fill_shared(struct enginerig *r, const uint32_t blocks[ENGINERIG_SEQ_BLOCKS],
				  const struct stepper_params *p)
{
	struct msg_step_result res;

	stepper_add(&r->s, r->slot, r->prompt, ENGINERIG_PROMPT, ENGINERIG_PROMPT, p);
	stepper_grow(&r->s, r->slot, blocks, ENGINERIG_SEQ_BLOCKS);
	stepper_run(&r->s, r->slot, 0, ENGINERIG_PROMPT, false);
	enginerig_step(r, &res);
	stepper_remove(&r->s, r->slot);
}

struct enginerig_outcome enginerig_request(struct enginerig *r, const struct enginerig_way *w)
{
	struct stepper_params p = enginerig_params(r, w);
	uint32_t blocks[ENGINERIG_SEQ_BLOCKS], cached = w->shared ? ENGINERIG_PROMPT / KBLOCK_LEN * KBLOCK_LEN : 0;
	uint32_t tokens[ENGINERIG_PROMPT + ENGINERIG_OUTPUT];
	struct msg_step_result res;
	struct enginerig_outcome o = {0};

	memset(r->neighbours, 0, sizeof(r->neighbours));
	r->slot = w->slot;
	enginerig_shuffle(blocks, w->scattered);
	if (w->shared) enginerig_fill_shared(r, blocks, &p);
	/* Behind the shared part, blocks of its own. */
	for (uint32_t i = cached / KBLOCK_LEN; w->shared && i < ENGINERIG_SEQ_BLOCKS; i++)
		blocks[i] = ENGINERIG_SEQ_BLOCKS + i;
	stepper_add(&r->s, r->slot, r->prompt, ENGINERIG_PROMPT, ENGINERIG_PROMPT, &p);
	stepper_grow(&r->s, r->slot, blocks, ENGINERIG_SEQ_BLOCKS);
	enginerig_run(r, w, cached, ENGINERIG_PROMPT, &res);
	enginerig_record(r, &res, &o);
	while (o.n < ENGINERIG_OUTPUT) {
		uint32_t known = ENGINERIG_PROMPT + o.n;

		if (w->preempt_at == o.n) {
			memcpy(tokens, r->prompt, sizeof(r->prompt));
			memcpy(tokens + ENGINERIG_PROMPT, o.tokens, o.n * sizeof(*tokens));
			enginerig_shuffle(blocks, true);
			stepper_remove(&r->s, r->slot);
			r->slot = r->slot ? 0 : ENGINERIG_OTHER_SLOT;
			stepper_add(&r->s, r->slot, tokens, known, ENGINERIG_PROMPT, &p);
			stepper_grow(&r->s, r->slot, blocks, ENGINERIG_SEQ_BLOCKS);
			enginerig_run(r, w, 0, known, &res);
		} else {
			enginerig_run(r, w, known - 1, known, &res);
		}
		enginerig_record(r, &res, &o);
	}
	engine_reset(r->e);
	return o;
}

static void enginerig_expect(const struct enginerig_outcome *want, const struct enginerig_outcome *got,
			     const char *what, uint32_t number)
{
	for (uint32_t i = 0; i < ENGINERIG_OUTPUT; i++)
		if (want->hashes[i] != got->hashes[i] || want->tokens[i] != got->tokens[i])
			fail_msg("%s %u: output token %u is %u with logits %016llx, expected %u with %016llx", what,
				 number, i, got->tokens[i], (unsigned long long)got->hashes[i], want->tokens[i],
				 (unsigned long long)want->hashes[i]);
}

static void enginerig_chunks(struct enginerig *r, const struct enginerig_setup *u, const struct enginerig_outcome *want)
{
	static const uint32_t chunks[] = {17, 1, 3, 8, 15, 33, 69};
	uint32_t n_chunks = u->every_chunk ? ENGINERIG_PROMPT : SLOW ? 2 : ARRAY_LEN(chunks);

	for (uint32_t i = 0; i < n_chunks; i++) {
		uint32_t chunk = u->every_chunk ? i + 1 : chunks[i];
		struct enginerig_outcome got = enginerig_request(r, &(struct enginerig_way){.chunk = chunk});

		enginerig_expect(want, &got, "chunk", chunk);
	}
}

static void enginerig_company(struct enginerig *r, const struct enginerig_setup *u,
			      const struct enginerig_outcome *want)
{
	bool shares = !engine_is_recurrent(r->e);
	struct enginerig_outcome got = enginerig_request(r, &(struct enginerig_way){.neighbours = true});

	enginerig_expect(want, &got, "neighbours, chunk", 0);
	for (uint32_t i = 0; i < (u->large ? 0 : SLOW ? 1 : 3); i++) {
		got = enginerig_request(r, &(struct enginerig_way){.slot = i % 2 ? ENGINERIG_OTHER_SLOT : 0,
								   .neighbours = true,
								   .chunk = 1 + enginerig_rnd(40),
								   .scattered = true,
								   .logprobs = true});
		enginerig_expect(want, &got, "neighbours, run", i);
	}
	for (uint32_t i = 1; i < ENGINERIG_OUTPUT; i += SLOW ? ENGINERIG_OUTPUT : 4) {
		got = enginerig_request(r, &(struct enginerig_way){.preempt_at = i, .chunk = 11});
		enginerig_expect(want, &got, "preempted after", i);
	}
	if (shares) {
		got = enginerig_request(r, &(struct enginerig_way){.shared = true});
		enginerig_expect(want, &got, "shared blocks", 0);
	}
	got = enginerig_request(
		r, &(struct enginerig_way){
			   .shared = shares, .neighbours = true, .preempt_at = 5, .chunk = u->large ? 40 : 13});
	enginerig_expect(want, &got, "all together", 0);
}

void enginerig_all_ways(const struct enginerig_setup *u)
{
	struct enginerig_outcome want, got;
	struct enginerig r;

	enginerig_open(&r, u, 1);
	want = enginerig_request(&r, &(struct enginerig_way){0});
	if (u->rich) {
		struct enginerig_outcome plain = want;

		r.rich = true;
		want = enginerig_request(&r, &(struct enginerig_way){0});
		assert_memory_not_equal(plain.tokens, want.tokens, sizeof(want.tokens)); /* it makes a difference */
		assert_int_equal(plain.hashes[0], want.hashes[0]);                       /* but not to the logits */
	}
	for (uint32_t threads = 1; threads <= (u->threads ? u->threads : 2); threads++) {
		if (threads > 1) {
			enginerig_close(&r);
			enginerig_open(&r, u, threads);
			r.rich = u->rich;
			got = enginerig_request(&r, &(struct enginerig_way){0});
			enginerig_expect(&want, &got, "threads", threads);
		}
		if (SLOW && threads < u->threads) continue;
		enginerig_chunks(&r, u, &want);
		enginerig_company(&r, u, &want);
	}
	enginerig_close(&r);
}

enum klevel enginerig_level_max(void)
{
	enum klevel level = klevel_of_cpu();
	const char *env = getenv("SLUICE_KERNELS");

	if (env) assert_true(klevel_parse(env, &level));
	return level;
}
