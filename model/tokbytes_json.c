/* tokbytes_json.c - see tokbytes_json.h. */
#include "model/tokbytes_json.h"

#include "common/mem.h"
#include "common/quote.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define IDS_SPARSE         65536 /* ids may exceed the number of tokens by as much: some vocabularies have gaps */
#define SEQUENCE_DEPTH_MAX 4     /* as the tokenizer's steps */
#define PATH_CAP           4400

/* GGUF's numbers of token types. */
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5, TYPE_BYTE = 6 };

static bool is_byte_name(const char *s)
{
	return strlen(s) == 6 && memcmp(s, "<0x", 3) == 0 && strspn(s + 3, "0123456789ABCDEFabcdef") == 2 &&
	       s[5] == '>';
}

static int put_token(struct tokbytes_json *t, const struct jsonplace *p, uint32_t id, struct gguf_str text,
		     int32_t type)
{
	struct gguf_str old = t->tokens[id];
	bool same = old.len == text.len && (text.len == 0 || memcmp(old.s, text.s, text.len) == 0);

	if (old.len > 0 && !same)
		return jsonplace_fail(p, ST_INVALID, "id %u is that of \"%s\" and of \"%s\"; expected one token an id",
				      id, quote_short(old.s, old.len).text, quote_short(text.s, text.len).text);
	t->tokens[id] = text;
	t->types[id] = type;
	return ST_OK;
}

/* The highest id decides how many there are. */
static int count_ids(struct tokbytes_json *t, const struct jsonplace *vocab, const struct jsonplace *added)
{
	size_t most = json_object_size(vocab->value) + json_array_size(added->value) + IDS_SPARSE;
	uint32_t id;
	const char *text;
	json_t *value;
	int rc = ST_OK;

	json_object_foreach((json_t *)(uintptr_t)vocab->value, text, value)
	{
		struct jsonplace m = *vocab;

		m.value = value;
		rc = jsonplace_id(&m, most, &id);
		if (rc != ST_OK) return rc;
		t->n_tokens = max_size(t->n_tokens, (size_t)id + 1);
	}
	for (size_t i = 0; i < json_array_size(added->value) && rc == ST_OK; i++) {
		struct jsonplace item = jsonplace_item(added, i), m = jsonplace_member(&item, "id");

		rc = jsonplace_id(&m, most, &id);
		if (rc == ST_OK) t->n_tokens = max_size(t->n_tokens, (size_t)id + 1);
	}
	return rc;
}

static int read_vocab(struct tokbytes_json *t, const struct jsonplace *vocab, bool byte_fallback)
{
	const char *text;
	json_t *value;
	int rc = ST_OK;

	json_object_foreach((json_t *)(uintptr_t)vocab->value, text, value)
	{
		int32_t type = byte_fallback && is_byte_name(text) ? TYPE_BYTE : TYPE_NORMAL;

		if (rc == ST_OK)
			rc = put_token(t, vocab, (uint32_t)json_integer_value(value),
				       (struct gguf_str){text, strlen(text)}, type);
	}
	return rc;
}

static int read_added(struct tokbytes_json *t, const struct jsonplace *added)
{
	size_t n = 0;
	int rc = jsonplace_is_null(added) ? ST_OK : jsonplace_array(added, &n);

	for (size_t i = 0; i < n && rc == ST_OK; i++) {
		struct jsonplace item = jsonplace_item(added, i), id = jsonplace_member(&item, "id"),
				 content = jsonplace_member(&item, "content");
		struct gguf_str text;
		uint32_t number;
		bool special;

		rc = jsonplace_id(&id, t->n_tokens, &number);
		if (rc == ST_OK) rc = jsonplace_str(&content, &text);
		if (rc == ST_OK) rc = jsonplace_bool_or(&item, "special", false, &special);
		if (rc == ST_OK) rc = put_token(t, &item, number, text, special ? TYPE_CONTROL : TYPE_USER);
	}
	return rc;
}

/* A step, or a Sequence of steps, with a ByteLevel among them. The tokenizer refuses what has another form. */
static bool has_byte_level(const json_t *step, int depth)
{
	const char *type = json_string_value(json_object_get(step, "type"));
	const json_t *members = json_object_get(step, "pretokenizers");

	if (type && strcmp(type, "ByteLevel") == 0) return true;
	if (!type || strcmp(type, "Sequence") != 0 || depth > SEQUENCE_DEPTH_MAX) return false;
	for (size_t i = 0; i < json_array_size(members); i++)
		if (has_byte_level(json_array_get(members, i), depth + 1)) return true;
	return false;
}

int tokbytes_json_read(struct tokbytes_json *t, const struct jsonplace *root)
{
	struct jsonplace model = jsonplace_member(root, "model"), vocab = jsonplace_member(&model, "vocab"),
			 added = jsonplace_member(root, "added_tokens");
	bool byte_fallback;
	int rc;

	*t = (struct tokbytes_json){.spelling = TOKBYTES_LLAMA};
	if (has_byte_level(json_object_get(root->value, "pre_tokenizer"), 0)) t->spelling = TOKBYTES_GPT2;
	rc = jsonplace_bool_or(&model, "byte_fallback", false, &byte_fallback);
	if (rc == ST_OK && json_object_size(vocab.value) == 0)
		rc = jsonplace_fail(&vocab, ST_INVALID, "expected an object with tokens and their ids");
	if (rc == ST_OK) rc = count_ids(t, &vocab, &added);
	if (rc != ST_OK) return rc;
	t->tokens = mem_array(struct gguf_str, t->n_tokens);
	t->types = mem_array(int32_t, t->n_tokens);
	for (size_t i = 0; i < t->n_tokens; i++) t->types[i] = TYPE_UNUSED;
	rc = read_vocab(t, &vocab, byte_fallback);
	return rc == ST_OK ? read_added(t, &added) : rc;
}

void tokbytes_json_release(struct tokbytes_json *t)
{
	free(t->tokens);
	free(t->types);
	*t = (struct tokbytes_json){0};
}

void tokbytes_json_path(const char *path, char *out, size_t cap, struct quote *shown)
{
	struct stat st;
	bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	const char *name;

	snprintf(out, cap, is_folder ? "%s/tokenizer.json" : "%s", path);
	*shown = quote_short(out, strlen(out));
	name = strrchr(out, '/');
	/* A long path would be cut before its name. */
	if (strlen(shown->text) + 1 >= sizeof(shown->text) && name) *shown = quote_short(name + 1, strlen(name + 1));
}

int tokbytes_from_json(struct tokbytes **out, const char *path, struct errbuf *err)
{
	struct quote shown;
	char file[PATH_CAP];
	struct tokbytes_json t = {0};
	json_t *json;
	int rc;

	*out = NULL;
	tokbytes_json_path(path, file, sizeof(file), &shown);
	rc = jsonplace_load(&json, file, shown.text, err);
	if (rc != ST_OK) return rc;
	rc = tokbytes_json_read(&t, &(struct jsonplace){.file = shown.text, .value = json, .err = err});
	if (rc == ST_OK)
		rc = tokbytes_from_lists(out,
					 &(struct tokbytes_lists){.file = shown.text,
								  .spelling = t.spelling,
								  .tokens = t.tokens,
								  .n_tokens = t.n_tokens,
								  .types = t.types},
					 err);
	tokbytes_json_release(&t);
	json_decref(json);
	return rc;
}
