/* jinja_stmt.c - runs statements: output, branches, loops, assignments, macros.
 *
 * Scopes are as in Jinja2: a loop's body gets a fresh one every turn, so assignments do not leave it (a namespace is the
 * way out); branches share the scope around them; macros see the scope they were defined in. */
#include "frontend/jinja_scope.h"

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec(struct jrun *r, const struct jnode *body);

static void set_var(struct jrun *r, struct jscope *s, uint32_t symbol, struct jv value)
{
	struct jvar *vars;
	uint32_t i, cap;

	for (i = 0; i < s->n; i++) {
		if (s->vars[i].symbol != symbol) continue;
		s->vars[i].value = value;
		return;
	}
	if (s->n == s->cap) {
		cap = s->cap ? s->cap * 2 : 4;
		vars = run_alloc(r, cap, sizeof(*vars));
		if (!vars) return;
		if (s->n) memcpy(vars, s->vars, s->n * sizeof(*vars));
		s->vars = vars;
		s->cap = cap;
	}
	run_work(r, s->n * 4);
	s->vars[s->n++] = (struct jvar){symbol, value};
}

/* A new innermost scope, or NULL. Ends when the caller sets r->scope back. */
static struct jscope *push_scope(struct jrun *r, struct jscope *parent)
{
	struct jscope *s = run_alloc(r, 1, sizeof(*s));

	if (!s) return NULL;
	s->parent = parent;
	return r->scope = s;
}

static void assign(struct jrun *r, struct jscope *s, const struct jnode *target, struct jv value)
{
	struct jv ns;
	struct jseq seq;
	size_t i;

	if (r->rc || !s) return;
	switch (target->kind) {
	case JN_NAME:
		set_var(r, s, target->symbol, value);
		break;
	case JN_NS_ATTR:
		ns = eval(r, &(struct jnode){.kind = JN_NAME, .symbol = target->symbol, .value = jv_lit("namespace"), .line = target->line});
		if (ns.kind == JV_NAMESPACE) jdict_put(r, ns.dict, target->value, value);
		else run_error(r, "cannot assign attribute on non-namespace object");
		break;
	default:
		seq = jv_iterate(r, value);
		if (!r->rc && seq.n != target->n)
			run_error(r, seq.n < target->n ? "not enough values to unpack (expected %zu, got %zu)" :
							 "too many values to unpack (expected %zu, got %zu)", target->n, seq.n);
		for (i = 0; i < target->n && !r->rc; i++) assign(r, s, target->items[i], jseq_at(&seq, i));
	}
}

/* ---- capturing output ---- */

static struct jv capture(struct jrun *r, const struct jnode *body)
{
	struct jbuf b, *outer = r->capture;
	struct jscope *scope = r->scope;

	jbuf_init(&b, r);
	r->capture = &b;
	if (push_scope(r, scope)) exec(r, body);
	r->scope = scope;
	r->capture = outer;
	return jbuf_finish(&b);
}

static struct jv captured(struct jrun *r, const struct jnode *n)
{
	struct jv outer = r->captured, v = capture(r, n->body);

	if (!n->b || r->rc) return v;
	r->captured = v;
	v = eval(r, n->b);
	r->captured = outer;
	return v;
}

/* ---- macros ---- */

/* The value of parameter number `ix`: by position, by name, its default, or undefined. */
static struct jv macro_param(struct jrun *r, const struct jmacro_def *m, size_t ix, const struct jargs *args, size_t *used_kw)
{
	size_t i;

	for (i = 0; i < args->n_kw; i++) {
		if (!jv_equal(r, args->kw[i].name, m->param_names[ix])) continue;
		if (ix < args->n_pos) return run_error(r, "macro got multiple values for one argument");
		(*used_kw)++;
		return args->kw[i].value;
	}
	if (ix < args->n_pos) return args->pos[ix];
	if (m->defaults[ix]) return eval(r, m->defaults[ix]);
	return jv_undefined(JU_NAME, m->param_names[ix], JV_MISSING);
}

static bool is_param(struct jrun *r, const struct jmacro_def *m, struct jv name)
{
	size_t i;

	for (i = 0; i < m->n_params; i++)
		if (jv_equal(r, m->param_names[i], name)) return true;
	return false;
}

