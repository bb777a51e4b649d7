/* inspect_info.h - what `sluice inspect` has found out, handed from inspect.c to its two printers. */
#ifndef SLUICE_INSPECT_INFO_H
#define SLUICE_INSPECT_INFO_H

#include "model/gguf.h"
#include "model/modelshape.h"

struct strbuf;

#define INSPECT_BLOCK_LEN 16 /* tokens a KV block; KBLOCK_LEN of the kernels */
#define INSPECT_FIRST_N   8  /* elements of an array that --metadata shows */
#define INSPECT_TYPES_MAX 64 /* above the number of tensor types */

struct inspect_type {
	enum ggtype type;
	uint64_t tensors, params, bytes;
};

struct inspect_info {
	const struct gguf *g;
	struct modelshape shape; /* valid when shape_rc is ST_OK */
	int shape_rc;
	const char *reason;                           /* why it cannot be served; "" when it can */
	struct inspect_type types[INSPECT_TYPES_MAX]; /* most bytes first */
	size_t n_types;
	uint64_t params, bytes;
	struct gguf_str arch, name, tok_kind, tok_pre,
		chat_template;       /* s is NULL where the key is missing or no text */
	uint64_t n_tokens, n_merges; /* 0: none */
	bool want_tensors, want_metadata;
};

void inspect_text(const struct inspect_info *info, struct strbuf *out);
void inspect_json(const struct inspect_info *info, struct strbuf *out);

#endif
