/* vocab.c - see vocab.h.
 *
 * Tokens are kept as the bytes they stand for, in one block with offsets (a 49k vocabulary takes about 1 MiB). The
 * spellings in which files write them are needed only while loading. Refused: no tokens, too many, a token twice, types of another length or with unknown numbers. */
#include "frontend/vocab.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"

#include <string.h>
#include <xxhash.h>

#define VOCAB_TOKENS_MAX ((size_t)1 << 24) /* the largest published ones have less than 2^19 */
#define VOCAB_BYTES_MAX  (256 * MIB)       /* of all tokens; offsets are 32 bits */

/* ---- the spelling of bytes ---- */

/* GPT-2's table: printable Latin-1 characters stand for themselves, the other bytes for U+0100 and on, in order. */
static bool is_printable_byte(unsigned b)
{
	return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

#define SPELLED_MAX 0x144 /* one more than the highest character of the table: 68 bytes are not printable */

struct spelling {
	uint16_t chars[256];         /* character of a byte */
	int16_t values[SPELLED_MAX]; /* byte of a character, or -1 */
};

static void spelling_init(struct spelling *t)
{
	unsigned next = 256;

	memset(t->values, -1, sizeof(t->values));
	for (unsigned b = 0; b < 256; b++) {
		t->chars[b] = (uint16_t)(is_printable_byte(b) ? b : next++);
		t->values[t->chars[b]] = (int16_t)b;
	}
	CHECK(next == SPELLED_MAX);
}

/* Writes the bytes that a plain token stands for (never more than its spelling has); returns their number. What is not
 * in the table stays as it is. */
static size_t spelling_decode(const struct spelling *t, struct gguf_str text, char *out)
{
	size_t i = 0, n = 0;

	while (i < text.len) {
		bool cut;
		int len = utf8_next(text.s + i, text.len - i, &cut);
		uint32_t cp = UINT32_MAX;

		if (len > 0) utf8_decode(text.s + i, &cp);
		if (len < 0) len = -len;
		if (cp < SPELLED_MAX && t->values[cp] >= 0) {
			out[n++] = (char)t->values[cp];
		} else {
			memcpy(out + n, text.s + i, (size_t)len);
			n += (size_t)len;
		}
		i += (size_t)len;
	}
	return n;
}

/* SentencePiece's spelling: U+2581 is a space. */
static size_t chars_decode(struct gguf_str text, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < text.len;) {
		bool space = text.len - i >= 3 && memcmp(text.s + i, VOCAB_SPACE, 3) == 0;

		out[n++] = space ? ' ' : text.s[i];
		i += space ? 3 : 1;
	}
	return n;
}

/* ---- tables ---- */

static void table_init(struct vocab_table *t, size_t n)
{
	size_t cap = 16;

	while (cap < n * 2) cap *= 2;
	t->slots = mem_array(uint32_t, cap);
	t->mask = cap - 1;
}

static void table_release(struct vocab_table *t)
{
	free(t->slots);
	t->slots = NULL;
}

static size_t table_start(const struct vocab_table *t, const char *s, size_t len)
{
	return (size_t)XXH3_64bits(s, len) & t->mask;
}

/* ---- loading ---- */

static const char *const key_types = "tokenizer.ggml.token_type";

static const char *key_tokens(const struct vocab_lists *l)
{
	return l->key_tokens ? l->key_tokens : "tokenizer.ggml.tokens";
}

bool vocab_split_merge(struct gguf_str text, struct vocab_merge *out)
{
	/* A token may begin with a space. */
	const char *sep = text.len > 1 ? memchr(text.s + 1, ' ', text.len - 1) : NULL;

	if (!sep || sep + 1 == text.s + text.len) return false;
	out->left = (struct gguf_str){text.s, (size_t)(sep - text.s)};
	out->right = (struct gguf_str){sep + 1, text.len - out->left.len - 1};
	return true;
}

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

#define TYPE_BYTE 6

/* By GGUF's token type; -1 for a number it does not have. */
static int kind_of_type(int32_t type)
{
	switch (type) {
	case 0: /* undefined */
	case 1: /* normal */
	case TYPE_BYTE:
		return VOCAB_PLAIN;
	case 2: /* unknown */
	case 3: /* control */
		return VOCAB_SPECIAL;
	case 4: /* user-defined */
		return VOCAB_ADDED;
	case 5:
		return VOCAB_UNUSED;
	default:
		return -1;
	}
}

