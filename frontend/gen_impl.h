/* gen_impl.h - what the files of a generation share: gen.c (its start, and what its live requests report) and gen_write.c (what goes to the
 * client, and what is counted and told at the end). Nobody else includes it. */
#ifndef SLUICE_GEN_IMPL_H
#define SLUICE_GEN_IMPL_H

#include "frontend/answer.h"
#include "frontend/choice.h"
#include "frontend/gen.h"
#include "frontend/owner.h"

/* One choice of one prompt. */
struct gen_choice {
	struct owner owner;
	struct list_link in_due;
	struct gen *gen;
	struct live *live;            /* NULL: it has ended */
	struct answer_choice *answer; /* in gen->answer */
	struct choice text;
	uint32_t n_prompt, n_cached;
	double logprob_sum;           /* of the tokens so far */
	uint64_t token_ns, first_ns;  /* of the last token, and the first one; before, of the start */
	uint32_t queued_us, prefill_us;
	size_t held;                  /* of gen->held */
};

struct gen {
	struct list_link in_gens, in_due, in_unsaid;
	struct api *api;
	struct http_request *req;
	struct answer answer;
	struct choice_rules rules;
	struct gen_choice *choices; /* (n_choices): prompt after prompt */
	uint32_t n_choices, n_prompts;
	uint32_t n, best_of;        /* of a prompt: answered, run */
	uint32_t n_running;
	struct list due;            /* choices of a stream that have something to write */
	size_t held;
	uint64_t started_ns, written_ns;
	bool is_stream;
	bool echo_only;             /* what is drawn (at least one token must be) is not answered */
	bool begun;                 /* stream: headers are out */
	struct apierr error;        /* status 0: none */
};

/* Look at it in this pass. */
void gen_due(struct gen *g);
/* Cancels what still runs: it must not work for nobody. */
void gen_cancel(struct gen *g);
void gen_free(struct gen *g);
/* Another token comes before the last one has been written, because the engine is ahead of the loop. The last one becomes a chunk of its
 * own: a client sees every token. All of them are still one write, at the end of the pass. Where the connection
 * has no room (its client reads too slowly) or the stream may not begin yet, tokens share a chunk: a text that waits takes a fraction of its
 * chunks' memory. */
void gen_write_earlier(struct gen_choice *c);
/* Counts what the choice holds now; ends the generation where that is too much. */
void gen_hold(struct gen_choice *c);
void gen_too_large(struct gen *g);
/* For the request's log line and span. finish: how it ended. */
void gen_tell(const struct gen *g, const char *finish);

#endif
