/* schemadoc.c - see schemadoc.h. */
#include "frontend/schemadoc.h"

#include "common/quote.h"
#include "frontend/urijoin.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SCHEMADOC_URI_MAX (4 * KIB)
#define SCHEMADOC_PATH_MAX 300 /* of a place in an error text */
#define SCHEMADOC_PLACE_WORK 20 /* steps; so some 100,000 schemas are the most */

struct schemadoc_place {
	const struct schemadoc_place *parent;
	const char *keyword, *key; /* "/keyword/key" leads here from the parent; either may be NULL */
	size_t index;              /* behind the keyword, when it holds a list; SIZE_MAX: none */
	const char *base;          /* URI that references are relative to */
	const json_t *resource;    /* the schema that has this URI */
};

struct schemadoc_name {
	const char *uri, *anchor; /* anchor: NULL for the schema that the URI is of */
	const json_t *schema;
	bool is_dynamic;
};

/* Which keywords hold schemas. */
enum schemadoc_holds { HOLDS_ONE, HOLDS_LIST, HOLDS_MAP, HOLDS_ONE_OR_LIST, HOLDS_MIXED_MAP };

static const struct {
	const char *keyword;
	enum schemadoc_holds holds;
} schemadoc_keywords[] = {
	{"$defs", HOLDS_MAP},
	{"definitions", HOLDS_MAP},
	{"properties", HOLDS_MAP},
	{"patternProperties", HOLDS_MAP},
	{"dependentSchemas", HOLDS_MAP},
	{"dependencies", HOLDS_MIXED_MAP},
	{"items", HOLDS_ONE_OR_LIST},
	{"prefixItems", HOLDS_LIST},
	{"allOf", HOLDS_LIST},
	{"anyOf", HOLDS_LIST},
	{"oneOf", HOLDS_LIST},
	{"extends", HOLDS_ONE_OR_LIST},
	{"type", HOLDS_ONE_OR_LIST}, /* draft 3 */
	{"disallow", HOLDS_ONE_OR_LIST},
	{"additionalProperties", HOLDS_ONE},
	{"unevaluatedProperties", HOLDS_ONE},
	{"propertyNames", HOLDS_ONE},
	{"additionalItems", HOLDS_ONE},
	{"unevaluatedItems", HOLDS_ONE},
	{"contains", HOLDS_ONE},
	{"not", HOLDS_ONE},
	{"if", HOLDS_ONE},
	{"then", HOLDS_ONE},
	{"else", HOLDS_ONE},
};

static const struct {
	const char *uri;
	enum schemadoc_draft draft;
} schemadoc_drafts[] = {
	{"http://json-schema.org/draft-03/schema", SCHEMADOC_3},
	{"http://json-schema.org/draft-04/schema", SCHEMADOC_4},
	{"http://json-schema.org/draft-06/schema", SCHEMADOC_6},
	{"http://json-schema.org/draft-07/schema", SCHEMADOC_7},
	{"https://json-schema.org/draft/2019-09/schema", SCHEMADOC_2019},
	{"https://json-schema.org/draft/2020-12/schema", SCHEMADOC_2020},
	{"http://json-schema.org/schema", SCHEMADOC_2020},
	{"https://json-schema.org/schema", SCHEMADOC_2020},
};

static struct schemadoc_place *schemadoc_place_of(const struct schemadoc *d, const json_t *schema)
{
	return map_get(&d->places, (uint64_t)(uintptr_t)schema);
}

/* ---- errors ---- */

static void schemadoc_put_path(struct strbuf *out, const struct schemadoc_place *p)
{
	const struct schemadoc_place *chain[GRAMCTX_DEPTH_MAX * 2];
	size_t n = 0;

	for (; p && p->parent && n < ARRAY_LEN(chain); p = p->parent) chain[n++] = p;
	while (n-- > 0) {
		if (chain[n]->keyword) strbuf_printf(out, "/%s", chain[n]->keyword);
		if (chain[n]->key) strbuf_printf(out, "/%s", quote_short(chain[n]->key, strlen(chain[n]->key)).text);
		if (chain[n]->index != SIZE_MAX) strbuf_printf(out, "/%zu", chain[n]->index);
	}
}

