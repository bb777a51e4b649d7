/* jinja_lex.c - template text to tokens, with Jinja2's rules for white space (trim_blocks, lstrip_blocks, "-" and "+").
 *
 * Owns nothing: the tokens' texts are views of the normalised copy of the template, or of unescaped copies, both in the
 * template's arena. Bad input (not UTF-8, an unclosed tag, string or bracket) is ST_INVALID with its line. */
#include "common/mem.h"
#include "common/utf8.h"
#include "frontend/jinja_ast.h"

#include <math.h>
#include <stdio.h>

#define LEX_BRACKETS_MAX 1024 /* the parser's own limit on nesting is lower */

struct jlex {
	struct jparse *p;
	const char *s; /* normalised text */
	size_t len, pos;
	uint32_t line;
	bool line_starting; /* the last token ended with a newline */
	char brackets[LEX_BRACKETS_MAX];
	size_t n_brackets;
};

static void lex_push(struct jlex *x, enum jtoken_kind kind, int op, struct jv value)
{
	struct jparse *p = x->p;

	if (p->rc) return;
	mem_reserve(p->tokens, p->cap_tokens, p->n_tokens + 1);
	p->tokens[p->n_tokens++] = (struct jtoken){.kind = kind, .op = op, .line = x->line, .value = value};
}

/* Moves to `to` and counts the lines passed. */
static void lex_move(struct jlex *x, size_t to)
{
	for (; x->pos < to; x->pos++)
		if (x->s[x->pos] == '\n') x->line++;
}

static bool lex_at(const struct jlex *x, size_t at, const char *text)
{
	size_t n = strlen(text);

	return at <= x->len && n <= x->len - at && memcmp(x->s + at, text, n) == 0;
}

static size_t lex_skip_space(const struct jlex *x, size_t at)
{
	uint32_t cp;
	int n;

	while (at < x->len) {
		n = utf8_decode(x->s + at, &cp);
		if (!jchars_is_space(cp)) break;
		at += (size_t)n;
	}
	return at;
}

/* End of [from, to) without the white space at its end. */
static size_t lex_rstrip(const struct jlex *x, size_t from, size_t to)
{
	size_t at = to;
	uint32_t cp;

	while (at > from) {
		do at--;
		while (at > from && ((unsigned char)x->s[at] & 0xc0) == 0x80);
		utf8_decode(x->s + at, &cp);
		if (!jchars_is_space(cp)) return to;
		to = at;
	}
	return from;
}

/* The data in front of a tag at `to`; sign is what follows the tag's opening. */
static void lex_data(struct jlex *x, size_t to, char sign, bool is_variable)
{
	size_t from = x->pos, end = to, bol;

	if (sign == '-') {
		end = lex_rstrip(x, from, to);
	} else if (sign != '+' && !is_variable) {
		for (bol = to; bol > from && x->s[bol - 1] != '\n';) bol--;
		if ((bol > from || x->line_starting) && lex_rstrip(x, bol, to) == bol) end = bol;
	}
	if (end > from) lex_push(x, JT_DATA, 0, jv_view(x->s + from, end - from, false));
	lex_move(x, to);
}

/* Length of a tag's end ("%}" with its sign and what it trims) at `at`, or 0. */
static size_t lex_tag_end(const struct jlex *x, size_t at, const char *close, bool plus, bool trims_newline)
{
	if (plus && at < x->len && x->s[at] == '+' && lex_at(x, at + 1, close)) return 3;
	if (at < x->len && x->s[at] == '-' && lex_at(x, at + 1, close)) return lex_skip_space(x, at + 3) - at;
	if (!lex_at(x, at, close)) return 0;
	return trims_newline && at + 2 < x->len && x->s[at + 2] == '\n' ? 3 : 2;
}

static void lex_passed(struct jlex *x, size_t to)
{
	x->line_starting = to > 0 && x->s[to - 1] == '\n';
	lex_move(x, to);
}

static void lex_comment(struct jlex *x)
{
	size_t at, n;

	for (at = x->pos; at < x->len; at++) {
		n = x->s[at] == '+' || x->s[at] == '-' || x->s[at] == '#' ? lex_tag_end(x, at, "#}", true, true) : 0;
		if (!n) continue;
		lex_passed(x, at + n);
		return;
	}
	parse_fail(x->p, x->line, ST_INVALID, "a comment is not closed: \"#}\" is missing");
	x->pos = x->len;
}

