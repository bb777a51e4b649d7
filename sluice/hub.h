/* hub.h - models by their names on a Hugging Face hub: found in the cache, or fetched into it. */
#ifndef SLUICE_HUB_H
#define SLUICE_HUB_H

#include "common/base.h"
#include "common/errbuf.h"
#include "sluice/hubname.h"

struct hub_opts {
	bool may_fetch;                  /* hub_resolve(): what is not in the cache is fetched */
	bool progress;                   /* a bar, when stderr is a terminal */
	void (*say)(const char *line);   /* what happens, a line without "\n" */
	void (*beat)(const char *state); /* called every few seconds while bytes come; NULL: nobody is interested */
};

struct hub_found {
	char *path; /* owned; a folder, or a GGUF file (of a split one the first part) */
	char *repo; /* owned; "ORG/NAME"; NULL: the model was a path */
};

/* A model as a user gives it: a path that exists, else a name on the hub (hubname.h) of which the cache has all that
 * serving needs, else it is fetched first. What cannot be a name stays the path that it is, for whoever opens it to
 * complain about. Blocking. */
int hub_resolve(struct hub_found *out, const char *model, const struct hub_opts *o, struct errbuf *err) MUST_CHECK;

/* Brings the cache up to date with the hub: ST_OK also when all was there. */
int hub_pull(struct hub_found *out, const struct hubname *name, const struct hub_opts *o,
	     struct errbuf *err) MUST_CHECK;

void hub_found_release(struct hub_found *f);

#endif
