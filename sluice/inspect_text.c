/* inspect_text.c - `sluice inspect` for people. Every byte that comes from the file is escaped for the terminal. */
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/inspect_info.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void inspect_label(struct strbuf *out, const char *label)
{
	strbuf_printf(out, "%-15s", label);
}

static void inspect_quoted(struct strbuf *out, struct gguf_str s, const char *missing)
{
	if (s.s)
		quote_append(out, s.s, s.len, false);
	else
		strbuf_puts(out, missing);
}

static void inspect_quoted_line(struct strbuf *out, const char *label, struct gguf_str s, const char *missing)
{
	inspect_label(out, label);
	inspect_quoted(out, s, missing);
	strbuf_putc(out, '\n');
}

/* ---- the parts ---- */

static void inspect_text_format(const struct inspect_info *info, struct strbuf *out)
{
	const struct gguf *g = ckpt_gguf(info->c);
	size_t n = ckpt_file_count(info->c);

	inspect_label(out, "format");
	if (g)
		strbuf_printf(out, "GGUF version %u, %zu keys, ", gguf_version(g), gguf_kv_count(g));
	else
		strbuf_puts(out, "safetensors, ");
	strbuf_printf(out, "%zu tensors", ckpt_tensor_count(info->c));
	if (n > 1) strbuf_printf(out, " in %zu files", n);
	strbuf_putc(out, '\n');
	for (size_t i = 0; n > 1 && i < n; i++) {
		inspect_label(out, i ? "" : "files");
		strbuf_printf(out, "%s\n", ckpt_file_name(info->c, i));
	}
}

static void inspect_text_file(const struct inspect_info *info, struct strbuf *out)
{
	inspect_label(out, "file");
	strbuf_puts(out, ckpt_shown_path(info->c));
	strbuf_putc(out, '\n');
	inspect_label(out, "size");
	strbuf_printf(out, "%s (%" PRIu64 " bytes)\n", amount_bytes(ckpt_bytes(info->c)).text, ckpt_bytes(info->c));
	inspect_text_format(info, out);
	if (info->name.s) inspect_quoted_line(out, "name", info->name, "");
	inspect_quoted_line(out, "architecture", info->arch, "not given");
	inspect_label(out, "parameters");
	strbuf_printf(out, "%s in %s\n", amount_count(info->params).text, amount_bytes(info->bytes).text);
	for (size_t i = 0; i < info->n_types; i++) {
		const struct inspect_type *t = &info->types[i];
		char label[16];

		snprintf(label, sizeof(label), "  %s", ckpt_type_name(t->type));
		inspect_label(out, label);
		strbuf_printf(out, "%s in %s, %" PRIu64 " tensor%s%s\n", amount_count(t->params).text,
			      amount_bytes(t->bytes).text, t->tensors, t->tensors == 1 ? "" : "s",
			      inspect_type_supported(info, t->type) ? "" : " (not supported)");
	}
}

/* ---- layers ---- */

static void inspect_text_rope(const struct spec *s, const struct spec_layer *y, struct strbuf *out)
{
	const struct spec_rope *r;
	struct inspect_rope shown;

	if (y->rope < 0) {
		strbuf_puts(out, ", no rotation");
		return;
	}
	r = &s->ropes[y->rope];
	shown = inspect_rope_of(r);
	strbuf_printf(out, ", rotary %u", r->dims);
	if (y->mixer == SPEC_ATTENTION && r->dims != y->k_dim) strbuf_printf(out, " of %u", y->k_dim);
	strbuf_printf(out, ", base %g", shown.base);
	if (fabs(shown.linear - 1) > 1e-9) strbuf_printf(out, ", scaled linearly by %g", shown.linear);
	if (shown.scaled) strbuf_puts(out, ", scaled by frequency");
}

static void inspect_text_attention(const struct spec *s, const struct spec_layer *y, struct strbuf *out)
{
	if (y->mixer == SPEC_MLA)
		strbuf_printf(out, "latent, %u heads of %u and %u, latent vector of %u and %u", y->heads, y->k_dim,
			      y->v_dim, y->kv_lora, y->k_dim - y->nope_dim);
	else if (y->v_dim == y->k_dim)
		strbuf_printf(out, "%u heads of %u, %u for keys and values", y->heads, y->k_dim, y->kv_heads);
	else
		strbuf_printf(out, "%u heads, %u for keys of %u and values of %u", y->heads, y->kv_heads, y->k_dim,
			      y->v_dim);
	if (y->window) strbuf_printf(out, ", window %u", y->window);
	inspect_text_rope(s, y, out);
	if (y->softcap > 0) strbuf_printf(out, ", soft cap %g", y->softcap);
	if (y->qk_norm) strbuf_puts(out, ", normed queries and keys");
	if (y->qkv_bias) strbuf_puts(out, ", biases");
	if (y->sinks) strbuf_puts(out, ", sinks");
	if (y->out_gate) strbuf_puts(out, ", gated output");
}

