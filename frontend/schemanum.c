/* schemanum.c - see schemanum.h. */
#include "frontend/schemanum.h"

#include "common/jsonbig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMANUM_DIGITS_MAX 400    /* a double has at most 309 before its point, 324 behind it */
#define SCHEMANUM_WHOLE_DIGITS 18   /* fit into 64 bits */
#define SCHEMANUM_REAL_DIGITS 15    /* two such numbers are never the same double */
#define SCHEMANUM_DIVISOR_MAX 3000  /* states */

/* ---- reading ---- */

/* From what printf or a JSON text has: [-]digits[.digits][e[-+]digits]. */
static bool schemanum_parse(struct gramctx *g, const char *text, struct schemanum *out)
{
	char *digits = gramctx_alloc(g, SCHEMANUM_DIGITS_MAX + strlen(text) + 1, 1);
	size_t n = 0, from = 0;
	long point = -1, exponent = 0;

	out->is_negative = text[0] == '-';
	if (text[0] == '-') text++;
	for (; (*text >= '0' && *text <= '9') || *text == '.'; text++) {
		if (*text == '.') point = (long)n;
		else digits[n++] = *text;
	}
	if (point < 0) point = (long)n;
	if (*text == 'e' || *text == 'E') exponent = strtol(text + 1, NULL, 10);
	point += exponent;
	while (n && digits[n - 1] == '0') n--;
	while (from < n && digits[from] == '0') from++;
	point -= (long)from;
	n -= from;
	if (n == 0) point = 0;
	if (point > SCHEMANUM_DIGITS_MAX || point < -SCHEMANUM_DIGITS_MAX || n > SCHEMANUM_DIGITS_MAX) return false;
	memmove(digits, digits + from, n);
	if (point < 0) { /* 0.00123: zeros go to the front */
		memmove(digits - point, digits, n);
		memset(digits, '0', (size_t)-point);
		n += (size_t)-point;
		point = 0;
	}
	while ((long)n < point) digits[n++] = '0';
	digits[n] = 0;
	out->digits = digits;
	out->n = n;
	out->n_int = (size_t)point;
	if (n == 0) out->is_negative = false;
	return true;
}

bool schemanum_read(struct gramctx *g, const json_t *value, struct schemanum *out)
{
	char text[64];
	int precision;

	*out = (struct schemanum){0};
	if (json_is_integer(value)) {
		snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
		return schemanum_parse(g, text, out);
	}
	if (json_is_real(value)) {
		double v = json_real_value(value);

		/* The shortest text that means the same double: what its author wrote. */
		for (precision = 15; precision < 17; precision++) {
			snprintf(text, sizeof(text), "%.*g", precision, v);
			if (strtod(text, NULL) == v) break;
		}
		if (precision == 17) snprintf(text, sizeof(text), "%.17g", v);
		out->is_large_real = fabs(v) >= 9007199254740992.0;
		return schemanum_parse(g, text, out);
	}
	if (json_is_string(value) && json_string_length(value) > JSONBIG_MARK_LEN &&
	    memcmp(json_string_value(value), JSONBIG_MARK, JSONBIG_MARK_LEN) == 0)
		return schemanum_parse(g, json_string_value(value) + JSONBIG_MARK_LEN, out);
	return false;
}

/* ---- making ---- */

/* Texts of `positive`, and those of `negative` with a minus before them. Neither comes back to its start. */
static const struct dfa *schemanum_signed(struct gramctx *g, const struct dfa *positive, const struct dfa *negative)
{
	struct dfabuild *b = dfabuild_new(g);
	uint32_t s, i, base;

	for (s = 0; s < max_u32(positive->n, 1); s++) dfabuild_state(b, s < positive->n && positive->is_final[s]);
	for (s = 0; s < negative->n; s++) dfabuild_state(b, negative->is_final[s]);
	for (s = 0; s < positive->n; s++)
		for (i = positive->first[s]; i < positive->first[s + 1]; i++)
			dfabuild_edge(b, s, positive->edges[i].lo, positive->edges[i].hi, positive->edges[i].to);
	base = max_u32(positive->n, 1);
	for (s = 0; s < negative->n; s++)
		for (i = negative->first[s]; i < negative->first[s + 1]; i++)
			dfabuild_edge(b, base + s, negative->edges[i].lo, negative->edges[i].hi, base + negative->edges[i].to);
	if (negative->n) dfabuild_edge(b, 0, '-', '-', base);
	return dfabuild_finish(b);
}

