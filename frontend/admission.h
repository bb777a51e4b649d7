/* admission.h - the door of a frontend: whether a request is taken on, whose it is, and how long it may take.
 *
 * What a request has taken of the mesh's and its tenant's limits (proto/governor.h) is part of the request itself, so it is given back
 * where the request ends, whichever way that is: admission_over() is called exactly there, by its connection.
 *
 *   head     whose it is (tenant); refused if there is no room anyway and a large body would still have to come
 *   whole    one request is reserved, before anything of the body is looked at; its deadlines begin
 *   prepared the rest: further choices and inputs, tokens
 *   over     all is given back
 *
 * Nothing is reserved for a request that is still arriving: slow senders could hold all places without ever asking for anything.
 *
 * A tenant is an API key, where the server has keys, with X-Gateway-Inference-Fairness-Id if that came (tenant.h). The header is believed:
 * who holds a key can divide its own account, so a gateway in front sets the header or takes it away. All others are one tenant. */
#ifndef SLUICE_ADMISSION_H
#define SLUICE_ADMISSION_H

#include "common/base.h"
#include "frontend/deadline.h"
#include "proto/governor.h"

struct api;
struct apierr;
struct http_request;

/* In struct http_request. */
struct admission {
	uint64_t tenant; /* for submits, too */
	uint32_t retry_ms; /* of a refusal at the head */
	struct governor_hold hold;
	uint64_t taken_ns;
	uint64_t answer_by_ns, token_by_ns; /* UINT64_MAX: whenever */
	uint64_t answer_in_ns, token_in_ns; /* as durations, for texts */
	struct deadline deadline;           /* the earlier of the two */
};

/* In struct api: what the door remembers. */
struct admission_door {
	struct governor_door governor;
	struct deadlines deadlines;
	uint64_t hold_ns;  /* moving mean: how long a request held its place */
	uint64_t token_ns; /* likewise: from taking on to the first token */
};

/* g: NULL: nothing is limited or counted. */
void admission_open(struct api *a, struct governor *g, uint32_t slot);
void admission_close(struct api *a);

/* At the end of the head of a request of a route that counts: 0, or the status of the refusal and *text, which stays until the next call. */
int admission_on_head(struct api *a, struct http_request *r, const char **text);
/* Takes the request on. False: e is set. */
bool admission_begin(struct api *a, struct http_request *r, struct apierr *e);
/* The rest of what it needs: n_more requests beside the first one, and all its tokens. False: e is set; what it had it still has. */
bool admission_extend(struct api *a, struct http_request *r, uint64_t n_more, uint64_t n_tokens, struct apierr *e);
/* The first token has come. */
void admission_first_token(struct api *a, struct http_request *r);
/* Whether it is given up unless a token comes: its status is not said before. */
bool admission_waits_for_token(const struct http_request *r);
/* The request has ended. */
void admission_over(struct api *a, struct http_request *r);

/* Ends what is late: r's on_late, or without one on_gone and an answer. */
void admission_step(struct api *a, uint64_t now);
/* When that has to be called again. */
uint64_t admission_next(const struct api *a);

#endif