static int vocab_index_init(struct vocab_index *index, const struct vocab_lists *l, struct errbuf *err)
{
	index->lists = l;
	table_init(&index->table, l->n_tokens);
	for (size_t i = 0; i < l->n_tokens; i++) {
		struct gguf_str text = l->tokens[i];
		size_t at = table_start(&index->table, text.s, text.len);

		if (text.len == 0) continue;
		for (uint32_t slot; (slot = index->table.slots[at]) != 0; at = (at + 1) & index->table.mask) {
			struct gguf_str other = l->tokens[slot - 1];

			if (other.len == text.len && memcmp(other.s, text.s, text.len) == 0)
				return err_set(
					err, ST_INVALID,
					"%s: %s: duplicate token \"%s\" (ids %u and %zu); expected each token once",
					l->file, key_tokens(l), quote_short(text.s, text.len).text, slot - 1, i);
		}
		index->table.slots[at] = (uint32_t)i + 1;
	}
	return ST_OK;
}

void vocab_index_release(struct vocab_index *index)
{
	table_release(&index->table);
}

uint32_t vocab_index_find(const struct vocab_index *index, const char *text, size_t len)
{
	size_t at = table_start(&index->table, text, len);

	for (uint32_t slot; (slot = index->table.slots[at]) != 0; at = (at + 1) & index->table.mask) {
		struct gguf_str other = index->lists->tokens[slot - 1];

		if (other.len == len && memcmp(other.s, text, len) == 0) return slot - 1;
	}
	return TOKEN_NONE;
}

static int vocab_check_lists(const struct vocab_lists *l, size_t *bytes, struct errbuf *err)
{
	*bytes = 0;
	if (l->n_tokens == 0 || l->n_tokens > VOCAB_TOKENS_MAX)
		return err_set(err, ST_INVALID, "%s: %s has %zu tokens; expected 1 to %zu", l->file, key_tokens(l),
			       l->n_tokens, VOCAB_TOKENS_MAX);
	for (size_t i = 0; i < l->n_tokens; i++) {
		*bytes += l->tokens[i].len;
		if (*bytes > VOCAB_BYTES_MAX)
			return err_set(err, ST_LIMIT, "%s: %s: the tokens take more than %zu bytes", l->file,
				       key_tokens(l), VOCAB_BYTES_MAX);
		if (l->types && kind_of_type(l->types[i]) < 0)
			return err_set(err, ST_INVALID, "%s: %s: token %zu has type %d; expected 0 to 6", l->file,
				       key_types, i, l->types[i]);
	}
	return ST_OK;
}

/* Whether token i stands for one byte that no character's token covers; which one goes to *byte. */
static bool vocab_is_byte(const struct vocab_lists *l, size_t i, unsigned char *byte)
{
	struct gguf_str t = l->tokens[i];
	unsigned value = 0;

	if (l->family != VOCAB_CHARS || (l->types && l->types[i] != TYPE_BYTE) || t.len != 6) return false;
	if (memcmp(t.s, "<0x", 3) != 0 || t.s[5] != '>') return false;
	for (int k = 3; k < 5; k++) {
		const char *digits = "0123456789abcdef0123456789ABCDEF", *at = t.s[k] ? strchr(digits, t.s[k]) : NULL;

		if (!at) return false;
		value = value << 4 | (unsigned)((at - digits) & 15);
	}
	*byte = (unsigned char)value;
	return true;
}

/* Writes the bytes that token i stands for; returns their number. */
static size_t vocab_token_bytes(const struct vocab_lists *l, const struct spelling *spelling, size_t i, int kind, char *out)
{
	struct gguf_str text = l->tokens[i];
	unsigned char byte;

	if (vocab_is_byte(l, i, &byte)) {
		*out = (char)byte;
		return 1;
	}
	if (kind == VOCAB_SPECIAL || (kind == VOCAB_ADDED && l->family == VOCAB_BYTES)) {
		if (text.len) memcpy(out, text.s, text.len);
		return text.len;
	}
	return l->family == VOCAB_BYTES ? spelling_decode(spelling, text, out) : chars_decode(text, out);
}

