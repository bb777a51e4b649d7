/* textnorm.c - see textnorm.h.
 *
 * Each step reads a view and, only when it changes something, writes a new text. Most texts are changed by no step: plain
 * ASCII is in every normal form, and so are the characters that normal_blocks names. */
#include "frontend/textnorm.h"

#include "common/mem.h"
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/onigre.h"

#include <string.h>
#include <utf8proc.h>

struct textnorm_step {
	enum textnorm_kind kind;
	bool left, right;     /* STRIP */
	char *pattern;        /* REPLACE: owned; NULL: re */
	size_t pattern_len;
	struct onigre *re;    /* owned */
	char *content;        /* owned */
	size_t content_len;
};

struct textnorm {
	struct textnorm_step steps[TEXTNORM_STEPS_MAX];
	size_t n;
};

/* ---- life ---- */

struct textnorm *textnorm_new(void)
{
	return mem_new(struct textnorm);
}

static void step_release(struct textnorm_step *s)
{
	free(s->pattern);
	free(s->content);
	onigre_free(s->re);
}

void textnorm_free(struct textnorm *n)
{
	if (!n) return;
	for (size_t i = 0; i < n->n; i++) step_release(&n->steps[i]);
	free(n);
}

static bool step_add(struct textnorm *n, struct textnorm_step s)
{
	if (n->n < TEXTNORM_STEPS_MAX) {
		n->steps[n->n++] = s;
		return true;
	}
	step_release(&s);
	return false;
}

bool textnorm_add(struct textnorm *n, enum textnorm_kind kind)
{
	return step_add(n, (struct textnorm_step){.kind = kind});
}

bool textnorm_add_strip(struct textnorm *n, bool left, bool right)
{
	return step_add(n, (struct textnorm_step){.kind = TEXTNORM_STRIP, .left = left, .right = right});
}

bool textnorm_add_prepend(struct textnorm *n, const char *content, size_t len)
{
	return step_add(n, (struct textnorm_step){
				   .kind = TEXTNORM_PREPEND, .content = mem_strndup(content, len), .content_len = len});
}

bool textnorm_add_replace(struct textnorm *n, const char *pattern, size_t pattern_len, const char *content, size_t len)
{
	CHECK(pattern_len > 0);
	return step_add(n, (struct textnorm_step){.kind = TEXTNORM_REPLACE,
						  .pattern = mem_strndup(pattern, pattern_len),
						  .pattern_len = pattern_len,
						  .content = mem_strndup(content, len),
						  .content_len = len});
}

bool textnorm_add_replace_re(struct textnorm *n, struct onigre *re, const char *content, size_t len)
{
	return step_add(n, (struct textnorm_step){
				   .kind = TEXTNORM_REPLACE, .re = re, .content = mem_strndup(content, len), .content_len = len});
}

/* ---- Unicode's normal forms ---- */

/* Ranges where no character changes or joins with a neighbour in NFC and NFD (but for what decomposes: see below). */
static const struct {
	uint32_t first, last;
	bool decomposes; /* some characters do, in NFD */
} normal_blocks[] = {
	{0x0000, 0x00bf, false}, {0x00c0, 0x02ff, true},    {0x0400, 0x0482, true},    {0x048a, 0x052f, true},
	{0x05d0, 0x05ea, false}, {0x0620, 0x064a, true},    {0x0e01, 0x0e30, false},   {0x1e00, 0x1eff, true},
	{0x2010, 0x2027, false}, {0x20a0, 0x20bf, false},   {0x2190, 0x219b, true} ,   {0x2500, 0x27bf, false},
	{0x3001, 0x3029, false}, {0x3041, 0x3096, true},    {0x309d, 0x30fe, true},    {0x3400, 0x4dbf, false},
	{0x4e00, 0x9fff, false}, {0xac00, 0xd7a3, true},    {0xff01, 0xff5e, false},   {0xfffd, 0xfffd, false},
	{0x1f300, 0x1faff, false},
};

