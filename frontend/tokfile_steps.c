/* tokfile_steps.c - what tokenizer.json does around its model: normalizer, pre_tokenizer, post_processor, decoder.
 *
 * Each is an object with a type, or a Sequence of such. Everything is honoured as Hugging Face's tokenizers does it, or
 * refused by its name. */
#include "frontend/tokfile.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "frontend/onigre.h"

#include <stdarg.h>
#include <string.h>

#define SEQUENCE_DEPTH_MAX 4

void tokfile_steps_release(struct tokfile_steps *s)
{
	textnorm_free(s->norm);
	for (size_t i = 0; i < s->n_stages; i++) free(s->exprs[i]);
	*s = (struct tokfile_steps){0};
}

/* ---- objects with a type ---- */

struct step_row {
	const char *type;
	int (*read)(const struct jsonplace *p, struct tokfile_steps *s);
};

static int step_refuse(const struct jsonplace *p, const char *type, const struct step_row *rows, size_t n)
{
	char known[240] = "";
	size_t len = 0;

	for (size_t i = 0; i < n && len < sizeof(known) - 40; i++)
		len += (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "", rows[i].type);
	return jsonplace_fail(p, ST_UNSUPPORTED, "\"%s\" is not supported; known are %s, Sequence", quote_short(type, strlen(type)).text,
			    known);
}

/* One object, or the members of a Sequence, which `list` names. */
static int step_read(const struct jsonplace *p, const char *list, const struct step_row *rows, size_t n_rows, int depth,
		     struct tokfile_steps *s)
{
	struct jsonplace type = jsonplace_member(p, "type"), members = jsonplace_member(p, list);
	struct gguf_str name;
	size_t n;
	int rc = jsonplace_str(&type, &name);

	if (rc != ST_OK) return rc;
	for (size_t i = 0; i < n_rows; i++)
		if (gguf_str_is(name, rows[i].type)) return rows[i].read(p, s);
	if (!gguf_str_is(name, "Sequence")) return step_refuse(&type, name.s, rows, n_rows);
	if (depth == SEQUENCE_DEPTH_MAX)
		return jsonplace_fail(p, ST_LIMIT, "a Sequence within %d others; expected at most %d", depth, depth - 1);
	rc = jsonplace_array(&members, &n);
	for (size_t i = 0; i < n && rc == ST_OK; i++) {
		struct jsonplace m = jsonplace_item(&members, i);

		rc = step_read(&m, list, rows, n_rows, depth + 1, s);
	}
	return rc;
}

/* {"String": "..."} or {"Regex": "..."}; what it is goes to *is_regex. */
static int read_pattern(const struct jsonplace *p, struct gguf_str *out, bool *is_regex)
{
	struct jsonplace pattern = jsonplace_member(p, "pattern"), string = jsonplace_member(&pattern, "String"),
			     regex = jsonplace_member(&pattern, "Regex");

	*is_regex = regex.value != NULL;
	if (!regex.value && !string.value)
		return jsonplace_fail(&pattern, ST_INVALID, "expected {\"String\": ...} or {\"Regex\": ...}");
	return jsonplace_str(*is_regex ? &regex : &string, out);
}

/* A short text among given ones; its index goes to *out. */
static int read_choice(const struct jsonplace *p, const char *key, const char *const *names, size_t n, size_t *out)
{
	struct jsonplace m = jsonplace_member(p, key);
	struct gguf_str text;
	int rc = jsonplace_str(&m, &text);

	if (rc != ST_OK) return rc;
	for (*out = 0; *out < n; ++*out)
		if (gguf_str_is(text, names[*out])) return ST_OK;
	return jsonplace_fail(&m, ST_UNSUPPORTED, "\"%s\" is not known", quote_short(text.s, text.len).text);
}

/* ---- normalizer ---- */

static int norm_full(const struct jsonplace *p, bool added)
{
	return added ? ST_OK : jsonplace_fail(p, ST_LIMIT, "there are more than %d steps", TEXTNORM_STEPS_MAX);
}

static struct textnorm *steps_norm(struct tokfile_steps *s)
{
	if (!s->norm) s->norm = textnorm_new();
	return s->norm;
}

static int norm_nfc(const struct jsonplace *p, struct tokfile_steps *s)
{
	return norm_full(p, textnorm_add(steps_norm(s), TEXTNORM_NFC));
}

static int norm_nfd(const struct jsonplace *p, struct tokfile_steps *s)
{
	return norm_full(p, textnorm_add(steps_norm(s), TEXTNORM_NFD));
}

static int norm_nfkc(const struct jsonplace *p, struct tokfile_steps *s)
{
	return norm_full(p, textnorm_add(steps_norm(s), TEXTNORM_NFKC));
}