/* End of "{% raw %}" at `at`, or 0. */
static size_t lex_raw_begin(const struct jlex *x, size_t at)
{
	at += 2;
	if (at < x->len && (x->s[at] == '-' || x->s[at] == '+')) at++;
	at = lex_skip_space(x, at);
	if (!lex_at(x, at, "raw")) return 0;
	at = lex_skip_space(x, at + 3);
	if (lex_at(x, at, "-%}")) return lex_skip_space(x, at + 3);
	return lex_at(x, at, "%}") ? at + 2 : 0;
}

/* From behind "{% raw %}" to behind "{% endraw %}". */
static void lex_raw(struct jlex *x)
{
	size_t at, in, n;
	char sign;

	for (at = x->pos; at + 1 < x->len; at++) {
		if (!lex_at(x, at, "{%")) continue;
		sign = at + 2 < x->len ? x->s[at + 2] : 0;
		in = at + 2 + (sign == '-' || sign == '+');
		in = lex_skip_space(x, in);
		if (!lex_at(x, in, "endraw")) continue;
		in = lex_skip_space(x, in + 6);
		n = lex_tag_end(x, in, "%}", true, true);
		if (!n) continue;
		lex_data(x, at, sign, false);
		lex_passed(x, in + n);
		return;
	}
	parse_fail(x->p, x->line, ST_INVALID, "\"raw\" is not closed: \"endraw\" is missing");
	x->pos = x->len;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9') return c - '0';
	if (c >= 'a' && c <= 'f') return c - 'a' + 10;
	if (c >= 'A' && c <= 'F') return c - 'A' + 10;
	return -1;
}

/* One code point as UTF-8; a surrogate or what is beyond Unicode becomes U+FFFD. */
static size_t lex_put_cp(uint32_t cp, char *out)
{
	if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) cp = 0xfffd;
	return (size_t)utf8_encode(cp, out);
}

/* Python's escapes, from behind the backslash at in[*at]. Returns bytes written to out (at most 4). */
static size_t lex_escape(struct jlex *x, const char *in, size_t len, size_t *at, char *out)
{
	static const char FROM[] = "\\'\"abfnrtv", TO[] = "\\'\"\a\b\f\n\r\t\v";
	char c = in[(*at)++];
	const char *simple = c ? strchr(FROM, c) : NULL;
	uint32_t cp = 0;
	int digits, d;

	if (c == '\n') return 0;
	if (simple) {
		out[0] = TO[simple - FROM];
		return 1;
	}
	if (c >= '0' && c <= '7') {
		cp = (uint32_t)(c - '0');
		for (digits = 1; digits < 3 && *at < len && in[*at] >= '0' && in[*at] <= '7'; digits++)
			cp = cp * 8 + (uint32_t)(in[(*at)++] - '0');
		return lex_put_cp(cp, out);
	}
	digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	if (!digits) { /* unknown: stays as it is; the byte behind the backslash may start a longer character */
		out[0] = '\\';
		(*at)--;
		return 1;
	}
	for (; digits; digits--) {
		d = *at < len ? hex_value(in[*at]) : -1;
		if (d < 0) {
			parse_fail(x->p, x->line, ST_INVALID, "the string has an unfinished \\%c escape", c);
			return 0;
		}
		cp = cp << 4 | (uint32_t)d;
		(*at)++;
	}
	return lex_put_cp(cp, out);
}

