/* jinja_eval.c - evaluates expressions.
 *
 * Recursion follows the nesting of the expression and of macro calls; run_enter() bounds both together. */
#include "frontend/jinja_scope.h"

static struct jv eval_name(struct jrun *r, const struct jnode *n)
{
	const struct jscope *s;
	uint32_t i;

	for (s = r->scope; s; s = s->parent)
		for (i = 0; i < s->n; i++)
			if (s->vars[i].symbol == n->symbol) return s->vars[i].value;
	if (jv_given(r->globals[n->symbol])) return r->globals[n->symbol];
	return jv_undefined(JU_NAME, n->value, JV_MISSING);
}

static struct jv eval_items(struct jrun *r, const struct jnode *n, enum jkind kind)
{
	struct jv *items = run_alloc(r, n->n, sizeof(*items));
	size_t i;

	if (!items) return jv_none();
	for (i = 0; i < n->n && !r->rc; i++) items[i] = eval(r, n->items[i]);
	return jv_list(kind, items, n->n, false);
}

static struct jv eval_dict(struct jrun *r, const struct jnode *n)
{
	struct jdict *d = jdict_new(r);
	struct jv key;
	size_t i;

	for (i = 0; i + 1 < n->n && !r->rc; i += 2) {
		key = eval(r, n->items[i]);
		jdict_put(r, d, key, eval(r, n->items[i + 1]));
	}
	return jv_dict(d, false);
}

/* a ~ b ~ c: everything as text. Plain, since HTML escaping is off in this environment. */
static struct jv eval_concat(struct jrun *r, const struct jnode *n)
{
	struct jv s = jv_to_str(r, eval(r, n->items[0]));
	size_t i;

	s.markup = false;
	for (i = 1; i < n->n && !r->rc; i++) {
		s = jv_concat(r, s, jv_to_str(r, eval(r, n->items[i])));
		s.markup = false;
	}
	return s;
}

static bool compare_one(struct jrun *r, int op, struct jv a, struct jv b)
{
	switch (op) {
	case JOP_EQ:
		return jv_equal(r, a, b);
	case JOP_NE:
		return !jv_equal(r, a, b);
	case JOP_LE:
		return jv_compare(r, a, b, "<=") <= 0;
	case JOP_GE:
		return jv_compare(r, a, b, ">=") >= 0;
	case '<':
		return jv_compare(r, a, b, "<") < 0;
	case '>':
		return jv_compare(r, a, b, ">") > 0;
	case JOP_IN:
		return jv_contains(r, a, b);
	default:
		return !jv_contains(r, a, b);
	}
}

static struct jv eval_compare(struct jrun *r, const struct jnode *n)
{
	struct jv a = eval(r, n->a), b;
	size_t i;

	for (i = 0; i < n->n && !r->rc; i++) {
		b = eval(r, n->items[i]->a);
		if (r->rc || !compare_one(r, n->items[i]->op, a, b)) return jv_bool(false);
		a = b;
	}
	return jv_bool(true);
}

static struct jv eval_item(struct jrun *r, const struct jnode *n)
{
	const struct jnode *s = n->b;
	struct jv missing = {.kind = JV_MISSING}, obj = eval(r, n->a), start, stop, step;

	if (r->rc) return jv_none();
	if (s->kind != JN_SLICE) return jv_getitem(r, obj, eval(r, s));
	start = s->a ? eval(r, s->a) : missing;
	stop = s->b ? eval(r, s->b) : missing;
	step = s->c ? eval(r, s->c) : missing;
	return r->rc ? jv_none() : jv_slice(r, obj, start, stop, step);
}

