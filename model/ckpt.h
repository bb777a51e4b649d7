/* ckpt.h - a checkpoint, opened and checked: a GGUF file (also a split one), or a Hugging Face folder of safetensors.
 *
 * What both have in common: named tensors with a type, a shape and bytes in a memory map. What differs stays visible: ckpt_gguf()
 * gives the metadata of the one, ckpt_config() of the other. Every offset, length, count and type has been checked against the sizes
 * of the files; nothing else in them is trusted. All views live until ckpt_close(). */
#ifndef SLUICE_CKPT_H
#define SLUICE_CKPT_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/gguf.h"

#include <jansson.h>

struct ckpt;

/* Element types as files name them. The GGUF types keep their numbers; what only safetensors have is above them. */
#define CKPT_DIMS_MAX 8
enum {
	CKPT_U8 = 2001, CKPT_BOOL, CKPT_F8_E5M2, CKPT_U16, CKPT_U32, CKPT_U64, CKPT_F8_E8M0, CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ, CKPT_C64,
	CKPT_F4, CKPT_F6_E2M3, CKPT_F6_E3M2
};

struct ckpt_tensor {
	struct gguf_str name; /* not terminated */
	uint32_t type;        /* enum ggtype (F8_E4M3 too), or one of the above */
	uint32_t n_dims;
	uint64_t dims[CKPT_DIMS_MAX]; /* outermost first, for both kinds of file */
	const uint8_t *data;          /* any alignment */
	uint64_t bytes;
	uint32_t file; /* which of the checkpoint's files */
};

/* path: a GGUF file, the first file of a split one ("-00001-of-0000N.gguf"), or a folder with config.json and safetensors. A folder
 * without *.safetensors but with exactly one GGUF (or one split one) is that. ST_NOT_FOUND, ST_INVALID, ST_CORRUPT, ST_UNSUPPORTED: the text
 * names file and field. Missing parts are named. Reads headers only; memory is proportional to the number of tensors and keys. */
int ckpt_open(struct ckpt **out, const char *path, struct errbuf *err) MUST_CHECK;

/* The same from bytes in memory, as if these were all files of a folder: for tests and fuzz targets. path: the part that is given as the
 * model (a GGUF file); NULL: the folder. The bytes are copied; ckpt_drop() is safe. */
struct ckpt_part {
	const char *name;
	const void *data;
	size_t bytes;
	size_t zeroes; /* that many follow; they take no memory */
};
int ckpt_open_parts(struct ckpt **out, const struct ckpt_part *parts, size_t n, const char *path, struct errbuf *err) MUST_CHECK;
void ckpt_close(struct ckpt *c);

/* As error texts show it: escaped, shortened. */
const char *ckpt_shown_path(const struct ckpt *c);
const char *ckpt_path(const struct ckpt *c);
/* The metadata: of the first GGUF file, or NULL; config.json's object, or NULL. Exactly one is there. */
const struct gguf *ckpt_gguf(const struct ckpt *c);
const json_t *ckpt_config(const struct ckpt *c);

size_t ckpt_file_count(const struct ckpt *c);
const char *ckpt_file_name(const struct ckpt *c, size_t ix); /* as shown in messages */
uint64_t ckpt_bytes(const struct ckpt *c);                   /* of all files */

size_t ckpt_tensor_count(const struct ckpt *c);
const struct ckpt_tensor *ckpt_tensor_at(const struct ckpt *c, size_t ix);
/* NULL when there is none. O(1). */
const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name);

/* "BF16", "Q4_K", "I32", "F8_E5M2" ... */
const char *ckpt_type_name(uint32_t type);

/* Tells the kernel that these bytes will be read soon, or are not needed any more (whole pages of them alone). */
void ckpt_will_need(const struct ckpt_tensor *t);
void ckpt_drop(const struct ckpt_tensor *t, uint64_t from, uint64_t bytes);

#endif
