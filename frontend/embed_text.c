/* embed_text.c - see embed_text.h. */
#include "frontend/embed_text.h"

#include "frontend/jsonout.h"

#include <math.h>
#include <string.h>

void embed_text_begin(struct strbuf *out, const char *id, const char *model, int64_t created)
{
	strbuf_puts(out, "{\"id\":");
	jsonout_text(out, id);
	strbuf_puts(out, ",\"object\":\"list\",\"created\":");
	strbuf_put_u64(out, (uint64_t)created);
	strbuf_puts(out, ",\"model\":");
	jsonout_text(out, model);
	strbuf_puts(out, ",\"data\":[");
}

static void vector_normalize(struct embed_vector *v)
{
	double sum = 0, scale;
	uint32_t i;

	for (i = 0; i < v->n; i++) sum += (double)v->values[i] * v->values[i];
	scale = sum > 0 ? 1 / sqrt(sum) : 0;
	for (i = 0; i < v->n; i++) v->values[i] = (float)(v->values[i] * scale);
}

static void put_base64(struct strbuf *out, const unsigned char *s, size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t i;

	for (i = 0; i < len; i += 3) {
		uint32_t three = (uint32_t)s[i] << 16 | (i + 1 < len ? (uint32_t)s[i + 1] << 8 : 0) | (i + 2 < len ? s[i + 2] : 0);
		char four[4] = {digits[three >> 18], digits[three >> 12 & 63], digits[three >> 6 & 63], digits[three & 63]};

		if (i + 1 >= len) four[2] = '=';
		if (i + 2 >= len) four[3] = '=';
		strbuf_append(out, four, sizeof(four));
	}
}

void embed_text_vector(struct strbuf *out, size_t ix, struct embed_vector *v, bool is_base64)
{
	uint32_t i;

	vector_normalize(v);
	strbuf_puts(out, ix ? ",{\"index\":" : "{\"index\":");
	strbuf_put_u64(out, ix);
	strbuf_puts(out, ",\"object\":\"embedding\",\"embedding\":");
	strbuf_putc(out, is_base64 ? '"' : '[');
	if (is_base64) put_base64(out, (const unsigned char *)v->values, v->n * sizeof(*v->values));
	for (i = 0; !is_base64 && i < v->n; i++) {
		if (i) strbuf_putc(out, ',');
		jsonout_f32(out, v->values[i]);
	}
	strbuf_puts(out, is_base64 ? "\"}" : "]}");
}

void embed_text_end(struct strbuf *out, uint64_t n_tokens)
{
	strbuf_puts(out, "],\"usage\":{\"prompt_tokens\":");
	strbuf_put_u64(out, n_tokens);
	strbuf_puts(out, ",\"total_tokens\":");
	strbuf_put_u64(out, n_tokens);
	strbuf_puts(out, ",\"completion_tokens\":0,\"prompt_tokens_details\":null}}");
}