static bool is_normal(uint32_t cp, enum textnorm_kind kind)
{
	if (cp < 0x80) return true;
	if (kind == TEXTNORM_NFKC || kind == TEXTNORM_NFKD) return cp >= 0x4e00 && cp <= 0x9fff;
	for (size_t i = 0; i < ARRAY_LEN(normal_blocks); i++)
		if (cp <= normal_blocks[i].last)
			return cp >= normal_blocks[i].first && !(kind == TEXTNORM_NFD && normal_blocks[i].decomposes);
	return false;
}

/* Length of the beginning that is surely in the form. */
static size_t normal_len(const char *s, size_t len, enum textnorm_kind kind)
{
	size_t i = 0, step;

	while (i < len) {
		uint32_t cp;

		step = 1;
		if ((unsigned char)s[i] >= 0x80) {
			step = (size_t)utf8_decode(s + i, &cp);
			if (!is_normal(cp, kind)) break;
		}
		i += step;
	}
	return i;
}

/* Length of the stretch that is not: up to the next character that is surely in the form and so joins with none before it. */
static size_t unsure_len(const char *s, size_t len, enum textnorm_kind kind)
{
	size_t i = 0;
	uint32_t cp;

	while (i < len) {
		size_t step = (size_t)utf8_decode(s + i, &cp);

		if (is_normal(cp, kind)) break;
		i += step;
	}
	return i;
}

static void map_stretch(enum textnorm_kind kind, const char *s, size_t len, struct strbuf *out)
{
	int options = UTF8PROC_STABLE;
	utf8proc_uint8_t *form = NULL;
	utf8proc_ssize_t n;

	options |= kind == TEXTNORM_NFC || kind == TEXTNORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
	if (kind == TEXTNORM_NFKC || kind == TEXTNORM_NFKD) options |= UTF8PROC_COMPAT;
	n = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)len, &form, (utf8proc_option_t)options);
	if (n < 0) strbuf_append(out, s, len); /* no memory: it stays as it is */
	else strbuf_append(out, form, (size_t)n);
	free(form);
}

/* The character before a stretch that is not surely in the form goes with it: marks join with it. */
static bool step_form(enum textnorm_kind kind, const char *s, size_t len, struct strbuf *out)
{
	size_t done = 0, at;

	while ((at = done + normal_len(s + done, len - done, kind)) < len) {
		size_t end = at + unsure_len(s + at, len - at, kind), from = at;

		if (from > done) from--;
		while (from > done && ((unsigned char)s[from] & 0xc0) == 0x80) from--;
		strbuf_append(out, s + done, from - done);
		map_stretch(kind, s + from, end - from, out);
		done = end;
	}
	if (done == 0) return false;
	strbuf_append(out, s + done, len - done);
	return true;
}

/* ---- the other steps ---- */

static bool step_lower(const char *s, size_t len, struct strbuf *out)
{
	bool changed = false;

	for (size_t i = 0, step; i < len; i += step) {
		uint32_t cp, lower;
		char text[4];

		step = (size_t)utf8_decode(s + i, &cp);
		lower = cp == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
		changed |= lower != cp;
		strbuf_append(out, text, (size_t)utf8_encode(lower, text));
		if (cp == 0x130) strbuf_puts(out, "\xcc\x87"); /* the one letter whose small form is two characters */
	}
	return changed;
}