const char *schemadoc_path(struct schemadoc *d, const json_t *at)
{
	struct strbuf path;
	char *text;

	strbuf_init(&path, 64 * KIB);
	schemadoc_put_path(&path, schemadoc_place_of(d, at));
	/* The end of a long one says more than its beginning. */
	text = gramctx_alloc(d->g, SCHEMADOC_PATH_MAX + 8, 1);
	if (!path.len) strcpy(text, "the root");
	else if (path.len > SCHEMADOC_PATH_MAX) snprintf(text, SCHEMADOC_PATH_MAX + 8, "...%s", path.data + path.len - SCHEMADOC_PATH_MAX);
	else strcpy(text, path.data);
	strbuf_release(&path);
	return text;
}

int schemadoc_fail(struct schemadoc *d, int rc, const json_t *at, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (!gramctx_is_ok(d->g)) return d->g->rc;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return gramctx_fail(d->g, rc, "at %s: %s", schemadoc_path(d, at), text);
}

/* ---- names ---- */

static const char *schemadoc_join(struct schemadoc *d, const char *base, const char *ref)
{
	struct strbuf uri;
	const char *text;

	strbuf_init(&uri, SCHEMADOC_URI_MAX);
	urijoin(&uri, base, ref);
	if (uri.overflow) gramctx_fail(d->g, ST_LIMIT, "a URI in the schema is longer than %zu bytes", SCHEMADOC_URI_MAX);
	text = gramctx_dup(d->g, uri.data ? uri.data : "", uri.len + 1, 1);
	strbuf_release(&uri);
	return text;
}

static const struct schemadoc_name *schemadoc_named(const struct schemadoc *d, const char *uri, const char *anchor)
{
	size_t i;

	for (i = 0; i < d->n_names; i++) {
		const struct schemadoc_name *n = &d->names[i];

		if (strcmp(n->uri, uri) == 0 && !n->anchor == !anchor && (!anchor || strcmp(n->anchor, anchor) == 0)) return n;
	}
	return NULL;
}

static void schemadoc_add_name(struct schemadoc *d, const char *uri, const char *anchor, const json_t *schema, bool is_dynamic)
{
	const struct schemadoc_name *known = schemadoc_named(d, uri, anchor);

	gramctx_work(d->g, 1 + d->n_names);
	if (known && known->schema != schema)
		schemadoc_fail(d, ST_INVALID, schema, "a second schema of the name %s%s%s", uri, anchor ? "#" : "", anchor ? anchor : "");
	gramctx_reserve(d->g, d->names, d->n_names, d->cap_names);
	d->names[d->n_names++] = (struct schemadoc_name){uri, anchor, schema, is_dynamic};
}

static const char *schemadoc_text(const json_t *schema, const char *keyword)
{
	return json_string_value(json_object_get(schema, keyword));
}

static void schemadoc_add_id(struct schemadoc *d, const json_t *schema, struct schemadoc_place *p)
{
	const char *id = schemadoc_text(schema, d->draft <= SCHEMADOC_4 ? "id" : "$id"), *hash;

	/* What stands beside a reference does not count in the older drafts. */
	if (!id || (d->draft <= SCHEMADOC_7 && json_object_get(schema, "$ref"))) return;
	hash = strchr(id, '#');
	if (hash && hash[1] && d->draft <= SCHEMADOC_7) schemadoc_add_name(d, schemadoc_join(d, p->base, id), hash + 1, schema, false);
	if (id[0] == '#') return;
	p->base = schemadoc_join(d, p->base, id);
	p->resource = schema;
	schemadoc_add_name(d, p->base, NULL, schema, false);
}

