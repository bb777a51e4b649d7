/* schemaputarr.c - arrays as grammar: see schemac_impl.h.
 *
 * Without "contains" and "uniqueItems" it is a row of items and a counted repetition of the rest. With "contains" a state knows how many
 * items there are and how many of them are such as are counted. With "uniqueItems" the values are few and written out, and a
 * state knows which of them have been. */
#include "frontend/schemac_impl.h"

#include <string.h>

#define SCHEMAPUTARR_CONTAINS_MAX 3
#define SCHEMAPUTARR_STATES_MAX 4096u /* with "contains" */
#define SCHEMAPUTARR_SETS_MAX 6       /* values in any order; more of them come in the schema's order */
#define SCHEMAPUTARR_VALUES_MAX 256   /* for "uniqueItems" */

struct schemaputarr {
	struct schemac *c;
	const struct schemaarray *a;
	uint32_t rule;
	uint32_t n_prefix; /* behind it items are alike */
	uint32_t min, max;
	uint32_t end[2]; /* without an item, with some */
};

static struct schemanode *schemaputarr_item(struct schemaputarr *p, uint32_t i)
{
	struct schemanode *n = p->c->any;
	uint32_t k;

	for (k = 0; k < p->a->n_layers; k++) {
		const struct schemaitems *layer = p->a->layers[k];

		n = schemasum_both(p->c, n, i < layer->n_prefix ? layer->prefix[i] : layer->rest);
	}
	return n;
}

static uint32_t schemaputarr_comma(struct schemaputarr *p, uint32_t from, bool is_first)
{
	return is_first ? from : gramjson_put(&p->c->json, GRAMJSON_COMMA, p->rule, from);
}

/* ---- plain ---- */

/* A rule with a comma and an item of the rest. */
static uint32_t schemaputarr_more(struct schemaputarr *p, struct schemanode *rest)
{
	struct gramb *b = p->c->g->b;
	uint32_t rule = gramb_rule(b);

	gramb_final(b, schemaput_node(p->c, rest, rule, gramjson_put(&p->c->json, GRAMJSON_COMMA, rule, gramb_start(b, rule))));
	return rule;
}

static void schemaputarr_plain(struct schemaputarr *p, uint32_t at)
{
	struct gramb *b = p->c->g->b;
	uint32_t i, first = max_u32(p->n_prefix, 1), least; /* items that are written one by one */

	for (i = 0; gramctx_work(p->c->g, 1 + p->a->n_layers); i++) {
		if (i >= p->min) gramb_empty(b, at, p->end[i > 0]);
		if (i == first || i == p->max) break;
		at = schemaput_node(p->c, schemaputarr_item(p, i), p->rule, schemaputarr_comma(p, at, i == 0));
	}
	if (p->max <= first) return;
	least = p->min > first ? p->min - first : 1;
	gramb_call(b, at, schemaputarr_more(p, schemaputarr_item(p, first)), least, p->max == GRAM_NO_END ? GRAM_NO_END : p->max - first, p->end[1]);
}

/* ---- contains ---- */

struct schemaputarr_grid {
	uint32_t n_items;                            /* columns: 0 to n_items - 1 items, the last one perhaps more */
	uint32_t n_counts[SCHEMAPUTARR_CONTAINS_MAX]; /* 0 to n - 1 of this kind, likewise */
	uint32_t n_cells;
	bool may_be_more;                            /* the last column is for more */
	uint32_t *states;                            /* (n_items * n_cells) */
};

/* The next count of a kind, or n when there may not be one more. */
static uint32_t schemaputarr_next_count(const struct schemacontains *kind, uint32_t count, uint32_t n)
{
	if (count + 1 < n) return count + 1;
	return kind->max == GRAM_NO_END ? n - 1 : n;
}

