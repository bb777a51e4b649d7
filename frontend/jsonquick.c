/* jsonquick.c - see jsonquick.h. A cursor over the text; each function leaves it behind what it has read, or returns NULL or false. */
#include "frontend/jsonquick.h"

#include "common/mem.h"
#include "common/utf8.h"
#include "frontend/jsonplain.h"

#include <math.h>
#include <string.h>

#define JSONQUICK_DIGITS_MAX 18  /* of an integer: more may not fit 64 bits */
#define JSONQUICK_NUMBER_MAX 64  /* bytes of a real number */
#define JSONQUICK_KEY_MAX    128 /* bytes */

struct jsonquick {
	const char *p, *end;
	int depth;
	char *text; /* of the string with escapes that was read last */
	size_t text_cap;
};

static json_t *read_value(struct jsonquick *q);

static bool at_end(struct jsonquick *q)
{
	while (q->p < q->end && (*q->p == ' ' || *q->p == '\n' || *q->p == '\r' || *q->p == '\t')) q->p++;
	return q->p == q->end;
}

/* The next byte that is no blank, which is c, is passed over. */
static bool skip(struct jsonquick *q, char c)
{
	if (at_end(q) || *q->p != c) return false;
	q->p++;
	return true;
}

/* ---- strings ---- */

static int hex4(const char *s)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		char c = s[i];

		if (c >= '0' && c <= '9') v = v << 4 | (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') v = v << 4 | ((c | 0x20) - 'a' + 10);
		else return -1;
	}
	return v;
}

/* Behind "\u": writes the character to out; returns its length, 0 when it is none or NUL. */
static int read_unicode(struct jsonquick *q, char *out)
{
	int high, low;

	if (q->end - q->p < 4 || (high = hex4(q->p)) <= 0) return 0;
	q->p += 4;
	if (high < 0xd800 || high > 0xdfff) return utf8_encode((uint32_t)high, out);
	if (high > 0xdbff || q->end - q->p < 6 || q->p[0] != '\\' || q->p[1] != 'u') return 0;
	low = hex4(q->p + 2);
	if (low < 0xdc00 || low > 0xdfff) return 0;
	q->p += 6;
	return utf8_encode(0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00), out);
}

/* Behind a backslash; as read_unicode(). */
static int read_escape(struct jsonquick *q, char *out)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const char *at;
	char c;

	if (q->p == q->end) return 0;
	c = *q->p++;
	if (c == 'u') return read_unicode(q, out);
	at = c ? strchr(names, c) : NULL;
	if (!at) return 0;
	*out = values[at - names];
	return 1;
}

/* Bytes from p that stand for themselves: no quote, backslash or control character. */
static size_t plain_len(const char *p, const char *end)
{
	const char *s = p + jsonplain_len(p, (size_t)(end - p));

	while (s < end && (unsigned char)*s >= 0x20 && *s != '"' && *s != '\\') s++;
	return (size_t)(s - p);
}

/* A string that has escapes, but not in its first n bytes. */
static bool read_escaped(struct jsonquick *q, size_t n, const char **out, size_t *len)
{
	const char *close = memchr(q->p + n, '"', (size_t)(q->end - q->p) - n);
	size_t used = 0;

	/* No quote inside is without a backslash before it; the last one may be behind an escaped backslash, so this may look too far. */
	while (close && close[-1] == '\\') close = memchr(close + 1, '"', (size_t)(q->end - close) - 1);
	mem_reserve(q->text, q->text_cap, (size_t)((close ? close : q->end) - q->p)); /* an escape is never shorter than what it stands for */
	for (;;) {
		memcpy(q->text + used, q->p, n);
		used += n;
		q->p += n;
		if (q->p == q->end || *q->p != '\\') break;
		q->p++;
		n = (size_t)read_escape(q, q->text + used);
		if (n == 0) return false;
		used += n;
		n = plain_len(q->p, q->end);
	}
	*out = q->text;
	*len = used;
	return true;
}

/* Behind its opening quote. The bytes are in the text, or in q->text until the next string is read. */
static bool read_string(struct jsonquick *q, const char **out, size_t *len)
{
	size_t n = plain_len(q->p, q->end);

	*out = q->p;
	*len = n;
	if (q->p + n < q->end && q->p[n] == '\\') {
		if (!read_escaped(q, n, out, len)) return false;
	} else {
		q->p += n;
	}
	if (q->p == q->end || *q->p != '"') return false;
	q->p++;
	return utf8_valid_len(*out, *len) == *len;
}