static void schemadoc_add_names(struct schemadoc *d, const json_t *schema, struct schemadoc_place *p)
{
	const char *anchor;

	schemadoc_add_id(d, schema, p);
	if (d->draft < SCHEMADOC_2019) return;
	if ((anchor = schemadoc_text(schema, "$anchor"))) schemadoc_add_name(d, p->base, anchor, schema, false);
	if ((anchor = schemadoc_text(schema, "$dynamicAnchor"))) {
		schemadoc_add_name(d, p->base, anchor, schema, true);
		d->n_dynamic++;
	}
	if (json_is_true(json_object_get(schema, "$recursiveAnchor"))) d->n_dynamic++;
}

/* ---- places ---- */

static void schemadoc_scan(struct schemadoc *d, const json_t *schema, const struct schemadoc_place *where, int depth);

static void schemadoc_scan_keyword(struct schemadoc *d, const json_t *value, enum schemadoc_holds holds, struct schemadoc_place where, int depth)
{
	const char *key;
	json_t *item;
	size_t i;

	if ((holds == HOLDS_MAP || holds == HOLDS_MIXED_MAP) && json_is_object(value)) {
		json_object_foreach((json_t *)value, key, item) {
			where.key = key;
			if (holds == HOLDS_MAP || json_is_object(item)) schemadoc_scan(d, item, &where, depth);
		}
	} else if (json_is_array(value) && (holds == HOLDS_LIST || holds == HOLDS_ONE_OR_LIST)) {
		json_array_foreach((json_t *)value, i, item) {
			where.index = i;
			schemadoc_scan(d, item, &where, depth);
		}
	} else if (holds == HOLDS_ONE || holds == HOLDS_ONE_OR_LIST) {
		schemadoc_scan(d, value, &where, depth);
	}
}

static void schemadoc_scan(struct schemadoc *d, const json_t *schema, const struct schemadoc_place *where, int depth)
{
	struct schemadoc_place *p;
	const json_t *value;
	size_t i;

	if (!json_is_object(schema) || schemadoc_place_of(d, schema)) return;
	if (!gramctx_work(d->g, SCHEMADOC_PLACE_WORK)) return;
	p = gramctx_dup(d->g, where, 1, sizeof(*p));
	map_put(&d->places, (uint64_t)(uintptr_t)schema, p);
	if (depth > GRAMCTX_DEPTH_MAX) {
		schemadoc_fail(d, ST_LIMIT, schema, "schemas are nested deeper than %d", GRAMCTX_DEPTH_MAX);
		return;
	}
	schemadoc_add_names(d, schema, p);
	for (i = 0; i < ARRAY_LEN(schemadoc_keywords); i++) {
		struct schemadoc_place inner = {p, schemadoc_keywords[i].keyword, NULL, SIZE_MAX, p->base, p->resource};

		value = json_object_get(schema, schemadoc_keywords[i].keyword);
		if (value) schemadoc_scan_keyword(d, value, schemadoc_keywords[i].holds, inner, depth + 1);
	}
}

static void schemadoc_read_draft(struct schemadoc *d)
{
	const json_t *uri = json_object_get(d->root, "$schema");
	const char *text = json_string_value(uri);
	size_t n = text ? strcspn(text, "#") : 0, i;

	d->draft = SCHEMADOC_2020;
	if (!uri) return;
	for (i = 0; i < ARRAY_LEN(schemadoc_drafts); i++) {
		if (!text || strlen(schemadoc_drafts[i].uri) != n || memcmp(schemadoc_drafts[i].uri, text, n) != 0) continue;
		d->draft = schemadoc_drafts[i].draft;
		d->is_declared = true;
		return;
	}
	gramctx_fail(d->g, ST_UNSUPPORTED, "at the root: `$schema` is not one of the drafts 3, 4, 6, 7, 2019-09 and 2020-12 of json-schema.org");
}

void schemadoc_init(struct schemadoc *d, struct gramctx *g, const json_t *root)
{
	struct schemadoc_place where = {NULL, NULL, NULL, SIZE_MAX, "", root};

	*d = (struct schemadoc){.g = g, .root = root};
	map_init(&d->places);
	schemadoc_read_draft(d);
	schemadoc_scan(d, root, &where, 0);
}

void schemadoc_release(struct schemadoc *d)
{
	map_release(&d->places);
}

/* ---- references ---- */

