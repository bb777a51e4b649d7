/* jsonbig.c - see jsonbig.h. The common case is one call of jansson; only when that reports a number out of range is the
 * text copied with the large integers rewritten, and read again. */
#include "common/jsonbig.h"

#include "common/mem.h"
#include "common/strbuf.h"

#include <string.h>

/* Length of the number at s, and whether it is an integer with more than 18 digits (all others fit 64 bits). */
static size_t number_len(const char *s, size_t len, bool *is_large)
{
	size_t n = *s == '-';
	size_t digits = n;
	bool is_integer = true;

	for (; n < len && strchr("0123456789+-.eE", s[n]) && s[n]; n++)
		if (s[n] < '0') is_integer = false;
		else if (s[n] > '9') is_integer = false;
	*is_large = is_integer && n - digits > 18;
	return n;
}

/* Whether jansson can hold it after all (19 digits may fit). */
static bool fits(const char *s, size_t n)
{
	const char *max = *s == '-' ? "9223372036854775808" : "9223372036854775807";

	if (*s == '-') s++, n--;
	return n == 19 && memcmp(s, max, 19) <= 0;
}

static void rewrite(const char *s, size_t len, struct strbuf *out)
{
	size_t i, n;
	bool in_string = false, large;

	for (i = 0; i < len; i += n) {
		n = 1;
		if (in_string) {
			if (s[i] == '\\' && i + 1 < len) n = 2;
			else if (s[i] == '"') in_string = false;
		} else if (s[i] == '"') {
			in_string = true;
		} else if (s[i] == '-' || (s[i] >= '0' && s[i] <= '9')) {
			n = number_len(s + i, len - i, &large);
			if (large && !fits(s + i, n)) {
				strbuf_puts(out, "\"\\u0000int:");
				strbuf_append(out, s + i, n);
				strbuf_puts(out, "\"");
				continue;
			}
		}
		strbuf_append(out, s + i, n);
	}
}

json_t *jsonbig_load(const char *text, size_t len, size_t flags, json_error_t *error)
{
	json_t *j = json_loadb(text, len, flags | JSON_ALLOW_NUL, error);
	struct strbuf again;

	if (j || json_error_code(error) != json_error_numeric_overflow) return j;
	strbuf_init(&again, len * 2 + 64); /* a number of 19 digits grows by 13 bytes */
	rewrite(text, len, &again);
	if (!again.overflow) j = json_loadb(again.data, again.len, flags | JSON_ALLOW_NUL, error);
	strbuf_release(&again);
	return j;
}

bool jsonbig_is(const json_t *j)
{
	return json_string_length(j) > JSONBIG_MARK_LEN && memcmp(json_string_value(j), JSONBIG_MARK, JSONBIG_MARK_LEN) == 0;
}

const char *jsonbig_digits(const json_t *j)
{
	const char *s = jsonbig_is(j) ? json_string_value(j) + JSONBIG_MARK_LEN : NULL;
	size_t n = s ? json_string_length(j) - JSONBIG_MARK_LEN : 0;
	bool is_large;

	return s && number_len(s, n, &is_large) == n && is_large ? s : NULL;
}
