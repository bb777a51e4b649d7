/* schemaput.c - nodes to rules: what a sum allows, written as JSON. See schemac_impl.h. */
#include "frontend/schemac_impl.h"

#include <string.h>

uint32_t schemaput_rule(struct schemac *c, struct schemanode *n)
{
	if (n == c->any) return gramjson_rule(&c->json, GRAMJSON_VALUE);
	if (!n->rule) {
		n->rule = gramb_rule(c->g->b) + 1;
		gramctx_reserve(c->g, c->todo, c->n_todo, c->cap_todo);
		c->todo[c->n_todo++] = n;
	}
	return n->rule - 1;
}

uint32_t schemaput_node(struct schemac *c, struct schemanode *n, uint32_t rule, uint32_t from)
{
	uint32_t to = gramb_state(c->g->b, rule);

	gramb_call(c->g->b, from, schemaput_rule(c, n), 1, 1, to);
	return to;
}

/* ---- scalars ---- */

static void schemaput_numbers(struct schemac *c, const struct schemasum *s, uint32_t rule, uint32_t from, uint32_t to)
{
	struct gramb *b = c->g->b;

	if (s->has_all_numbers) gramb_empty(b, gramjson_put(&c->json, GRAMJSON_NUMBER, rule, from), to);
	else if (s->numbers && s->numbers == c->whole) gramb_empty(b, gramjson_put(&c->json, GRAMJSON_INTEGER, rule, from), to);
	else if (s->numbers) gramb_empty(b, gramjson_plain(&c->json, schemanum_writable(c->g, s->numbers), rule, from), to);
}

/* Those with an automaton become one. */
static void schemaput_strings(struct schemac *c, const struct schemasum *s, uint32_t rule, uint32_t from, uint32_t to)
{
	const struct dfa *all = NULL, *one;
	uint32_t i;

	for (i = 0; i < s->n_strings && gramctx_is_ok(c->g); i++) {
		const struct schemastring *x = &s->strings[i];

		if (!x->dfa) {
			gramb_empty(c->g->b, gramjson_string_len(&c->json, x->min, x->max, rule, from), to);
			continue;
		}
		one = schemasum_string_dfa(c, x);
		all = all ? dfa_or(c->g, all, one) : one;
	}
	if (all && !dfa_is_empty(all)) gramb_empty(c->g->b, gramjson_string(&c->json, all, rule, from), to);
}

static void schemaput_words(struct schemac *c, const struct schemasum *s, uint32_t from, uint32_t to)
{
	if (s->has_null) gramb_empty(c->g->b, gramjson_text(&c->json, from, "null"), to);
	if (s->booleans & 2) gramb_empty(c->g->b, gramjson_text(&c->json, from, "true"), to);
	if (s->booleans & 1) gramb_empty(c->g->b, gramjson_text(&c->json, from, "false"), to);
}

/* ---- nodes ---- */

static bool schemaput_has_all_scalars(const struct schemasum *s)
{
	return s->has_null && s->booleans == 3 && s->has_all_numbers && s->n_strings == 1 && !s->strings[0].dfa && s->strings[0].min == 0 &&
	       s->strings[0].max == GRAM_NO_END;
}

static bool schemaput_describes_objects(struct schemac *c, const struct schemasum *s)
{
	uint32_t i, k;

	for (i = 0; i < s->n_objects && schemasum_object_is_empty(c, s->objects[i]);) i++;
	if (i == s->n_objects) return false;

	for (i = 0; i < s->n_objects; i++) {
		if (s->objects[i]->n_required) return true;
		for (k = 0; k < s->objects[i]->n_layers; k++)
			if (s->objects[i]->layers[k]->n_properties && !s->objects[i]->layers[k]->is_silent) return true;
	}
	return false;
}

/* Who describes members and leaves "type" away means an object, though by the letter 7 would do. */
static const struct schemasum *schemaput_meant(struct schemac *c, const struct schemasum *s)
{
	if (c->g->o->exact_types || !schemaput_has_all_scalars(s)) return s;
	return schemaput_describes_objects(c, s) ? schemasum_only(c, s, SCHEMATYPE_OBJECT) : s;
}

static bool schemaput_is_nothing(const struct schemasum *s)
{
	return !s->has_null && !s->booleans && !s->has_all_numbers && !s->numbers && !s->n_strings && !s->n_arrays && !s->n_objects;
}

static void schemaput_body(struct schemac *c, struct schemanode *n)
{
	const struct schemasum *s = schemaput_meant(c, schemasum_of(c, n));
	struct gramb *b = c->g->b;
	uint32_t rule = n->rule - 1, from = gramb_start(b, rule), end = gramb_state(b, rule), i;

	if (!gramctx_is_ok(c->g)) return;
	if (s->lost && schemaput_is_nothing(s)) {
		gramctx_fail(c->g, ST_UNSUPPORTED, "%s", s->lost);
		return;
	}
	gramb_final(b, end);
	schemaput_words(c, s, from, end);
	schemaput_numbers(c, s, rule, from, end);
	schemaput_strings(c, s, rule, from, end);
	for (i = 0; i < s->n_arrays && gramctx_work(c->g, 1); i++) gramb_empty(b, schemaputarr(c, s->arrays[i], rule, from), end);
	for (i = 0; i < s->n_objects && gramctx_work(c->g, 1); i++) gramb_empty(b, schemaputobj(c, s->objects[i], rule, from), end);
}

void schemaput_all(struct schemac *c)
{
	for (; c->n_done < c->n_todo && gramctx_is_ok(c->g); c->n_done++) schemaput_body(c, c->todo[c->n_done]);
}