static const struct dfa *schemanum_pattern(struct gramctx *g, const char *text)
{
	const struct dfa *a = dfaregex_pattern(g, text, strlen(text), false, false);

	return a ? a : dfa_none(g);
}

#define SCHEMANUM_NOT_ZERO "(?:[1-9][0-9]*(?:\\.[0-9]+)?|0\\.[0-9]*[1-9][0-9]*)"

const struct dfa *schemanum_all(struct gramctx *g)
{
	return schemanum_pattern(g, "0(?:\\.0+)?|-?" SCHEMANUM_NOT_ZERO);
}

const struct dfa *schemanum_whole(struct gramctx *g, bool strictly)
{
	return schemanum_pattern(g, strictly ? "0|-?[1-9][0-9]*" : "(?:0|-?[1-9][0-9]*)(?:\\.0+)?");
}

/* ---- comparing ---- */

enum schemanum_order { SCHEMANUM_LESS, SCHEMANUM_EQUAL, SCHEMANUM_MORE, SCHEMANUM_N_ORDERS };

struct schemanum_comparer {
	struct dfabuild *b;
	const struct schemanum *bound;
	unsigned want;                                /* bits of orders */
	uint32_t fraction[SCHEMANUM_N_ORDERS];        /* in a fraction that changes nothing any more, a digit has been read */
	uint32_t fraction_begins[SCHEMANUM_N_ORDERS]; /* behind the point */
};

static bool schemanum_wants(const struct schemanum_comparer *c, enum schemanum_order o)
{
	return c->want >> o & 1;
}

/* Edges for the ten digits by how they compare with `than`. */
static void schemanum_digits(struct schemanum_comparer *c, uint32_t from, char than, char first, const uint32_t to[SCHEMANUM_N_ORDERS])
{
	if (than > first) dfabuild_edge(c->b, from, (uint32_t)first, (uint32_t)than - 1, to[SCHEMANUM_LESS]);
	if (than >= first) dfabuild_edge(c->b, from, (uint32_t)than, (uint32_t)than, to[SCHEMANUM_EQUAL]);
	if (than < '9') dfabuild_edge(c->b, from, max_u32((uint32_t)than + 1, (uint32_t)first), '9', to[SCHEMANUM_MORE]);
}

/* The state behind the point when the whole parts are equal. */
static uint32_t schemanum_compare_fraction(struct schemanum_comparer *c)
{
	const struct schemanum *x = c->bound;
	uint32_t begin = dfabuild_state(c->b, false), s = begin, equal;
	size_t i;

	for (i = x->n_int; i < x->n; i++) {
		/* Equal up to here and with digits to come, which are not all zeros: a text that ends is less. */
		bool is_last = i + 1 == x->n;

		equal = dfabuild_state(c->b, schemanum_wants(c, is_last ? SCHEMANUM_EQUAL : SCHEMANUM_LESS));
		schemanum_digits(c, s, x->digits[i], '0', (uint32_t[]){c->fraction[SCHEMANUM_LESS], equal, c->fraction[SCHEMANUM_MORE]});
		s = equal;
	}
	if (s == begin) {
		equal = dfabuild_state(c->b, schemanum_wants(c, SCHEMANUM_EQUAL));
		schemanum_digits(c, s, '0', '0', (uint32_t[]){0, equal, c->fraction[SCHEMANUM_MORE]});
		s = equal;
	}
	schemanum_digits(c, s, '0', '0', (uint32_t[]){0, s, c->fraction[SCHEMANUM_MORE]});
	return begin;
}

/* A state behind some digits of the whole part, were it to end there with this order. */
static uint32_t schemanum_whole_state(struct schemanum_comparer *c, enum schemanum_order o, uint32_t equal_fraction)
{
	bool is_final = o == SCHEMANUM_EQUAL ? schemanum_wants(c, c->bound->n > c->bound->n_int ? SCHEMANUM_LESS : SCHEMANUM_EQUAL)
					     : schemanum_wants(c, o);
	uint32_t s = dfabuild_state(c->b, is_final);

	dfabuild_edge(c->b, s, '.', '.', o == SCHEMANUM_EQUAL ? equal_fraction : c->fraction_begins[o]);
	return s;
}

