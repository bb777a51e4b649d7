/* hubinfo.h - what a hub says about a repository at a revision: its commit and its files. */
#ifndef SLUICE_HUBINFO_H
#define SLUICE_HUBINFO_H

#include "sluice/hubbar.h"
#include "sluice/hubname.h"
#include "sluice/hubweb.h"

#include <jansson.h>

#define HUBINFO_FILES_MAX 20000 /* published models have at most some hundreds */

struct hubinfo {
	char commit[HUBNAME_COMMIT_LEN + 1];
	json_t *root;       /* owned; the names are views of it */
	const char **names; /* owned, (n): the safe ones; a name that cannot be a path is left out, so nothing can ask
			       for it */
	size_t n;
};

/* Asks the hub, with retries. ST_NOT_FOUND, ST_DENIED, ST_IO, ST_CORRUPT. Release it in any case. */
int hubinfo_fetch(struct hubinfo *info, struct hubweb *w, const struct hubname *name, struct hubbar *bar,
		  struct errbuf *err) MUST_CHECK;
/* The same from an answer's text. */
int hubinfo_parse(struct hubinfo *info, const char *text, size_t len, const struct hubname *name,
		  struct errbuf *err) MUST_CHECK;
void hubinfo_release(struct hubinfo *info);

#endif
