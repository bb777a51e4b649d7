/* gramjson.c - see gramjson.h. */
#include "frontend/gramjson.h"

#include <stdlib.h>
#include <string.h>

#define GRAMJSON_INLINE_MAX 4 /* ranges: a larger set of characters becomes a rule that all its uses share */

struct gramjson_char_rule {
	struct charset set;
	uint32_t rule;
};

/* What a number may be when nothing is said about it. The sizes keep it exact in a 64-bit integer and finite in a double, and
 * keep a model from writing digits forever. */
#define GRAMJSON_INTEGER_TEXT "-?(?:0|[1-9][0-9]{0,17})"
static const char integer_text[] = GRAMJSON_INTEGER_TEXT;
static const char number_text[] = GRAMJSON_INTEGER_TEXT "(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?";

void gramjson_init(struct gramjson *j, struct gramctx *g)
{
	*j = (struct gramjson){.g = g};
}

uint32_t gramjson_text(struct gramjson *j, uint32_t from, const char *text)
{
	return gramb_text(j->g->b, from, text, strlen(text));
}

uint32_t gramjson_put(struct gramjson *j, enum gramjson_shared what, uint32_t rule, uint32_t from)
{
	uint32_t to = gramb_state(j->g->b, rule);

	gramb_call(j->g->b, from, gramjson_rule(j, what), 1, 1, to);
	return to;
}

uint32_t gramjson_space(struct gramjson *j, uint32_t rule, uint32_t from)
{
	uint32_t to;

	if (!j->g->o->any_whitespace) return from;
	to = gramb_state(j->g->b, rule);
	gramb_call(j->g->b, from, gramjson_rule(j, GRAMJSON_SPACE), 0, 1, to);
	return to;
}

/* ---- characters ---- */

static const char short_escapes[] = "\"\\/\b\f\n\r\t", short_letters[] = "\"\\/bfnrt";

/* One hexadecimal digit of lo..hi. */
static void gramjson_hex_digit(struct gramb *b, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
	if (lo <= 9) gramb_byte(b, from, (uint8_t)('0' + lo), (uint8_t)('0' + min_u32(hi, 9)), to);
	if (hi < 10) return;
	lo = max_u32(lo, 10) - 10;
	gramb_byte(b, from, (uint8_t)('a' + lo), (uint8_t)('a' + hi - 10), to);
	gramb_byte(b, from, (uint8_t)('A' + lo), (uint8_t)('A' + hi - 10), to);
}

/* `digits` hexadecimal digits of a number lo..hi. */
static void gramjson_hex(struct gramb *b, uint32_t rule, uint32_t from, uint32_t lo, uint32_t hi, int digits, uint32_t to)
{
	uint32_t shift = 4 * (uint32_t)(digits - 1), low = (1u << shift) - 1, first = lo >> shift, last = hi >> shift, s;

	if (digits == 1) {
		gramjson_hex_digit(b, from, lo, hi, to);
		return;
	}
	if (first < last && lo & low) {
		s = gramb_state(b, rule);
		gramjson_hex_digit(b, from, first, first, s);
		gramjson_hex(b, rule, s, lo & low, low, digits - 1, to);
		lo = ++first << shift;
	}
	if (first < last && (hi & low) != low) {
		s = gramb_state(b, rule);
		gramjson_hex_digit(b, from, last, last, s);
		gramjson_hex(b, rule, s, 0, hi & low, digits - 1, to);
		last--;
		hi = last << shift | low;
	}
	s = gramb_state(b, rule);
	gramjson_hex_digit(b, from, first, last, s);
	gramjson_hex(b, rule, s, lo & low, hi & low, digits - 1, to);
}

/* Surrogate pairs of the code points lo..hi, whose first halves are lead_lo..lead_hi. */
static void gramjson_pair(struct gramb *b, uint32_t rule, uint32_t from, const uint32_t lead[2], uint32_t lo, uint32_t hi, uint32_t to)
{
	uint32_t s = gramb_state(b, rule);

	gramjson_hex(b, rule, from, 0xd800 + lead[0], 0xd800 + lead[1], 4, s);
	gramjson_hex(b, rule, gramb_text(b, s, "\\u", 2), 0xdc00 + lo, 0xdc00 + hi, 4, to);
}