/* Texts without a sign whose order with the bound's digits is one of those wanted. */
static const struct dfa *schemanum_compare(struct gramctx *g, const struct schemanum *bound, unsigned want)
{
	struct schemanum_comparer c = {.b = dfabuild_new(g), .bound = bound, .want = want};
	uint32_t start = dfabuild_state(c.b, false), equal_fraction, longer, s[SCHEMANUM_N_ORDERS], next[SCHEMANUM_N_ORDERS];
	size_t i, o, p;

	for (o = 0; o < SCHEMANUM_N_ORDERS; o++) {
		c.fraction[o] = dfabuild_state(c.b, schemanum_wants(&c, (enum schemanum_order)o));
		c.fraction_begins[o] = dfabuild_state(c.b, false);
		dfabuild_edge(c.b, c.fraction[o], '0', '9', c.fraction[o]);
		dfabuild_edge(c.b, c.fraction_begins[o], '0', '9', c.fraction[o]);
	}
	equal_fraction = schemanum_compare_fraction(&c);
	longer = schemanum_whole_state(&c, SCHEMANUM_MORE, 0);
	dfabuild_edge(c.b, longer, '0', '9', longer);
	dfabuild_edge(c.b, start, '0', '0',
		      schemanum_whole_state(&c, bound->n_int ? SCHEMANUM_LESS : SCHEMANUM_EQUAL, equal_fraction));
	if (!bound->n_int) dfabuild_edge(c.b, start, '1', '9', longer);
	/* s[o]: i digits, the first ones in order o with the bound's. Fewer digits are less whatever they are. */
	for (i = 0; i < bound->n_int && gramctx_is_ok(g); i++) {
		bool is_last = i + 1 == bound->n_int;

		for (o = 0; o < SCHEMANUM_N_ORDERS; o++)
			next[o] = schemanum_whole_state(&c, is_last ? (enum schemanum_order)o : SCHEMANUM_LESS, equal_fraction);
		if (i == 0) {
			schemanum_digits(&c, start, bound->digits[0], '1', next);
		} else {
			for (o = 0; o < SCHEMANUM_N_ORDERS; o++) {
				if (o == SCHEMANUM_EQUAL) schemanum_digits(&c, s[o], bound->digits[i], '0', next);
				else dfabuild_edge(c.b, s[o], '0', '9', next[o]);
			}
		}
		memcpy(s, next, sizeof(s));
	}
	for (p = 0; bound->n_int && p < SCHEMANUM_N_ORDERS; p++) dfabuild_edge(c.b, s[p], '0', '9', longer);
	return dfabuild_finish(c.b);
}

static const struct dfa *schemanum_not_zero(struct gramctx *g, const struct dfa *a)
{
	return dfa_and(g, a, schemanum_pattern(g, SCHEMANUM_NOT_ZERO));
}

/* Numbers at least (at most) the bound: with its sign its digits' order means the same or the opposite. */
static const struct dfa *schemanum_bounded(struct gramctx *g, const struct schemanum *bound, bool exclusive, bool at_least)
{
	unsigned equal = exclusive ? 0 : 1u << SCHEMANUM_EQUAL, more = 1u << SCHEMANUM_MORE | equal, less = 1u << SCHEMANUM_LESS | equal;
	const struct dfa *all = schemanum_compare(g, &(struct schemanum){.digits = ""}, 7u), *none = dfa_none(g);

	if (bound->is_negative) {
		const struct dfa *negative = schemanum_not_zero(g, schemanum_compare(g, bound, at_least ? less : more));

		return schemanum_signed(g, at_least ? all : none, negative);
	}
	return schemanum_signed(g, schemanum_compare(g, bound, at_least ? more : less), at_least ? none : schemanum_not_zero(g, all));
}

const struct dfa *schemanum_at_least(struct gramctx *g, const struct schemanum *bound, bool exclusive)
{
	return schemanum_bounded(g, bound, exclusive, true);
}

const struct dfa *schemanum_at_most(struct gramctx *g, const struct schemanum *bound, bool exclusive)
{
	return schemanum_bounded(g, bound, exclusive, false);
}

/* ---- single numbers ---- */

static void schemanum_put_text(struct strbuf *out, const struct schemanum *x)
{
	if (x->is_negative) strbuf_putc(out, '-');
	if (x->n_int) strbuf_append(out, x->digits, x->n_int);
	else strbuf_putc(out, '0');
	if (x->n > x->n_int) {
		strbuf_putc(out, '.');
		strbuf_append(out, x->digits + x->n_int, x->n - x->n_int);
	}
}

