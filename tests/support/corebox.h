/* corebox.h - the executor's core in a box: plays frontends and workers, and writes down what comes out, one line each.
 *
 * The workers are played exactly: tokens and block tables by slot, and for each cell of the KV cache the hash of all tokens up to
 * it, so a step that reads a cell with another history fails the test. The next token is a hash of all tokens.
 *
 * Lines (a request is its counter, with "frontend.incarnation/" in front where it is not the lane's own):
 *   step 1 rem[0] add[1 20/16] grow[1:2,3] run[1 0+20s]   slot, known tokens / prompt; slot: blocks (with several KV groups:
 *                                                         slot.group: blocks); slot, start + n, s: sample
 *   welcome 0.0 epoch=5 len=100 blocks=8
 *   results 0.0 1#1@0[7,9]stop c16                        counter # attempt @ position [tokens] finish, cached
 *   results 0.0 1#1@0 p3{r4(7:-1),r5(8:-2)}[]             log-probabilities of prompt tokens from position 3 on
 *   results 0.0 1#1@0[]stop e{1,2,3,4}                    a pooled state
 *   refused 0.0 1#1 too_long: text
 *   sync 0.0 n=1 1#1@2                                    number; counter # attempt @ position */
#ifndef SLUICE_COREBOX_H
#define SLUICE_COREBOX_H

#include "common/strbuf.h"
#include "executor/core.h"

#define COREBOX_EPOCH 5
#define COREBOX_SLOTS 128
#define COREBOX_STEPS 8
#define COREBOX_TOKENS 8192
#define COREBOX_VOCAB 1000       /* tokens that are drawn */
#define COREBOX_IDS (1u << 20)   /* the vocabulary */
#define COREBOX_DIM 4

struct corebox_slot {
	bool taken;
	uint32_t tokens[COREBOX_TOKENS], n_tokens, n_prompt;
	uint32_t blocks[LIMIT_KV_GROUPS][COREBOX_TOKENS / 16], n_blocks[LIMIT_KV_GROUPS];
	uint32_t kind, n_logprobs, n_prompt_logprobs;
	uint32_t prompt_from; /* prompt position whose log-probability comes next */
};

struct corebox {
	struct core *core;
	struct strbuf log;
	bool quiet; /* nothing is written down */
	uint64_t now;
	int send_rc[LIMIT_FRONTENDS]; /* what the lane answers */
	uint32_t n_blocks;
	uint32_t vocab, dim; /* of the workers that come next; COREBOX_IDS, COREBOX_DIM */
	struct core_kv groups; /* likewise; one full group */
	struct corebox_slot *slots;
	uint64_t *kv; /* n_blocks x 16: hash of the tokens up to the cell; 0: never written */
	struct msg *steps[COREBOX_STEPS]; /* not answered yet */
	uint32_t n_steps;
	struct msg *last_step; /* as sent, for a closer look */
	struct msg *last_sent;
	uint32_t (*token)(const uint32_t *tokens, uint32_t n, uint32_t n_prompt); /* NULL: corebox_token() */
	void (*on_result)(struct msg_step_result *m); /* spoils a result before the core gets it; NULL: never */
	bool last_rc;                                  /* what the core said to the last one */
	/* When set, gets what is sent instead of the log. */
	int (*on_send)(struct corebox *b, uint32_t frontend, uint32_t incarnation, const struct msg *m);
	uint32_t n_timed; /* first tokens that the core has said the times of, and those of the last one */
	uint64_t queued_ns, prefill_ns;
	uint32_t tokens[COREBOX_TOKENS]; /* of the request being built */
	uint64_t n_tokens_run;  /* computed by steps answered so far */
	uint64_t n_steps_answered;
};

/* seqs 8, 64 tokens a step, 100 requests, two steps in flight, no chunk limit, prefix cache, sync never comes by itself. */
struct core_config corebox_config(void);
void corebox_init(struct corebox *b, const struct core_config *cfg);
void corebox_release(struct corebox *b);
/* The same with frontend 0 welcomed and workers of these sizes; nothing is written down so far. */
void corebox_start(struct corebox *b, const struct core_config *cfg, uint32_t n_blocks, uint32_t model_len_max);

/* The token that follows these. */
uint32_t corebox_token(const uint32_t *tokens, uint32_t n);

void corebox_hello(struct corebox *b, uint32_t frontend, uint32_t incarnation);
void corebox_ready(struct corebox *b, uint32_t n_blocks, uint32_t model_len_max);
void corebox_lost(struct corebox *b);
void corebox_taken(struct corebox *b); /* to be replaced */
void corebox_cancel(struct corebox *b, uint32_t frontend, uint64_t counter);

/* A submit with tokens first, first + 1, ...; views into the box, valid until the next one. n_prompt 0..COREBOX_TOKENS. */
struct msg_submit corebox_request(struct corebox *b, uint64_t counter, uint32_t first, uint32_t n_prompt, uint32_t n_output_max);
/* The same with the first n_output tokens of its answer, as a resubmit has them. */
void corebox_request_answer(struct corebox *b, struct msg_submit *m, uint32_t n_output);
void corebox_on_submit(struct corebox *b, const struct msg_submit *m);
void corebox_submit(struct corebox *b, uint64_t counter, uint32_t first, uint32_t n_prompt, uint32_t n_output_max);

/* core_step() and core_check(). */
void corebox_step(struct corebox *b);
/* Carries out the oldest step and gives the core its result. */
void corebox_answer(struct corebox *b);
/* Step and answer until no step is in flight. */
void corebox_run(struct corebox *b);

/* What was written down since the last time is exactly this. */
void corebox_expect_at(struct corebox *b, const char *text, const char *file, int line);
#define corebox_expect(b, text) corebox_expect_at(b, text, __FILE__, __LINE__)
/* Forget what was written down. */
void corebox_skip(struct corebox *b);
struct core_stats corebox_stats(const struct corebox *b);

#endif