static void gramjson_pairs(struct gramb *b, uint32_t rule, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
	uint32_t first, last;

	lo -= 0x10000;
	hi -= 0x10000;
	first = lo >> 10;
	last = hi >> 10;
	if (first < last && lo & 0x3ff) {
		gramjson_pair(b, rule, from, (uint32_t[]){first, first}, lo & 0x3ff, 0x3ff, to);
		lo = ++first << 10;
	}
	if (first < last && (hi & 0x3ff) != 0x3ff) {
		gramjson_pair(b, rule, from, (uint32_t[]){last, last}, 0, hi & 0x3ff, to);
		hi = --last << 10 | 0x3ff;
	}
	gramjson_pair(b, rule, from, (uint32_t[]){first, last}, lo & 0x3ff, hi & 0x3ff, to);
}

/* The backslash forms of the set's characters. U+0000 is left out: many programs cannot hold it in a string or a key. */
static void gramjson_escapes(struct gramjson *j, uint32_t rule, uint32_t from, struct charset set, uint32_t to)
{
	struct gramb *b = j->g->b;
	uint32_t slash = gramb_state(b, rule), u = gramb_state(b, rule);
	size_t i;

	gramb_byte(b, from, '\\', '\\', slash);
	for (i = 0; i < sizeof(short_escapes) - 1; i++)
		if (charset_has(set, (unsigned char)short_escapes[i]))
			gramb_byte(b, slash, (uint8_t)short_letters[i], (uint8_t)short_letters[i], to);
	gramb_byte(b, slash, 'u', 'u', u);
	for (i = 0; i < set.n && gramctx_work(j->g, 8); i++) {
		if (set.ranges[i].lo < 0x10000 && set.ranges[i].hi > 0)
			gramjson_hex(b, rule, u, max_u32(set.ranges[i].lo, 1), min_u32(set.ranges[i].hi, 0xffff), 4, to);
		if (set.ranges[i].hi >= 0x10000) gramjson_pairs(b, rule, u, max_u32(set.ranges[i].lo, 0x10000), set.ranges[i].hi, to);
	}
}

/* What may not stand in a string as it is. */
static struct charset gramjson_special(struct gramctx *g)
{
	static const struct gram_range special[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};

	return charset_of(g, special, ARRAY_LEN(special));
}

static void gramjson_chars(struct gramjson *j, uint32_t rule, uint32_t from, struct charset set, uint32_t to)
{
	struct charset raw = charset_and(j->g, set, charset_not(j->g, gramjson_special(j->g)));

	gramb_chars(j->g->b, from, raw.ranges, raw.n, to);
	gramjson_escapes(j, rule, from, set, to);
}

/* A set of a few plain ASCII characters is not worth a rule, nor escapes: nobody writes "\u0061". */
static bool gramjson_is_plain(struct charset set)
{
	return set.n <= GRAMJSON_INLINE_MAX && set.n > 0 && set.ranges[0].lo >= 0x20 && set.ranges[set.n - 1].hi < 0x80 &&
	       !charset_has(set, '"') && !charset_has(set, '\\');
}

/* A single character is written in one way. */
static void gramjson_one_char(struct gramjson *j, uint32_t from, uint32_t cp, uint32_t to)
{
	const char *known = cp && cp < 0x80 && cp != '/' ? strchr(short_escapes, (int)cp) : NULL;
	char text[8];

	if (known) {
		gramb_empty(j->g->b, gramb_text(j->g->b, from, (char[]){'\\', short_letters[known - short_escapes]}, 2), to);
	} else if (cp < 0x20) {
		memcpy(text, "\\u0000", 6);
		text[4] = (char)('0' + (cp >> 4));
		text[5] = "0123456789abcdef"[cp & 15];
		gramb_empty(j->g->b, gramb_text(j->g->b, from, text, 6), to);
	} else {
		gramb_chars(j->g->b, from, &(struct gram_range){cp, cp}, 1, to);
	}
}