static void lex_string(struct jlex *x)
{
	char quote = x->s[x->pos];
	size_t from = x->pos + 1, at = from, in, n = 0;
	bool escaped = false;
	char *out;

	for (; at < x->len && x->s[at] != quote; at++) {
		if (x->s[at] != '\\') continue;
		escaped = true;
		at++;
	}
	if (at >= x->len) {
		parse_fail(x->p, x->line, ST_INVALID, "a string is not closed: %c is missing", quote);
		x->pos = x->len;
		return;
	}
	if (!escaped) {
		lex_push(x, JT_STRING, 0, jv_view(x->s + from, at - from, false));
		lex_move(x, at + 1);
		return;
	}
	/* U+FFFD for an octal escape above 0x7f or a surrogate is never longer than the escape itself. */
	out = parse_alloc(x->p, at - from + 4, 1);
	if (!out) return;
	for (in = from; in < at;) {
		if (x->s[in] != '\\') {
			out[n++] = x->s[in++];
			continue;
		}
		in++;
		n += lex_escape(x, x->s, at, &in, out + n);
	}
	lex_push(x, JT_STRING, 0, jv_view(out, n, false));
	lex_move(x, at + 1);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* End of digits with single underscores between them, from `at`. */
static size_t lex_digits(const struct jlex *x, size_t at)
{
	while (at < x->len && (is_digit(x->s[at]) || (x->s[at] == '_' && at + 1 < x->len && is_digit(x->s[at + 1])))) at++;
	return at;
}

/* End of a float at pos, or 0: digits with a fraction, an exponent, or both. */
static size_t lex_float_end(const struct jlex *x)
{
	size_t at = lex_digits(x, x->pos), e;
	bool is_float = false;

	if (x->pos > 0 && x->s[x->pos - 1] == '.') return 0;
	if (at + 1 < x->len && x->s[at] == '.' && is_digit(x->s[at + 1])) {
		at = lex_digits(x, at + 1);
		is_float = true;
	}
	if (at < x->len && (x->s[at] == 'e' || x->s[at] == 'E')) {
		e = at + 1;
		if (e < x->len && (x->s[e] == '+' || x->s[e] == '-')) e++;
		if (e < x->len && is_digit(x->s[e])) {
			at = lex_digits(x, e);
			is_float = true;
		}
	}
	return is_float ? at : 0;
}

static void lex_float(struct jlex *x, size_t end)
{
	char text[400];
	size_t n = 0, at;

	for (at = x->pos; at < end; at++) {
		if (x->s[at] == '_') continue;
		if (n + 1 == sizeof(text)) {
			parse_fail(x->p, x->line, ST_LIMIT, "a number is too long");
			break;
		}
		text[n++] = x->s[at];
	}
	text[n] = 0;
	lex_push(x, JT_FLOAT, 0, jv_float(strtod(text, NULL)));
	lex_move(x, end);
}

static void lex_int(struct jlex *x)
{
	size_t at = x->pos;
	int base = 10, d;
	jint v = 0;
	char c = at + 1 < x->len && x->s[at] == '0' ? (char)(x->s[at + 1] | 32) : 0;

	if (c == 'x' || c == 'o' || c == 'b') {
		base = c == 'x' ? 16 : c == 'o' ? 8 : 2;
		at += 2;
	}
	for (; at < x->len; at++) {
		if (x->s[at] == '_' && at + 1 < x->len && hex_value(x->s[at + 1]) >= 0 && hex_value(x->s[at + 1]) < base) continue;
		d = hex_value(x->s[at]);
		if (d < 0 || d >= base) break;
		if (__builtin_mul_overflow(v, (jint)base, &v) || __builtin_add_overflow(v, (jint)d, &v)) {
			parse_fail(x->p, x->line, ST_LIMIT, "a number is too large");
			break;
		}
	}
	lex_push(x, JT_INT, 0, jv_int(v));
	lex_move(x, at);
}

static void lex_bracket(struct jlex *x, char c)
{
	char open = c == ')' ? '(' : c == ']' ? '[' : c == '}' ? '{' : 0;

	if (!open) {
		if (c != '(' && c != '[' && c != '{') return;
		if (x->n_brackets == LEX_BRACKETS_MAX)
			parse_fail(x->p, x->line, ST_LIMIT, "brackets are nested deeper than %d", LEX_BRACKETS_MAX);
		else
			x->brackets[x->n_brackets++] = c;
		return;
	}
	if (x->n_brackets && x->brackets[x->n_brackets - 1] == open)
		x->n_brackets--;
	else
		parse_fail(x->p, x->line, ST_INVALID, "unexpected \"%c\"", c);
}

static void lex_operator(struct jlex *x)
{
	static const char TWO[][3] = {"//", "**", "==", "!=", ">=", "<="};
	char c = x->s[x->pos];
	size_t i;

	for (i = 0; i < ARRAY_LEN(TWO); i++) {
		if (!lex_at(x, x->pos, TWO[i])) continue;
		lex_push(x, JT_OP, JOP2(TWO[i][0], TWO[i][1]), jv_none());
		x->pos += 2;
		return;
	}
	if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
		parse_fail(x->p, x->line, ST_INVALID, "unexpected character \"%.*s\"",
			   utf8_next(x->s + x->pos, x->len - x->pos, &(bool){0}), x->s + x->pos);
		return;
	}
	lex_bracket(x, c);
	lex_push(x, JT_OP, c, jv_none());
	x->pos++;
}