/* As an expression with all their texts, which is also what sorts them. */
const struct dfa *schemanum_one_of(struct gramctx *g, const struct schemanum *numbers, size_t n)
{
	struct strbuf text;
	const struct dfa *a;
	size_t i;

	strbuf_init(&text, 200 * KIB);
	for (i = 0; i < n; i++) {
		if (i) strbuf_putc(&text, '|');
		schemanum_put_text(&text, &numbers[i]);
		strbuf_puts(&text, numbers[i].is_large_real ? ".0+" : numbers[i].n > numbers[i].n_int ? "0*" : "(?:.0+)?");
	}
	for (i = 0; i < text.len; i++) /* points are points */
		if (text.data[i] == '.') text.data[i] = '\001';
	if (text.overflow) gramctx_fail(g, ST_LIMIT, "too large: the numbers of an enumeration take more than %zu bytes", text.len_max);
	if (!gramctx_is_ok(g) || !n) {
		a = dfa_none(g);
	} else {
		struct strbuf pattern;

		strbuf_init(&pattern, 800 * KIB);
		for (i = 0; i < text.len; i++) {
			if (text.data[i] == '\001') strbuf_puts(&pattern, "\\.");
			else strbuf_putc(&pattern, text.data[i]);
		}
		a = dfaregex_pattern(g, pattern.data, pattern.len, false, false);
		strbuf_release(&pattern);
	}
	strbuf_release(&text);
	return a ? a : dfa_none(g);
}

/* ---- multiples ---- */

/* The divisor is a * 10^tens / 10^places, in lowest terms of ten. */
struct schemanum_divisor {
	uint32_t a, tens, places;
};

static bool schemanum_divisor_of(const struct schemanum *x, struct schemanum_divisor *out)
{
	uint64_t a = 0, odd;
	size_t i, n = x->n;

	out->tens = 0;
	out->places = (uint32_t)(x->n - x->n_int);
	while (!out->places && n && x->digits[n - 1] == '0') n--, out->tens++;
	for (i = 0; i < n; i++) {
		a = a * 10 + (uint64_t)(x->digits[i] - '0');
		if (a > SCHEMANUM_DIVISOR_MAX) return false;
	}
	if (a == 0) return false;
	/* With places: a binary fraction only when a / 10^places has no five below, that is when five divides a as often. */
	for (i = 0, odd = a; i < out->places; i++) {
		if (odd % 5) return false;
		odd /= 5;
	}
	out->a = (uint32_t)a;
	return (uint64_t)a * (out->tens + out->places + 1) <= SCHEMANUM_DIVISOR_MAX;
}

static uint32_t schemanum_times_ten(const struct schemanum_divisor *d, uint32_t r, uint32_t tens)
{
	uint64_t v = r;

	while (tens-- > 0) v = v * 10 % d->a;
	return (uint32_t)v;
}

/* Behind the whole part: state (r, j) after j places; what comes behind the last place is zeros. */
static void schemanum_places(struct dfabuild *b, const struct schemanum_divisor *d, uint32_t first)
{
	uint32_t r, j, digit;

	for (j = 0; j <= d->places; j++) {
		for (r = 0; r < d->a; r++) {
			uint32_t s = first + j * d->a + r;

			for (digit = 0; digit < 10 && (j < d->places || digit == 0); digit++) {
				uint32_t to = j < d->places ? first + (j + 1) * d->a + (r * 10 + digit) % d->a : s;

				dfabuild_edge(b, s, '0' + digit, '0' + digit, to);
			}
			if (j > 0 && schemanum_times_ten(d, r, d->places - j) == 0) dfabuild_final(b, s);
		}
	}
}

/* Without places nothing but zeros may follow the point, and at least one. */
static uint32_t schemanum_zeros(struct dfabuild *b)
{
	uint32_t begin = dfabuild_state(b, false), zeros = dfabuild_state(b, true);

	dfabuild_edge(b, begin, '0', '0', zeros);
	dfabuild_edge(b, zeros, '0', '0', zeros);
	return begin;
}

