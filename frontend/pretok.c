/* pretok.c - see pretok.h.
 *
 * A row of the table is a name and one to five expressions. The first cuts the text into its matches and what lies
 * between them; each next one cuts the pieces of the one before, seeing nothing of the neighbours. This is what the
 * "Split, isolated" sequences of tokenizer.json mean.
 *
 * Long texts are handed to a row's expressions in parts of about PART_LEN, cut between a letter and a space, where no word
 * of any row goes across and no lookahead sees a difference. Should a match ever fail for lack of memory, or an expression
 * of a file take too many steps, the rest of the text becomes one word: other ids, the same text. */
#include "frontend/pretok.h"

#include "common/mem.h"
#include "common/quote.h"
#include "frontend/onigre.h"

#include <stdio.h>
#include <string.h>

#define PART_LEN ((size_t)64 << 10)

/* ---- the table ---- */

#define WS               ONIGRE_SPACE
#define WS_RUNS          "[" WS "]+(?![^" WS "])|[" WS "]+" /* all but the last of a run before a word, which takes that one */
#define CASELESS_ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" WS_RUNS

/* The family of cl100k: `digits` is what makes a group of numbers. */
#define CL100K(digits)                                                                                      \
	CASELESS_ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS \
			 "]*[\\r\\n]+|" WS_RUNS

#define CL100K_MARKS                                                                                                  \
	CASELESS_ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WS \
			 "]*[\\r\\n]+|" WS_RUNS

/* The family of o200k: words also end where a small letter is followed by a capital. */
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define O200K(endings, digits)                                                                                \
	"[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" endings "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER \
	"]*" endings "|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS "]*[\\r\\n]+|" WS_RUNS

#define DEEPSEEK_WORDS                                                                                          \
	"[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|[" WS \
	"]*[\\r\\n]+|" WS_RUNS

#define CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"

struct pretok_row {
	const char *names; /* separated by spaces */
	bool add_bos, whole_words, nfc;
	const char *stages[PRETOK_STAGES_MAX];
};

/* Names and expressions as model files use them (GGUF's tokenizer.ggml.pre); "default" is for files that do not say. */
static const struct pretok_row rows[] = {
	{.names = "gpt-2 phi-2 mpt olmo jais trillion granite-docling", .stages = {GPT2}},
	{.names = "default", .stages = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
	{.names = "falcon", .stages = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
	{.names = "smollm starcoder refact command-r codeshell exaone", .stages = {"\\p{N}", GPT2}},
	{.names = "llama-bpe llama3 llama-v3 falcon3",
	 .add_bos = true,
	 .whole_words = true,
	 .stages = {CL100K("\\p{N}{1,3}")}},
	{.names = "dbrx smaug-bpe chatglm-bpe glm4", .stages = {CL100K("\\p{N}{1,3}")}},
	{.names = "qwen2 deepseek-r1-qwen", .nfc = true, .stages = {CL100K("\\p{N}")}},
	{.names = "stablelm2", .stages = {CL100K("\\p{N}")}},
	{.names = "qwen35", .nfc = true, .stages = {CL100K_MARKS}},
	{.names = "gpt-4o", .stages = {O200K(CASELESS_ENDINGS "?", "\\p{N}{1,3}")}},
	{.names = "tekken", .whole_words = true, .add_bos = true, .stages = {O200K("", "\\p{N}")}},
	{.names = "deepseek-v3", .stages = {"\\p{N}{1,3}", CJK, DEEPSEEK_WORDS}},
};

/* Whether `name` is one of the words in `names`. */
static bool is_one_of(const char *names, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = names; len > 0 && (at = strstr(at, name)) != NULL; at += len)
		if ((at == names || at[-1] == ' ') && (at[len] == 0 || at[len] == ' ')) return !strchr(name, ' ');
	return false;
}

const char *pretok_names(char *buf, size_t cap)
{
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		for (const char *at = rows[i].names; *at; at += strspn(at, " ")) {
			size_t n = strcspn(at, " ");

			if (len + n + 3 > cap) break;
			if (len) len += (size_t)sprintf(buf + len, ", ");
			memcpy(buf + len, at, n);
			buf[len += n] = 0;
			at += n;
		}
	return buf;
}

/* ---- life ---- */

struct pretok {
	const struct pretok_row *row; /* NULL: a file's own stages */
	struct {
		struct onigre *re;
		enum pretok_behavior behavior;
		bool invert;
		bool letters; /* see letters_exprs */
		bool numbers; /* see number_exprs */
	} stages[PRETOK_STAGES_MAX];
	size_t n_stages;
};

/* Expressions that find, where ASCII letters begin or a space before some, those letters and that space, unless a character beyond
 * ASCII follows, which may be a letter. Most words of most texts are found so without the expression. */
static const char *const letters_exprs[] = {GPT2, CL100K("\\p{N}{1,3}"), CL100K("\\p{N}"), CL100K_MARKS, DEEPSEEK_WORDS};

/* Expressions whose matches all begin with a digit or a character beyond ASCII: most texts have few. */
static const char *const number_exprs[] = {"\\p{N}", "\\p{N}{1,3}", "\\p{N}+", "[0-9][0-9][0-9]"};

static bool is_among(const char *expr, const char *const *exprs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(expr, exprs[i]) == 0) return true;
	return false;
}

