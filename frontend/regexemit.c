/* regexemit.c - an expression's tree to states and edges of a grammar; the rest of regexc.h.
 *
 * Small repetitions are written out, large ones are calls of a rule with counts. A rule that is called several times must read at
 * least one byte, so what may be empty is first turned into "as often, but never empty": (a?){2,5} matches what (a){0,5} does. */
#include "frontend/regexc.h"

#include <string.h>

#define REGEXEMIT_WRITE_OUT_MAX 20 /* copies of one set of characters: a walk of states is faster than one of counts */

struct regexemit {
	struct gramctx *g;
	uint32_t rule;
};

static struct regexc *regexemit_node(struct gramctx *g, enum regexc_kind kind, size_t n_parts)
{
	struct regexc *x = gramctx_array(g, struct regexc, 1);

	x->kind = kind;
	x->parts = gramctx_array(g, const struct regexc *, n_parts);
	x->cap_parts = n_parts;
	return x;
}

const struct regexc *regexemit_not_empty(struct gramctx *g, const struct regexc *x)
{
	const struct regexc *part;
	struct regexc *alt, *cat;
	size_t i;

	if (!x->may_be_empty) return x;
	if (!gramctx_work(g, 1 + x->n_parts)) return NULL;
	switch (x->kind) {
	case REGEXC_REPEAT:
		part = x->max ? regexemit_not_empty(g, x->parts[0]) : NULL;
		/* A part that may be empty fills up a count that is too small. */
		return part ? regexc_repeat(g, part, x->parts[0]->may_be_empty ? 1 : max_u32(x->min, 1), x->max) : NULL;
	case REGEXC_ALT:
		alt = regexemit_node(g, REGEXC_ALT, x->n_parts);
		for (i = 0; i < x->n_parts; i++)
			if ((part = regexemit_not_empty(g, x->parts[i]))) alt->parts[alt->n_parts++] = part;
		return alt->n_parts ? alt : NULL;
	case REGEXC_CAT:
		/* The first part that is not empty, and what follows it. */
		alt = regexemit_node(g, REGEXC_ALT, x->n_parts);
		for (i = 0; i < x->n_parts && gramctx_work(g, x->n_parts); i++) {
			part = regexemit_not_empty(g, x->parts[i]);
			if (!part) continue;
			cat = regexemit_node(g, REGEXC_CAT, x->n_parts - i);
			cat->parts[0] = part;
			memcpy(cat->parts + 1, x->parts + i + 1, (x->n_parts - i - 1) * sizeof(*x->parts));
			cat->n_parts = x->n_parts - i;
			alt->parts[alt->n_parts++] = cat;
		}
		return alt->n_parts ? alt : NULL;
	case REGEXC_RULE:
		alt = gramctx_dup(g, x, 1, sizeof(*x));
		alt->not_empty = true;
		alt->may_be_empty = false;
		return alt;
	default: return NULL;
	}
}

static uint32_t regexemit_rule_number(struct gramctx *g, const struct regexc *x)
{
	if (!x->not_empty) return x->rule->number;
	if (!x->rule->number_not_empty) x->rule->number_not_empty = gramb_rule(g->b);
	return x->rule->number_not_empty;
}

static uint32_t regexemit_any(struct regexemit *e, const struct regexc *x, uint32_t from);

static uint32_t regexemit_repeat(struct regexemit *e, const struct regexc *x, uint32_t from)
{
	const struct regexc *part = x->max ? regexemit_not_empty(e->g, x->parts[0]) : NULL;
	uint32_t min = x->parts[0]->may_be_empty ? 0 : x->min, i, loop, to, rule;
	struct gramb *b = e->g->b;

	if (!part) return from;
	if (x->max == GRAM_NO_END && min <= 1) {
		loop = gramb_state(b, e->rule);
		gramb_empty(b, from, loop);
		to = regexemit_any(e, part, loop);
		gramb_empty(b, to, loop);
		return min ? to : loop;
	}
	to = gramb_state(b, e->rule);
	if (x->max == 1 || (part->kind == REGEXC_SET && x->max <= REGEXEMIT_WRITE_OUT_MAX)) {
		for (i = 0; i < x->max; i++) {
			if (i >= min) gramb_empty(b, from, to);
			from = regexemit_any(e, part, from);
		}
		gramb_empty(b, from, to);
		return to;
	}
	if (part->kind == REGEXC_RULE) {
		rule = regexemit_rule_number(e->g, part);
	} else {
		struct regexemit inner = {e->g, gramb_rule(b)};

		rule = inner.rule;
		gramb_final(b, regexemit_any(&inner, part, gramb_start(b, rule)));
	}
	gramb_call(b, from, rule, min, x->max, to);
	return to;
}

static uint32_t regexemit_any(struct regexemit *e, const struct regexc *x, uint32_t from)
{
	struct gramb *b = e->g->b;
	uint32_t to;
	size_t i;

	if (!gramctx_work(e->g, 1 + x->n_parts + x->set.n)) return from;
	switch (x->kind) {
	case REGEXC_SET:
		to = gramb_state(b, e->rule);
		gramb_chars(b, from, x->set.ranges, x->set.n, to);
		return to;
	case REGEXC_CAT:
		for (i = 0; i < x->n_parts; i++) from = regexemit_any(e, x->parts[i], from);
		return from;
	case REGEXC_ALT:
		to = gramb_state(b, e->rule);
		for (i = 0; i < x->n_parts; i++) gramb_empty(b, regexemit_any(e, x->parts[i], from), to);
		return to;
	case REGEXC_REPEAT: return regexemit_repeat(e, x, from);
	case REGEXC_RULE:
		to = gramb_state(b, e->rule);
		gramb_call(b, from, regexemit_rule_number(e->g, x), 1, 1, to);
		return to;
	default:
		gramctx_fail(e->g, ST_UNSUPPORTED, "at byte %zu of the expression: %s", x->pos,
			     x->kind == REGEXC_BEGIN ? "\"^\" is supported at the beginning only" : "\"$\" is supported at the end only");
		return from;
	}
}

/* x without the anchors that say nothing because the whole text has to match: those at its beginning (or its end). */
static const struct regexc *regexemit_trim(struct gramctx *g, const struct regexc *x, bool at_end)
{
	struct regexc *copy;
	size_t i, k;

	if (x->kind == (at_end ? REGEXC_END : REGEXC_BEGIN)) return regexemit_node(g, REGEXC_CAT, 0);
	if ((x->kind != REGEXC_CAT && x->kind != REGEXC_ALT) || !x->n_parts || !gramctx_work(g, x->n_parts)) return x;
	copy = gramctx_dup(g, x, 1, sizeof(*x));
	copy->parts = gramctx_dup(g, x->parts, x->n_parts, sizeof(*x->parts));
	for (i = 0; i < x->n_parts; i++) {
		k = x->kind == REGEXC_CAT && at_end ? x->n_parts - 1 - i : i;
		copy->parts[k] = regexemit_trim(g, x->parts[k], at_end);
		/* In a row: on to the next part only behind one that was nothing but an anchor. */
		if (x->kind == REGEXC_CAT && !(copy->parts[k]->kind == REGEXC_CAT && copy->parts[k]->n_parts == 0)) break;
	}
	return copy;
}

uint32_t regexemit_into(struct gramctx *g, const struct regexc *x, uint32_t rule, uint32_t from)
{
	struct regexemit e = {g, rule};

	return regexemit_any(&e, regexemit_trim(g, regexemit_trim(g, x, false), true), from);
}
