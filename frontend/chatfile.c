/* chatfile.c - see chatfile.h. */
#include "frontend/chatfile.h"

#include "common/filetext.h"
#include "common/strbuf.h"
#include "frontend/chat.h"

#include <stdlib.h>
#include <string.h>

static int chatfile_read(struct strbuf *out, const char *path, struct errbuf *err)
{
	char *text;
	size_t len;
	int rc = filetext_read(&text, &len, path, CHATFILE_BYTES_MAX, err);

	if (rc == ST_OK) strbuf_append(out, text, len);
	if (rc == ST_OK && len == 0) rc = err_set(err, ST_INVALID, "is empty");
	free(text);
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "%s", path);
}

int chatfile_apply(struct chat **chat, const char *value, struct errbuf *err)
{
	struct chat *own = NULL;
	bool is_text = strpbrk(value, "{}\n") != NULL;
	struct strbuf text;
	int rc = ST_OK;

	strbuf_init(&text, CHATFILE_BYTES_MAX);
	if (is_text) strbuf_puts(&text, value);
	else rc = chatfile_read(&text, value, err);
	if (rc == ST_OK) {
		rc = chat_with_template(&own, *chat, text.data, text.len, CHAT_NEW_MODEL, err);
		if (rc != ST_OK && !is_text) err_prefix(err, rc, "%s", value);
	}
	strbuf_release(&text);
	if (rc != ST_OK) return err_prefix(err, rc, "--chat-template");
	chat_free(*chat);
	*chat = own;
	return ST_OK;
}
