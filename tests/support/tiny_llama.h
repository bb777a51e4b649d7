/* tiny_llama.h - a whole random llama model with a byte-level tokenizer, small enough to make in a test.
 *
 * The same settings give the same file. Weights are scaled so that attention and logits are far from flat. The
 * vocabulary: 0 <|endoftext|>, 1 <|im_start|>, 2 <|im_end|> (control tokens), 3 + b for byte b, then a few merges; BOS
 * 0, EOS 2; pre-tokenizer "gpt-2"; a ChatML template. */
#ifndef SLUICE_TINY_LLAMA_H
#define SLUICE_TINY_LLAMA_H

#include "common/ggtype.h"
#include "tests/support/gguf_writer.h"

#define TINY_LLAMA_TOKENS 265 /* control tokens, bytes, merges */

struct tiny_llama {
	uint32_t layers, dim, heads, kv_heads, ffn, context;
	uint32_t head_dim;    /* 0: dim / heads, and no key is written */
	uint32_t vocab;       /* rows of the embedding, >= TINY_LLAMA_TOKENS; more are padding */
	enum ggtype mat_type; /* of the matrices of the layers: F32 F16 BF16 Q8_0 Q4_0 Q4_1 */
	enum ggtype embed_type, output_type;
	bool tied;         /* no output.weight */
	bool rope_factors; /* write rope_freqs.weight */
	float rope_linear; /* 0: no scaling keys */
	float rope_base;
	uint64_t seed;
};

/* 2 layers, width 64, 4 heads, 2 KV heads, ffn 128, context 512, F32. */
void tiny_llama_init(struct tiny_llama *t);

/* Adds keys and tensors to an initialised writer, where a test can still change them. */
void tiny_llama_fill(struct gguf_writer *w, const struct tiny_llama *t);

/* The file, written to path. */
void tiny_llama_save(const struct tiny_llama *t, const char *path);

#endif