static void pretok_add(struct pretok *p, const char *expr)
{
	struct errbuf err;

	p->stages[p->n_stages].letters = is_among(expr, letters_exprs, ARRAY_LEN(letters_exprs));
	p->stages[p->n_stages].numbers = is_among(expr, number_exprs, ARRAY_LEN(number_exprs));
	CHECK(onigre_new(&p->stages[p->n_stages++].re, expr, strlen(expr), &err) == ST_OK); /* the expressions are ours */
}

static struct pretok *pretok_from_row(const struct pretok_row *row)
{
	struct pretok *p = mem_new(struct pretok);

	p->row = row;
	while (p->n_stages < ARRAY_LEN(row->stages) && row->stages[p->n_stages]) pretok_add(p, row->stages[p->n_stages]);
	return p;
}

int pretok_new(struct pretok **out, const char *pre, const char *file, struct errbuf *err)
{
	char names[400];

	*out = NULL;
	for (size_t i = 0; i < ARRAY_LEN(rows) && !*out; i++)
		if (is_one_of(rows[i].names, pre)) *out = pretok_from_row(&rows[i]);
	if (*out) return ST_OK;
	return err_set(err, ST_UNSUPPORTED, "%s: tokenizer.ggml.pre: pre-tokenizer \"%s\" is not supported; known are %s", file,
		       quote_short(pre, strlen(pre)).text, pretok_names(names, sizeof(names)));
}

static bool row_has_stages(const struct pretok_row *row, const struct pretok_stage *stages, size_t n)
{
	if (n < ARRAY_LEN(row->stages) && row->stages[n]) return false;
	for (size_t i = 0; i < n; i++)
		if (i >= ARRAY_LEN(row->stages) || !row->stages[i] || strcmp(row->stages[i], stages[i].expr) != 0 ||
		    stages[i].behavior != PRETOK_ISOLATED || stages[i].invert)
			return false;
	return n > 0;
}

int pretok_from_stages(struct pretok **out, const struct pretok_stage *stages, size_t n, struct errbuf *err)
{
	struct pretok *p;
	int rc = ST_OK;

	*out = NULL;
	if (n > PRETOK_STAGES_MAX)
		return err_set(err, ST_LIMIT, "%zu expressions one after the other; expected at most %d", n, PRETOK_STAGES_MAX);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (row_has_stages(&rows[i], stages, n)) {
			*out = pretok_from_row(&rows[i]);
			return ST_OK;
		}
	p = mem_new(struct pretok);
	for (size_t i = 0; i < n && rc == ST_OK; i++) {
		p->stages[i].behavior = stages[i].behavior;
		p->stages[i].invert = stages[i].invert;
		rc = onigre_new(&p->stages[i].re, stages[i].expr, strlen(stages[i].expr), err);
		p->n_stages += rc == ST_OK;
	}
	if (rc != ST_OK) {
		pretok_free(p);
		return rc;
	}
	*out = p;
	return ST_OK;
}

void pretok_free(struct pretok *p)
{
	if (!p) return;
	for (size_t i = 0; i < p->n_stages; i++) onigre_free(p->stages[i].re);
	free(p);
}

const char *pretok_expr(const struct pretok *p, size_t i)
{
	return p->row && i < p->n_stages ? p->row->stages[i] : NULL;
}

const char *pretok_gpt2(void)
{
	return GPT2;
}

bool pretok_add_bos(const struct pretok *p)
{
	return p->row && p->row->add_bos;
}

bool pretok_whole_words(const struct pretok *p)
{
	return p->row && p->row->whole_words;
}

bool pretok_nfc(const struct pretok *p)
{
	return p->row && p->row->nfc;
}

/* ---- splitting ---- */

struct split {
	const struct pretok *p;
	struct onigre_match *match;
	bool gave_up; /* no expression is tried any more */
	pretok_fn *fn;
	void *ctx;
};

static bool split_stage(struct split *s, size_t stage, const char *text, size_t len);

static bool split_next(struct split *s, size_t stage, const char *text, size_t len)
{
	return len == 0 || split_stage(s, stage + 1, text, len);
}

