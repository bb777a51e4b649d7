/* jsonwalk.c - see jsonwalk.h. */
#include "model/jsonwalk.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/utf8.h"

#include <string.h>

int jsonwalk_bad(struct jsonwalk *w, const char *expected)
{
	if (w->pos >= w->len)
		return err_set(w->err, ST_CORRUPT, "%s ends at byte %zu, where %s is expected", w->what, w->pos,
			       expected);
	return err_set(w->err, ST_CORRUPT, "%s is not valid JSON at byte %zu: \"%s\", where %s is expected", w->what,
		       w->pos, quote_short(w->json + w->pos, min_size(w->len - w->pos, 16)).text, expected);
}

void jsonwalk_space(struct jsonwalk *w)
{
	while (w->pos < w->len && (w->json[w->pos] == ' ' || w->json[w->pos] == '\n' || w->json[w->pos] == '\t' ||
				   w->json[w->pos] == '\r'))
		w->pos++;
}

/* Takes the character when it is the next one behind white space. */
bool jsonwalk_take(struct jsonwalk *w, char c)
{
	jsonwalk_space(w);
	if (w->pos >= w->len || w->json[w->pos] != c) return false;
	w->pos++;
	return true;
}

int jsonwalk_want(struct jsonwalk *w, char c)
{
	char text[] = {'\'', c, '\'', 0};

	return jsonwalk_take(w, c) ? ST_OK : jsonwalk_bad(w, text);
}

/* Between two members, or behind the last one. */
int jsonwalk_end(struct jsonwalk *w, char end, bool *more)
{
	*more = jsonwalk_take(w, ',');
	return *more || jsonwalk_take(w, end) ? ST_OK : jsonwalk_bad(w, end == '}' ? "',' or '}'" : "',' or ']'");
}

