/* quote.c - see quote.h. */
#include "common/quote.h"

#include "common/mem.h"
#include "common/strbuf.h"
#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

#define QUOTE_PATH_MAX 160 /* bytes of a path in an error text, which holds 768 in all */
#define QUOTE_UNIT_MAX 12 /* the longest escape, "\u{10FFFF}", and its terminator */

/* Characters that move the cursor, break a line or turn the reading direction around. */
static bool quote_is_unsafe(uint32_t cp)
{
	if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) return true;
	if (cp == 0x2028 || cp == 0x2029 || cp == 0xFEFF) return true;
	return (cp >= 0x200E && cp <= 0x200F) || (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
}

/* Writes the escaped form of the character (or ill-formed byte) at s; returns the bytes read. len > 0. */
static size_t quote_unit(const char *s, size_t len, char out[QUOTE_UNIT_MAX])
{
	uint32_t cp;
	bool cut;
	int n = utf8_next(s, len, &cut);

	if (n < 0) {
		snprintf(out, QUOTE_UNIT_MAX, "\\x%02x", (unsigned char)s[0]);
		return 1;
	}
	utf8_decode(s, &cp);
	if (cp == '\n' || cp == '\t' || cp == '\\')
		snprintf(out, QUOTE_UNIT_MAX, "\\%c", cp == '\n' ? 'n' : cp == '\t' ? 't' : '\\');
	else if (!quote_is_unsafe(cp))
		snprintf(out, QUOTE_UNIT_MAX, "%.*s", n, s);
	else if (cp < 0x80)
		snprintf(out, QUOTE_UNIT_MAX, "\\x%02x", (unsigned)cp);
	else
		snprintf(out, QUOTE_UNIT_MAX, "\\u{%x}", (unsigned)cp);
	return (size_t)n;
}

struct quote quote_short(const char *s, size_t len)
{
	struct quote q;
	char unit[QUOTE_UNIT_MAX];
	size_t used = 0, pos = 0, n;

	while (pos < len) {
		size_t step = quote_unit(s + pos, len - pos, unit);

		n = strlen(unit);
		if (used + n + sizeof("...") > sizeof(q.text)) {
			memcpy(q.text + used, "...", 3);
			used += 3;
			break;
		}
		memcpy(q.text + used, unit, n);
		used += n;
		pos += step;
	}
	q.text[used] = 0;
	return q;
}

char *quote_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct strbuf text;

	if (strlen(path) > QUOTE_PATH_MAX && slash && slash[1]) path = slash + 1;
	if (strlen(path) > QUOTE_PATH_MAX) return mem_strdup(quote_short(path, strlen(path)).text);
	strbuf_init(&text, QUOTE_PATH_MAX * QUOTE_UNIT_MAX);
	quote_append(&text, path, strlen(path), false);
	return strbuf_take(&text);
}

void quote_append(struct strbuf *out, const char *s, size_t len, bool keep_lines)
{
	char unit[QUOTE_UNIT_MAX];
	size_t pos = 0;

	while (pos < len) {
		if (keep_lines && (s[pos] == '\n' || s[pos] == '\t' || s[pos] == '\\')) {
			strbuf_putc(out, s[pos++]);
			continue;
		}
		pos += quote_unit(s + pos, len - pos, unit);
		strbuf_puts(out, unit);
	}
}