static void vocab_fill_bytes(struct vocab *v, const struct vocab_lists *l, const struct spelling *spelling)
{
	size_t end = 0;

	for (uint32_t i = 0; i < v->n; i++) {
		struct gguf_str text = l->tokens[i];
		int kind = l->types ? kind_of_type(l->types[i]) : VOCAB_PLAIN;

		if (is_control_name(text)) kind = VOCAB_SPECIAL;
		if (text.len == 0) kind = VOCAB_UNUSED;
		v->kinds[i] = (uint8_t)kind;
		v->offs[i] = (uint32_t)end;
		end += vocab_token_bytes(l, spelling, i, kind, v->bytes + end);
	}
	v->offs[v->n] = (uint32_t)end;
	v->token_len_max = 1;
	for (uint32_t i = 0; i < v->n; i++) v->token_len_max = max_size(v->token_len_max, v->offs[i + 1] - v->offs[i]);
	v->bytes = mem_realloc(v->bytes, end + 1, 1);
}

static void vocab_put_plain(struct vocab *v, uint32_t id)
{
	size_t len, other_len, at;
	const char *s = vocab_bytes(v, id, &len), *other;

	for (at = table_start(&v->plain, s, len); v->plain.slots[at] != 0; at = (at + 1) & v->plain.mask) {
		other = vocab_bytes(v, v->plain.slots[at] - 1, &other_len);
		if (other_len == len && memcmp(other, s, len) == 0) return; /* two spellings: the first is found */
	}
	v->plain.slots[at] = id + 1;
}

static void vocab_fill_plain(struct vocab *v, const struct vocab_index *index, const struct spelling *spelling)
{
	const struct vocab_lists *l = index->lists;
	unsigned char byte;
	char text[4];

	table_init(&v->plain, v->n);
	for (unsigned b = 0; b < 256; b++) v->byte_ids[b] = TOKEN_NONE;
	for (uint32_t i = 0; i < v->n; i++) {
		if (v->kinds[i] != VOCAB_PLAIN) continue;
		if (!vocab_is_byte(l, i, &byte)) vocab_put_plain(v, i);
		else if (v->byte_ids[byte] == TOKEN_NONE) v->byte_ids[byte] = i;
	}
	if (l->family != VOCAB_BYTES) return;
	for (unsigned b = 0; b < 256; b++) {
		uint32_t id = vocab_index_find(index, text, (size_t)utf8_encode(spelling->chars[b], text));

		v->byte_ids[b] = id != TOKEN_NONE && v->kinds[id] == VOCAB_PLAIN ? id : TOKEN_NONE;
	}
}

int vocab_init(struct vocab *v, struct vocab_index *index, const struct vocab_lists *l, struct errbuf *err)
{
	struct spelling spelling;
	size_t bytes;
	int rc;

	*v = (struct vocab){0};
	*index = (struct vocab_index){0};
	rc = vocab_check_lists(l, &bytes, err);
	if (rc != ST_OK) return rc;
	rc = vocab_index_init(index, l, err);
	if (rc != ST_OK) return rc;

	spelling_init(&spelling);
	v->n = (uint32_t)l->n_tokens;
	v->bytes = mem_realloc(NULL, bytes + 1, 1);
	v->offs = mem_array(uint32_t, l->n_tokens + 1);
	v->kinds = mem_array(uint8_t, l->n_tokens);
	vocab_fill_bytes(v, l, &spelling);
	vocab_fill_plain(v, index, &spelling);
	return ST_OK;
}

void vocab_release(struct vocab *v)
{
	free(v->bytes);
	free(v->offs);
	free(v->kinds);
	table_release(&v->plain);
	*v = (struct vocab){0};
}

/* ---- finding ---- */

uint32_t vocab_find_plain(const struct vocab *v, const char *s, size_t len)
{
	size_t at = table_start(&v->plain, s, len);

	for (uint32_t slot; (slot = v->plain.slots[at]) != 0; at = (at + 1) & v->plain.mask) {
		size_t other_len;
		const char *other = vocab_bytes(v, slot - 1, &other_len);

		if (other_len == len && memcmp(other, s, len) == 0) return slot - 1;
	}
	return TOKEN_NONE;
}