static bool is_name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || (unsigned char)c >= 0x80;
}

/* The inside of "{{ }}" or "{% %}", to behind its end. */
static void lex_tag(struct jlex *x, bool is_variable)
{
	size_t end;

	x->n_brackets = 0;
	while (!x->p->rc) {
		lex_move(x, lex_skip_space(x, x->pos));
		if (x->pos >= x->len) return; /* the parser names what is missing */
		end = x->n_brackets ? 0 : lex_tag_end(x, x->pos, is_variable ? "}}" : "%}", !is_variable, !is_variable);
		if (end) {
			lex_push(x, is_variable ? JT_VAR_END : JT_BLOCK_END, 0, jv_none());
			lex_passed(x, x->pos + end);
			return;
		}
		if (is_digit(x->s[x->pos])) {
			end = lex_float_end(x);
			if (end) lex_float(x, end);
			else lex_int(x);
		} else if (is_name_byte(x->s[x->pos])) {
			for (end = x->pos; end < x->len && is_name_byte(x->s[end]);) end++;
			lex_push(x, JT_NAME, 0, jv_view(x->s + x->pos, end - x->pos, false));
			x->pos = end;
		} else if (x->s[x->pos] == '"' || x->s[x->pos] == '\'') {
			lex_string(x);
		} else {
			lex_operator(x);
		}
	}
}

static void lex_root(struct jlex *x)
{
	const char *brace;
	size_t at, raw;
	char kind, sign;

	for (at = x->pos;; at++) {
		brace = at < x->len ? memchr(x->s + at, '{', x->len - at) : NULL;
		at = brace ? (size_t)(brace - x->s) : x->len;
		if (at + 1 >= x->len) {
			if (x->len > x->pos) lex_push(x, JT_DATA, 0, jv_view(x->s + x->pos, x->len - x->pos, false));
			lex_move(x, x->len);
			return;
		}
		kind = x->s[at + 1];
		if (kind == '{' || kind == '%' || kind == '#') break;
	}
	sign = at + 2 < x->len ? x->s[at + 2] : 0;
	raw = kind == '%' ? lex_raw_begin(x, at) : 0;
	lex_data(x, at, sign, kind == '{');
	if (raw) {
		lex_passed(x, raw);
		lex_raw(x);
		return;
	}
	if (kind != '#') lex_push(x, kind == '{' ? JT_VAR_BEGIN : JT_BLOCK_BEGIN, 0, jv_none());
	x->pos += 2 + (sign == '-' || sign == '+');
	if (kind == '#') lex_comment(x);
	else lex_tag(x, kind == '{');
}

/* A copy with \r\n and \r as \n and without one newline at the end. */
static const char *lex_normalise(struct jparse *p, const char *text, size_t *len)
{
	char *s = parse_alloc(p, *len + 1, 1);
	size_t i, n = 0;

	if (!s) return NULL;
	for (i = 0; i < *len; i++) {
		s[n++] = text[i] == '\r' ? '\n' : text[i];
		if (text[i] == '\r' && i + 1 < *len && text[i + 1] == '\n') i++;
	}
	if (n && s[n - 1] == '\n') n--;
	*len = n;
	return s;
}

void lex_run(struct jparse *p, const char *text, size_t len)
{
	size_t ok = utf8_valid_len(text, len), i;
	struct jlex x = {.p = p, .line = 1, .line_starting = true};

	if (ok < len) {
		for (i = 0; i < ok; i++) x.line += text[i] == '\n';
		parse_fail(p, x.line, ST_INVALID, "the text is not valid UTF-8");
		return;
	}
	x.s = lex_normalise(p, text, &len);
	if (!x.s) return;
	x.len = len;
	while (!p->rc && x.pos < x.len) lex_root(&x);
	lex_push(&x, JT_EOF, 0, jv_none());
}
