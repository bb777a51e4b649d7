/* gguf.h - a GGUF model file, memory-mapped and checked.
 *
 * After gguf_open() every offset, length, count and type in the file has been checked against the size of the file, keys
 * and tensor names are unique, well-formed UTF-8, and the accessors below cannot run out of the map. The file is still
 * not trusted: what the values mean (a head count of 0, a vocabulary of the wrong size) is for the caller to check, with
 * the range helpers here, whose messages name file, key, what was found and what was expected.
 *
 * All strings and data are views of the map: valid until gguf_close(), not terminated. Versions 2 and 3, little-endian.
 * Source of the format: the GGUF specification in the ggml repository (docs/gguf.md). */
#ifndef SLUICE_GGUF_H
#define SLUICE_GGUF_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/ggtype.h"
#include "model/filemap.h"

struct gguf;

enum gguf_kind {
	GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STR, GGUF_ARR, GGUF_U64,
	GGUF_I64, GGUF_F64,
	GGUF_KIND_COUNT
};

struct gguf_str {
	const char *s; /* not terminated */
	size_t len;
};

/* "u32", "str", "array" ... */
const char *gguf_kind_name(enum gguf_kind kind);

struct gguf_kv {
	struct gguf_str key;
	enum gguf_kind kind;
	enum gguf_kind elem_kind; /* of GGUF_ARR */
	uint64_t n;               /* elements of GGUF_ARR, else 1 */
	const uint8_t *data;      /* the encoded value or elements (unaligned) */
	uint64_t bytes;           /* of data */
};

#define GGUF_DIMS_MAX 4

struct gguf_tensor {
	struct gguf_str name;
	enum ggtype type;
	uint32_t n_dims;
	uint64_t dims[GGUF_DIMS_MAX]; /* innermost first, as in the file; unused ones are 1 */
	const uint8_t *data;
	uint64_t bytes;
};

/* Opens and checks one file; a part of a split model too (gguf_split()), of which ckpt_open() reads all. On an error the text names
 * file, field and what was expected. Takes no large allocation: memory is proportional to the number of keys and
 * tensors, which the file's size bounds. */
int gguf_open(struct gguf **out, const char *path, struct errbuf *err) MUST_CHECK;
/* The same for a file that is mapped already. Takes the map, also when it fails; path is for error texts alone. */
int gguf_open_map(struct gguf **out, const char *path, struct filemap file, struct errbuf *err) MUST_CHECK;
void gguf_close(struct gguf *g);

/* Which part of a split model it is: no from 0, count 1 when it is none; tensors of all parts together, 0: not said. */
struct gguf_split {
	uint32_t no, count;
	uint64_t tensors;
};
struct gguf_split gguf_split(const struct gguf *g);

const char *gguf_path(const struct gguf *g);
/* The path as error texts show it: escaped, shortened to its last name when long. */
const char *gguf_shown_path(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
/* First byte of the tensor data in the map, and its length. */
const uint8_t *gguf_data(const struct gguf *g, uint64_t *bytes);

size_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t ix);
size_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t ix);

/* NULL when there is no such key or tensor. O(1). */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Typed reads of one key. Any integer kind is accepted for u64; any integer or float kind for f64.
 * ST_NOT_FOUND (key missing) and ST_INVALID (wrong kind, out of [min, max], NaN) set err; the _or variants give `fallback`
 * when the key is missing and still refuse a bad value. */
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t *out, struct errbuf *err) MUST_CHECK;
int gguf_get_u64_or(const struct gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t fallback, uint64_t *out,
		    struct errbuf *err) MUST_CHECK;
int gguf_get_f64(const struct gguf *g, const char *key, double min, double max, double *out, struct errbuf *err) MUST_CHECK;
int gguf_get_f64_or(const struct gguf *g, const char *key, double min, double max, double fallback, double *out,
		    struct errbuf *err) MUST_CHECK;
int gguf_get_bool_or(const struct gguf *g, const char *key, bool fallback, bool *out, struct errbuf *err) MUST_CHECK;
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct errbuf *err) MUST_CHECK;

/* The key as an array of the given element kind. */
int gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind elem_kind, const struct gguf_kv **out,
		   struct errbuf *err) MUST_CHECK;

/* Element ix of a numeric array (or the value of a numeric key), ix < kv->n. Signed ones are sign-extended by _u64. */
uint64_t gguf_array_u64(const struct gguf_kv *kv, uint64_t ix);
int64_t gguf_array_i64(const struct gguf_kv *kv, uint64_t ix);
double gguf_array_f64(const struct gguf_kv *kv, uint64_t ix);

/* Walks a string array: start with *pos = 0; true while there is a string. */
bool gguf_array_next_str(const struct gguf_kv *kv, uint64_t *pos, struct gguf_str *out);

bool gguf_str_is(struct gguf_str s, const char *text);

#endif
