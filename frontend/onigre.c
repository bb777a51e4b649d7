/* onigre.c - see onigre.h.
 *
 * The translation walks over the expression once: escapes and groups by tables of what both languages mean alike, classes
 * by the same escapes. PCRE2 compiles to machine code where the system allows it. */
#include "frontend/onigre.h"

#include "common/mem.h"
#include "common/strbuf.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

/* PCRE2's own default. Expressions in use step back over one class at a time; this is far beyond them and takes some
 * tenths of a second. */
#define STEPS_MAX 10000000

/* ---- translation ---- */

struct translation {
	const char *s;
	size_t len, at;
	struct strbuf *out;
	struct errbuf *err;
};

static int refuse(const struct translation *t, const char *what)
{
	return err_set(t->err, ST_UNSUPPORTED, "%s at byte %zu of the expression is not supported", what, t->at);
}

static bool next_is(const struct translation *t, const char *text)
{
	size_t n = strlen(text);

	return t->len - t->at >= n && memcmp(t->s + t->at, text, n) == 0;
}

static void copy(struct translation *t, size_t n)
{
	strbuf_append(t->out, t->s + t->at, n);
	t->at += n;
}

/* \p{...}, \x{...}: up to the brace. */
static int copy_braced(struct translation *t, const char *what)
{
	const char *end = t->len - t->at > 3 && t->s[t->at + 2] == '{' ? memchr(t->s + t->at, '}', t->len - t->at) : NULL;

	if (!end) return refuse(t, what);
	copy(t, (size_t)(end - (t->s + t->at)) + 1);
	return ST_OK;
}

static int translate_escape(struct translation *t, bool in_class)
{
	char c;

	if (t->len - t->at < 2) return refuse(t, "a single backslash");
	c = t->s[t->at + 1];
	switch (c) {
	case 's':
		strbuf_puts(t->out, in_class ? ONIGRE_SPACE : "[" ONIGRE_SPACE "]");
		t->at += 2;
		return ST_OK;
	case 'S':
		if (in_class) return refuse(t, "\\S inside a class");
		strbuf_puts(t->out, "[^" ONIGRE_SPACE "]");
		t->at += 2;
		return ST_OK;
	case 'p':
	case 'P':
		return copy_braced(t, "a property without braces");
	case 'x':
		if (t->len - t->at > 2 && t->s[t->at + 2] == '{') return copy_braced(t, "\\x without a closing brace");
		copy(t, 2);
		return ST_OK;
	case 'u':
		if (t->len - t->at < 6) return refuse(t, "\\u without four digits");
		strbuf_printf(t->out, "\\x{%.4s}", t->s + t->at + 2);
		t->at += 6;
		return ST_OK;
	case 'b':
		if (in_class) return refuse(t, "\\b inside a class");
		break;
	case 'd':
	case 'D':
	case 'w':
	case 'W':
	case 'n':
	case 'r':
	case 't':
	case 'f':
	case 'v':
		break;
	case 'A':
	case 'z':
	case 'B':
		if (in_class) return refuse(t, "an anchor inside a class");
		break;
	default:
		/* \h, \R, \X, \G, \k, \g, back references ... mean other things, or need more than a word's cut needs. */
		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80))
			return refuse(t, "an escape that is not one of \\d \\w \\s \\p \\x \\u \\n \\r \\t \\f \\v \\b \\A \\z");
	}
	if (c == 'v') {
		strbuf_puts(t->out, "\\x{b}"); /* PCRE2's \v is all vertical space */
		t->at += 2;
	} else {
		copy(t, 2);
	}
	return ST_OK;
}

static int translate_class(struct translation *t)
{
	bool first = true;

	copy(t, next_is(t, "[^") ? 2 : 1);
	for (; t->at < t->len; first = false) {
		int rc = ST_OK;

		if (t->s[t->at] == ']' && !first) {
			copy(t, 1);
			return ST_OK;
		}
		if (t->s[t->at] == ']') return refuse(t, "an empty class");
		if (t->s[t->at] == '[') return refuse(t, "a class within a class");
		if (next_is(t, "&&")) return refuse(t, "an intersection of classes (&&)");
		if (t->s[t->at] == '\\')
			rc = translate_escape(t, true);
		else
			copy(t, 1);
		if (rc != ST_OK) return rc;
	}
	return refuse(t, "a class without its end");
}

