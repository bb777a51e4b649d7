/* api.h - what the handlers of a frontend share, and the handlers.
 *
 * A handler gets a whole request and either answers at once or starts a generation (gen.h). Handlers run in the loop's thread,
 * decide nothing about the engine and never block. */
#ifndef SLUICE_API_H
#define SLUICE_API_H

#include "common/base.h"
#include "common/list.h"
#include "frontend/apierr.h"
#include "frontend/http.h"
#include "frontend/live.h"
#include "frontend/offload.h"
#include "frontend/tokenizer.h"
#include "proto/apikeys.h"
#include "proto/config.h"
#include "proto/page.h"

#include <jansson.h>

struct chat;
struct journal;
struct gendefaults;

struct api {
	/* Set by the owner; kept. */
	const struct config *config;
	const struct apikeys *keys;    /* NULL or empty: none needed */
	const struct page *page;       /* of the mesh */
	struct page_slot *slot;        /* this process's */
	const struct tokenizer *tokenizer;
	struct chat *chat;
	struct lives *lives;
	uint64_t heartbeat_max_ns;
	const struct gendefaults *defaults; /* of sampling; NULL: neutral */
	uint32_t pooling;              /* enum request_kind of embeddings */
	struct journal *journal;       /* NULL: nobody wants to know of requests */
	uv_loop_t *loop;               /* for work on threads; NULL: none, all is done at once */

	/* Set by api_init(). */
	size_t token_bytes_max;        /* of the longest token's text */
	char **names;                  /* under which the model is served; the first one is shown */
	size_t n_names;
	bool any_name;                 /* `*` is among them: whatever a client calls the model is right */
	char *metric_labels;
	int64_t created;               /* of the model, as told to clients */
	uint64_t random;               /* state of ids and of seeds that clients did not give */
	uint64_t run_id;               /* random; makes answers' ids unique over restarts */
	uint64_t now;                  /* of this loop pass */
	size_t inline_bytes;           /* of bodies that were prepared in the loop since the last pass; see prep.h */
	bool draining;
	struct list gens;              /* all generations */
	struct list gens_due;          /* that have something to write */
	struct list gens_unsaid;       /* streams that may not have begun, for GEN_BEGIN_NS; the oldest first */
	struct list embeds;            /* requests for embeddings that the executor works on */
	struct list embeds_due;        /* those that go on in this pass */
	struct offload offload;
	struct tokenizer_work *work;   /* the loop's thread's */
	struct admission_door door;
	struct strbuf scratch;         /* for documents and chunks; empty between uses */
};

void api_init(struct api *a, uint64_t now);
void api_release(struct api *a);

/* conn_host's on_head, on_request and on_answered; ctx is the api. */
int api_on_head(void *ctx, struct http_request *r, const char **text);
void api_on_request(void *ctx, struct http_request *r);
void api_on_answered(void *ctx, int status);
void api_on_ended(void *ctx, struct http_request *r, bool is_gone);
void api_on_waited(void *ctx, uint64_t ns);

/* A random number. */
uint64_t api_random(struct api *a);

/* Parses the body as a JSON object, gives its memory back; false: answered with an error. */
bool api_body(struct http_request *r, json_t **out);
/* True when the supervisor has given up on the engine; e is set (503 with the reason). */
bool api_engine_failed(const struct api *a, struct apierr *e);
/* True when generations can start, now or as soon as the engine is back; else e is set (503 with phase and percentage). */
bool api_is_ready(struct api *a, struct apierr *e);
/* Sets e: no thread has room for what the request needs (offload.h). */
void api_refuse_preparing(struct api *a, struct apierr *e);
/* True when the model is one of ours (or not named). Any thread. */
bool api_knows_model(const struct api *a, const char *name, size_t len, struct apierr *e);
/* True when the request's priority is 0 or --scheduling-policy has an ear for it. Any thread. */
bool api_takes_priority(const struct api *a, int64_t priority, struct apierr *e);
/* What a request may have, prompt and output together; 0 while not known. */
uint32_t api_model_len(const struct api *a);
/* Answers 200 with a JSON document that is in a->scratch; empties it. */
void api_answer_json(struct api *a, struct http_request *r);

/* Reads a list of token ids below the vocabulary's size; stops early once out overflows. Any thread. */
bool api_token_list(const struct api *a, const char *name, const json_t *list, struct token_vec *out, struct apierr *e);
/* Handlers. */
void api_chat(struct api *a, struct http_request *r);
void api_completions(struct api *a, struct http_request *r);
void api_responses(struct api *a, struct http_request *r);
void api_responses_count(struct api *a, struct http_request *r);
void api_responses_stored(struct api *a, struct http_request *r);
void api_messages(struct api *a, struct http_request *r);
void api_messages_count(struct api *a, struct http_request *r);
void api_models(struct api *a, struct http_request *r);
void api_model(struct api *a, struct http_request *r);
void api_tokenize(struct api *a, struct http_request *r);
void api_detokenize(struct api *a, struct http_request *r);
void api_embeddings(struct api *a, struct http_request *r);
void api_render_chat(struct api *a, struct http_request *r);
void api_render_completions(struct api *a, struct http_request *r);
void api_health(struct api *a, struct http_request *r);
void api_live(struct api *a, struct http_request *r);
void api_ping(struct api *a, struct http_request *r);
void api_version(struct api *a, struct http_request *r);
void api_load(struct api *a, struct http_request *r);
void api_metrics(struct api *a, struct http_request *r);
void api_openapi(struct api *a, struct http_request *r);

#endif