static int schemadoc_hex(char c)
{
	if (c >= '0' && c <= '9') return c - '0';
	if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
	return -1;
}

/* The fragment with %XX resolved, in the arena. */
static char *schemadoc_unescape(struct schemadoc *d, const char *s)
{
	char *out = gramctx_alloc(d->g, strlen(s) + 1, 1), *to = out;

	for (; *s; s++) {
		if (s[0] == '%' && s[1] && schemadoc_hex(s[1]) >= 0 && schemadoc_hex(s[2]) >= 0) {
			*to++ = (char)(schemadoc_hex(s[1]) << 4 | schemadoc_hex(s[2]));
			s += 2;
		} else {
			*to++ = *s;
		}
	}
	return out;
}

/* One segment of a pointer, without its slash, with ~0 and ~1 resolved in place. Moves *s behind it. */
static char *schemadoc_segment(char **s)
{
	char *from = *s, *to = from, *out = from;

	for (; *from && *from != '/'; from++) {
		*to = *from;
		if (from[0] == '~' && (from[1] == '0' || from[1] == '1')) {
			*to = from[1] == '0' ? '~' : '/';
			from++;
		}
		to++;
	}
	*s = *from ? from + 1 : NULL;
	*to = 0;
	return out;
}

static const json_t *schemadoc_index(const json_t *list, const char *text)
{
	size_t i = 0;
	const char *s;

	for (s = text; *s >= '0' && *s <= '9' && s - text < 8; s++) i = i * 10 + (size_t)(*s - '0');
	return s == text || *s ? NULL : json_array_get(list, i);
}

/* Where a pointer leads. Schemas on the way bring their own bases; one at an unusual place gets a place of its own now. */
static const json_t *schemadoc_point(struct schemadoc *d, const json_t *from, char *pointer)
{
	const struct schemadoc_place *above = schemadoc_place_of(d, from), *known;
	const char *whole = gramctx_dup(d->g, pointer, strlen(pointer) + 1, 1);
	struct schemadoc_place where;
	char *s = pointer + 1;

	while (s && from) {
		const char *segment = schemadoc_segment(&s);

		from = json_is_array(from) ? schemadoc_index(from, segment) : json_object_get(from, segment);
		known = from ? schemadoc_place_of(d, from) : NULL;
		if (known) above = known;
	}
	if (from && above && json_is_object(from) && !schemadoc_place_of(d, from)) {
		where = (struct schemadoc_place){above, NULL, whole + 1, SIZE_MAX, above->base, above->resource};
		schemadoc_scan(d, from, &where, 1);
	}
	return from;
}

const json_t *schemadoc_follow(struct schemadoc *d, const json_t *from, const char *keyword, const char *ref)
{
	const struct schemadoc_place *p = schemadoc_place_of(d, from);
	const char *hash = strchr(ref, '#'), *uri;
	const struct schemadoc_name *name;
	const json_t *to;
	char *fragment;

	if (!p) p = schemadoc_place_of(d, d->root);
	uri = ref[0] == '#' || !ref[0] ? p->base : schemadoc_join(d, p->base, ref);
	fragment = schemadoc_unescape(d, hash ? hash + 1 : "");
	name = schemadoc_named(d, uri, NULL);
	to = name ? name->schema : strcmp(uri, p->base) == 0 ? p->resource : NULL;
	if (!to && !uri[0]) to = d->root;
	if (!to) {
		schemadoc_fail(d, ST_UNSUPPORTED, from, "`%s`: %s is not in this document, and other documents are never fetched", keyword,
			       quote_short(ref, strlen(ref)).text);
		return NULL;
	}
	if (fragment[0] == '/') {
		to = schemadoc_point(d, to, fragment);
	} else if (fragment[0]) {
		name = schemadoc_named(d, uri, fragment);
		to = name ? name->schema : NULL;
	}
	if (!to || !(json_is_object(to) || json_is_boolean(to))) {
		schemadoc_fail(d, ST_INVALID, from, "`%s`: %s leads to no schema", keyword, quote_short(ref, strlen(ref)).text);
		return NULL;
	}
	return to;
}