/* caller, varargs and kwargs exist in macros that use them; else what they would hold is an error. */
static void macro_extras(struct jrun *r, struct jscope *s, const struct jmacro_def *m, const struct jargs *args, size_t used_kw)
{
	size_t n_extra = args->n_pos > m->n_params ? args->n_pos - m->n_params : 0, i;
	struct jv caller = jv_undefined(JU_NAME, jv_lit("caller"), JV_MISSING);
	struct jdict *rest = m->uses_kwargs ? jdict_new(r) : NULL;
	int n = (int)min_size(m->name.s.len, 60);

	for (i = 0; i < args->n_kw && !r->rc; i++) {
		if (m->uses_caller && jv_is(args->kw[i].name, "caller")) {
			caller = args->kw[i].value;
			used_kw++;
		} else if (rest && !is_param(r, m, args->kw[i].name)) {
			jdict_put(r, rest, args->kw[i].name, args->kw[i].value);
			used_kw++;
		}
	}
	if (used_kw < args->n_kw) run_error(r, "macro '%.*s' was called with an unknown keyword argument", n, m->name.s.p);
	if (n_extra && !m->uses_varargs) run_error(r, "macro '%.*s' takes not more than %zu argument(s)", n, m->name.s.p, m->n_params);
	if (m->uses_caller) set_var(r, s, m->caller_symbol, caller);
	if (m->uses_kwargs) set_var(r, s, m->kwargs_symbol, jv_dict(rest, false));
	if (m->uses_varargs)
		set_var(r, s, m->varargs_symbol, jv_list(JV_TUPLE, n_extra ? args->pos + m->n_params : NULL, n_extra, false));
}

struct jv eval_macro(struct jrun *r, struct jmacro *macro, const struct jargs *args)
{
	const struct jmacro_def *m = macro->def;
	struct jscope *outer = r->scope, *s = push_scope(r, macro->scope);
	struct jbuf b, *outer_capture = r->capture;
	size_t i, used_kw = 0;

	if (!s || !run_enter(r)) {
		if (s) run_leave(r);
		r->scope = outer;
		return jv_none();
	}
	for (i = 0; i < m->n_params && !r->rc; i++) set_var(r, s, m->param_symbols[i], macro_param(r, m, i, args, &used_kw));
	if (!r->rc) macro_extras(r, s, m, args, used_kw);
	jbuf_init(&b, r);
	r->capture = &b;
	if (!r->rc) exec(r, m->body);
	r->capture = outer_capture;
	r->scope = outer;
	run_leave(r);
	return jbuf_finish(&b);
}

static struct jv make_macro(struct jrun *r, const struct jmacro_def *def)
{
	struct jmacro *m = run_alloc(r, 1, sizeof(*m));

	if (!m) return jv_none();
	*m = (struct jmacro){def, r->scope};
	return (struct jv){.kind = JV_MACRO, .macro = m};
}

/* The call gets one more keyword argument, the block as `caller`. */
static void exec_call_block(struct jrun *r, const struct jnode *n)
{
	struct jnode_kw *kw = run_alloc(r, n->a->args->n_kw + 1, sizeof(*kw));
	struct jnode block = {.kind = JN_CONST, .line = n->line, .value = make_macro(r, n->macro)}, call = *n->a;
	struct jnode_args args = *n->a->args;

	if (!kw) return;
	if (args.n_kw) memcpy(kw, args.kw, args.n_kw * sizeof(*kw));
	kw[args.n_kw++] = (struct jnode_kw){jv_lit("caller"), &block};
	args.kw = kw;
	call.args = &args;
	run_emit(r, jv_to_str(r, eval(r, &call)));
}

/* ---- loops ---- */

static struct jv loop_cycle(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	if (!raw->n_pos) return run_error(r, "no items for cycling given");
	return raw->pos[self.loop->ix % raw->n_pos];
}

static struct jv loop_changed(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	struct jv now = jv_list(JV_TUPLE, raw->pos, raw->n_pos, false);

	if (jv_given(self.loop->last_changed) && jv_equal(r, self.loop->last_changed, now)) return jv_bool(false);
	self.loop->last_changed = now;
	return jv_bool(true);
}

