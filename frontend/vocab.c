/* vocab.c - see vocab.h.
 *
 * What tokens stand for comes from model/tokbytes.c; here are the tables that find them. The spellings of files are needed
 * only while merges are read. Refused: a token twice, and what tokbytes.c refuses. */
#include "frontend/vocab.h"

#include "common/mem.h"
#include "common/quote.h"
#include "frontend/tokenizer.h"

#include <string.h>
#include <xxhash.h>

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

bool vocab_split_merge(struct gguf_str text, struct vocab_merge *out)
{
	/* A token may begin with a space. */
	const char *sep = text.len > 1 ? memchr(text.s + 1, ' ', text.len - 1) : NULL;

	if (!sep || sep + 1 == text.s + text.len) return false;
	out->left = (struct gguf_str){text.s, (size_t)(sep - text.s)};
	out->right = (struct gguf_str){sep + 1, text.len - out->left.len - 1};
	return true;
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
					l->file, l->key_tokens ? l->key_tokens : "tokenizer.ggml.tokens", quote_short(text.s, text.len).text, slot - 1, i);
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

/* A spelling of six bytes that stands for one is <0xNN>: two marks for spaces would stand for two. */
static bool is_fallback(const struct vocab_lists *l, uint32_t id, size_t len)
{
	return l->spelling == TOKBYTES_LLAMA && len == 1 && l->tokens[id].len == 6;
}

static void vocab_fill(struct vocab *v, const struct vocab_lists *l)
{
	table_init(&v->plain, v->n);
	v->token_len_max = 1;
	for (unsigned b = 0; b < 256; b++) v->byte_ids[b] = TOKEN_NONE;
	for (uint32_t i = 0; i < v->n; i++) {
		size_t len;
		const char *s = vocab_bytes(v, i, &len);
		uint32_t *byte_id = &v->byte_ids[len > 0 ? (unsigned char)s[0] : 0];

		v->token_len_max = max_size(v->token_len_max, len);
		if (v->tokens->kinds[i] != TOKBYTES_PLAIN || len == 0) continue;
		if (!is_fallback(l, i, len)) vocab_put_plain(v, i);
		if (len == 1 && (l->spelling == TOKBYTES_GPT2 || is_fallback(l, i, len)) && *byte_id == TOKEN_NONE) *byte_id = i;
	}
}

int vocab_init(struct vocab *v, struct vocab_index *index, const struct vocab_lists *l, struct errbuf *err)
{
	const struct tokbytes_lists lists = {
		.file = l->file, .spelling = l->spelling, .tokens = l->tokens, .n_tokens = l->n_tokens, .types = l->types};
	int rc;

	*v = (struct vocab){0};
	*index = (struct vocab_index){0};
	rc = tokbytes_from_lists(&v->tokens, &lists, err);
	if (rc == ST_OK) rc = vocab_index_init(index, l, err);
	if (rc != ST_OK) return rc;
	v->n = v->tokens->n;
	vocab_fill(v, l);
	return ST_OK;
}

void vocab_release(struct vocab *v)
{
	tokbytes_free(v->tokens);
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
