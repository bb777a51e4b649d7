/* vocab.c - see vocab.h.
 *
 * Tokens are kept as the bytes they stand for, in one block with offsets (a 49k vocabulary takes about 1 MiB). The
 * spelling in which files write them (one printable character a byte, GPT-2's table) is needed only while loading.
 * Refused: no tokens, too many, a token twice, types of another length or with unknown numbers. */
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

static const char *const key_tokens = "tokenizer.ggml.tokens", *const key_types = "tokenizer.ggml.token_type";

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

/* By GGUF's token type; -1 for a number it does not have. */
static int kind_of_type(int32_t type)
{
	switch (type) {
	case 0: /* undefined */
	case 1: /* normal */
	case 6: /* byte */
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

		for (uint32_t slot; (slot = index->table.slots[at]) != 0; at = (at + 1) & index->table.mask) {
			struct gguf_str other = l->tokens[slot - 1];

			if (other.len == text.len && memcmp(other.s, text.s, text.len) == 0)
				return err_set(
					err, ST_INVALID,
					"%s: %s: duplicate token \"%s\" (ids %u and %zu); expected each token once",
					l->file, key_tokens, quote_short(text.s, text.len).text, slot - 1, i);
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
		return err_set(err, ST_INVALID, "%s: %s has %zu tokens; expected 1 to %zu", l->file, key_tokens,
			       l->n_tokens, VOCAB_TOKENS_MAX);
	for (size_t i = 0; i < l->n_tokens; i++) {
		*bytes += l->tokens[i].len;
		if (*bytes > VOCAB_BYTES_MAX)
			return err_set(err, ST_LIMIT, "%s: %s: the tokens take more than %zu bytes", l->file,
				       key_tokens, VOCAB_BYTES_MAX);
		if (l->types && kind_of_type(l->types[i]) < 0)
			return err_set(err, ST_INVALID, "%s: %s: token %zu has type %d; expected 0 to 6", l->file,
				       key_types, i, l->types[i]);
	}
	return ST_OK;
}

static void vocab_fill_bytes(struct vocab *v, const struct vocab_lists *l, const struct spelling *spelling)
{
	size_t end = 0;

	for (uint32_t i = 0; i < v->n; i++) {
		struct gguf_str text = l->tokens[i];
		int kind = l->types ? kind_of_type(l->types[i]) : VOCAB_PLAIN;

		if (is_control_name(text)) kind = VOCAB_SPECIAL;
		v->kinds[i] = (uint8_t)kind;
		v->offs[i] = (uint32_t)end;
		if (kind == VOCAB_SPECIAL || kind == VOCAB_ADDED) {
			if (text.len) memcpy(v->bytes + end, text.s, text.len);
			end += text.len;
			if (text.len) v->n_added++;
		} else {
			end += spelling_decode(spelling, text, v->bytes + end);
		}
	}
	v->offs[v->n] = (uint32_t)end;
	v->token_len_max = 1;
	for (uint32_t i = 0; i < v->n; i++) v->token_len_max = max_size(v->token_len_max, v->offs[i + 1] - v->offs[i]);
	v->bytes = mem_realloc(v->bytes, end + 1, 1);
}

static void vocab_fill_plain(struct vocab *v, const struct vocab_index *index, const struct spelling *spelling)
{
	char text[4];

	table_init(&v->plain, v->n);
	for (uint32_t i = 0; i < v->n; i++) {
		size_t len, other_len, at;
		const char *s = vocab_bytes(v, i, &len), *other;
		uint32_t slot;

		if (v->kinds[i] != VOCAB_PLAIN) continue;
		for (at = table_start(&v->plain, s, len); (slot = v->plain.slots[at]) != 0;
		     at = (at + 1) & v->plain.mask) {
			other = vocab_bytes(v, slot - 1, &other_len);
			if (other_len == len && memcmp(other, s, len) == 0)
				break; /* two spellings: the first is found */
		}
		if (slot == 0) v->plain.slots[at] = i + 1;
	}
	for (unsigned b = 0; b < 256; b++) {
		uint32_t id = vocab_index_find(index, text, (size_t)utf8_encode(spelling->chars[b], text));

		v->byte_ids[b] = id != TOKEN_NONE && v->kinds[id] == VOCAB_PLAIN ? id : TOKEN_NONE;
	}
}

static int added_compare(const void *a, const void *b, void *ctx)
{
	const struct vocab *v = ctx;
	size_t a_len, b_len;
	const char *a_bytes = vocab_bytes(v, *(const uint32_t *)a, &a_len);
	const char *b_bytes = vocab_bytes(v, *(const uint32_t *)b, &b_len);
	int c = memcmp(a_bytes, b_bytes, min_size(a_len, b_len));

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

static void vocab_fill_added(struct vocab *v)
{
	size_t n = 0;

	v->added = mem_array(uint32_t, v->n_added + 1);
	for (uint32_t i = 0; i < v->n; i++) {
		size_t len;
		const char *s = vocab_bytes(v, i, &len);

		if ((v->kinds[i] != VOCAB_SPECIAL && v->kinds[i] != VOCAB_ADDED) || len == 0) continue;
		v->added[n++] = i;
		v->added_first[(unsigned char)s[0]] = true;
	}
	CHECK(n == v->n_added);
	qsort_r(v->added, n, sizeof(*v->added), added_compare, v);
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
	vocab_fill_added(v);
	return ST_OK;
}

void vocab_release(struct vocab *v)
{
	free(v->bytes);
	free(v->offs);
	free(v->kinds);
	free(v->added);
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

/* Byte `at` of the i-th added token as an ordered number; -1 past its end. */
static int added_byte(const struct vocab *v, size_t i, size_t at)
{
	size_t len;
	const char *s = vocab_bytes(v, v->added[i], &len);

	return at < len ? (unsigned char)s[at] : -1;
}

/* First position in [lo, hi) whose byte `at` is at least `byte`; the range agrees on all bytes before. */
static size_t added_bound(const struct vocab *v, size_t lo, size_t hi, size_t at, int byte)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (added_byte(v, mid, at) < byte)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t vocab_match(const struct vocab *v, const char *s, size_t len, size_t special_len)
{
	size_t lo = 0, hi = v->n_added;
	uint32_t best = TOKEN_NONE;

	/* The tokens that share a prefix are neighbours: each further byte narrows the range. */
	for (size_t at = 0; at < len && lo < hi; at++) {
		int byte = (unsigned char)s[at];

		if (at == 0 && !v->added_first[byte]) return TOKEN_NONE;
		lo = added_bound(v, lo, hi, at, byte);
		hi = added_bound(v, lo, hi, at, byte + 1);
		/* One that ends here is the first of its range; several with the same bytes cannot be (each spelling
		 * once). */
		if (lo < hi && added_byte(v, lo, at + 1) < 0 &&
		    (v->kinds[v->added[lo]] == VOCAB_ADDED || at + 1 <= special_len))
			best = v->added[lo];
	}
	return best;
}

uint32_t vocab_find_added(const struct vocab *v, const char *s, size_t len)
{
	uint32_t id = vocab_match(v, s, len, len);
	size_t id_len;

	if (id == TOKEN_NONE) return TOKEN_NONE;
	vocab_bytes(v, id, &id_len);
	return id_len == len ? id : TOKEN_NONE;
}