static struct jv loop_method(struct jrun *r, struct jv loop, struct jv name)
{
	static const struct jmethod METHODS[] = {
		{JV_LOOP, {"cycle", "*", 0, loop_cycle}},
		{JV_LOOP, {"changed", "*", 0, loop_changed}},
	};
	struct jbound *b;
	size_t i;

	for (i = 0; i < ARRAY_LEN(METHODS); i++) {
		if (!jv_is(name, METHODS[i].f.name)) continue;
		b = run_alloc(r, 1, sizeof(*b));
		if (!b) return jv_none();
		*b = (struct jbound){&METHODS[i], loop};
		return (struct jv){.kind = JV_METHOD, .bound = b};
	}
	return jv_undefined(JU_ATTR, name, JV_LOOP);
}

struct jv eval_loop_attr(struct jrun *r, struct jv loop, struct jv name)
{
	struct jloop *l = loop.loop;
	jint ix = (jint)l->ix, n = (jint)l->seq.n;

	if (jv_is(name, "index")) return jv_int(ix + 1);
	if (jv_is(name, "index0")) return jv_int(ix);
	if (jv_is(name, "revindex")) return jv_int(n - ix);
	if (jv_is(name, "revindex0")) return jv_int(n - ix - 1);
	if (jv_is(name, "first")) return jv_bool(ix == 0);
	if (jv_is(name, "last")) return jv_bool(ix + 1 >= n);
	if (jv_is(name, "length")) return jv_int(n);
	if (jv_is(name, "depth")) return jv_int((jint)l->depth0 + 1);
	if (jv_is(name, "depth0")) return jv_int((jint)l->depth0);
	if (jv_is(name, "previtem")) return ix > 0 ? jseq_at(&l->seq, l->ix - 1) : jv_hint("there is no previous item");
	if (jv_is(name, "nextitem")) return ix + 1 < n ? jseq_at(&l->seq, l->ix + 1) : jv_hint("there is no next item");
	return loop_method(r, loop, name);
}

/* One turn for each item. True when a turn reached the end of the body: as in Jinja2, only that keeps "else" away. */
static bool run_loop(struct jrun *r, const struct jnode *n, struct jscope *outer, struct jloop *l)
{
	struct jscope *s = push_scope(r, outer);
	struct jv self = {.kind = JV_LOOP, .loop = l};
	enum flow flow = FLOW_ON;
	bool completed = false;

	for (l->ix = 0; s && l->ix < l->seq.n && run_step(r); l->ix++) {
		s->n = 0; /* a fresh scope: what the last turn assigned is gone */
		r->scope = s;
		set_var(r, s, r->template->loop_symbol, self);
		assign(r, s, n->a, jseq_at(&l->seq, l->ix));
		flow = exec(r, n->body);
		completed |= flow == FLOW_ON;
		if (flow == FLOW_BREAK) break;
	}
	r->scope = outer;
	return completed;
}

/* The items for which the loop's condition holds. */
static struct jseq filter_loop(struct jrun *r, const struct jnode *n, struct jscope *outer, struct jseq seq)
{
	struct jscope *s = push_scope(r, outer);
	struct jvec v = {0};
	size_t i;

	for (i = 0; s && i < seq.n && run_step(r); i++) {
		s->n = 0;
		assign(r, s, n->a, jseq_at(&seq, i));
		if (!r->rc && jv_truth(r, eval(r, n->c))) jvec_push(r, &v, jseq_at(&seq, i));
	}
	r->scope = outer;
	return (struct jseq){.items = v.items, .n = v.n, .step = 1, .input = seq.input};
}

static enum flow exec_loop(struct jrun *r, const struct jnode *n, struct jscope *outer, struct jv over, uint32_t depth0)
{
	struct jloop *l = run_alloc(r, 1, sizeof(*l));
	struct jscope *scope = r->scope;
	struct jseq seq = jv_iterate(r, over);
	enum flow flow = FLOW_ON;

	if (!r->rc && n->c) seq = filter_loop(r, n, outer, seq);
	if (!l || r->rc) return FLOW_ON;
	*l = (struct jloop){.node = n->recursive ? n : NULL, .scope = outer, .seq = seq, .depth0 = depth0};
	r->scope = outer;
	if (!run_loop(r, n, outer, l) && n->other && push_scope(r, outer)) flow = exec(r, n->other);
	r->scope = scope;
	return flow;
}

