/* jsonplace.h - JSON files of a model's folder (tokenizer.json, config.json ...), and places in them.
 *
 * A place is a value in a file and the way to it ("pre_tokenizer.pretokenizers[1].pattern"), so that every message names
 * both. */
#ifndef SLUICE_JSONPLACE_H
#define SLUICE_JSONPLACE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/gguf.h"

#include <jansson.h>

#define JSONPLACE_FILE_MAX   (192 * MIB)        /* the largest published ones have some 35 MB */
#define JSONPLACE_VALUES_MAX ((size_t)16 << 20) /* each costs jansson some 50 bytes while it is read */
#define JSONPLACE_DEPTH_MAX  32                 /* the deepest published ones have 8 */

/* The object in a JSON file, bounded as above, to be released with json_decref(); no key twice. ST_NOT_FOUND: there is no
 * such file. shown: its name in messages. */
int jsonplace_load(json_t **out, const char *path, const char *shown, struct errbuf *err) MUST_CHECK;

/* ---- places ---- */

struct jsonplace {
	const char *file;
	const json_t *value; /* NULL: there is none */
	char way[160];       /* cut when longer */
	struct errbuf *err;
};

struct jsonplace jsonplace_member(const struct jsonplace *p, const char *key);
struct jsonplace jsonplace_item(const struct jsonplace *p, size_t ix);
/* There is no such member, or it is null. */
bool jsonplace_is_null(const struct jsonplace *p);
/* Sets "FILE: WAY: text" and returns rc. */
int jsonplace_fail(const struct jsonplace *p, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Values that must be of a kind. The _or variants give fallback where there is none. */
int jsonplace_str(const struct jsonplace *p, struct gguf_str *out) MUST_CHECK;
int jsonplace_bool_or(const struct jsonplace *p, const char *key, bool fallback, bool *out) MUST_CHECK;
int jsonplace_array(const struct jsonplace *p, size_t *n) MUST_CHECK;
/* An id below n_ids. */
int jsonplace_id(const struct jsonplace *p, size_t n_ids, uint32_t *out) MUST_CHECK;
/* A member that must be absent, null, an empty text, 0 or false, for what is not supported; why says so. */
int jsonplace_must_be_unset(const struct jsonplace *p, const char *key, const char *why) MUST_CHECK;

#endif