/* From a cell by an item that is of the kinds in the mask: the cell where that leads, or n_cells. *node: what the item must meet. */
static uint32_t schemaputarr_by(struct schemaputarr *p, const struct schemaputarr_grid *grid, uint32_t cell, uint32_t mask, struct schemanode **node)
{
	uint32_t to = 0, size = 1, k, count;

	for (k = 0; k < p->a->n_contains; k++) {
		const struct schemacontains *kind = p->a->contains[k];

		count = cell % grid->n_counts[k];
		cell /= grid->n_counts[k];
		if (mask >> k & 1) {
			*node = schemasum_both(p->c, *node, kind->node);
			count = schemaputarr_next_count(kind, count, grid->n_counts[k]);
			if (count == grid->n_counts[k]) return grid->n_cells;
		} else if (kind->max != GRAM_NO_END) {
			const struct schemademand *d = kind->node->demands;

			/* One that is not counted must not be of the kind. */
			if (kind->node->n_demands != 1) return grid->n_cells;
			*node = schemasum_both(p->c, *node, schemasum_node_of(p->c, d->schema, !d->negated));
		}
		to += count * size;
		size *= grid->n_counts[k];
	}
	return to;
}

static bool schemaputarr_is_enough(const struct schemaputarr *p, const struct schemaputarr_grid *grid, uint32_t items, uint32_t cell)
{
	uint32_t k;

	for (k = 0; k < p->a->n_contains; k++) {
		if (cell % grid->n_counts[k] < p->a->contains[k]->min) return false;
		cell /= grid->n_counts[k];
	}
	return items >= p->min;
}

static void schemaputarr_from(struct schemaputarr *p, const struct schemaputarr_grid *grid, uint32_t items, uint32_t cell)
{
	uint32_t at = grid->states[items * grid->n_cells + cell], next = items + 1, mask, to, comma;
	struct gramb *b = p->c->g->b;

	if (schemaputarr_is_enough(p, grid, items, cell)) gramb_empty(b, at, p->end[items > 0]);
	if (next == grid->n_items) {
		if (!grid->may_be_more) return;
		next = items;
	}
	comma = schemaputarr_comma(p, at, items == 0);
	for (mask = 0; mask < 1u << p->a->n_contains && gramctx_work(p->c->g, 4); mask++) {
		struct schemanode *node = schemaputarr_item(p, items);

		to = schemaputarr_by(p, grid, cell, mask, &node);
		if (to == grid->n_cells) continue;
		gramb_call(b, comma, schemaput_rule(p->c, node), 1, 1, grid->states[next * grid->n_cells + to]);
	}
}

static void schemaputarr_contains(struct schemaputarr *p, uint32_t from)
{
	struct schemaputarr_grid grid = {.n_cells = 1, .may_be_more = p->max == GRAM_NO_END};
	uint64_t n_states;
	uint32_t k, i;

	if (p->a->n_contains > SCHEMAPUTARR_CONTAINS_MAX) {
		schemadoc_fail(&p->c->doc, ST_LIMIT, p->a->at, "more than %d `contains` of the same array", SCHEMAPUTARR_CONTAINS_MAX);
		return;
	}
	n_states = grid.may_be_more ? (uint64_t)max_u32(p->n_prefix, max_u32(p->min, 1)) + 1 : (uint64_t)p->max + 1;
	grid.n_items = (uint32_t)n_states;
	for (k = 0; k < p->a->n_contains; k++) {
		const struct schemacontains *kind = p->a->contains[k];

		grid.n_counts[k] = 1 + (kind->max == GRAM_NO_END ? kind->min : kind->max);
		n_states *= grid.n_counts[k];
		if (n_states > SCHEMAPUTARR_STATES_MAX) {
			schemadoc_fail(&p->c->doc, ST_LIMIT, p->a->at, "`contains` together with these limits takes more than %u states",
				       SCHEMAPUTARR_STATES_MAX);
			return;
		}
		grid.n_cells *= grid.n_counts[k];
	}
	grid.states = gramctx_array(p->c->g, uint32_t, (size_t)n_states);
	for (i = 0; i < n_states; i++) grid.states[i] = gramb_state(p->c->g->b, p->rule);
	gramb_empty(p->c->g->b, from, grid.states[0]);
	for (i = 0; i < n_states && gramctx_is_ok(p->c->g); i++) schemaputarr_from(p, &grid, i / grid.n_cells, i % grid.n_cells);
}

