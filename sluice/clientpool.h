/* clientpool.h - many streaming requests at once, in one thread: the load generator's side of libcurl. */
#ifndef SLUICE_CLIENTPOOL_H
#define SLUICE_CLIENTPOOL_H

#include "common/base.h"
#include "common/errbuf.h"
#include "sluice/cmdopts.h"

#include <jansson.h>

struct clientpool;

/* n_max: requests at a time. */
int clientpool_open(struct clientpool **out, const struct cmdserver *server, uint32_t n_max, struct errbuf *err) MUST_CHECK;
void clientpool_close(struct clientpool *p);

uint32_t clientpool_n_free(const struct clientpool *p);

/* Starts a POST; body is kept until the end. on_event for each `data:` payload except [DONE]; on_end once, with NULL or an error's text. At least
 * one must be free. */
void clientpool_start(struct clientpool *p, const char *path, const char *body, bool (*on_event)(void *ctx, json_t *event),
		      void (*on_end)(void *ctx, const char *error), void *ctx);

/* Waits for something to happen, at most timeout_ms, and handles it. */
void clientpool_poll(struct clientpool *p, int timeout_ms);

#endif