/* ---- numbers ---- */

static bool is_digit(const struct jsonquick *q)
{
	return q->p < q->end && *q->p >= '0' && *q->p <= '9';
}

static bool skip_digits(struct jsonquick *q)
{
	const char *from = q->p;

	while (is_digit(q)) q->p++;
	return q->p > from;
}

static json_t *read_real(const char *from, const char *to)
{
	char text[JSONQUICK_NUMBER_MAX];
	double v;

	if ((size_t)(to - from) >= sizeof(text)) return NULL;
	memcpy(text, from, (size_t)(to - from));
	text[to - from] = 0;
	v = strtod(text, NULL);
	return isfinite(v) ? json_real(v) : NULL;
}

static json_t *read_number(struct jsonquick *q)
{
	const char *from = q->p, *digits;
	bool minus = *q->p == '-', is_real = false;
	json_int_t v = 0;

	q->p += minus;
	digits = q->p;
	if (!skip_digits(q) || (*digits == '0' && q->p - digits > 1)) return NULL;
	if (q->p < q->end && *q->p == '.') {
		is_real = true;
		q->p++;
		if (!skip_digits(q)) return NULL;
	}
	if (q->p < q->end && (*q->p | 0x20) == 'e') {
		is_real = true;
		q->p++;
		if (q->p < q->end && (*q->p == '+' || *q->p == '-')) q->p++;
		if (!skip_digits(q)) return NULL;
	}
	if (is_real) return read_real(from, q->p);
	if (q->p - digits > JSONQUICK_DIGITS_MAX) return NULL;
	for (; digits < q->p; digits++) v = 10 * v + (*digits - '0');
	return json_integer(minus ? -v : v);
}

/* ---- the rest ---- */

static bool read_member(struct jsonquick *q, json_t *object)
{
	size_t n = json_object_size(object), len;
	char key[JSONQUICK_KEY_MAX];
	const char *s;
	json_t *value;

	if (!skip(q, '"') || !read_string(q, &s, &len) || len >= sizeof(key)) return false;
	memcpy(key, s, len);
	key[len] = 0;
	if (!skip(q, ':')) return false;
	value = read_value(q);
	return value && json_object_set_new_nocheck(object, key, value) == 0 && json_object_size(object) > n;
}

static json_t *read_object(struct jsonquick *q)
{
	json_t *object = json_object();

	if (skip(q, '}')) return object;
	do {
		if (read_member(q, object)) continue;
		json_decref(object);
		return NULL;
	} while (skip(q, ','));
	if (skip(q, '}')) return object;
	json_decref(object);
	return NULL;
}

static json_t *read_array(struct jsonquick *q)
{
	json_t *array = json_array(), *value;

	if (skip(q, ']')) return array;
	do {
		value = read_value(q);
		if (value && json_array_append_new(array, value) == 0) continue;
		json_decref(array);
		return NULL;
	} while (skip(q, ','));
	if (skip(q, ']')) return array;
	json_decref(array);
	return NULL;
}

static json_t *read_word(struct jsonquick *q, const char *word, json_t *value)
{
	size_t n = strlen(word);

	if ((size_t)(q->end - q->p) < n || memcmp(q->p, word, n) != 0) return NULL;
	q->p += n;
	return value;
}

static json_t *read_nested(struct jsonquick *q, bool is_object)
{
	json_t *j;

	q->p++;
	if (q->depth == 0) return NULL;
	q->depth--;
	j = is_object ? read_object(q) : read_array(q);
	q->depth++;
	return j;
}

static json_t *read_value(struct jsonquick *q)
{
	const char *s;
	size_t len;

	if (at_end(q)) return NULL;
	switch (*q->p) {
	case '{': return read_nested(q, true);
	case '[': return read_nested(q, false);
	case '"':
		q->p++;
		return read_string(q, &s, &len) ? json_stringn_nocheck(s, len) : NULL;
	case 't': return read_word(q, "true", json_true());
	case 'f': return read_word(q, "false", json_false());
	case 'n': return read_word(q, "null", json_null());
	default: return *q->p == '-' || is_digit(q) ? read_number(q) : NULL;
	}
}

json_t *jsonquick(const char *text, size_t len, int depth_max)
{
	struct jsonquick q = {.p = text, .end = text + len, .depth = depth_max};
	json_t *j = read_value(&q);

	if (j && !at_end(&q)) {
		json_decref(j);
		j = NULL;
	}
	free(q.text);
	return j;
}
