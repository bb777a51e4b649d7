/* embed_text.h - the document of /v1/embeddings: pure. */
#ifndef SLUICE_EMBED_TEXT_H
#define SLUICE_EMBED_TEXT_H

#include "common/base.h"
#include "common/strbuf.h"

struct embed_vector {
	float *values; /* owned by whoever has the struct; finite */
	uint32_t n;
};

void embed_text_begin(struct strbuf *out, const char *id, const char *model, int64_t created);
/* The vector scaled to length 1 (one of nothing but zeros stays), as numbers, or as base64 of little-endian float32. */
void embed_text_vector(struct strbuf *out, size_t ix, struct embed_vector *v, bool is_base64);
void embed_text_end(struct strbuf *out, uint64_t n_tokens);

#endif