static int norm_nfkd(const struct jsonplace *p, struct tokfile_steps *s)
{
	return norm_full(p, textnorm_add(steps_norm(s), TEXTNORM_NFKD));
}

static int norm_lower(const struct jsonplace *p, struct tokfile_steps *s)
{
	return norm_full(p, textnorm_add(steps_norm(s), TEXTNORM_LOWER));
}

static int norm_strip(const struct jsonplace *p, struct tokfile_steps *s)
{
	bool left, right;
	int rc = jsonplace_bool_or(p, "strip_left", true, &left);

	if (rc == ST_OK) rc = jsonplace_bool_or(p, "strip_right", true, &right);
	return rc != ST_OK ? rc : norm_full(p, textnorm_add_strip(steps_norm(s), left, right));
}

static int norm_prepend(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace m = jsonplace_member(p, "prepend");
	struct gguf_str text;
	int rc = jsonplace_str(&m, &text);

	return rc != ST_OK ? rc : norm_full(p, textnorm_add_prepend(steps_norm(s), text.s, text.len));
}

static int compile(const struct jsonplace *p, struct gguf_str expr, struct strbuf *pcre)
{
	struct errbuf why = {0};
	int rc;

	strbuf_init(pcre, TOKFILE_STAGES_BYTES);
	rc = onigre_translate(expr.s, expr.len, pcre, &why);
	if (rc == ST_OK && pcre->overflow) rc = err_set(&why, ST_LIMIT, "the expression is too long");
	return rc == ST_OK ? ST_OK : jsonplace_fail(p, rc, "%s", why.text);
}

static int norm_replace(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace m = jsonplace_member(p, "content"), at = jsonplace_member(p, "pattern");
	struct gguf_str content, pattern;
	struct errbuf why = {0};
	struct onigre *re;
	struct strbuf pcre;
	bool is_regex;
	int rc = jsonplace_str(&m, &content);

	if (rc == ST_OK) rc = read_pattern(p, &pattern, &is_regex);
	if (rc != ST_OK) return rc;
	if (pattern.len == 0) return jsonplace_fail(&at, ST_INVALID, "is empty");
	if (!is_regex) {
		s->has_mark_replace |= gguf_str_is(pattern, " ") && gguf_str_is(content, VOCAB_SPACE);
		return norm_full(p, textnorm_add_replace(steps_norm(s), pattern.s, pattern.len, content.s, content.len));
	}
	rc = compile(&at, pattern, &pcre);
	if (rc == ST_OK) {
		rc = onigre_new(&re, pcre.data ? pcre.data : "", pcre.len, &why);
		if (rc != ST_OK) rc = jsonplace_fail(&at, rc, "%s", why.text);
		else rc = norm_full(p, textnorm_add_replace_re(steps_norm(s), re, content.s, content.len));
	}
	strbuf_release(&pcre);
	return rc;
}

int tokfile_read_normalizer(const struct jsonplace *p, struct tokfile_steps *s)
{
	static const struct step_row rows[] = {
		{"NFC", norm_nfc},         {"NFD", norm_nfd},     {"NFKC", norm_nfkc},       {"NFKD", norm_nfkd},
		{"Lowercase", norm_lower}, {"Strip", norm_strip}, {"Prepend", norm_prepend}, {"Replace", norm_replace},
	};

	return jsonplace_is_null(p) ? ST_OK : step_read(p, "normalizers", rows, ARRAY_LEN(rows), 0, s);
}

/* ---- pre_tokenizer ---- */

static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};

/* expr: PCRE2's spelling; a copy is kept. */
static int add_stage(const struct jsonplace *p, struct tokfile_steps *s, const char *expr, enum pretok_behavior behavior,
		     bool invert)
{
	if (s->has_metaspace) return jsonplace_fail(p, ST_UNSUPPORTED, "a step behind Metaspace is not supported");
	if (s->n_stages == PRETOK_STAGES_MAX)
		return jsonplace_fail(p, ST_LIMIT, "there are more than %d steps", PRETOK_STAGES_MAX);
	s->exprs[s->n_stages] = mem_strdup(expr);
	s->stages[s->n_stages] = (struct pretok_stage){s->exprs[s->n_stages], behavior, invert};
	s->n_stages++;
	return ST_OK;
}

/* A text as an expression that matches just it. */
static void quote_expr(struct gguf_str text, struct strbuf *out)
{
	for (size_t i = 0; i < text.len; i++) {
		if (strchr("\\^$.[]|()?*+{}#-", text.s[i])) strbuf_putc(out, '\\');
		strbuf_putc(out, text.s[i]);
	}
}