static bool hex4(struct jsonwalk *w, uint32_t *out)
{
	*out = 0;
	for (int i = 0; i < 4; i++) {
		char c = w->pos < w->len ? w->json[w->pos++] : 0;

		if (c >= '0' && c <= '9')
			*out = *out * 16 + (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			*out = *out * 16 + (uint32_t)((c | 32) - 'a') + 10;
		else
			return false;
	}
	return true;
}

/* Behind a backslash: writes the character to out, gives its length; 0: it is none. */
static int escape(struct jsonwalk *w, char *out)
{
	static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
	char c = w->pos < w->len ? w->json[w->pos++] : 0;
	const char *at = c ? strchr(letters, c) : NULL;
	uint32_t cp, low;

	if (at) {
		*out = bytes[at - letters];
		return 1;
	}
	if (c != 'u' || !hex4(w, &cp) || (cp >= 0xDC00 && cp < 0xE000)) return 0;
	if (cp >= 0xD800 && cp < 0xDC00) {
		if (w->len - w->pos < 6 || w->json[w->pos] != '\\' || w->json[w->pos + 1] != 'u') return 0;
		w->pos += 2;
		if (!hex4(w, &low) || low < 0xDC00 || low >= 0xE000) return 0;
		cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
	}
	return utf8_encode(cp, out);
}

/* A copy of the string that begins at `from` (behind its quotation mark) with escapes resolved; the walk continues at
 * its first one. */
static int escaped_string(struct jsonwalk *w, size_t from, struct gguf_str *out)
{
	size_t n = w->pos - from, cap = n + 64;
	char *text = mem_realloc(NULL, cap, 1);
	bool good = true;

	memcpy(text, w->json + from, n);
	mem_reserve(w->texts, w->cap_texts, w->n_texts + 1);
	while (good && w->pos < w->len && w->json[w->pos] != '"') {
		int got = 1;

		mem_reserve(text, cap, n + 8);
		text[n] = w->json[w->pos++];
		if (text[n] == '\\')
			got = escape(w, text + n);
		else if ((unsigned char)text[n] < 0x20)
			got = 0;
		good = got > 0;
		n += (size_t)got;
	}
	w->texts[w->n_texts++] = text;
	*out = (struct gguf_str){text, n};
	if (good && w->pos < w->len) {
		w->pos++;
		return ST_OK;
	}
	return err_set(w->err, ST_CORRUPT, "%s is not valid JSON: a text that begins at byte %zu", w->what, from);
}

int jsonwalk_string(struct jsonwalk *w, struct gguf_str *out)
{
	size_t from;

	if (!jsonwalk_take(w, '"')) return jsonwalk_bad(w, "a text");
	from = w->pos;
	for (; w->pos < w->len; w->pos++) {
		unsigned char c = (unsigned char)w->json[w->pos];

		if (c == '"') {
			*out = (struct gguf_str){w->json + from, w->pos++ - from};
			return ST_OK;
		}
		if (c == '\\') return escaped_string(w, from, out);
		if (c < 0x20) break;
	}
	return jsonwalk_bad(w, "the rest of a text");
}

int jsonwalk_u64(struct jsonwalk *w, uint64_t *out)
{
	size_t from;

	jsonwalk_space(w);
	from = w->pos;
	*out = 0;
	for (; w->pos < w->len && w->json[w->pos] >= '0' && w->json[w->pos] <= '9'; w->pos++)
		if (__builtin_mul_overflow(*out, 10u, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(w->json[w->pos] - '0'), out))
			return err_set(w->err, ST_CORRUPT, "the number at byte %zu of %s does not fit 64 bits", from,
				       w->what);
	if (w->pos == from || (w->pos - from > 1 && w->json[from] == '0') ||
	    (w->pos < w->len && w->json[w->pos] && strchr(".eE+-", w->json[w->pos]))) {
		w->pos = from;
		return jsonwalk_bad(w, "a whole number from 0 on");
	}
	return ST_OK;
}

/* -12.5e+3; its value does not matter */
static int skip_number(struct jsonwalk *w)
{
	const char *s = w->json;
	size_t p = w->pos + (s[w->pos] == '-'), digits;
	bool good;

#define DIGITS() for (digits = p; p < w->len && s[p] >= '0' && s[p] <= '9'; p++)
	DIGITS();
	good = p > digits && (p - digits == 1 || s[digits] != '0');
	if (good && p < w->len && s[p] == '.') {
		p++;
		DIGITS();
		good = p > digits;
	}
	if (good && p < w->len && (s[p] | 32) == 'e') {
		p++;
		if (p < w->len && (s[p] == '+' || s[p] == '-')) p++;
		DIGITS();
		good = p > digits;
	}
#undef DIGITS
	if (!good) return jsonwalk_bad(w, "a number");
	w->pos = p;
	return ST_OK;
}

static int skip_word(struct jsonwalk *w, const char *word)
{
	size_t n = strlen(word);

	if (w->len - w->pos < n || memcmp(w->json + w->pos, word, n) != 0) return jsonwalk_bad(w, "a value");
	w->pos += n;
	return ST_OK;
}

static int skip_value(struct jsonwalk *w, int depth);

static int skip_string(struct jsonwalk *w)
{
	size_t before = w->n_texts;
	struct gguf_str text;
	int rc = jsonwalk_string(w, &text);

	jsonwalk_forget(w, before);
	return rc;
}

static int skip_members(struct jsonwalk *w, char end, int depth)
{
	bool more = !jsonwalk_take(w, end);
	int rc = ST_OK;

	if (depth == JSONWALK_NESTING_MAX)
		return err_set(w->err, ST_CORRUPT, "%s is nested deeper than %d levels at byte %zu", w->what,
			       JSONWALK_NESTING_MAX, w->pos);
	while (more && rc == ST_OK) {
		if (end == '}') rc = skip_string(w);
		if (end == '}' && rc == ST_OK) rc = jsonwalk_want(w, ':');
		if (rc == ST_OK) rc = skip_value(w, depth + 1);
		if (rc == ST_OK) rc = jsonwalk_end(w, end, &more);
	}
	return rc;
}

static int skip_value(struct jsonwalk *w, int depth)
{
	jsonwalk_space(w);
	switch (w->pos < w->len ? w->json[w->pos] : 0) {
	case '{':
		w->pos++;
		return skip_members(w, '}', depth);
	case '[':
		w->pos++;
		return skip_members(w, ']', depth);
	case '"':
		return skip_string(w);
	case 't':
		return skip_word(w, "true");
	case 'f':
		return skip_word(w, "false");
	case 'n':
		return skip_word(w, "null");
	case '-':
	case '0':
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
	case '6':
	case '7':
	case '8':
	case '9':
		return skip_number(w);
	default:
		return jsonwalk_bad(w, "a value");
	}
}

int jsonwalk_skip(struct jsonwalk *w)
{
	return skip_value(w, 0);
}

void jsonwalk_forget(struct jsonwalk *w, size_t n_texts)
{
	while (w->n_texts > n_texts) free(w->texts[--w->n_texts]);
}

void jsonwalk_release(struct jsonwalk *w)
{
	jsonwalk_forget(w, 0);
	free(w->texts);
	w->texts = NULL;
	w->cap_texts = 0;
}
