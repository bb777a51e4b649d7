/* tokjson.c - see tokjson.h. Reads model.vocab, model.merges and added_tokens; everything else is implied by `pre`. */
#include "tests/support/tokjson.h"

#include "common/mem.h"
#include "common/strbuf.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct gguf_str view(const json_t *text)
{
	return (struct gguf_str){json_string_value(text), json_string_length(text)};
}

/* The lists under construction; the vocab_lists points into them at the end. */
struct building {
	struct gguf_str *tokens;
	int32_t *types;
	size_t n, tokens_cap, types_cap;
};

static void put_token(struct building *b, json_int_t id, struct gguf_str text, int32_t type)
{
	if (id < 0 || id > 1 << 20) fail_msg("absurd token id");
	mem_reserve(b->tokens, b->tokens_cap, (size_t)id + 1);
	mem_reserve(b->types, b->types_cap, (size_t)id + 1);
	for (; b->n <= (size_t)id; b->n++) b->tokens[b->n] = (struct gguf_str){0};
	b->tokens[id] = text;
	b->types[id] = type;
}

static void read_merges(struct vocab_lists *l, const json_t *merges, struct strbuf *pairs)
{
	struct vocab_merge *out = mem_array(struct vocab_merge, json_array_size(merges) + 1);
	const char *at;
	size_t i;
	json_t *m;

	/* Either "a b" or ["a", "b"]; both become "a b" in one text first, because it moves while it grows. */
	json_array_foreach(merges, i, m)
	{
		if (json_is_array(m))
			strbuf_printf(pairs, "%s %s", json_string_value(json_array_get(m, 0)),
				      json_string_value(json_array_get(m, 1)));
		else
			strbuf_puts(pairs, json_string_value(m));
		strbuf_putc(pairs, 0);
	}
	assert_false(pairs->overflow);
	at = pairs->data;
	for (i = 0; i < json_array_size(merges); i++, at += strlen(at) + 1)
		assert_true(vocab_split_merge((struct gguf_str){at, strlen(at)}, &out[i]));
	l->merges = out;
	l->n_merges = json_array_size(merges);
}

static uint32_t id_of(const struct vocab_lists *l, const char *text)
{
	for (size_t i = 0; text && i < l->n_tokens; i++)
		if (gguf_str_is(l->tokens[i], text)) return (uint32_t)i;
	return TOKEN_NONE;
}

struct tokenizer *tokjson_load(const char *relpath, const char *pre, const char *bos, const char *eos)
{
	json_t *root = golden_json(relpath), *id, *token;
	struct vocab_lists l = {.file = relpath, .pre = pre, .unk = TOKEN_NONE, .eot = TOKEN_NONE, .eom = TOKEN_NONE, .add_bos = -1};
	struct building b = {0};
	struct tokenizer *t = NULL;
	struct errbuf err = {0};
	struct strbuf pairs;
	const char *text;
	size_t i;

	if (!root) return NULL;
	strbuf_init(&pairs, 64 * MIB);
	json_object_foreach(json_object_get(json_object_get(root, "model"), "vocab"), text, id)
		put_token(&b, json_integer_value(id), (struct gguf_str){text, strlen(text)}, 1);
	json_array_foreach(json_object_get(root, "added_tokens"), i, token)
		put_token(&b, json_integer_value(json_object_get(token, "id")), view(json_object_get(token, "content")),
			  json_is_true(json_object_get(token, "special")) ? 3 : 4);
	for (i = 0; i < b.n; i++)
		if (!b.tokens[i].s) fail_msg("%s: no token has id %zu", relpath, i);
	l.tokens = b.tokens;
	l.types = b.types;
	l.n_tokens = b.n;
	read_merges(&l, json_object_get(json_object_get(root, "model"), "merges"), &pairs);
	l.bos = id_of(&l, bos);
	l.eos = id_of(&l, eos);
	if (tokenizer_from_lists(&t, &l, &err) != ST_OK) fail_msg("%s", err.text);

	free(b.tokens);
	free(b.types);
	free((void *)(uintptr_t)l.merges);
	strbuf_release(&pairs);
	json_decref(root);
	return t;
}
