/* tokbytes_model.c - which vocabulary goes with a checkpoint; see tokbytes.h. */
#include "model/ckpt.h"
#include "model/tokbytes_json.h"

int tokbytes_from_model(struct tokbytes **out, const struct ckpt *c, const char *tokenizer, uint32_t n_tokens,
			struct errbuf *err)
{
	const struct gguf *g = ckpt_gguf(c);
	bool own = !tokenizer || !tokenizer[0];
	int rc;

	if (own && g)
		rc = tokbytes_from_gguf(out, g, err);
	else
		rc = tokbytes_from_json(out, own ? ckpt_path(c) : tokenizer, err);
	if (rc == ST_OK) (*out)->n = min_u32((*out)->n, n_tokens);
	return rc;
}
