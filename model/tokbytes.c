/* tokbytes.c - see tokbytes.h.
 *
 * All tokens lie in one block with offsets: a vocabulary of 49,152 takes about 0.5 MiB. The bytes of a control or
 * user-defined token of a byte-level vocabulary are its name as it is; a SentencePiece file writes spaces as U+2581
 * there, too. */
#include "model/tokbytes.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/utf8.h"

#include <inttypes.h>
#include <string.h>

#define TOKBYTES_TOKENS_MAX ((size_t)1 << 24) /* the largest published ones have less than 2^19 */
#define TOKBYTES_BYTES_MAX  (256 * MIB)       /* of all tokens; offsets are 32 bits */

static const char *const key_model = "tokenizer.ggml.model", *const key_tokens = "tokenizer.ggml.tokens",
			 *const key_types = "tokenizer.ggml.token_type";

bool tokbytes_spelling_parse(struct gguf_str name, enum tokbytes_spelling *out)
{
	*out = gguf_str_is(name, "llama") ? TOKBYTES_LLAMA : TOKBYTES_GPT2;
	return gguf_str_is(name, "llama") || gguf_str_is(name, "gpt2");
}

/* ---- kinds ---- */

enum { TYPE_UNDEFINED, TYPE_NORMAL, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE, TYPE_COUNT };

static const uint8_t kind_of_type[TYPE_COUNT] = {
	[TYPE_UNDEFINED] = TOKBYTES_PLAIN, [TYPE_NORMAL] = TOKBYTES_PLAIN,       [TYPE_UNKNOWN] = TOKBYTES_SPECIAL,
	[TYPE_CONTROL] = TOKBYTES_SPECIAL, [TYPE_USER_DEFINED] = TOKBYTES_ADDED, [TYPE_UNUSED] = TOKBYTES_UNUSED,
	[TYPE_BYTE] = TOKBYTES_PLAIN,
};

/* Names whose tokens steer a conversation. Some files call them normal or user-defined, which would let a user's text
 * make them; they are special whatever the file says. */
static const char *const control_names[] = {
	"<|im_start|>",        "<|im_end|>",        "<|endoftext|>",     "<|eot_id|>",      "<|eom_id|>",
	"<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>", "<|end_of_text|>", "<start_of_turn>",
	"<end_of_turn>",       "<|start|>",         "<|end|>",           "<|return|>",
};

static bool is_control_name(struct gguf_str text)
{
	if (text.len == 0 || text.s[0] != '<') return false; /* nearly all */
	for (size_t i = 0; i < ARRAY_LEN(control_names); i++)
		if (gguf_str_is(text, control_names[i])) return true;
	return false;
}

/* ---- spellings ---- */

/* GPT-2's table: printable Latin-1 characters stand for themselves, the other bytes for U+0100 and on, in order. */
#define SPELLED_MAX 0x144 /* one more than the highest character of the table: 68 bytes are not printable */

struct spelling {
	int16_t bytes[SPELLED_MAX]; /* of a character, or -1 */
};