struct jv eval_loop_again(struct jrun *r, struct jv loop, const struct jargs *args)
{
	struct jloop *l = loop.loop;
	struct jbuf b, *outer = r->capture;

	if (!l->node) return run_error(r, "The loop must have the 'recursive' marker to be called recursively.");
	if (args->n_pos != 1 || args->n_kw) return run_error(r, "a recursive loop is called with one argument");
	jbuf_init(&b, r);
	r->capture = &b;
	if (run_enter(r)) exec_loop(r, l->node, l->scope, args->pos[0], l->depth0 + 1);
	run_leave(r);
	r->capture = outer;
	return jbuf_finish(&b);
}

/* ---- statements ---- */

static enum flow exec_if(struct jrun *r, const struct jnode *n)
{
	for (; n && !r->rc; n = n->other) {
		if (n->kind != JN_IF || n->next) return exec(r, n); /* the else branch */
		if (!run_step(r)) break;
		if (jv_truth(r, eval(r, n->a))) return r->rc ? FLOW_ON : exec(r, n->body);
	}
	return FLOW_ON;
}

static enum flow exec_with(struct jrun *r, const struct jnode *n)
{
	struct jscope *outer = r->scope, *s = run_alloc(r, 1, sizeof(*s));
	enum flow flow = FLOW_ON;
	size_t i;

	if (!s) return flow;
	s->parent = outer;
	for (i = 0; i + 1 < n->n && !r->rc; i += 2) assign(r, s, n->items[i], eval(r, n->items[i + 1]));
	r->scope = s;
	if (!r->rc) flow = exec(r, n->body);
	r->scope = outer;
	return flow;
}

static enum flow exec_scope(struct jrun *r, const struct jnode *n)
{
	struct jscope *outer = r->scope;
	enum flow flow = FLOW_ON;

	if (push_scope(r, outer)) flow = exec(r, n->body);
	r->scope = outer;
	return flow;
}

static enum flow exec_one(struct jrun *r, const struct jnode *n)
{
	struct jv v;

	switch (n->kind) {
	case JN_TEXT:
		run_emit(r, n->value);
		break;
	case JN_PRINT:
		v = jv_to_str(r, eval(r, n->a));
		if (!r->rc) run_emit(r, v);
		break;
	case JN_IF:
		if (jv_truth(r, eval(r, n->a))) return r->rc ? FLOW_ON : exec(r, n->body);
		return n->other ? exec_if(r, n->other) : FLOW_ON;
	case JN_FOR:
		v = eval(r, n->b);
		return r->rc ? FLOW_ON : exec_loop(r, n, r->scope, v, 0);
	case JN_SET:
		assign(r, r->scope, n->a, eval(r, n->b));
		break;
	case JN_SET_BLOCK:
		assign(r, r->scope, n->a, captured(r, n));
		break;
	case JN_FILTER_BLOCK:
		v = jv_to_str(r, captured(r, n));
		if (!r->rc) run_emit(r, v);
		break;
	case JN_MACRO:
		set_var(r, r->scope, n->macro->symbol, make_macro(r, n->macro));
		break;
	case JN_CALL_BLOCK:
		exec_call_block(r, n);
		break;
	case JN_WITH:
		return exec_with(r, n);
	case JN_SCOPE:
		return exec_scope(r, n);
	case JN_BREAK:
		return FLOW_BREAK;
	case JN_CONTINUE:
		return FLOW_CONTINUE;
	default:
		run_error(r, "not a statement");
	}
	return FLOW_ON;
}

static enum flow exec(struct jrun *r, const struct jnode *body)
{
	enum flow flow = FLOW_ON;

	if (run_enter(r)) {
		for (; body && flow == FLOW_ON && run_step(r); body = body->next) {
			r->line = body->line;
			flow = exec_one(r, body);
		}
	}
	run_leave(r);
	return flow;
}

void exec_body(struct jrun *r, const struct jnode *body)
{
	if (push_scope(r, NULL)) exec(r, body);
}