static void gramjson_set(struct gramjson *j, uint32_t from, struct charset set, uint32_t to)
{
	struct gramb *b = j->g->b;
	size_t i;

	if (set.n == 1 && set.ranges[0].lo == set.ranges[0].hi) {
		gramjson_one_char(j, from, set.ranges[0].lo, to);
		return;
	}
	if (gramjson_is_plain(set)) {
		gramb_chars(b, from, set.ranges, set.n, to);
		return;
	}
	for (i = 0; i < j->n_chars && !charset_equal(j->chars[i].set, set);) i++;
	gramctx_work(j->g, 1 + i);
	if (i == j->n_chars) {
		gramctx_reserve(j->g, j->chars, j->n_chars, j->cap_chars);
		j->chars[j->n_chars++] = (struct gramjson_char_rule){set, gramb_rule(b)};
		{
			uint32_t rule = j->chars[i].rule, end = gramb_state(b, rule);

			gramb_final(b, end);
			gramjson_chars(j, rule, gramb_start(b, rule), set, end);
		}
	}
	gramb_call(b, from, j->chars[i].rule, 1, 1, to);
}

/* ---- automata ---- */

static int gramjson_compare_targets(const void *a, const void *b)
{
	const struct dfa_edge *x = a, *y = b;

	if (x->to != y->to) return x->to < y->to ? -1 : 1;
	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* From states[s] one set of characters to each state that its edges lead to. */
static void gramjson_state(struct gramjson *j, const struct dfa *a, uint32_t s, const uint32_t *states, bool in_string)
{
	uint32_t n = a->first[s + 1] - a->first[s], i, k;
	struct dfa_edge *edges = gramctx_dup(j->g, a->edges + a->first[s], n, sizeof(*edges));
	struct gram_range *ranges = gramctx_array(j->g, struct gram_range, n);

	gramctx_sort(j->g, edges, n, sizeof(*edges), gramjson_compare_targets);
	for (i = 0; i < n && gramctx_work(j->g, 1); i += k) {
		struct charset set;

		for (k = 0; i + k < n && edges[i + k].to == edges[i].to; k++) ranges[k] = (struct gram_range){edges[i + k].lo, edges[i + k].hi};
		set = charset_of(j->g, ranges, k);
		if (in_string) gramjson_set(j, states[s], set, states[edges[i].to]);
		else gramb_chars(j->g->b, states[s], set.ranges, set.n, states[edges[i].to]);
	}
}

static uint32_t gramjson_automaton(struct gramjson *j, const struct dfa *a, bool in_string, uint32_t rule, uint32_t from)
{
	struct gramb *b = j->g->b;
	uint32_t *states = gramctx_array(j->g, uint32_t, a->n), end = gramb_state(b, rule), s;

	for (s = 0; s < a->n; s++) states[s] = gramb_state(b, rule);
	if (a->n) gramb_empty(b, from, states[0]);
	for (s = 0; s < a->n && gramctx_work(j->g, 1); s++) {
		if (a->is_final[s]) gramb_empty(b, states[s], end);
		gramjson_state(j, a, s, states, in_string);
	}
	return end;
}

uint32_t gramjson_plain(struct gramjson *j, const struct dfa *a, uint32_t rule, uint32_t from)
{
	return gramjson_automaton(j, a, false, rule, from);
}

uint32_t gramjson_string(struct gramjson *j, const struct dfa *a, uint32_t rule, uint32_t from)
{
	return gramjson_text(j, gramjson_automaton(j, a, true, rule, gramjson_text(j, from, "\"")), "\"");
}

uint32_t gramjson_string_len(struct gramjson *j, uint32_t min, uint32_t max, uint32_t rule, uint32_t from)
{
	uint32_t to;

	if (min == 0 && max == GRAM_NO_END) return gramjson_put(j, GRAMJSON_STRING, rule, from);
	from = gramjson_text(j, from, "\"");
	to = from;
	if (max) {
		to = gramb_state(j->g->b, rule);
		gramb_call(j->g->b, from, gramjson_rule(j, GRAMJSON_CHAR), min, max, to);
	}
	return gramjson_text(j, to, "\"");
}

/* ---- shared rules ---- */

/* "[" item ("," item)* "]", or none of them. */
static uint32_t gramjson_list(struct gramjson *j, const char *open, const char *close, bool with_key, uint32_t rule, uint32_t from)
{
	struct gramb *b = j->g->b;
	uint32_t empty, item, end, last = gramb_state(b, rule);

	empty = gramjson_space(j, rule, gramjson_text(j, from, open));
	item = gramb_state(b, rule);
	gramb_empty(b, empty, item);
	end = item;
	if (with_key) end = gramjson_put(j, GRAMJSON_COLON, rule, gramjson_put(j, GRAMJSON_STRING, rule, end));
	end = gramjson_put(j, GRAMJSON_VALUE, rule, end);
	gramb_empty(b, gramjson_put(j, GRAMJSON_COMMA, rule, end), item);
	/* A state of its own: behind no item there must be no comma. */
	gramb_empty(b, gramjson_space(j, rule, end), last);
	gramb_empty(b, empty, last);
	return gramjson_text(j, last, close);
}

static uint32_t gramjson_mark(struct gramjson *j, const char *mark, uint32_t rule, uint32_t from)
{
	uint32_t to;

	if (j->g->o->any_whitespace) return gramjson_space(j, rule, gramjson_text(j, gramjson_space(j, rule, from), mark));
	from = gramjson_text(j, from, mark);
	to = gramb_state(j->g->b, rule);
	gramb_byte(j->g->b, from, ' ', ' ', to);
	gramb_empty(j->g->b, from, to);
	return to;
}

static uint32_t gramjson_value(struct gramjson *j, uint32_t rule, uint32_t from)
{
	static const char *const words[] = {"null", "true", "false"};
	uint32_t end = gramb_state(j->g->b, rule);
	int what;
	size_t i;

	for (i = 0; i < ARRAY_LEN(words); i++) gramb_empty(j->g->b, gramjson_text(j, from, words[i]), end);
	for (what = GRAMJSON_STRING; what <= GRAMJSON_OBJECT; what++)
		if (what != GRAMJSON_INTEGER) gramb_call(j->g->b, from, gramjson_rule(j, (enum gramjson_shared)what), 1, 1, end);
	return end;
}

static uint32_t gramjson_free_string(struct gramjson *j, uint32_t rule, uint32_t from)
{
	struct gramb *b = j->g->b;
	uint32_t loop = gramb_state(b, rule);

	gramb_empty(b, gramjson_text(j, from, "\""), loop);
	gramjson_chars(j, rule, loop, charset_not(j->g, (struct charset){NULL, 0}), loop);
	return gramjson_text(j, loop, "\"");
}

static uint32_t gramjson_regex(struct gramjson *j, const char *text, uint32_t rule, uint32_t from)
{
	const struct regexc *x = regexc_parse(j->g, text, strlen(text), false);

	return x ? regexemit_into(j->g, x, rule, from) : from;
}

static uint32_t gramjson_make(struct gramjson *j, enum gramjson_shared what, uint32_t rule, uint32_t from)
{
	uint32_t end;

	switch (what) {
	case GRAMJSON_SPACE: return gramjson_regex(j, " |\n[ \t]{0,20}", rule, from);
	case GRAMJSON_COMMA: return gramjson_mark(j, ",", rule, from);
	case GRAMJSON_COLON: return gramjson_mark(j, ":", rule, from);
	case GRAMJSON_CHAR:
		end = gramb_state(j->g->b, rule);
		gramjson_chars(j, rule, from, charset_not(j->g, (struct charset){NULL, 0}), end);
		return end;
	case GRAMJSON_STRING: return gramjson_free_string(j, rule, from);
	case GRAMJSON_NUMBER: return gramjson_regex(j, number_text, rule, from);
	case GRAMJSON_INTEGER: return gramjson_regex(j, integer_text, rule, from);
	case GRAMJSON_ARRAY: return gramjson_list(j, "[", "]", false, rule, from);
	case GRAMJSON_OBJECT: return gramjson_list(j, "{", "}", true, rule, from);
	default: return gramjson_value(j, rule, from);
	}
}

uint32_t gramjson_rule(struct gramjson *j, enum gramjson_shared what)
{
	uint32_t rule;

	if (j->shared[what]) return j->shared[what] - 1;
	rule = gramb_rule(j->g->b);
	j->shared[what] = rule + 1; /* first: values hold values */
	gramb_final(j->g->b, gramjson_make(j, what, rule, gramb_start(j->g->b, rule)));
	return rule;
}
