/* foldertmpl.c - see foldertmpl.h. */
#include "model/foldertmpl.h"

#include "common/filetext.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

#define FOLDERTMPL_PATH_MAX 4352

static int foldertmpl_from_config(char **out, const struct jsonplace *config)
{
	struct jsonplace m = jsonplace_member(config, "chat_template"), chosen = m;
	struct gguf_str text;
	int rc;

	if (jsonplace_is_null(&m)) return ST_OK;
	for (size_t i = 0; i < json_array_size(m.value); i++) {
		struct jsonplace item = jsonplace_item(&m, i), name = jsonplace_member(&item, "name");

		if (!json_is_string(name.value) || strcmp(json_string_value(name.value), "default") != 0) continue;
		chosen = jsonplace_member(&item, "template");
	}
	if (json_is_array(chosen.value)) return ST_OK; /* none is for plain chats */
	rc = jsonplace_str(&chosen, &text);
	if (rc == ST_OK) *out = mem_strndup(text.s, text.len);
	return rc;
}

int foldertmpl_read(char **out, const char *folder, const struct jsonplace *config)
{
	char path[FOLDERTMPL_PATH_MAX];
	struct errbuf why = {{0}};
	size_t len;
	int rc;

	*out = NULL;
	snprintf(path, sizeof(path), "%s/chat_template.jinja", folder);
	rc = filetext_read(out, &len, path, FOLDERTMPL_MAX, &why);
	if (rc == ST_NOT_FOUND) return config->value ? foldertmpl_from_config(out, config) : ST_OK;
	return rc == ST_OK ? ST_OK : err_set(config->err, rc, "chat_template.jinja: %s", why.text);
}
