/* tokfile_folder.c - what lies beside a tokenizer.json: tokenizer_config.json, generation_config.json or config.json,
 * chat_template.jinja.
 *
 * Each may be missing. What is there and cannot be read is refused by file and field. */
#include "frontend/tokfile.h"

#include "common/mem.h"
#include "common/quote.h"
#include "model/foldertmpl.h"

#include <stdio.h>
#include <string.h>

#define PATH_LEN_MAX 4352

void tokfile_folder_release(struct tokfile_folder *f)
{
	json_decref(f->config);
	json_decref(f->named);
	free(f->chat_template);
	free(f->bos);
	free(f->eos);
	*f = (struct tokfile_folder){0};
}

/* A file of the folder, or NULL when there is none. */
static int companion_load(json_t **out, const char *folder, const char *name, struct errbuf *err)
{
	char path[PATH_LEN_MAX];
	struct errbuf why = {0};
	int rc;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	rc = jsonplace_load(out, path, name, &why);
	if (rc == ST_OK || rc == ST_NOT_FOUND) return ST_OK;
	return err_set(err, rc, "%s", why.text);
}

/* A token's text: "..." or {"content": "..."}. */
static int read_token(const struct jsonplace *config, const char *key, char **out)
{
	struct jsonplace m = jsonplace_member(config, key), content = jsonplace_member(&m, "content");
	struct gguf_str text;
	int rc;

	if (jsonplace_is_null(&m)) return ST_OK;
	rc = jsonplace_str(json_is_object(m.value) ? &content : &m, &text);
	if (rc == ST_OK) *out = mem_strndup(text.s, text.len);
	return rc;
}

/* All that templates may ask for; what is odd stays undefined. */
static void read_named(struct tokfile_folder *f)
{
	static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
					    "pad_token", "cls_token", "mask_token"};

	f->named = json_object();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		json_t *j = json_object_get(f->config, names[i]), *content = json_object_get(j, "content");

		if (json_is_string(content)) j = content;
		if (json_is_string(j)) json_object_set(f->named, names[i], j);
	}
}

static int read_config(struct tokfile_folder *f, struct errbuf *err)
{
	struct jsonplace config = {.file = "tokenizer_config.json", .value = f->config, .err = err},
			 add_bos = jsonplace_member(&config, "add_bos_token");
	bool on;
	int rc = read_token(&config, "bos_token", &f->bos);

	read_named(f);
	if (rc == ST_OK) rc = read_token(&config, "eos_token", &f->eos);
	if (rc == ST_OK)
		rc = jsonplace_must_be_unset(&config, "add_eos_token", "a token behind each text is not supported");
	if (rc == ST_OK) rc = jsonplace_bool_or(&config, "add_bos_token", false, &on);
	if (rc == ST_OK && !jsonplace_is_null(&add_bos)) f->add_bos = on;
	return rc;
}

/* eos_token_id: an id or several. */
static int read_stops(struct tokfile_stops *s, const char *file, const json_t *root, struct errbuf *err)
{
	struct jsonplace config = {.file = file, .value = root, .err = err},
			 eos = jsonplace_member(&config, "eos_token_id");
	size_t n = json_array_size(eos.value);
	int rc = ST_OK;

	if (jsonplace_is_null(&eos)) return ST_OK;
	if (!json_is_array(eos.value)) {
		s->n = 1;
		return jsonplace_id(&eos, UINT32_MAX, &s->ids[0]);
	}
	if (n > ARRAY_LEN(s->ids))
		return jsonplace_fail(&eos, ST_LIMIT, "holds %zu ids; expected at most %zu", n, ARRAY_LEN(s->ids));
	for (size_t i = 0; i < n && rc == ST_OK; i++) {
		struct jsonplace item = jsonplace_item(&eos, i);

		rc = jsonplace_id(&item, UINT32_MAX, &s->ids[s->n++]);
	}
	return rc;
}

/* Models that see images, too, have it one level deeper. */
static const json_t *text_config(const json_t *root)
{
	const json_t *text = json_object_get(root, "text_config");

	return json_object_get(root, "eos_token_id") || !text ? root : text;
}

int tokfile_stops_read(struct tokfile_stops *s, const char *folder, struct errbuf *err)
{
	static const char *const files[] = {"generation_config.json", "config.json"};
	int rc = ST_OK;

	*s = (struct tokfile_stops){0};
	for (size_t i = 0; i < ARRAY_LEN(files) && rc == ST_OK && s->n == 0; i++) {
		json_t *root = NULL;

		rc = companion_load(&root, folder, files[i], err);
		if (rc == ST_OK && root) rc = read_stops(s, files[i], text_config(root), err);
		json_decref(root);
	}
	return rc;
}

int tokfile_folder_read(struct tokfile_folder *f, const char *folder, struct errbuf *err)
{
	struct jsonplace config = {.file = "tokenizer_config.json", .err = err};
	int rc;

	*f = (struct tokfile_folder){.add_bos = -1};
	rc = companion_load(&f->config, folder, "tokenizer_config.json", err);
	if (rc == ST_OK && f->config) rc = read_config(f, err);
	if (rc == ST_OK) rc = tokfile_stops_read(&f->stops, folder, err);
	config.value = f->config;
	if (rc == ST_OK) rc = foldertmpl_read(&f->chat_template, folder, &config);
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "%s", quote_short(folder, strlen(folder)).text);
}