static int pre_split(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace at = jsonplace_member(p, "pattern");
	struct gguf_str pattern;
	struct strbuf expr;
	bool is_regex, invert;
	size_t behavior;
	int rc = read_pattern(p, &pattern, &is_regex);

	if (rc == ST_OK) rc = read_choice(p, "behavior", behaviors, ARRAY_LEN(behaviors), &behavior);
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "invert", false, &invert);
	if (rc != ST_OK) return rc;
	if (pattern.len == 0 || memchr(pattern.s, 0, pattern.len))
		return jsonplace_fail(&at, ST_INVALID, "is empty or has a zero byte");
	strbuf_init(&expr, TOKFILE_STAGES_BYTES);
	if (is_regex) {
		rc = compile(&at, pattern, &expr);
	} else {
		quote_expr(pattern, &expr);
		if (expr.overflow) rc = jsonplace_fail(&at, ST_LIMIT, "is too long");
	}
	if (rc == ST_OK) rc = add_stage(p, s, expr.data, (enum pretok_behavior)behavior, invert);
	strbuf_release(&expr);
	return rc;
}

static int pre_digits(const struct jsonplace *p, struct tokfile_steps *s)
{
	bool each;
	int rc = jsonplace_bool_or(p, "individual_digits", false, &each);

	return rc != ST_OK ? rc : add_stage(p, s, each ? "\\p{N}" : "\\p{N}+", PRETOK_ISOLATED, false);
}

static int pre_punctuation(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace at = jsonplace_member(p, "behavior");
	size_t behavior = PRETOK_ISOLATED;
	int rc = jsonplace_is_null(&at) ? ST_OK : read_choice(p, "behavior", behaviors, ARRAY_LEN(behaviors), &behavior);

	return rc != ST_OK ? rc : add_stage(p, s, "[\\p{P}$+<=>^`|~]", (enum pretok_behavior)behavior, false);
}

static int pre_whitespace(const struct jsonplace *p, struct tokfile_steps *s)
{
	return add_stage(p, s, "\\w+|[^\\w" ONIGRE_SPACE "]+", PRETOK_REMOVED, true);
}

static int pre_whitespace_split(const struct jsonplace *p, struct tokfile_steps *s)
{
	return add_stage(p, s, "[" ONIGRE_SPACE "]", PRETOK_REMOVED, false);
}

static int pre_byte_level(const struct jsonplace *p, struct tokfile_steps *s)
{
	bool prefix, cut;
	int rc = jsonplace_bool_or(p, "add_prefix_space", true, &prefix);

	if (rc == ST_OK) rc = jsonplace_bool_or(p, "use_regex", true, &cut);
	if (rc != ST_OK) return rc;
	if (s->is_byte_level) return jsonplace_fail(p, ST_UNSUPPORTED, "a second ByteLevel is not supported");
	if (prefix && s->n_stages > 0)
		return jsonplace_fail(p, ST_UNSUPPORTED, "add_prefix_space behind another step is not supported; expected false");
	s->is_byte_level = true;
	if (prefix) s->prefix = VOCAB_PREFIX_UNLESS;
	return cut ? add_stage(p, s, pretok_gpt2(), PRETOK_ISOLATED, false) : ST_OK;
}

static int pre_metaspace(const struct jsonplace *p, struct tokfile_steps *s)
{
	static const char *const schemes[] = {"always", "never", "first"};
	static const enum vocab_prefix prefixes[] = {VOCAB_PREFIX_UNLESS, VOCAB_PREFIX_NONE, VOCAB_PREFIX_FIRST};
	struct jsonplace mark = jsonplace_member(p, "replacement"), scheme = jsonplace_member(p, "prepend_scheme");
	struct gguf_str text;
	bool prefix, cut;
	size_t ix = 0;
	int rc = jsonplace_str(&mark, &text);

	if (rc == ST_OK && !gguf_str_is(text, VOCAB_SPACE))
		rc = jsonplace_fail(&mark, ST_UNSUPPORTED, "is \"%s\"; expected U+2581", quote_short(text.s, text.len).text);
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "add_prefix_space", true, &prefix); /* how older files say it */
	if (rc == ST_OK) rc = jsonplace_bool_or(p, "split", true, &cut);
	if (rc != ST_OK) return rc;
	if (!jsonplace_is_null(&scheme))
		rc = read_choice(p, "prepend_scheme", schemes, ARRAY_LEN(schemes), &ix);
	else
		ix = prefix ? 0 : 1;
	if (rc != ST_OK) return rc;
	if (s->n_stages > 0 || s->has_metaspace)
		return jsonplace_fail(p, ST_UNSUPPORTED, "Metaspace behind another step is not supported");
	s->prefix = prefixes[ix];
	if (cut) rc = add_stage(p, s, "[ \\x{2581}]", PRETOK_WITH_AFTER, false);
	s->has_metaspace = true;
	return rc;
}