static void inspect_text_mixer(const struct spec *s, const struct spec_layer *y, struct strbuf *out)
{
	if (y->mixer == SPEC_DELTA)
		strbuf_printf(out, "gated delta net, %u value heads of %u, %u key heads of %u, convolution over %u",
			      y->dv_heads, y->dv_dim, y->dk_heads, y->dk_dim, y->conv_width);
	else
		inspect_text_attention(s, y, out);
}

static void inspect_text_ffn(const struct spec_layer *y, struct strbuf *out)
{
	static const char *const glus[] = {
		[SPEC_SILU] = "silu", [SPEC_GELU_TANH] = "gelu", [SPEC_OAI] = "clamped silu"};

	if (!y->n_experts) {
		strbuf_printf(out, "%u, %s", y->ffn, glus[y->glu]);
		return;
	}
	strbuf_printf(out, "%u experts of %u, %u at a time", y->n_experts, y->expert_ffn, y->n_used);
	if (y->n_groups > 1) strbuf_printf(out, " from %u of %u groups", y->groups_used, y->n_groups);
	if (y->shared_ffn) strbuf_printf(out, ", a shared one of %u", y->shared_ffn);
	strbuf_printf(out, ", %s", glus[y->glu]);
}

/* "12 layers: ", unless all are of this kind. */
static void inspect_text_kind(const char *label, uint32_t ix, const struct inspect_kind *k, uint32_t n_kinds,
			      struct strbuf *out)
{
	inspect_label(out, ix ? "" : label);
	if (n_kinds > 1) strbuf_printf(out, "%u layer%s: ", k->n_layers, k->n_layers == 1 ? "" : "s");
}

static void inspect_text_layers(const struct inspect_info *info, struct strbuf *out)
{
	for (uint32_t i = 0; i < info->n_mixers; i++) {
		inspect_text_kind("attention", i, &info->mixers[i], info->n_mixers, out);
		inspect_text_mixer(&info->spec, info->mixers[i].y, out);
		strbuf_putc(out, '\n');
	}
	for (uint32_t i = 0; i < info->n_ffns; i++) {
		inspect_text_kind("feed-forward", i, &info->ffns[i], info->n_ffns, out);
		inspect_text_ffn(info->ffns[i].y, out);
		strbuf_putc(out, '\n');
	}
}

static void inspect_text_shape(const struct inspect_info *info, struct strbuf *out)
{
	const struct spec *s = &info->spec;

	inspect_label(out, "family");
	strbuf_printf(out, "%s\n", s->family);
	inspect_label(out, "quantization");
	if (s->from_gguf)
		strbuf_puts(out, s->file_types);
	else
		inspect_quant_text(&s->quant, out);
	strbuf_putc(out, '\n');
	inspect_label(out, "layers");
	strbuf_printf(out, "%u, width %u\n", s->n_layers, s->dim);
	inspect_text_layers(info, out);
	inspect_label(out, "positions");
	strbuf_printf(out, "%u\n", s->context_len);
	inspect_label(out, "vocabulary");
	strbuf_printf(out, "%u rows%s%s\n", s->vocab, s->tied ? ", one matrix for input and output" : "",
		      s->logit_softcap > 0 ? ", logits with a soft cap" : "");
}

static void inspect_text_kv(const struct spec *s, struct strbuf *out)
{
	static const enum ggtype types[] = {GGTYPE_F16, GGTYPE_F32, GGTYPE_F8_E4M3, GGTYPE_I8};
	struct kvplan_shape shape = {0};
	struct kvplan_in in = {.shape = &shape, .tokens_ahead = INSPECT_TOKENS_AHEAD};

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (kvplan_shape(&shape, s, types[i], 1, s->context_len, NULL) != ST_OK) return;
		inspect_label(out, i ? "" : "KV cache");
		strbuf_printf(out, "%s: %s a token, %s a block, %s for %u tokens\n", kvplan_type_name(types[i]),
			      amount_bytes(shape.bytes / KVPLAN_BLOCK).text, amount_bytes(shape.block_bytes).text,
			      amount_bytes(kvplan_request_blocks(&in, s->context_len) * shape.block_bytes).text,
			      s->context_len);
	}
	if (!shape.state_bytes) return;
	inspect_label(out, "state");
	strbuf_printf(out, "%s a sequence\n", amount_bytes(shape.state_bytes).text);
}