/* "(?...": only what both languages spell alike. */
static int translate_group(struct translation *t)
{
	static const char *const same[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:"};

	if (!next_is(t, "(?") && !next_is(t, "(*")) {
		copy(t, 1);
		return ST_OK;
	}
	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		if (next_is(t, same[i])) {
			copy(t, strlen(same[i]));
			return ST_OK;
		}
	return refuse(t, "a group that is not one of (?: (?= (?! (?<= (?<! (?> (?i:");
}

/* {n}, {n,}, {n,m}. Ruby reads {n,m}+ as a repeat of a repeat and {,m} as {0,m}, PCRE2 does not. */
static int translate_interval(struct translation *t)
{
	size_t i = t->at + 1;

	if (i == t->len || t->s[i] < '0' || t->s[i] > '9') return refuse(t, "a brace that is no {n}, {n,} or {n,m}");
	while (i < t->len && ((t->s[i] >= '0' && t->s[i] <= '9') || t->s[i] == ',')) i++;
	if (i == t->len || t->s[i] != '}') return refuse(t, "a brace that is no {n}, {n,} or {n,m}");
	if (i + 1 < t->len && t->s[i + 1] == '+') return refuse(t, "a repeat of {n,m}");
	copy(t, i + 1 - t->at);
	return ST_OK;
}

int onigre_translate(const char *s, size_t len, struct strbuf *out, struct errbuf *err)
{
	struct translation t = {.s = s, .len = len, .out = out, .err = err};
	int rc = ST_OK;

	if (len > ONIGRE_LEN_MAX)
		return err_set(err, ST_LIMIT, "the expression has %zu bytes; expected at most %d", len, ONIGRE_LEN_MAX);
	while (t.at < len && rc == ST_OK) {
		switch (s[t.at]) {
		case '\\':
			rc = translate_escape(&t, false);
			break;
		case '[':
			rc = translate_class(&t);
			break;
		case '(':
			rc = translate_group(&t);
			break;
		case '{':
			rc = translate_interval(&t);
			break;
		default:
			copy(&t, 1);
		}
	}
	return rc;
}

/* ---- matching ---- */

struct onigre {
	pcre2_code *code;
	pcre2_match_context *limits;
	bool jit; /* it is machine code */
};

struct onigre_match {
	pcre2_match_data *data;
};

int onigre_new(struct onigre **out, const char *pcre, size_t len, struct errbuf *err)
{
	int code;
	PCRE2_SIZE at;
	struct onigre *re = mem_new(struct onigre);

	/* ^ and $ are those of lines, as in Ruby. */
	re->code = pcre2_compile((PCRE2_SPTR)pcre, len, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &at,
				 NULL);
	if (!re->code) {
		char text[120] = "";

		pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof(text));
		free(re);
		*out = NULL;
		return err_set(err, ST_INVALID, "the expression is not valid: %s", text);
	}
	re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0; /* a system may forbid it: slower, same words */
	re->limits = pcre2_match_context_create(NULL);
	CHECK(re->limits);
	pcre2_set_match_limit(re->limits, STEPS_MAX);
	*out = re;
	return ST_OK;
}

void onigre_free(struct onigre *re)
{
	if (!re) return;
	pcre2_code_free(re->code);
	pcre2_match_context_free(re->limits);
	free(re);
}

struct onigre_match *onigre_match_new(void)
{
	struct onigre_match *m = mem_new(struct onigre_match);

	m->data = pcre2_match_data_create(1, NULL);
	CHECK(m->data);
	return m;
}

void onigre_match_free(struct onigre_match *m)
{
	if (!m) return;
	pcre2_match_data_free(m->data);
	free(m);
}

enum onigre_result onigre_find(const struct onigre *re, struct onigre_match *m, const char *text, size_t len, size_t at,
			       size_t *from, size_t *to)
{
	PCRE2_SIZE *ends = pcre2_get_ovector_pointer(m->data);
	int rc;

	if (re->jit)
		rc = pcre2_jit_match(re->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, m->data, re->limits);
	else
		rc = pcre2_match(re->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, m->data, re->limits);
	if (rc == PCRE2_ERROR_NOMATCH) return ONIGRE_NONE;
	if (rc < 0 || ends[1] < ends[0]) return ONIGRE_GAVE_UP; /* a lookbehind's \K could turn them round */
	*from = ends[0];
	*to = ends[1];
	return ONIGRE_FOUND;
}
