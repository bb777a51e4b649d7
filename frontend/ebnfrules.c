/* ebnfrules.c - the rules of a grammar as a whole: which may be empty, which never end, which begin with themselves; and their
 * way into our form. The rest of ebnfc.h. */
#include "common/mem.h"
#include "common/quote.h"
#include "frontend/ebnfc_impl.h"

#include <string.h>

static struct ebnfc_rule *ebnfrules_of(const struct regexc *x)
{
	return CONTAINER_OF(x->rule, struct ebnfc_rule, rule);
}

/* Brings x and its parts up to date with what is known of the rules. */
static bool ebnfrules_may_be_empty(struct ebnfc *p, const struct regexc *node)
{
	struct regexc *x = (struct regexc *)node; /* ours: the trees were made by ebnfc.c */
	bool all = true, any = false, part;
	size_t i;

	gramctx_work(p->g, 1);
	for (i = 0; i < x->n_parts; i++) {
		part = ebnfrules_may_be_empty(p, x->parts[i]);
		all = all && part;
		any = any || part;
	}
	switch (x->kind) {
	case REGEXC_CAT: x->may_be_empty = all; break;
	case REGEXC_ALT: x->may_be_empty = any; break;
	case REGEXC_REPEAT: x->may_be_empty = x->min == 0 || any; break;
	case REGEXC_RULE: x->may_be_empty = ebnfrules_of(x)->may_be_empty; break;
	default: break;
	}
	return x->may_be_empty;
}

/* A shortest text exists, as far as is known of the rules. */
static bool ebnfrules_ends(struct ebnfc *p, const struct regexc *x)
{
	size_t i;

	if (!gramctx_work(p->g, 1)) return true;
	switch (x->kind) {
	case REGEXC_SET: return x->set.n > 0;
	case REGEXC_RULE: return ebnfrules_of(x)->ends;
	case REGEXC_REPEAT: return x->min == 0 || ebnfrules_ends(p, x->parts[0]);
	case REGEXC_CAT:
		for (i = 0; i < x->n_parts; i++)
			if (!ebnfrules_ends(p, x->parts[i])) return false;
		return true;
	default:
		for (i = 0; i < x->n_parts; i++)
			if (ebnfrules_ends(p, x->parts[i])) return true;
		return false;
	}
}

/* Walks along what can begin x. */
static void ebnfrules_left(struct ebnfc *p, const struct regexc *x, int depth)
{
	struct ebnfc_rule *r;
	size_t i;

	if (!gramctx_work(p->g, 1)) return;
	if (depth > 50 * GRAMCTX_DEPTH_MAX) {
		gramctx_fail(p->g, ST_LIMIT, "rules that begin with one another in a chain of more than %d", 50 * GRAMCTX_DEPTH_MAX);
		return;
	}
	if (x->kind == REGEXC_RULE) {
		r = ebnfrules_of(x);
		if (r->visit == 1)
			gramctx_fail(p->g, ST_INVALID, "line %u: rule %s begins with itself (left recursion); write it with a repetition",
				     ebnfc_line(p, r->pos), quote_short(r->name, r->name_len).text);
		if (r->visit) return;
		r->visit = 1;
		ebnfrules_left(p, r->rule.body, depth + 1);
		r->visit = 2;
		return;
	}
	for (i = 0; i < x->n_parts; i++) {
		ebnfrules_left(p, x->parts[i], depth + 1);
		if (x->kind == REGEXC_CAT && !x->parts[i]->may_be_empty) break;
	}
}

void ebnfrules_check(struct ebnfc *p)
{
	bool changed = true;
	size_t i;

	/* From the last rule to the first: most grammars go from the whole to its parts. */
	while (changed && gramctx_is_ok(p->g)) {
		changed = false;
		for (i = p->n_rules; i-- > 0 && gramctx_is_ok(p->g);) {
			struct ebnfc_rule *r = p->rules[i];
			bool may_be_empty = ebnfrules_may_be_empty(p, r->rule.body), ends = r->ends || ebnfrules_ends(p, r->rule.body);

			changed = changed || may_be_empty != r->may_be_empty || ends != r->ends;
			r->may_be_empty = may_be_empty;
			r->ends = ends;
		}
	}
	for (i = 0; i < p->n_rules && gramctx_is_ok(p->g); i++) {
		struct ebnfc_rule *r = p->rules[i];

		if (!r->ends)
			gramctx_fail(p->g, ST_INVALID, "line %u: rule %s never ends: each of its texts needs another one of it", ebnfc_line(p, r->pos),
				     quote_short(r->name, r->name_len).text);
		if (r->visit) continue;
		r->visit = 1;
		ebnfrules_left(p, r->rule.body, 0);
		r->visit = 2;
	}
}

void ebnfrules_emit(struct ebnfc *p, struct ebnfc_rule *root, uint32_t body)
{
	struct gramctx *g = p->g;
	bool more = true;
	size_t i;
	uint8_t *done;

	if (!gramctx_is_ok(g)) return;
	done = gramctx_array(g, uint8_t, p->n_rules);
	for (i = 0; i < p->n_rules; i++) p->rules[i]->rule.number = p->rules[i] == root ? body : gramb_rule(g->b);
	for (i = 0; i < p->n_rules && gramctx_is_ok(g); i++) {
		struct regexc_rule *r = &p->rules[i]->rule;

		gramb_final(g->b, regexemit_into(g, r->body, r->number, gramb_start(g->b, r->number)));
	}
	/* Which of them are needed without the empty text shows while emitting, also while emitting these. */
	while (more && gramctx_is_ok(g)) {
		more = false;
		for (i = 0; i < p->n_rules; i++) {
			struct regexc_rule *r = &p->rules[i]->rule;
			const struct regexc *x;

			if (!r->number_not_empty || done[i]) continue;
			done[i] = 1;
			more = true;
			x = regexemit_not_empty(g, r->body);
			if (x) gramb_final(g->b, regexemit_into(g, x, r->number_not_empty, gramb_start(g->b, r->number_not_empty)));
		}
	}
}