static void inspect_text_tokenizer(const struct inspect_tokenizer *t, struct strbuf *out)
{
	inspect_label(out, "tokenizer");
	if (t->kind.s) {
		inspect_quoted(out, t->kind, "");
		strbuf_puts(out, ", pre-tokenizer ");
		inspect_quoted(out, t->pre, "not given");
		strbuf_printf(out, ", %" PRIu64 " tokens, %" PRIu64 " merges\n", t->n_tokens, t->n_merges);
	} else {
		strbuf_printf(out, "none%s%s\n", t->why.text[0] ? ": " : "", t->why.text);
	}
	inspect_label(out, "chat template");
	if (t->chat_template.s)
		strbuf_printf(out, "%zu bytes (--template shows it)\n", t->chat_template.len);
	else
		strbuf_puts(out, "none\n");
}

/* ---- the long lists ---- */

static void inspect_text_element(const struct gguf_kv *kv, uint64_t ix, struct strbuf *out)
{
	enum gguf_kind kind = kv->kind == GGUF_ARR ? kv->elem_kind : kv->kind;

	if (kind == GGUF_F32 || kind == GGUF_F64)
		strbuf_printf(out, "%g", gguf_array_f64(kv, ix));
	else if (kind == GGUF_BOOL)
		strbuf_puts(out, gguf_array_u64(kv, ix) ? "true" : "false");
	else if (kind == GGUF_U64)
		strbuf_printf(out, "%" PRIu64, gguf_array_u64(kv, ix));
	else
		strbuf_printf(out, "%" PRId64, gguf_array_i64(kv, ix));
}

static void inspect_text_value(const struct gguf_kv *kv, struct strbuf *out)
{
	bool is_array = kv->kind == GGUF_ARR;
	uint64_t n = min_u64(kv->n, INSPECT_FIRST_N), pos = 0, i;
	struct gguf_str s;

	if (is_array) strbuf_printf(out, "%s[%" PRIu64 "]", gguf_kind_name(kv->elem_kind), kv->n);
	for (i = 0; i < n; i++) {
		if (is_array) strbuf_puts(out, i ? ", " : " ");
		if ((is_array ? kv->elem_kind : kv->kind) != GGUF_STR) {
			inspect_text_element(kv, i, out);
		} else if (gguf_array_next_str(kv, &pos, &s)) {
			/* Long ones (the chat template) are cut; --json has them whole. */
			strbuf_printf(out, "\"%s\"", quote_short(s.s, s.len).text);
		}
	}
	if (n < kv->n) strbuf_puts(out, ", ...");
}

static void inspect_text_gguf(const struct gguf *g, struct strbuf *out)
{
	for (size_t i = 0; i < gguf_kv_count(g); i++) {
		const struct gguf_kv *kv = gguf_kv_at(g, i);

		strbuf_puts(out, "  ");
		quote_append(out, kv->key.s, kv->key.len, false);
		strbuf_puts(out, " = ");
		inspect_text_value(kv, out);
		strbuf_putc(out, '\n');
	}
}

static void inspect_text_config(const json_t *config, struct strbuf *out)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)config, key, value)
	{
		char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

		strbuf_puts(out, "  ");
		quote_append(out, key, strlen(key), false);
		strbuf_puts(out, " = ");
		if (text) quote_append(out, text, strlen(text), false);
		strbuf_putc(out, '\n');
		free(text);
	}
}

/* GGUF has the innermost dimension first, safetensors the outermost. */
static void inspect_text_tensors(const struct ckpt *c, struct strbuf *out)
{
	bool is_gguf = ckpt_gguf(c) != NULL;

	strbuf_printf(out, "\ntensors (%s dimension first)\n", is_gguf ? "innermost" : "outermost");
	for (size_t i = 0; i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor *t = ckpt_tensor_at(c, i);

		strbuf_puts(out, "  ");
		quote_append(out, t->name.s, t->name.len, false);
		strbuf_printf(out, " %s [", ckpt_type_name(t->type));
		for (uint32_t d = 0; d < t->n_dims; d++)
			strbuf_printf(out, "%s%" PRIu64, d ? ", " : "", t->dims[is_gguf ? t->n_dims - 1 - d : d]);
		strbuf_printf(out, "] %s\n", amount_bytes(t->bytes).text);
	}
}

void inspect_text(const struct inspect_info *info, struct strbuf *out)
{
	bool good = info->spec_rc == ST_OK;

	inspect_text_file(info, out);
	if (good) inspect_text_shape(info, out);
	inspect_text_tokenizer(&info->tok, out);
	if (good) inspect_text_kv(&info->spec, out);
	inspect_label(out, "can be served");
	strbuf_puts(out, good ? "yes\n" : "no\n");
	if (info->want_metadata) {
		strbuf_puts(out, "\nmetadata\n");
		if (ckpt_gguf(info->c))
			inspect_text_gguf(ckpt_gguf(info->c), out);
		else
			inspect_text_config(ckpt_config(info->c), out);
	}
	if (info->want_tensors) inspect_text_tensors(info->c, out);
}