/* The arguments of a call; false after a failure. */
static bool eval_args(struct jrun *r, const struct jnode_args *n, struct jargs *out)
{
	struct jvec pos = {0};
	struct jkeyword *kw;
	struct jv extra = {.kind = JV_MISSING};
	struct jseq s;
	size_t i, n_kw = n->n_kw;

	*out = (struct jargs){0};
	for (i = 0; i < n->n_pos && !r->rc; i++) jvec_push(r, &pos, eval(r, n->pos[i]));
	if (n->star) {
		s = jv_iterate(r, eval(r, n->star));
		for (i = 0; i < s.n && !r->rc; i++) jvec_push(r, &pos, jseq_at(&s, i));
	}
	if (n->star_star) {
		extra = eval(r, n->star_star);
		if (!r->rc && extra.kind != JV_DICT) run_error(r, "argument after ** must be a mapping, not %s", jv_type_name(extra));
		if (r->rc) return false;
		n_kw += extra.dict->n;
	}
	kw = n_kw ? run_alloc(r, n_kw, sizeof(*kw)) : NULL;
	if (r->rc) return false;
	for (i = 0; i < n->n_kw && !r->rc; i++) kw[i] = (struct jkeyword){n->kw[i].name, eval(r, n->kw[i].value)};
	for (; i < n_kw && !r->rc; i++) {
		const struct jentry *e = &extra.dict->entries[i - n->n_kw];

		if (e->key.kind != JV_STR) run_error(r, "keywords must be strings");
		kw[i] = (struct jkeyword){e->key, e->value};
	}
	*out = (struct jargs){pos.items, pos.n, kw, n_kw};
	return !r->rc;
}

static struct jv eval_call(struct jrun *r, const struct jnode *n)
{
	struct jv callee = eval(r, n->a);
	struct jargs args;

	if (r->rc || !eval_args(r, n->args, &args)) return jv_none();
	r->line = n->line;
	return call_value(r, callee, &args);
}

static struct jv eval_filter(struct jrun *r, const struct jnode *n)
{
	struct jv self = n->a ? eval(r, n->a) : r->captured;
	struct jargs args;

	if (r->rc || !eval_args(r, n->args, &args)) return jv_none();
	r->line = n->line;
	return call_function(r, n->function, self, &args);
}

static struct jv eval_test(struct jrun *r, const struct jnode *n)
{
	struct jv self = eval(r, n->a);
	struct jargs args;

	if (r->rc || !eval_args(r, n->args, &args)) return jv_none();
	r->line = n->line;
	return call_function(r, n->function, self, &args);
}

static struct jv eval_arith(struct jrun *r, const struct jnode *n)
{
	struct jv a = eval(r, n->a), b = r->rc ? jv_none() : eval(r, n->b);

	if (r->rc) return jv_none();
	r->line = n->line;
	return n->op == '+' ? jv_add(r, a, b) : jv_arith(r, n->op, a, b);
}

static struct jv eval_cond(struct jrun *r, const struct jnode *n)
{
	if (jv_truth(r, eval(r, n->a))) return eval(r, n->b);
	if (n->c) return eval(r, n->c);
	return jv_hint("the inline if-expression evaluated to false and no else section was defined.");
}

static struct jv eval_any(struct jrun *r, const struct jnode *n)
{
	struct jv v;

	switch (n->kind) {
	case JN_CONST:
		return n->value;
	case JN_NAME:
		return eval_name(r, n);
	case JN_LIST:
		return eval_items(r, n, JV_LIST);
	case JN_TUPLE:
		return eval_items(r, n, JV_TUPLE);
	case JN_DICT:
		return eval_dict(r, n);
	case JN_ARITH:
		return eval_arith(r, n);
	case JN_AND:
		v = eval(r, n->a);
		return jv_truth(r, v) ? eval(r, n->b) : v;
	case JN_OR:
		v = eval(r, n->a);
		return jv_truth(r, v) ? v : eval(r, n->b);
	case JN_NOT:
		return jv_bool(!jv_truth(r, eval(r, n->a)));
	case JN_SIGN:
		return jv_negate(r, eval(r, n->a), n->op == '-');
	case JN_CONCAT:
		return eval_concat(r, n);
	case JN_COMPARE:
		return eval_compare(r, n);
	case JN_COND:
		return eval_cond(r, n);
	case JN_ATTR:
		v = eval(r, n->a);
		if (r->rc) return v;
		r->line = n->line;
		return jv_getattr(r, v, n->value);
	case JN_ITEM:
		return eval_item(r, n);
	case JN_CALL:
		return eval_call(r, n);
	case JN_FILTER:
		return eval_filter(r, n);
	case JN_TEST:
		return eval_test(r, n);
	default:
		return run_error(r, "not an expression");
	}
}

struct jv eval(struct jrun *r, const struct jnode *n)
{
	struct jv v = jv_none();

	if (!run_step(r)) return v;
	r->line = n->line;
	if (run_enter(r)) v = eval_any(r, n);
	run_leave(r);
	return v;
}
