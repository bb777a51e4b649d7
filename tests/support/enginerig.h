/* enginerig.h - runs one request through an engine in every way that a scheduler may choose: chunked, beside random
 * neighbours, preempted, from shared blocks, in scattered blocks, with more threads. What it gave must always be the
 * same, bit for bit. */
#ifndef SLUICE_ENGINERIG_H
#define SLUICE_ENGINERIG_H

#include "common/strbuf.h"
#include "tests/support/stepper.h"
#include "worker/engine.h"

#define ENGINERIG_PROMPT     70 /* not a whole number of blocks */
#define ENGINERIG_OUTPUT     10
#define ENGINERIG_SEQ_BLOCKS 6 /* (PROMPT + OUTPUT + 1) / KBLOCK_LEN, rounded up */
#define ENGINERIG_NEIGHBOURS 64
#define ENGINERIG_BLOCKS     ((ENGINERIG_NEIGHBOURS + 2) * ENGINERIG_SEQ_BLOCKS) /* of a KV group */

/* What a request gave. */
struct enginerig_outcome {
	uint32_t n;
	uint32_t tokens[ENGINERIG_OUTPUT];
	uint64_t hashes[ENGINERIG_OUTPUT];
};

/* One way to run the request. */
struct enginerig_way {
	uint32_t slot;       /* of the request: 0 or 99; another one after a preemption */
	uint32_t chunk;      /* of the prompt; 0: whole */
	bool neighbours;     /* 64 of them, coming, running and going at random */
	uint32_t preempt_at; /* after so many output tokens; 0: never */
	bool shared;         /* the prompt's whole blocks are another sequence's; not with recurrent states */
	bool scattered;      /* blocks in random order */
	bool logprobs;       /* wanting them changes nothing */
};

struct enginerig {
	struct engine *e;
	struct stepper s;
	uint32_t prompt[ENGINERIG_PROMPT];
	uint32_t n_tokens; /* vocabulary */
	uint32_t slot;     /* of the request */
	bool rich;         /* the request is drawn with everything that there is */
	uint32_t stop, bias_ids[3], *allowed;
	struct strbuf grammar;
	struct enginerig_neighbour {
		uint32_t tokens[ENGINERIG_PROMPT];
		uint32_t n, at; /* tokens of the prompt; position that runs next; n == 0: no such sequence */
	} neighbours[ENGINERIG_NEIGHBOURS];
};

/* What a model is run with. */
struct enginerig_setup {
	const char *path;
	enum klevel level;
	enum kact act;
	enum ggtype kv_type;
	bool every_chunk; /* the prompt in chunks of every size */
	bool large;       /* a model that makes tokens of neighbours dear */
	bool rich;
	uint32_t threads; /* up to so many are compared with one; 0: 2 */
};

void enginerig_open(struct enginerig *r, const struct enginerig_setup *u, uint32_t threads);
void enginerig_close(struct enginerig *r);
void enginerig_step(struct enginerig *r, struct msg_step_result *out);
struct enginerig_outcome enginerig_request(struct enginerig *r, const struct enginerig_way *w);

/* All ways; fails at the first bit that differs. */
void enginerig_all_ways(const struct enginerig_setup *u);

/* The highest level that this processor has, or that SLUICE_KERNELS allows. */
enum klevel enginerig_level_max(void);

#endif
