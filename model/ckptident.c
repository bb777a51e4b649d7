/* ckptident.c - see ckptident.h. */
#include "model/ckptident.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define TENSORS_READ 256 /* a page each: what is read of the largest models takes a moment */
#define BYTES_READ   64  /* of such a tensor, from its middle */

static uint64_t join(const void *data, size_t len, uint64_t h)
{
	h = XXH3_64bits_withSeed(&len, sizeof(len), h);
	return len ? XXH3_64bits_withSeed(data, len, h) : h;
}

static uint64_t join_metadata(const struct ckpt *c, uint64_t h)
{
	const struct gguf *g = ckpt_gguf(c);
	char *text = g ? NULL : json_dumps(ckpt_config(c), JSON_COMPACT | JSON_SORT_KEYS);
	size_t i;

	if (text) h = join(text, strlen(text), h);
	free(text);
	for (i = 0; g && i < gguf_kv_count(g); i++) {
		const struct gguf_kv *kv = gguf_kv_at(g, i);

		h = join(kv->key.s, kv->key.len, h);
		h = join(kv->data, kv->bytes, h);
	}
	return h;
}

static uint64_t join_headers(const struct ckpt *c, uint64_t h)
{
	size_t i;

	for (i = 0; i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor *t = ckpt_tensor_at(c, i);

		h = join(t->name.s, t->name.len, h);
		h = join(&t->type, sizeof(t->type), h);
		h = join(t->dims, t->n_dims * sizeof(*t->dims), h);
	}
	return h;
}

/* Which tensors are read has no period: neighbours of a layer change together. */
static uint64_t join_numbers(const struct ckpt *c, uint64_t h)
{
	size_t n = ckpt_tensor_count(c), i;

	for (i = 0; i < TENSORS_READ && i < n; i++) {
		const struct ckpt_tensor *t = ckpt_tensor_at(c, n <= TENSORS_READ ? i : XXH3_64bits(&i, sizeof(i)) % n);
		uint64_t len = min_u64(t->bytes, BYTES_READ);

		if (len) h = join(t->data + (t->bytes - len) / 2, len, h);
	}
	return h;
}

uint64_t ckptident(const struct ckpt *c)
{
	uint64_t h = join_numbers(c, join_headers(c, join_metadata(c, 0)));

	return h ? h : 1;
}

int ckptident_check(const struct ckpt *c, uint64_t expected, struct errbuf *err)
{
	if (!expected || ckptident(c) == expected) return ST_OK;
	return err_set(
		err, ST_INVALID,
		"%s is another model than the one that is being served; put that one back, or restart the server",
		ckpt_shown_path(c));
}
