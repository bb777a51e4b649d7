/* hubname.c - see hubname.h. */
#include "sluice/hubname.h"

#include "common/quote.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define COMPONENT_MAX 255
#define WORD_MAX      200

static bool is_word_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
	       c == '.';
}

static bool is_word(const char *s, size_t len, size_t len_max)
{
	if (len == 0 || len > len_max || s[0] == '.') return false;
	for (size_t i = 0; i < len; i++)
		if (!is_word_char(s[i])) return false;
	return true;
}

bool hubname_is_safe_word(const char *word)
{
	return is_word(word, strlen(word), WORD_MAX);
}

bool hubname_is_commit(const char *text)
{
	return strlen(text) == HUBNAME_COMMIT_LEN && strspn(text, "0123456789abcdef") == HUBNAME_COMMIT_LEN;
}

bool hubname_is_safe_path(const char *path)
{
	size_t len = strlen(path), n;

	if (len == 0 || len > HUBNAME_FILE_MAX) return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)path[i] < 32 || path[i] == 127 || path[i] == '\\') return false;
	for (const char *p = path;; p += n + 1) {
		n = strcspn(p, "/");
		if (n == 0 || n > COMPONENT_MAX || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		if (!p[n]) return true;
	}
}

bool hubname_is_likely(const char *text)
{
	return text[0] && !strchr("/.~", text[0]) && strchr(text, '/');
}

/* What is behind the last '@' is the revision: no other part may hold one. */
static int parse_revision(struct hubname *out, const char *at, struct errbuf *err)
{
	const char *revision = at ? at + 1 : "main";

	if (strlen(revision) > HUBNAME_REVISION_MAX || !hubname_is_safe_path(revision))
		return err_set(err, ST_INVALID, "@%s: expected a branch, a tag or a commit",
			       quote_short(revision, strlen(revision)).text);
	snprintf(out->revision, sizeof(out->revision), "%s", revision);
	return ST_OK;
}

static int parse_quant(struct hubname *out, const char *s, size_t len, struct errbuf *err)
{
	if (!is_word(s, len, sizeof(out->quant) - 1))
		return err_set(err, ST_INVALID, ":%s: expected the name of a quantization, as Q4_K_M",
			       quote_short(s, len).text);
	memcpy(out->quant, s, len);
	out->quant[len] = 0;
	return ST_OK;
}

static int parse_file(struct hubname *out, const char *s, size_t len, struct errbuf *err)
{
	if (len < sizeof(out->file)) {
		memcpy(out->file, s, len);
		out->file[len] = 0;
	}
	if (len >= sizeof(out->file) || !hubname_is_safe_path(out->file) || len < 6 ||
	    strcasecmp(out->file + len - 5, ".gguf") != 0)
		return err_set(err, ST_INVALID, "%s: expected a file that ends in .gguf", quote_short(s, len).text);
	return ST_OK;
}

int hubname_parse(struct hubname *out, const char *text, struct errbuf *err)
{
	const char *at = strrchr(text, '@');
	size_t len = at ? (size_t)(at - text) : strlen(text), org = strcspn(text, "/"), name;
	int rc = ST_OK;

	memset(out, 0, sizeof(*out));
	name = org < len ? strcspn(text + org + 1, "/:@") : 0;
	if (!is_word(text, org, HUBNAME_PART_MAX) || !is_word(text + org + 1, name, HUBNAME_PART_MAX))
		return err_set(err, ST_INVALID,
			       "%s: expected ORG/NAME, ORG/NAME:QUANT or ORG/NAME/FILE.gguf, with or without @REVISION",
			       quote_short(text, strlen(text)).text);
	snprintf(out->repo, sizeof(out->repo), "%.*s", (int)(org + 1 + name), text);
	text += org + 1 + name;
	len -= org + 1 + name;
	if (len > 0 && text[0] == ':')
		rc = parse_quant(out, text + 1, len - 1, err);
	else if (len > 0)
		rc = parse_file(out, text + 1, len - 1, err);
	return rc == ST_OK ? parse_revision(out, at, err) : rc;
}