static bool is_ascii_letter(char c)
{
	return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* Length of the letters at text, with a space in front; 0 when that is not what is there, or may not be all. */
static size_t letters_len(const char *text, size_t len)
{
	size_t from = len > 0 && text[0] == ' ', n = from;

	while (n < len && is_ascii_letter(text[n])) n++;
	return n == from || (n < len && (unsigned char)text[n] >= 0x80) ? 0 : n;
}

/* Where the first digit or character beyond ASCII is; len: nowhere. */
static size_t number_at(const char *text, size_t len, size_t at)
{
	while (at < len && (unsigned char)text[at] < 0x80 && !(text[at] >= '0' && text[at] <= '9')) at++;
	return at;
}

/* The first match at or after `at` that is not empty; false when there is none. */
static bool split_find(struct split *s, size_t stage, const char *text, size_t len, size_t at, size_t *from, size_t *to)
{
	const struct onigre *re = s->p->stages[stage].re;
	size_t n = s->p->stages[stage].letters && !s->gave_up ? letters_len(text + at, len - at) : 0;

	if (n > 0) {
		*from = at;
		*to = at + n;
		return true;
	}
	if (s->p->stages[stage].numbers) at = number_at(text, len, at);
	while (at < len && !s->gave_up) {
		enum onigre_result found = onigre_find(re, s->match, text, len, at, from, to);

		if (found == ONIGRE_GAVE_UP) s->gave_up = true;
		if (found != ONIGRE_FOUND) return false;
		if (*to > *from) return true;
		/* An empty match is no word and cuts nothing: look on behind the character. */
		at = *to + 1;
		while (at < len && ((unsigned char)text[at] & 0xc0) == 0x80) at++;
	}
	return false;
}

/* Matches and what lies between them, each on its own. */
static bool split_isolated(struct split *s, size_t stage, const char *text, size_t len)
{
	size_t at = 0, from, to;

	while (split_find(s, stage, text, len, at, &from, &to)) {
		if (!split_next(s, stage, text + at, from - at)) return false;
		if (!split_next(s, stage, text + from, to - from)) return false;
		at = to;
	}
	return split_next(s, stage, text + at, len - at);
}

/* The other behaviors: goes over the pieces in order, with the piece that waits for what comes after it. */
struct split_joined {
	struct split *s;
	size_t stage;
	const char *text;
	size_t start, end; /* the waiting piece; empty: none */
	bool match;        /* it is (or ends with) a match */
};

static bool joined_piece(struct split_joined *j, size_t from, size_t to, bool match)
{
	bool joins;

	if (from == to) return true;
	switch (j->s->p->stages[j->stage].behavior) {
	case PRETOK_REMOVED:
		return match || split_next(j->s, j->stage, j->text + from, to - from);
	case PRETOK_WITH_BEFORE:
		joins = match && !j->match;
		break;
	case PRETOK_WITH_AFTER:
		joins = !match && j->match;
		break;
	default:
		joins = match == j->match;
	}
	joins = joins && j->end > j->start;
	if (!joins && !split_next(j->s, j->stage, j->text + j->start, j->end - j->start)) return false;
	if (!joins) j->start = from;
	j->end = to;
	j->match = match;
	return true;
}

static bool split_joined(struct split *s, size_t stage, const char *text, size_t len)
{
	struct split_joined j = {.s = s, .stage = stage, .text = text};
	bool invert = s->p->stages[stage].invert;
	size_t at = 0, from, to;

	while (split_find(s, stage, text, len, at, &from, &to)) {
		if (!joined_piece(&j, at, from, invert) || !joined_piece(&j, from, to, !invert)) return false;
		at = to;
	}
	return joined_piece(&j, at, len, invert) && split_next(s, stage, text + j.start, j.end - j.start);
}

static bool split_stage(struct split *s, size_t stage, const char *text, size_t len)
{
	if (stage == s->p->n_stages) return s->fn(s->ctx, text, len);
	return s->p->stages[stage].behavior == PRETOK_ISOLATED ? split_isolated(s, stage, text, len)
							       : split_joined(s, stage, text, len);
}

/* Length of the part to match next. */
static size_t split_part(const char *text, size_t len)
{
	for (size_t i = PART_LEN; i < len; i++)
		if (text[i] == ' ' && is_ascii_letter(text[i - 1])) return i;
	return len;
}

void pretok_split(const struct pretok *p, struct onigre_match *match, const char *text, size_t len, pretok_fn *fn, void *ctx)
{
	struct split s = {.p = p, .match = match, .fn = fn, .ctx = ctx};

	while (len > 0) {
		size_t part = p->row ? split_part(text, len) : len;

		if (!split_stage(&s, 0, text, part)) break;
		text += part;
		len -= part;
	}
}
