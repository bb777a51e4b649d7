/* jsonout.c - see jsonout.h. Runs of harmless bytes are copied whole: nearly all text needs no escape. */
#include "frontend/jsonout.h"

#include "common/utf8.h"
#include "frontend/jsonplain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void escape_control(struct strbuf *out, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	char buf[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

	switch (c) {
	case '"': strbuf_append(out, "\\\"", 2); return;
	case '\\': strbuf_append(out, "\\\\", 2); return;
	case '\n': strbuf_append(out, "\\n", 2); return;
	case '\r': strbuf_append(out, "\\r", 2); return;
	case '\t': strbuf_append(out, "\\t", 2); return;
	case '\b': strbuf_append(out, "\\b", 2); return;
	case '\f': strbuf_append(out, "\\f", 2); return;
	default: strbuf_append(out, buf, sizeof(buf));
	}
}

void jsonout_escape(struct strbuf *out, const char *s, size_t len)
{
	size_t i = jsonplain_len(s, len), start = 0;
	bool cut;
	int n;

	if (len == 0) return; /* s may be NULL */
	while (i < len) {
		unsigned char c = (unsigned char)s[i];

		if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
			i++;
			continue;
		}
		if (c >= 0x80) {
			n = utf8_next(s + i, len - i, &cut);
			if (n > 0) {
				i += (size_t)n;
				continue;
			}
			strbuf_append(out, s + start, i - start);
			strbuf_puts(out, UTF8_REPLACEMENT);
			i += (size_t)-n;
		} else {
			strbuf_append(out, s + start, i - start);
			escape_control(out, c);
			i++;
		}
		start = i;
	}
	strbuf_append(out, s + start, i - start);
}

void jsonout_string(struct strbuf *out, const char *s, size_t len)
{
	strbuf_putc(out, '"');
	jsonout_escape(out, s, len);
	strbuf_putc(out, '"');
}

void jsonout_text(struct strbuf *out, const char *s)
{
	if (s) jsonout_string(out, s, strlen(s));
	else strbuf_puts(out, "null");
}

void jsonout_f32(struct strbuf *out, float v)
{
	char buf[32];
	int n;

	if (!isfinite(v)) {
		strbuf_puts(out, "-9999.0");
		return;
	}
	n = snprintf(buf, sizeof(buf), "%.9g", (double)v);
	strbuf_append(out, buf, (size_t)n);
	if (!memchr(buf, '.', (size_t)n) && !memchr(buf, 'e', (size_t)n)) strbuf_puts(out, ".0");
}
