/* pretok.c - see pretok.h.
 *
 * A row of the table is a name and one to five expressions. The first cuts the text into its matches and what lies
 * between them; each next one cuts the pieces of the one before, seeing nothing of the neighbours. This is what the
 * "Split, isolated" sequences of tokenizer.json mean.
 *
 * PCRE2 does the matching, compiled to machine code where the system allows it. Unicode's white space is spelled out,
 * since PCRE2's \s counts U+180E too. Long texts are handed over in parts of about PART_LEN, cut between a letter and a
 * space, where no word of any row goes across and no lookahead sees a difference. Should a match ever fail for lack of
 * memory, the rest of its part becomes one word: other ids, the same text. */
#include "frontend/pretok.h"

#include "common/mem.h"
#include "common/quote.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#define PART_LEN   ((size_t)64 << 10)
#define STAGES_MAX 5

/* ---- the table ---- */

/* The inside of a class: Unicode's White_Space. */
#define WS               "\\p{Z}\\x{9}-\\x{d}\\x{85}"
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
	const char *stages[STAGES_MAX];
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
	const struct pretok_row *row;
	pcre2_code *stages[STAGES_MAX];
	size_t n_stages;
	bool jit; /* all stages are machine code */
	pcre2_match_context *match_ctx;
};

static pcre2_code *pretok_compile(const char *expr, bool *jit)
{
	int code;
	PCRE2_SIZE at;
	pcre2_code *re = pcre2_compile((PCRE2_SPTR)expr, PCRE2_ZERO_TERMINATED,
				       PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, NULL);

	CHECK(re); /* the expressions are ours */
	if (pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) != 0)
		*jit = false; /* a system that forbids it: slower, same words */
	return re;
}

int pretok_new(struct pretok **out, const char *pre, const char *file, struct errbuf *err)
{
	const struct pretok_row *row = NULL;
	struct pretok *p;
	char names[400];

	*out = NULL;
	for (size_t i = 0; i < ARRAY_LEN(rows) && !row; i++)
		if (is_one_of(rows[i].names, pre)) row = &rows[i];
	if (!row)
		return err_set(err, ST_UNSUPPORTED,
			       "%s: tokenizer.ggml.pre: pre-tokenizer \"%s\" is not supported; known are %s", file,
			       quote_short(pre, strlen(pre)).text, pretok_names(names, sizeof(names)));
	p = mem_new(struct pretok);
	p->row = row;
	p->jit = true;
	p->match_ctx = pcre2_match_context_create(NULL);
	CHECK(p->match_ctx);
	/* Time is bounded by the expressions themselves: none nests repeats, each step back is over one class. */
	pcre2_set_match_limit(p->match_ctx, UINT32_MAX);
	while (p->n_stages < STAGES_MAX && row->stages[p->n_stages]) {
		p->stages[p->n_stages] = pretok_compile(row->stages[p->n_stages], &p->jit);
		p->n_stages++;
	}
	*out = p;
	return ST_OK;
}

void pretok_free(struct pretok *p)
{
	if (!p) return;
	for (size_t i = 0; i < p->n_stages; i++) pcre2_code_free(p->stages[i]);
	pcre2_match_context_free(p->match_ctx);
	free(p);
}

bool pretok_add_bos(const struct pretok *p)
{
	return p->row->add_bos;
}

bool pretok_whole_words(const struct pretok *p)
{
	return p->row->whole_words;
}

bool pretok_nfc(const struct pretok *p)
{
	return p->row->nfc;
}

/* ---- splitting ---- */

struct split {
	const struct pretok *p;
	pcre2_match_data *match;
	pretok_fn *fn;
	void *ctx;
};

/* The first match at or after `at`; false when there is none. */
static bool split_find(const struct split *s, size_t stage, const char *text, size_t len, size_t at, size_t *from,
		       size_t *to)
{
	const pcre2_code *re = s->p->stages[stage];
	PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match);
	int rc;

	if (s->p->jit)
		rc = pcre2_jit_match(re, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, s->match, s->p->match_ctx);
	else
		rc = pcre2_match(re, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, s->match, s->p->match_ctx);
	if (rc < 0 || ends[1] <= ends[0]) return false;
	*from = ends[0];
	*to = ends[1];
	return true;
}

static bool split_stage(const struct split *s, size_t stage, const char *text, size_t len)
{
	size_t at = 0, from, to;

	if (stage == s->p->n_stages) return s->fn(s->ctx, text, len);
	while (at < len && split_find(s, stage, text, len, at, &from, &to)) {
		if (from > at && !split_stage(s, stage + 1, text + at, from - at)) return false;
		if (!split_stage(s, stage + 1, text + from, to - from)) return false;
		at = to;
	}
	return at == len || split_stage(s, stage + 1, text + at, len - at);
}

static bool is_ascii_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Length of the part to match next. */
static size_t split_part(const char *text, size_t len)
{
	for (size_t i = PART_LEN; i < len; i++)
		if (text[i] == ' ' && is_ascii_letter(text[i - 1])) return i;
	return len;
}

void pretok_split(const struct pretok *p, const char *text, size_t len, pretok_fn *fn, void *ctx)
{
	struct split s = {.p = p, .match = pcre2_match_data_create(1, NULL), .fn = fn, .ctx = ctx};

	CHECK(s.match);
	while (len > 0) {
		size_t part = split_part(text, len);

		if (!split_stage(&s, 0, text, part)) break;
		text += part;
		len -= part;
	}
	pcre2_match_data_free(s.match);
}