int tokfile_read_pretokenizer(const struct jsonplace *p, struct tokfile_steps *s)
{
	static const struct step_row rows[] = {
		{"ByteLevel", pre_byte_level},
		{"Split", pre_split},
		{"Digits", pre_digits},
		{"Metaspace", pre_metaspace},
		{"Punctuation", pre_punctuation},
		{"Whitespace", pre_whitespace},
		{"WhitespaceSplit", pre_whitespace_split},
	};

	return jsonplace_is_null(p) ? ST_OK : step_read(p, "pretokenizers", rows, ARRAY_LEN(rows), 0, s);
}

/* ---- post_processor ---- */

static int post_byte_level(const struct jsonplace *p, struct tokfile_steps *s)
{
	(void)p, (void)s; /* only offsets, which nobody asks for */
	return ST_OK;
}

/* [a special token,] the text: what is put in front of a text. */
static int post_template(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace single = jsonplace_member(p, "single");
	bool has_text = false;
	size_t n;
	int rc = jsonplace_array(&single, &n);

	for (size_t i = 0; i < n && rc == ST_OK; i++) {
		struct jsonplace item = jsonplace_item(&single, i), token = jsonplace_member(&item, "SpecialToken"),
				     id = jsonplace_member(&token, "id");

		if (json_object_get(item.value, "Sequence")) {
			if (has_text) return jsonplace_fail(&item, ST_UNSUPPORTED, "the text twice is not supported");
			has_text = true;
			continue;
		}
		if (has_text)
			return jsonplace_fail(&item, ST_UNSUPPORTED,
					    "a token behind the text is not supported; expected one in front of it, or none");
		if (s->bos.len > 0)
			return jsonplace_fail(&item, ST_UNSUPPORTED, "a second token in front of the text is not supported");
		rc = jsonplace_str(&id, &s->bos);
	}
	s->has_template = true;
	return rc;
}

int tokfile_read_postprocessor(const struct jsonplace *p, struct tokfile_steps *s)
{
	static const struct step_row rows[] = {{"ByteLevel", post_byte_level}, {"TemplateProcessing", post_template}};

	return jsonplace_is_null(p) ? ST_OK : step_read(p, "processors", rows, ARRAY_LEN(rows), 0, s);
}

/* ---- decoder ---- */

static int decode_as_usual(const struct jsonplace *p, struct tokfile_steps *s)
{
	(void)p, (void)s; /* ByteLevel, ByteFallback, Fuse: what decoding does anyway */
	return ST_OK;
}

static int decode_replace(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace m = jsonplace_member(p, "content");
	struct gguf_str content, pattern;
	bool is_regex;
	int rc = jsonplace_str(&m, &content);

	if (rc == ST_OK) rc = read_pattern(p, &pattern, &is_regex);
	if (rc != ST_OK || (!is_regex && gguf_str_is(pattern, VOCAB_SPACE) && gguf_str_is(content, " "))) return rc;
	return jsonplace_fail(p, ST_UNSUPPORTED, "is not supported; expected U+2581 to become a space");
}

static int decode_strip(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace m = jsonplace_member(p, "content"), start = jsonplace_member(p, "start"), stop = jsonplace_member(p, "stop");
	struct gguf_str content;
	int rc = jsonplace_str(&m, &content);

	if (rc != ST_OK) return rc;
	if (!gguf_str_is(content, " ") || json_integer_value(start.value) > 1 || json_integer_value(start.value) < 0 ||
	    json_integer_value(stop.value) != 0)
		return jsonplace_fail(p, ST_UNSUPPORTED, "is not supported; expected one space at the start");
	s->strip_first |= json_integer_value(start.value) == 1;
	return ST_OK;
}

static int decode_metaspace(const struct jsonplace *p, struct tokfile_steps *s)
{
	struct jsonplace scheme = jsonplace_member(p, "prepend_scheme");
	bool prefix;
	int rc = jsonplace_bool_or(p, "add_prefix_space", true, &prefix);

	if (json_is_string(scheme.value)) prefix = strcmp(json_string_value(scheme.value), "never") != 0;
	s->strip_first |= prefix;
	return rc;
}

int tokfile_read_decoder(const struct jsonplace *p, struct tokfile_steps *s)
{
	static const struct step_row rows[] = {
		{"ByteLevel", decode_as_usual}, {"ByteFallback", decode_as_usual}, {"Fuse", decode_as_usual},
		{"Replace", decode_replace},    {"Strip", decode_strip},           {"Metaspace", decode_metaspace},
	};

	return jsonplace_is_null(p) ? ST_OK : step_read(p, "decoders", rows, ARRAY_LEN(rows), 0, s);
}
