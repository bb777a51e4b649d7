/* inspect_text.c - `sluice inspect` for people. Every byte that comes from the file is escaped for the terminal. */
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/inspect_info.h"

#include <inttypes.h>
#include <stdio.h>

struct inspect_amount {
	char text[32];
};

/* "134.5 M" or "98.9 MiB": three digits or a little more, whole numbers below one step. */
static struct inspect_amount inspect_scaled(uint64_t n, unsigned step, const char *const *units)
{
	struct inspect_amount a;
	double value = (double)n;
	int unit = 0;

	while (value >= step && units[unit + 1]) {
		value /= step;
		unit++;
	}
	snprintf(a.text, sizeof(a.text), unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
	return a;
}

static struct inspect_amount inspect_count(uint64_t n)
{
	static const char *const units[] = {"", " K", " M", " B", " T", NULL};

	return inspect_scaled(n, 1000, units);
}

static struct inspect_amount inspect_bytes(uint64_t n)
{
	static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", NULL};

	return inspect_scaled(n, 1024, units);
}

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

static void inspect_text_file(const struct inspect_info *info, struct strbuf *out)
{
	size_t i;

	inspect_label(out, "file");
	strbuf_puts(out, gguf_shown_path(info->g));
	strbuf_putc(out, '\n');
	inspect_label(out, "size");
	strbuf_printf(out, "%s (%" PRIu64 " bytes)\n", inspect_bytes(gguf_file_bytes(info->g)).text,
		      gguf_file_bytes(info->g));
	inspect_label(out, "format");
	strbuf_printf(out, "GGUF version %u, %zu keys, %zu tensors\n", gguf_version(info->g), gguf_kv_count(info->g),
		      gguf_tensor_count(info->g));
	if (info->name.s) inspect_quoted_line(out, "name", info->name, "");
	inspect_quoted_line(out, "architecture", info->arch, "not given");
	inspect_label(out, "parameters");
	strbuf_printf(out, "%s in %s\n", inspect_count(info->params).text, inspect_bytes(info->bytes).text);
	for (i = 0; i < info->n_types; i++) {
		const struct inspect_type *t = &info->types[i];
		char label[16];

		snprintf(label, sizeof(label), "  %s", ggtype_info(t->type)->name);
		inspect_label(out, label);
		strbuf_printf(out, "%s in %s, %" PRIu64 " tensor%s%s\n", inspect_count(t->params).text,
			      inspect_bytes(t->bytes).text, t->tensors, t->tensors == 1 ? "" : "s",
			      modelshape_type_built(t->type) ? "" : " (not supported)");
	}
}

static void inspect_text_shape(const struct modelshape *s, struct strbuf *out)
{
	inspect_label(out, "layers");
	strbuf_printf(out, "%u\n", s->n_layers);
	inspect_label(out, "width");
	strbuf_printf(out, "%u, feed-forward %u\n", s->dim, s->ffn);
	inspect_label(out, "attention");
	strbuf_printf(out, "%u heads of %u, %u for keys and values\n", s->heads, s->head_dim, s->kv_heads);
	inspect_label(out, "positions");
	strbuf_printf(out, "%u; rotary base %g, %u of %u elements", s->context_len, (double)s->rope_base, s->rope_dims,
		      s->head_dim);
	if (s->rope_linear != 1) strbuf_printf(out, ", scaled linearly by %g", (double)s->rope_linear);
	if (s->rope_factors) strbuf_puts(out, ", scaled by frequency");
	strbuf_putc(out, '\n');
	inspect_label(out, "vocabulary");
	strbuf_printf(out, "%u rows%s\n", s->vocab, s->tied ? ", one matrix for input and output" : "");
}

static void inspect_text_kv(const struct modelshape *s, struct strbuf *out)
{
	static const enum ggtype types[] = {GGTYPE_F16, GGTYPE_F32};
	size_t i;

	for (i = 0; i < ARRAY_LEN(types); i++) {
		uint64_t token = modelshape_kv_token_bytes(s, types[i]);

		inspect_label(out, i ? "" : "KV cache");
		strbuf_printf(out, "%s: %s a token, %s a block of %d, %s for %u tokens\n", ggtype_info(types[i])->name,
			      inspect_bytes(token).text, inspect_bytes(token * INSPECT_BLOCK_LEN).text,
			      INSPECT_BLOCK_LEN, inspect_bytes(token * s->context_len).text, s->context_len);
	}
}

static void inspect_text_tokenizer(const struct inspect_info *info, struct strbuf *out)
{
	inspect_label(out, "tokenizer");
	if (info->tok_kind.s) {
		inspect_quoted(out, info->tok_kind, "");
		strbuf_puts(out, ", pre-tokenizer ");
		inspect_quoted(out, info->tok_pre, "not given");
		strbuf_printf(out, ", %" PRIu64 " tokens, %" PRIu64 " merges\n", info->n_tokens, info->n_merges);
	} else {
		strbuf_puts(out, "none\n");
	}
	inspect_label(out, "chat template");
	if (info->chat_template.s)
		strbuf_printf(out, "%zu bytes (--template shows it)\n", info->chat_template.len);
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

static void inspect_text_metadata(const struct gguf *g, struct strbuf *out)
{
	size_t i;

	strbuf_puts(out, "\nmetadata\n");
	for (i = 0; i < gguf_kv_count(g); i++) {
		const struct gguf_kv *kv = gguf_kv_at(g, i);

		strbuf_puts(out, "  ");
		quote_append(out, kv->key.s, kv->key.len, false);
		strbuf_puts(out, " = ");
		inspect_text_value(kv, out);
		strbuf_putc(out, '\n');
	}
}

static void inspect_text_tensors(const struct gguf *g, struct strbuf *out)
{
	uint32_t d;
	size_t i;

	strbuf_puts(out, "\ntensors (innermost dimension first)\n");
	for (i = 0; i < gguf_tensor_count(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);

		strbuf_puts(out, "  ");
		quote_append(out, t->name.s, t->name.len, false);
		strbuf_printf(out, " %s [", ggtype_info(t->type)->name);
		for (d = 0; d < t->n_dims; d++) strbuf_printf(out, "%s%" PRIu64, d ? ", " : "", t->dims[d]);
		strbuf_printf(out, "] %s\n", inspect_bytes(t->bytes).text);
	}
}

void inspect_text(const struct inspect_info *info, struct strbuf *out)
{
	inspect_text_file(info, out);
	if (info->shape_rc == ST_OK) inspect_text_shape(&info->shape, out);
	inspect_text_tokenizer(info, out);
	if (info->shape_rc == ST_OK) inspect_text_kv(&info->shape, out);
	inspect_label(out, "can be served");
	strbuf_puts(out, info->shape_rc == ST_OK ? "yes\n" : "no\n");
	if (info->want_metadata) inspect_text_metadata(info->g, out);
	if (info->want_tensors) inspect_text_tensors(info->g, out);
}
