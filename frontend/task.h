/* task.h - a request whose answer is a document that depends on its body alone: made by a function in any thread, then sent. */
#ifndef SLUICE_TASK_H
#define SLUICE_TASK_H

#include "common/base.h"
#include "common/strbuf.h"
#include "frontend/api.h"
#include "frontend/offload.h"

struct task {
	/* For the worker. */
	const struct api *api;
	uint32_t len_max;    /* the model's length; 0: not known yet */
	char id[HTTP_REQUEST_ID_MAX + 1]; /* the request's */
	const json_t *body;  /* an object */
	struct strbuf out;   /* the answer, JSON; too long a one is an error by name */
	struct apierr error; /* status 0: all is well */

	/* task.c's own. */
	struct strbuf bytes;
	json_t *root;
	bool is_large;
	void (*work)(struct task *t);
	struct offload_job job;
};

/* Takes the request over. work(t) looks at nothing that can change, fills out or error. Small bodies are worked on at once. */
void task_start(struct api *a, struct http_request *r, void (*work)(struct task *t));

#endif
