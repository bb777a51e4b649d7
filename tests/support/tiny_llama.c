/* tiny_llama.c - see tiny_llama.h. */
#include "common/splitmix.h"
#include "tests/support/tiny_llama.h"

#include "common/mem.h"
#include "common/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TINY_LLAMA_SPECIALS 3
#define TINY_LLAMA_MERGES   6

static const char tiny_llama_template[] =
	"{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* Written with the stand-ins of byte-level BPE: U+0120 is the space. */
static const char *const tiny_llama_merges[TINY_LLAMA_MERGES][2] = {
	{"\xc4\xa0", "t"}, {"h", "e"}, {"\xc4\xa0t", "he"}, {"\xc4\xa0", "a"}, {"i", "n"}, {"r", "e"},
};

void tiny_llama_init(struct tiny_llama *t)
{
	*t = (struct tiny_llama){
		.layers = 2,
		.dim = 64,
		.heads = 4,
		.kv_heads = 2,
		.ffn = 128,
		.context = 512,
		.vocab = TINY_LLAMA_TOKENS,
		.mat_type = GGTYPE_F32,
		.embed_type = GGTYPE_F32,
		.output_type = GGTYPE_F32,
		.rope_base = 10000,
		.seed = 1,
	};
}

/* ---- random blocks ---- */

/* Uniform in (-limit, limit). */
static float tiny_llama_float(uint64_t *state, float limit)
{
	return ((float)(splitmix_next(state) >> 40) / (float)(1 << 24) - 0.5f) * 2 * limit;
}

/* The nearest half below in magnitude; only for values whose half is normal (scales and weights here are). */
static uint16_t tiny_llama_f16(float f)
{
	uint32_t bits;
	int exponent;

	memcpy(&bits, &f, sizeof(bits));
	exponent = (int)(bits >> 23 & 0xFF) - 127 + 15;
	if (exponent <= 0) return (uint16_t)(bits >> 16 & 0x8000);
	CHECK(exponent < 31);
	return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3FF));
}

static uint16_t tiny_llama_bf16(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

/* A block of 32 random quants whose values spread over (-limit, limit). */
static void tiny_llama_block(uint64_t *state, enum ggtype type, float limit, uint8_t *out)
{
	const struct ggtype_info *info = ggtype_info(type);
	uint16_t d = tiny_llama_f16(limit / (type == GGTYPE_Q8_0 ? 127.0f : 7.5f));
	uint16_t m = tiny_llama_f16(-limit);
	size_t at = sizeof(d), i;

	memcpy(out, &d, sizeof(d));
	if (type == GGTYPE_Q4_1) {
		memcpy(out + at, &m, sizeof(m));
		at += sizeof(m);
	}
	for (i = at; i < info->block_bytes; i++) out[i] = (uint8_t)splitmix_next(state);
}

/* n elements (whole blocks) of the type, uniform in (-limit, limit). */
static void tiny_llama_random(uint64_t *state, enum ggtype type, float limit, uint8_t *out, size_t n)
{
	const struct ggtype_info *info = ggtype_info(type);
	size_t i;

	CHECK(info && n % info->block_len == 0);
	for (i = 0; i < n / info->block_len; i++, out += info->block_bytes) {
		float f = tiny_llama_float(state, limit);
		uint16_t half = type == GGTYPE_F16 ? tiny_llama_f16(f) : tiny_llama_bf16(f);

		if (type == GGTYPE_F32)
			memcpy(out, &f, sizeof(f));
		else if (type == GGTYPE_F16 || type == GGTYPE_BF16)
			memcpy(out, &half, sizeof(half));
		else if (type == GGTYPE_Q8_0 || type == GGTYPE_Q4_0 || type == GGTYPE_Q4_1)
			tiny_llama_block(state, type, limit, out);
		else
			CHECK(!"a type that the generator knows");
	}
}

/* ---- keys ---- */

static void tiny_llama_fill_tokens(struct gguf_writer *w)
{
	static const char *const specials[TINY_LLAMA_SPECIALS] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
	char text[TINY_LLAMA_TOKENS][16], merges[TINY_LLAMA_MERGES][24];
	const char *tokens[TINY_LLAMA_TOKENS], *merge_list[TINY_LLAMA_MERGES];
	int32_t types[TINY_LLAMA_TOKENS];
	uint32_t b, extra = 256, n = 0;
	size_t i;

	for (i = 0; i < TINY_LLAMA_SPECIALS; i++) snprintf(text[n++], sizeof(text[0]), "%s", specials[i]);
	for (b = 0; b < 256; b++) {
		bool keep = (b > 32 && b < 127) || (b > 160 && b != 173); /* the printable ones stand for themselves */

		text[n][utf8_encode(keep ? b : extra++, text[n])] = 0;
		n++;
	}
	for (i = 0; i < TINY_LLAMA_MERGES; i++) {
		snprintf(text[n++], sizeof(text[0]), "%s%s", tiny_llama_merges[i][0], tiny_llama_merges[i][1]);
		snprintf(merges[i], sizeof(merges[0]), "%s %s", tiny_llama_merges[i][0], tiny_llama_merges[i][1]);
		merge_list[i] = merges[i];
	}
	CHECK(n == TINY_LLAMA_TOKENS);
	for (i = 0; i < n; i++) {
		tokens[i] = text[i];
		types[i] = i < TINY_LLAMA_SPECIALS ? 3 : 1; /* control, normal */
	}
	gguf_writer_str(w, "tokenizer.ggml.model", "gpt2");
	gguf_writer_str(w, "tokenizer.ggml.pre", "gpt-2");
	gguf_writer_strs(w, "tokenizer.ggml.tokens", tokens, n);
	gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
	gguf_writer_strs(w, "tokenizer.ggml.merges", merge_list, TINY_LLAMA_MERGES);
	gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 0);
	gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
	gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", 0);
	gguf_writer_str(w, "tokenizer.chat_template", tiny_llama_template);
}

