/* inspect_info.h - what `sluice inspect` has found out, handed from inspect.c to its printers. */
#ifndef SLUICE_INSPECT_INFO_H
#define SLUICE_INSPECT_INFO_H

#include "common/amount.h"
#include "common/strbuf.h"
#include "model/ckpt.h"
#include "model/kvplan.h"
#include "model/spec.h"

#define INSPECT_FIRST_N      8    /* elements of an array that --metadata shows */
#define INSPECT_TOKENS_AHEAD 1024 /* two steps of the default size: what windows are planned with */

struct inspect_type {
	uint32_t type; /* as ckpt.h numbers them */
	uint64_t tensors, params, bytes;
};

/* Layers that do the same: by what they mix tokens with, or by their feed-forward part. */
struct inspect_kind {
	const struct spec_layer *y; /* one of them */
	uint32_t n_layers;
};

/* What a tokenizer's file says of itself; owned by the info where `owned` is set. */
struct inspect_tokenizer {
	struct gguf_str kind, pre;   /* s is NULL where there is none */
	uint64_t n_tokens, n_merges; /* 0: none */
	struct gguf_str chat_template;
	char *owned_kind, *owned_pre, *owned_template;
	struct errbuf why; /* why the files cannot be read; "" when they can */
};

struct inspect_info {
	const struct ckpt *c;
	struct spec spec; /* valid when spec_rc is ST_OK */
	int spec_rc;
	const char *reason;         /* why it cannot be served; "" when it can */
	struct inspect_type *types; /* (n_types) most bytes first; owned */
	size_t n_types, cap_types;
	struct inspect_kind *mixers, *ffns; /* in the order of their first layers; owned */
	uint32_t n_mixers, n_ffns;
	uint64_t params, bytes;
	struct gguf_str arch, name; /* s is NULL where the key is missing or no text */
	struct inspect_tokenizer tok;
	bool want_tensors, want_metadata;
};

/* inspect_collect.c: fills a zeroed *info; release it in any case. Problems of the model are in spec_rc and reason,
 * those of the tokenizer's files in tok.why. */
void inspect_collect(struct inspect_info *info, const struct ckpt *c, const struct spec_opts *opts, struct errbuf *err);
void inspect_release(struct inspect_info *info);

/* How a rotation's frequencies were made: base^(-2 i / dims), all of them slower by `linear`; scaled: some more than
 * others. */
struct inspect_rope {
	double base, linear;
	bool scaled;
};
struct inspect_rope inspect_rope_of(const struct spec_rope *r);

bool inspect_type_supported(const struct inspect_info *info, uint32_t type);

/* "FP8 in blocks of 128 x 128", or "none". */
void inspect_quant_text(const struct spec_quant *q, struct strbuf *out);

void inspect_text(const struct inspect_info *info, struct strbuf *out);
void inspect_json(const struct inspect_info *info, struct strbuf *out);

struct inspect_memory;
void inspect_json_memory(const struct inspect_memory *m, struct strbuf *out);

#endif