static bool is_printable_byte(unsigned b)
{
	return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

static void spelling_init(struct spelling *t)
{
	unsigned next = 256;

	memset(t->bytes, -1, sizeof(t->bytes));
	for (unsigned b = 0; b < 256; b++) t->bytes[is_printable_byte(b) ? b : next++] = (int16_t)b;
	CHECK(next == SPELLED_MAX);
}

/* These write what a token stands for, never more than its spelling has, and return the number of bytes. */

/* What is not in the table stays as it is. */
static size_t decode_gpt2(const struct spelling *t, struct gguf_str text, char *out)
{
	size_t i = 0, n = 0;

	while (i < text.len) {
		bool cut;
		int len = utf8_next(text.s + i, text.len - i, &cut);
		uint32_t cp = UINT32_MAX;

		if (len > 0) utf8_decode(text.s + i, &cp);
		if (len < 0) len = -len;
		if (cp < SPELLED_MAX && t->bytes[cp] >= 0) {
			out[n++] = (char)t->bytes[cp];
		} else {
			memcpy(out + n, text.s + i, (size_t)len);
			n += (size_t)len;
		}
		i += (size_t)len;
	}
	return n;
}

static size_t decode_llama(struct gguf_str text, char *out)
{
	static const char space[] = "\xe2\x96\x81"; /* U+2581 */
	size_t i = 0, n = 0;

	while (i < text.len) {
		if (text.len - i >= 3 && memcmp(text.s + i, space, 3) == 0) {
			out[n++] = ' ';
			i += 3;
		} else {
			out[n++] = text.s[i++];
		}
	}
	return n;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9') return c - '0';
	if (c >= 'A' && c <= 'F') return c - 'A' + 10;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* <0x0A>, or -1. */
static int byte_of_name(struct gguf_str text)
{
	int hi, lo;

	if (text.len != 6 || memcmp(text.s, "<0x", 3) != 0 || text.s[5] != '>') return -1;
	hi = hex_value(text.s[3]);
	lo = hex_value(text.s[4]);
	return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* ---- loading ---- */

static int tokbytes_check(const struct tokbytes_lists *l, size_t *bytes, struct errbuf *err)
{
	*bytes = 0;
	if (l->n_tokens == 0 || l->n_tokens > TOKBYTES_TOKENS_MAX)
		return err_set(err, ST_INVALID, "%s: %s has %zu tokens; expected 1 to %zu", l->file, key_tokens,
			       l->n_tokens, TOKBYTES_TOKENS_MAX);
	for (size_t i = 0; i < l->n_tokens; i++) {
		struct gguf_str text = l->tokens[i];
		int32_t type = l->types ? l->types[i] : TYPE_NORMAL;

		*bytes += text.len;
		if (*bytes > TOKBYTES_BYTES_MAX)
			return err_set(err, ST_LIMIT, "%s: %s: the tokens take more than %zu bytes", l->file,
				       key_tokens, TOKBYTES_BYTES_MAX);
		if (type < 0 || type >= TYPE_COUNT)
			return err_set(err, ST_INVALID, "%s: %s: token %zu has type %d; expected 0 to %d", l->file,
				       key_types, i, type, TYPE_COUNT - 1);
		if (type == TYPE_BYTE && l->spelling == TOKBYTES_LLAMA && byte_of_name(text) < 0)
			return err_set(err, ST_INVALID,
				       "%s: %s: token %zu is a byte, but is called \"%s\"; expected <0x00> to <0xFF>",
				       l->file, key_tokens, i, quote_short(text.s, text.len).text);
	}
	return ST_OK;
}

static size_t tokbytes_decode(const struct tokbytes_lists *l, size_t i, uint8_t kind, const struct spelling *spelling,
			      char *out)
{
	struct gguf_str text = l->tokens[i];
	int byte;

	if (l->spelling == TOKBYTES_LLAMA) {
		/* Without types, the name must do. */
		byte = kind == TOKBYTES_PLAIN && (!l->types || l->types[i] == TYPE_BYTE) ? byte_of_name(text) : -1;
		if (byte < 0) return decode_llama(text, out);
		out[0] = (char)byte;
		return 1;
	}
	if (kind == TOKBYTES_PLAIN || kind == TOKBYTES_UNUSED) return decode_gpt2(spelling, text, out);
	if (text.len) memcpy(out, text.s, text.len);
	return text.len;
}

int tokbytes_from_lists(struct tokbytes **out, const struct tokbytes_lists *l, struct errbuf *err)
{
	struct spelling spelling;
	struct tokbytes *t;
	size_t bytes, end = 0;
	int rc = tokbytes_check(l, &bytes, err);

	*out = NULL;
	if (rc != ST_OK) return rc;
	spelling_init(&spelling);
	t = mem_new(struct tokbytes);
	t->n = (uint32_t)l->n_tokens;
	t->offs = mem_array(uint32_t, l->n_tokens + 1);
	t->kinds = mem_array(uint8_t, l->n_tokens);
	t->bytes = mem_realloc(NULL, bytes + 1, 1);
	for (uint32_t i = 0; i < t->n; i++) {
		t->kinds[i] = l->types ? kind_of_type[l->types[i]] : TOKBYTES_PLAIN;
		if (is_control_name(l->tokens[i])) t->kinds[i] = TOKBYTES_SPECIAL;
		t->offs[i] = (uint32_t)end;
		end += tokbytes_decode(l, i, t->kinds[i], &spelling, t->bytes + end);
	}
	t->offs[t->n] = (uint32_t)end;
	t->bytes = mem_realloc(t->bytes, end + 1, 1);
	*out = t;
	return ST_OK;
}

void tokbytes_free(struct tokbytes *t)
{
	if (!t) return;
	free(t->offs);
	free(t->bytes);
	free(t->kinds);
	free(t);
}

/* ---- GGUF ---- */

static int read_spelling(const struct gguf *g, struct tokbytes_lists *l, struct errbuf *err)
{
	struct gguf_str name;
	int rc = gguf_get_str(g, key_model, &name, err);

	if (rc != ST_OK) return rc;
	if (tokbytes_spelling_parse(name, &l->spelling)) return ST_OK;
	return err_set(err, ST_UNSUPPORTED,
		       "%s: %s: vocabulary kind \"%s\" is not supported; expected \"gpt2\" or \"llama\"", l->file,
		       key_model, quote_short(name.s, name.len).text);
}

static int read_types(const struct gguf *g, struct tokbytes_lists *l, int32_t **types, struct errbuf *err)
{
	const struct gguf_kv *kv = gguf_find(g, key_types);
	int rc;

	if (!kv) return ST_OK;
	rc = gguf_get_array(g, key_types, kv->elem_kind == GGUF_U32 ? GGUF_U32 : GGUF_I32, &kv, err);
	if (rc != ST_OK) return rc;
	if (kv->n != l->n_tokens)
		return err_set(err, ST_INVALID,
			       "%s: %s has length %" PRIu64 "; expected one for each of the %zu tokens", l->file,
			       key_types, kv->n, l->n_tokens);
	*types = mem_array(int32_t, kv->n);
	for (uint64_t i = 0; i < kv->n; i++) (*types)[i] = (int32_t)gguf_array_i64(kv, i);
	l->types = *types;
	return ST_OK;
}

int tokbytes_from_gguf(struct tokbytes **out, const struct gguf *g, struct errbuf *err)
{
	struct tokbytes_lists l = {.file = gguf_shown_path(g)};
	struct gguf_str *tokens = NULL;
	int32_t *types = NULL;
	const struct gguf_kv *kv;
	uint64_t pos = 0;
	int rc;

	*out = NULL;
	rc = read_spelling(g, &l, err);
	if (rc == ST_OK) rc = gguf_get_array(g, key_tokens, GGUF_STR, &kv, err);
	if (rc != ST_OK) return rc;
	/* Each string takes 8 bytes of the file at least: the count is bounded by its size. */
	tokens = mem_array(struct gguf_str, kv->n + 1);
	while (l.n_tokens < kv->n && gguf_array_next_str(kv, &pos, &tokens[l.n_tokens])) l.n_tokens++;
	l.tokens = tokens;
	rc = read_types(g, &l, &types, err);
	if (rc == ST_OK) rc = tokbytes_from_lists(out, &l, err);
	free(tokens);
	free(types);
	return rc;
}