/* ---- unique ---- */

/* A value of the items, as a rule's text. */
struct schemaputarr_values {
	uint32_t rules[SCHEMAPUTARR_VALUES_MAX];
	uint32_t n;
};

static uint32_t schemaputarr_value(struct schemaputarr *p, struct schemaputarr_values *v)
{
	if (v->n == SCHEMAPUTARR_VALUES_MAX) return v->rules[0]; /* the caller sees that there are too many */
	return v->rules[v->n++] = gramb_rule(p->c->g->b);
}

static void schemaputarr_word(struct schemaputarr *p, struct schemaputarr_values *v, const char *text, size_t len)
{
	uint32_t rule = schemaputarr_value(p, v);
	struct gramb *b = p->c->g->b;

	gramb_final(b, gramb_text(b, gramb_start(b, rule), text, len));
}

/* All values of a node; false: too many, or not only scalars. */
static bool schemaputarr_list(struct schemaputarr *p, struct schemanode *node, struct schemaputarr_values *v)
{
	const struct schemasum *s = schemasum_of(p->c, node);
	struct dfa_word *words = gramctx_array(p->c->g, struct dfa_word, SCHEMAPUTARR_VALUES_MAX);
	const struct dfa *strings = dfa_none(p->c->g);
	struct gramb *b = p->c->g->b;
	size_t n = 0, i;

	if (s->has_all_numbers || s->n_arrays || s->n_objects) return false;
	if (s->has_null) schemaputarr_word(p, v, "null", 4);
	if (s->booleans & 2) schemaputarr_word(p, v, "true", 4);
	if (s->booleans & 1) schemaputarr_word(p, v, "false", 5);
	if (s->numbers) n = dfa_list(p->c->g, schemanum_writable(p->c->g, s->numbers), words, SCHEMAPUTARR_VALUES_MAX);
	if (n > SCHEMAPUTARR_VALUES_MAX) return false;
	for (i = 0; i < n; i++) schemaputarr_word(p, v, words[i].text, words[i].len);
	for (i = 0; i < s->n_strings; i++) {
		if (!s->strings[i].dfa) return false;
		strings = dfa_or(p->c->g, strings, schemasum_string_dfa(p->c, &s->strings[i]));
	}
	n = dfa_list(p->c->g, strings, words, SCHEMAPUTARR_VALUES_MAX);
	if (n + v->n > SCHEMAPUTARR_VALUES_MAX) return false;
	for (i = 0; i < n; i++) {
		uint32_t rule = schemaputarr_value(p, v);

		gramb_final(b, gramjson_string(&p->c->json, dfa_words(p->c->g, &words[i], 1), rule, gramb_start(b, rule)));
	}
	return true;
}

/* Few values: a state for each set of them that has been. */
static void schemaputarr_sets(struct schemaputarr *p, const struct schemaputarr_values *v, uint32_t from)
{
	uint32_t *states = gramctx_array(p->c->g, uint32_t, (size_t)1 << v->n), set, i, n;
	struct gramb *b = p->c->g->b;

	for (set = 0; set < 1u << v->n; set++) states[set] = set ? gramb_state(b, p->rule) : from;
	for (set = 0; set < 1u << v->n && gramctx_work(p->c->g, v->n); set++) {
		n = (uint32_t)__builtin_popcount(set);
		if (n >= p->min) gramb_empty(b, states[set], p->end[n > 0]);
		if (n >= p->max) continue;
		from = schemaputarr_comma(p, states[set], set == 0);
		for (i = 0; i < v->n; i++)
			if (!(set >> i & 1)) gramb_call(b, from, v->rules[i], 1, 1, states[set | 1u << i]);
	}
}

