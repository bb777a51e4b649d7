/* box.h - a frontend in a box, for tests: the API behind a connection without a socket, its client and the executor played by the
 * test. */
#ifndef SLUICE_TESTS_BOX_H
#define SLUICE_TESTS_BOX_H

#include "frontend/api.h"
#include "frontend/conn.h"

#define BOX_LEN_MAX 256 /* of the model: tokens of prompt and output */
#define BOX_EPOCH 3
#define BOX_REQUESTS 8  /* --max-requests of this frontend */
#define BOX_BIAS 4

/* A submit, kept. */
struct box_order {
	struct msg_submit m; /* views point into the arrays */
	uint32_t tokens[BOX_LEN_MAX], stop_ids[LIMIT_STOP_IDS], bias_ids[BOX_BIAS], allowed_ids[BOX_BIAS];
	float bias_values[BOX_BIAS];
	uint32_t position; /* of the next output token */
	uint32_t n_prompt_known;
};

struct box {
	struct api api;
	struct config config;
	struct page *page;
	struct conn_host host;
	struct conn *conn;
	struct lives *lives;
	struct strbuf in; /* what the client has received */
	struct box_order orders[BOX_REQUESTS]; /* since the last box_post() */
	struct box_order order;                /* the last of them */
	int n_orders, n_submits, n_cancels;
	float logprob;    /* of the next token, and of all prompt tokens; the best ones are ids 10, 11 ... with -1, -2 ... */
	uint64_t now;
	bool reads;       /* the client takes its answer */
};

extern struct tokenizer *box_tokenizer; /* the test's */

void box_open(struct box *b, bool is_welcome);
void box_close(struct box *b);
void box_pass(struct box *b); /* of the loop */

/* The executor's side. */
void box_welcome(struct box *b);
/* One row: at most one token (TOKEN_NONE: none), then perhaps the end; of the last order, or of one of them. The log-probabilities
 * of the prompt, where they were asked for, come with the first one. */
void box_give(struct box *b, uint32_t token, enum finish finish);
void box_give_to(struct box *b, int ix, uint32_t token, enum finish finish);
void box_give_text(struct box *b, const char *text);
void box_give_text_to(struct box *b, int ix, const char *text);
void box_refuse(struct box *b, enum refusal reason, const char *text);

/* The client's side. */
void box_post(struct box *b, const char *path, const char *body);
/* headers: each with CRLF. */
void box_post_with(struct box *b, const char *path, const char *headers, const char *body);
int box_status(const struct box *b);
const char *box_body(const struct box *b);
json_t *box_json(const struct box *b); /* the body; a new reference */

#endif