const struct dfa *schemanum_multiples(struct gramctx *g, const struct schemanum *divisor)
{
	struct dfabuild *b = dfabuild_new(g);
	struct schemanum_divisor d;
	const struct dfa *a;
	uint32_t start, first, places = 0, zeros, r, c, digit, s;

	if (!schemanum_divisor_of(divisor, &d)) return NULL;
	start = dfabuild_state(b, false);
	zeros = schemanum_zeros(b);
	/* State (r, c): the number so far is D * 10^c with D = r modulo a, and c zeros at its end, at most `tens`. */
	first = zeros + 2;
	for (s = 0; s < d.a * (d.tens + 1); s++) dfabuild_state(b, false);
	if (d.places) {
		places = first + d.a * (d.tens + 1);
		for (s = 0; s < d.a * (d.places + 1); s++) dfabuild_state(b, false);
		schemanum_places(b, &d, places);
	}
	for (c = 0; c <= d.tens && gramctx_is_ok(g); c++) {
		for (r = 0; r < d.a; r++) {
			bool divides = c == d.tens && schemanum_times_ten(&d, r, d.places) == 0;

			s = first + c * d.a + r;
			if (divides) dfabuild_final(b, s);
			if (d.places) dfabuild_edge(b, s, '.', '.', places + r);
			else if (divides) dfabuild_edge(b, s, '.', '.', zeros);
			dfabuild_edge(b, s, '0', '0', first + (c < d.tens ? (c + 1) * d.a + r : c * d.a + r * 10 % d.a));
			for (digit = 1; digit < 10; digit++)
				dfabuild_edge(b, s, '0' + digit, '0' + digit, first + (schemanum_times_ten(&d, r, c + 1) + digit) % d.a);
		}
	}
	/* Zero is a multiple; nothing follows its digit but a fraction. */
	s = dfabuild_state(b, true);
	dfabuild_edge(b, start, '0', '0', s);
	dfabuild_edge(b, s, '.', '.', d.places ? places : zeros);
	for (digit = 1; digit < 10; digit++) dfabuild_edge(b, start, '0' + digit, '0' + digit, first + digit % d.a);
	a = dfabuild_finish(b);
	return schemanum_signed(g, a, schemanum_not_zero(g, a));
}

/* ---- writing ---- */

static bool schemanum_is_finite(struct gramctx *g, const struct dfa *a)
{
	uint32_t shortest, longest;

	if (!a->n) return true;
	dfa_span(g, a, &shortest, &longest);
	return longest != GRAM_NO_END;
}

const struct dfa *schemanum_writable(struct gramctx *g, const struct dfa *a)
{
	const struct dfa *whole = dfa_and(g, a, schemanum_pattern(g, "-?[0-9]+")), *shortest = whole;
	bool is_whole = dfa_is_empty(dfa_minus(g, a, schemanum_whole(g, false)));
	uint32_t digits = SCHEMANUM_WHOLE_DIGITS;
	char limits[160];

	if (!is_whole) shortest = dfa_and(g, a, schemanum_pattern(g, "-?[0-9]+(?:\\.[0-9]*[1-9])?"));
	if (schemanum_is_finite(g, shortest)) return dfa_is_empty(shortest) ? a : shortest;
	if (is_whole) {
		/* A divisor's automaton has a state for each remainder, and with a limit each of them once for each digit. */
		if (a->n > 1500) return whole;
		if (a->n > 300) digits = 9;
		snprintf(limits, sizeof(limits), "-?[0-9]{1,%u}", digits);
		return dfa_and(g, whole, schemanum_pattern(g, limits));
	}
	{
		struct dfabuild *b = dfabuild_new(g);
		uint32_t minus = dfabuild_state(b, false), start, ints[SCHEMANUM_WHOLE_DIGITS + 1], left[SCHEMANUM_REAL_DIGITS + 1], i;

		start = dfabuild_state(b, false);
		dfabuild_edge(b, minus, '-', '-', start);
		for (i = 1; i <= SCHEMANUM_WHOLE_DIGITS; i++) ints[i] = dfabuild_state(b, true);
		for (i = 0; i < SCHEMANUM_REAL_DIGITS; i++) left[i] = dfabuild_state(b, true);
		dfabuild_edge(b, minus, '0', '9', ints[1]);
		dfabuild_edge(b, start, '0', '9', ints[1]);
		for (i = 1; i < SCHEMANUM_WHOLE_DIGITS; i++) dfabuild_edge(b, ints[i], '0', '9', ints[i + 1]);
		for (i = 1; i < SCHEMANUM_REAL_DIGITS; i++) dfabuild_edge(b, left[i], '0', '9', left[i - 1]);
		for (i = 1; i < SCHEMANUM_REAL_DIGITS; i++) {
			uint32_t point = dfabuild_state(b, false);

			dfabuild_edge(b, ints[i], '.', '.', point);
			dfabuild_edge(b, point, '0', '9', left[SCHEMANUM_REAL_DIGITS - i - 1]);
		}
		return dfa_and(g, a, dfabuild_finish(b));
	}
}