static bool is_white(const char *s, size_t len)
{
	uint32_t cp;
	utf8proc_category_t c;

	if (utf8_decode(s, &cp) != (int)len) return false;
	if ((cp >= 9 && cp <= 13) || cp == 0x85) return true;
	c = utf8proc_category((utf8proc_int32_t)cp);
	return c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

static bool step_strip(const struct textnorm_step *t, const char *s, size_t len, struct strbuf *out)
{
	size_t from = 0, to = len, n;

	while (t->left && from < to) {
		uint32_t cp;

		n = (size_t)utf8_decode(s + from, &cp);
		if (!is_white(s + from, n)) break;
		from += n;
	}
	while (t->right && to > from) {
		for (n = 1; n < to - from && ((unsigned char)s[to - n] & 0xc0) == 0x80;) n++;
		if (!is_white(s + to - n, n)) break;
		to -= n;
	}
	if (to - from == len) return false;
	strbuf_append(out, s + from, to - from);
	return true;
}

static bool step_squeeze(const char *s, size_t len, struct strbuf *out)
{
	size_t done = 0;

	for (size_t i = 0; i < len; i++) {
		bool inner = i > 0 && i + 1 < len && s[i - 1] != ' ';

		if (s[i] != ' ' || inner) continue;
		strbuf_append(out, s + done, i - done);
		done = i + 1;
	}
	strbuf_append(out, s + done, len - done);
	/* A run at the end leaves its first space. */
	if (done == len && out->len > 0 && out->data[out->len - 1] == ' ') out->data[--out->len] = 0;
	return done > 0;
}

static bool step_prepend(const struct textnorm_step *t, const char *s, size_t len, struct strbuf *out)
{
	if (len == 0) return false;
	strbuf_append(out, t->content, t->content_len);
	strbuf_append(out, s, len);
	return true;
}

static bool step_replace(const struct textnorm_step *t, const char *s, size_t len, struct strbuf *out)
{
	size_t done = 0;
	const char *at;

	while (len - done >= t->pattern_len && (at = memmem(s + done, len - done, t->pattern, t->pattern_len)) != NULL) {
		strbuf_append(out, s + done, (size_t)(at - s) - done);
		strbuf_append(out, t->content, t->content_len);
		done = (size_t)(at - s) + t->pattern_len;
	}
	if (done == 0) return false;
	strbuf_append(out, s + done, len - done);
	return true;
}

static bool step_replace_re(const struct textnorm_step *t, const char *s, size_t len, struct strbuf *out)
{
	struct onigre_match *m = onigre_match_new();
	size_t done = 0, at = 0, from, to;
	bool changed = false;

	while (at < len && onigre_find(t->re, m, s, len, at, &from, &to) == ONIGRE_FOUND) {
		at = to;
		if (to == from) { /* nothing to replace there; look on behind the character */
			for (at++; at < len && ((unsigned char)s[at] & 0xc0) == 0x80;) at++;
			continue;
		}
		strbuf_append(out, s + done, from - done);
		strbuf_append(out, t->content, t->content_len);
		done = to;
		changed = true;
	}
	onigre_match_free(m);
	strbuf_append(out, s + done, len - done);
	return changed;
}

static bool step_run(const struct textnorm_step *t, const char *s, size_t len, struct strbuf *out)
{
	switch (t->kind) {
	case TEXTNORM_LOWER:
		return step_lower(s, len, out);
	case TEXTNORM_SQUEEZE:
		return step_squeeze(s, len, out);
	case TEXTNORM_STRIP:
		return step_strip(t, s, len, out);
	case TEXTNORM_PREPEND:
		return step_prepend(t, s, len, out);
	case TEXTNORM_REPLACE:
		return t->re ? step_replace_re(t, s, len, out) : step_replace(t, s, len, out);
	default:
		return step_form(t->kind, s, len, out);
	}
}

bool textnorm_run(const struct textnorm *n, const char **s, size_t *len, struct strbuf *out)
{
	struct strbuf next;
	bool fits = true;

	strbuf_reset(out);
	strbuf_init(&next, out->len_max);
	for (size_t i = 0; i < n->n && fits; i++) {
		struct strbuf swap = *out;

		strbuf_reset(&next);
		if (!step_run(&n->steps[i], *s, *len, &next)) continue;
		fits = !next.overflow;
		*out = next;
		next = swap;
		*s = out->data ? out->data : "";
		*len = out->len;
	}
	strbuf_release(&next);
	return fits;
}
