/* schemadoc.h - a JSON schema as a document: where each schema in it stands, what its references mean, which draft it is of.
 *
 * References are followed within the document alone: JSON pointers, "$id" with relative URIs, "$anchor". One that leads out of it is
 * refused; no connection is ever made. */
#ifndef SLUICE_SCHEMADOC_H
#define SLUICE_SCHEMADOC_H

#include "common/map.h"
#include "frontend/gramctx.h"

enum schemadoc_draft { SCHEMADOC_3 = 3, SCHEMADOC_4 = 4, SCHEMADOC_6 = 6, SCHEMADOC_7 = 7, SCHEMADOC_2019 = 8, SCHEMADOC_2020 = 9 };

struct schemadoc_place;
struct schemadoc_name;

struct schemadoc {
	struct gramctx *g;
	const json_t *root;
	enum schemadoc_draft draft;
	bool is_declared;     /* by "$schema"; otherwise 2020-12, and what older drafts wrote differently is understood too */
	struct map places;    /* schema -> struct schemadoc_place */
	struct schemadoc_name *names;
	size_t n_names, cap_names;
	unsigned n_dynamic;   /* "$dynamicAnchor" or "$recursiveAnchor" that are there */
};

/* Fails for an unknown draft, two schemas of the same name, and too much depth. */
void schemadoc_init(struct schemadoc *d, struct gramctx *g, const json_t *root);
void schemadoc_release(struct schemadoc *d);

/* What a reference in the schema `from` leads to; NULL: g has failed. */
const json_t *schemadoc_follow(struct schemadoc *d, const json_t *from, const char *keyword, const char *ref);

/* The document may use what came with draft 2019-09. */
static inline bool schemadoc_is_2019(const struct schemadoc *d)
{
	return d->draft >= SCHEMADOC_2019;
}

/* Fails with "at /where: ...". */
int schemadoc_fail(struct schemadoc *d, int rc, const json_t *at, const char *fmt, ...) PRINTF_LIKE(4, 5);
/* The place as text, in the arena. */
const char *schemadoc_path(struct schemadoc *d, const json_t *at);

#endif
