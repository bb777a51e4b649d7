/* chatfile.c - see chatfile.h. */
#include "frontend/chatfile.h"

#include "common/strbuf.h"
#include "frontend/chat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int chatfile_read(struct strbuf *out, const char *path, struct errbuf *err)
{
	FILE *f = fopen(path, "re");
	char buf[16384];
	size_t n;
	int failed;

	if (!f) return err_set(err, ST_NOT_FOUND, "%s cannot be read: %s", path, strerror(errno));
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0) strbuf_append(out, buf, n);
	failed = ferror(f) ? errno : 0;
	fclose(f);
	if (failed) return err_set(err, ST_IO, "%s cannot be read: %s", path, strerror(failed));
	if (out->overflow) return err_set(err, ST_LIMIT, "%s is longer than %zu bytes", path, (size_t)CHATFILE_BYTES_MAX);
	return out->len ? ST_OK : err_set(err, ST_INVALID, "%s is empty", path);
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