static void tiny_llama_fill_keys(struct gguf_writer *w, const struct tiny_llama *t, uint32_t head_dim)
{
	gguf_writer_str(w, "general.architecture", "llama");
	gguf_writer_str(w, "general.name", "tiny");
	gguf_writer_u32(w, "general.alignment", w->alignment);
	gguf_writer_u32(w, "llama.block_count", t->layers);
	gguf_writer_u32(w, "llama.context_length", t->context);
	gguf_writer_u32(w, "llama.embedding_length", t->dim);
	gguf_writer_u32(w, "llama.feed_forward_length", t->ffn);
	gguf_writer_u32(w, "llama.attention.head_count", t->heads);
	gguf_writer_u32(w, "llama.attention.head_count_kv", t->kv_heads);
	if (t->head_dim) gguf_writer_u32(w, "llama.attention.key_length", head_dim);
	if (t->head_dim) gguf_writer_u32(w, "llama.attention.value_length", head_dim);
	gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	gguf_writer_u32(w, "llama.rope.dimension_count", head_dim);
	gguf_writer_f32(w, "llama.rope.freq_base", t->rope_base);
	if (t->rope_linear > 0) {
		gguf_writer_str(w, "llama.rope.scaling.type", "linear");
		gguf_writer_f32(w, "llama.rope.scaling.factor", t->rope_linear);
	}
	gguf_writer_u32(w, "llama.vocab_size", t->vocab);
	tiny_llama_fill_tokens(w);
}

/* ---- tensors ---- */

/* A random matrix; with the default gain 1 its products keep the size of their input. */
static void tiny_llama_mat(struct gguf_writer *w, uint64_t *state, const char *name, enum ggtype type, uint32_t rows,
			   uint32_t cols, float gain)
{
	struct gguf_writer_tensor *t = gguf_writer_tensor(w, name, type, 2, (uint64_t[]){cols, rows}, NULL, 0);

	tiny_llama_random(state, type, gain * sqrtf(3.0f / (float)cols), t->data, (size_t)rows * cols);
}

static void tiny_llama_layer_mat(struct gguf_writer *w, uint64_t *state, uint32_t layer, const char *part,
				 enum ggtype type, uint32_t rows, uint32_t cols, float gain)
{
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, part);
	tiny_llama_mat(w, state, name, type, rows, cols, gain);
}

static void tiny_llama_vec(struct gguf_writer *w, uint64_t *state, const char *name, uint32_t n, float center,
			   float spread)
{
	struct gguf_writer_tensor *t = gguf_writer_tensor(w, name, GGTYPE_F32, 1, (uint64_t[]){n}, NULL, 0);
	uint32_t i;

	for (i = 0; i < n; i++) {
		float f = center + tiny_llama_float(state, spread);

		memcpy(t->data + (size_t)i * sizeof(f), &f, sizeof(f));
	}
}

static void tiny_llama_layer(struct gguf_writer *w, const struct tiny_llama *t, uint64_t *state, uint32_t layer,
			     uint32_t head_dim)
{
	uint32_t q = t->heads * head_dim, kv = t->kv_heads * head_dim;
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.attn_norm.weight", layer);
	tiny_llama_vec(w, state, name, t->dim, 1, 0.3f);
	tiny_llama_layer_mat(w, state, layer, "attn_q", t->mat_type, q, t->dim, 1.5f);
	tiny_llama_layer_mat(w, state, layer, "attn_k", t->mat_type, kv, t->dim, 1.5f);
	tiny_llama_layer_mat(w, state, layer, "attn_v", t->mat_type, kv, t->dim, 1);
	tiny_llama_layer_mat(w, state, layer, "attn_output", t->mat_type, t->dim, q, 1);
	snprintf(name, sizeof(name), "blk.%u.ffn_norm.weight", layer);
	tiny_llama_vec(w, state, name, t->dim, 1, 0.3f);
	tiny_llama_layer_mat(w, state, layer, "ffn_gate", t->mat_type, t->ffn, t->dim, 1);
	tiny_llama_layer_mat(w, state, layer, "ffn_up", t->mat_type, t->ffn, t->dim, 1);
	tiny_llama_layer_mat(w, state, layer, "ffn_down", t->mat_type, t->dim, t->ffn, 1);
}

void tiny_llama_fill(struct gguf_writer *w, const struct tiny_llama *t)
{
	uint32_t head_dim = t->head_dim ? t->head_dim : t->dim / t->heads;
	uint64_t state = t->seed;
	uint32_t i;

	CHECK(t->vocab >= TINY_LLAMA_TOKENS);
	tiny_llama_fill_keys(w, t, head_dim);
	tiny_llama_mat(w, &state, "token_embd.weight", t->embed_type, t->vocab, t->dim, sqrtf((float)t->dim));
	if (t->rope_factors) tiny_llama_vec(w, &state, "rope_freqs.weight", head_dim / 2, 4, 3);
	for (i = 0; i < t->layers; i++) tiny_llama_layer(w, t, &state, i, head_dim);
	tiny_llama_vec(w, &state, "output_norm.weight", t->dim, 1, 0.3f);
	if (!t->tied) tiny_llama_mat(w, &state, "output.weight", t->output_type, t->vocab, t->dim, 2.5f);
}

void tiny_llama_save(const struct tiny_llama *t, const char *path)
{
	struct gguf_writer w;

	gguf_writer_init(&w);
	tiny_llama_fill(&w, t);
	gguf_writer_save(&w, path);
	gguf_writer_release(&w);
}
