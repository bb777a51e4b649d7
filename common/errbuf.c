/* errbuf.c - see errbuf.h. */
#include "common/errbuf.h"

#include "common/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void errbuf_clean(struct errbuf *err)
{
	/* Texts quote bytes from files and requests: what is not UTF-8 must not reach a JSON answer. */
	size_t len = strlen(err->text);
	size_t ok = utf8_valid_len(err->text, len);

	while (ok < len) {
		err->text[ok] = '?';
		ok += utf8_valid_len(err->text + ok, len - ok);
	}
}

int err_set(struct errbuf *err, int rc, const char *fmt, ...)
{
	va_list ap;

	if (!err) return rc;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	errbuf_clean(err);
	return rc;
}

int err_prefix(struct errbuf *err, int rc, const char *fmt, ...)
{
	char old[sizeof(err->text)];
	va_list ap;
	int n;

	if (!err) return rc;
	memcpy(old, err->text, sizeof(old));
	va_start(ap, fmt);
	n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(err->text))
		snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", old);
	errbuf_clean(err);
	return rc;
}