/* More values: in their order, each or not; states know how many there are, as far as that matters. */
static void schemaputarr_in_order(struct schemaputarr *p, const struct schemaputarr_values *v, uint32_t from)
{
	uint32_t n_counts = min_u32(v->n, max_u32(1, p->max < v->n ? p->max : p->min)) + 1, i, k, at;
	uint32_t *states = gramctx_array(p->c->g, uint32_t, n_counts), *next = gramctx_array(p->c->g, uint32_t, n_counts);
	struct gramb *b = p->c->g->b;

	for (k = 0; k < n_counts; k++) states[k] = k ? gramb_state(b, p->rule) : from;
	for (i = 0; i < v->n && gramctx_work(p->c->g, n_counts); i++) {
		for (k = 0; k < n_counts; k++) next[k] = gramb_state(b, p->rule);
		for (k = 0; k < n_counts; k++) {
			gramb_empty(b, states[k], next[k]);
			if (k >= p->max) continue;
			at = schemaputarr_comma(p, states[k], k == 0);
			gramb_call(b, at, v->rules[i], 1, 1, next[min_u32(k + 1, n_counts - 1)]);
		}
		memcpy(states, next, n_counts * sizeof(*states));
	}
	for (k = 0; k < n_counts; k++)
		if (k >= p->min) gramb_empty(b, states[k], p->end[k > 0]);
}

/* The prefix's items are of kinds that have no value in common, and there are no others. */
static bool schemaputarr_are_apart(struct schemaputarr *p)
{
	uint32_t i, k;

	if (p->max > p->n_prefix || p->n_prefix > 32) return false;
	for (i = 0; i < p->max; i++)
		for (k = 0; k < i; k++)
			if (!schemasum_is_empty(p->c, schemasum_both(p->c, schemaputarr_item(p, i), schemaputarr_item(p, k)))) return false;
	return true;
}

static void schemaputarr_unique(struct schemaputarr *p, uint32_t from)
{
	struct schemaputarr_values *v = gramctx_array(p->c->g, struct schemaputarr_values, 1);

	if (p->n_prefix == 0 && p->a->n_contains == 0 && schemaputarr_list(p, schemaputarr_item(p, 0), v)) {
		if (v->n <= SCHEMAPUTARR_SETS_MAX) schemaputarr_sets(p, v, from);
		else schemaputarr_in_order(p, v, from);
		return;
	}
	if (p->a->n_contains == 0 && schemaputarr_are_apart(p)) {
		schemaputarr_plain(p, from);
		return;
	}
	schemadoc_fail(&p->c->doc, ST_UNSUPPORTED, p->a->unique_at,
		       "`uniqueItems` is supported for items of an `enum` or the like with up to %d values, and for at most one item", SCHEMAPUTARR_VALUES_MAX);
}

/* ---- the whole ---- */

uint32_t schemaputarr(struct schemac *c, const struct schemaarray *a, uint32_t rule, uint32_t from)
{
	struct schemaputarr p = {.c = c, .a = a, .rule = rule, .min = a->min, .max = a->max};
	struct gramb *b = c->g->b;
	uint32_t i, open;

	for (i = 0; i < 2; i++) p.end[i] = gramb_state(b, rule);
	for (i = 0; i < a->n_layers; i++) p.n_prefix = max_u32(p.n_prefix, a->layers[i]->n_prefix);
	/* Where no item may be, the array ends before. */
	for (i = 0; i <= p.n_prefix && i < p.max && gramctx_is_ok(c->g); i++)
		if (schemaputarr_item(&p, i) == c->never) p.max = i;
	open = gramjson_space(&c->json, rule, gramjson_text(&c->json, from, "["));
	if (p.min <= p.max) {
		if (a->unique_at && p.max > 1) schemaputarr_unique(&p, open);
		else if (a->n_contains) schemaputarr_contains(&p, open);
		else schemaputarr_plain(&p, open);
	}
	gramb_empty(b, gramjson_space(&c->json, rule, p.end[1]), p.end[0]);
	return gramjson_text(&c->json, p.end[0], "]");
}
