/* jinja_call.c - calling filters, tests, methods and globals: binding of arguments, and the globals themselves.
 *
 * Every callable is a row of a table with the names of its parameters, so positions, keywords, too many and too few
 * arguments are handled here once. */
#include "frontend/jinja_value.h"

#include <stdio.h>

#define RANGE_MAX 100000 /* as Jinja2's sandbox */

bool jvec_push(struct jrun *r, struct jvec *v, struct jv item)
{
	struct jv *items;
	size_t cap;

	if (!run_step(r)) return false;
	if (v->n == v->cap) {
		cap = v->cap ? v->cap * 2 : 4;
		items = run_alloc(r, cap, sizeof(*items));
		if (!items) return false;
		if (v->n) memcpy(items, v->items, v->n * sizeof(*items));
		v->items = items;
		v->cap = cap;
	}
	v->items[v->n++] = item;
	return true;
}

/* Number of the parameter `name` in "a b c", or -1. */
static int param_index(const char *params, struct jv name)
{
	size_t len;
	int i;

	for (i = 0; *params; i++) {
		len = strcspn(params, " ");
		if (len == name.s.len && memcmp(params, name.s.p, len) == 0) return i;
		params += len + (params[len] == ' ');
	}
	return -1;
}

static int param_count(const char *params)
{
	int n = *params != 0;

	for (; *params; params++) n += *params == ' ';
	return n;
}

struct jv call_function(struct jrun *r, const struct jfunction *f, struct jv self, const struct jargs *args)
{
	struct jv a[JPARAMS_MAX] = {0}, v = jv_none();
	int n = param_count(f->params), ix;
	size_t i;

	if (f->params[0] != '*') {
		if (args->n_pos > (size_t)n)
			return run_error(r, "%s() takes at most %d arguments (%zu given)", f->name, n, args->n_pos);
		for (i = 0; i < args->n_pos; i++) a[i] = args->pos[i];
		for (i = 0; i < args->n_kw; i++) {
			ix = param_index(f->params, args->kw[i].name);
			if (ix < 0 || jv_given(a[ix]))
				return run_error(r, "%s() got an unexpected keyword argument '%.*s'", f->name,
						 (int)min_size(args->kw[i].name.s.len, 60), args->kw[i].name.s.p);
			a[ix] = args->kw[i].value;
		}
		for (ix = 0; ix < f->required; ix++)
			if (!jv_given(a[ix])) return run_error(r, "%s() needs at least %d arguments", f->name, f->required);
	}
	if (run_step(r) && run_enter(r)) {
		v = f->fn(r, self, a, args);
		run_leave(r);
	}
	return v;
}

int64_t arg_int(struct jrun *r, struct jv v, int64_t fallback, int64_t min, int64_t max)
{
	jint i;

	if (!jv_given(v) || jv_is_none(v)) return fallback;
	if (!jv_is_integral(v)) {
		if (v.kind == JV_UNDEFINED) jv_undefined_error(r, v);
		else run_error(r, "'%s' object cannot be interpreted as an integer", jv_type_name(v));
		return fallback;
	}
	i = jv_as_int(v);
	return i < min ? min : i > max ? max : (int64_t)i;
}

bool arg_bool(struct jrun *r, struct jv v, bool fallback)
{
	return jv_given(v) ? jv_truth(r, v) : fallback;
}

/* ---- globals ---- */

static struct jv global_range(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	int64_t start = arg_int(r, a[0], 0, INT32_MIN, INT32_MAX), stop = start, step = arg_int(r, a[2], 1, INT32_MIN, INT32_MAX);
	struct jv v = {.kind = JV_RANGE};
	int64_t n;

	if (jv_given(a[1])) stop = arg_int(r, a[1], 0, INT32_MIN, INT32_MAX);
	else start = 0;
	if (step == 0) return run_error(r, "range() arg 3 must not be zero");
	n = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0) : (start > stop ? (start - stop - 1) / -step + 1 : 0);
	if (n > RANGE_MAX) return run_fail(r, ST_LIMIT, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", RANGE_MAX);
	v.range.start = (int32_t)start;
	v.range.stop = (int32_t)stop;
	v.range.step = (int32_t)step;
	v.range.n = (size_t)n;
	v.input = a[0].input || a[1].input || a[2].input;
	return v;
}

/* Fills a dict from a mapping or from pairs. */
static void dict_update(struct jrun *r, struct jdict *d, struct jv from)
{
	struct jseq s, pair;
	size_t i;

	if (from.kind == JV_DICT) {
		for (i = 0; i < from.dict->n && run_step(r); i++) jdict_put(r, d, from.dict->entries[i].key, from.dict->entries[i].value);
		return;
	}
	s = jv_iterate(r, from);
	for (i = 0; i < s.n && run_step(r); i++) {
		pair = jv_iterate(r, jseq_at(&s, i));
		if (pair.n == 2) jdict_put(r, d, jseq_at(&pair, 0), jseq_at(&pair, 1));
		else run_error(r, "dictionary update sequence element #%zu has length %zu; 2 is required", i, pair.n);
	}
}

static struct jv dict_from_args(struct jrun *r, const struct jargs *raw, const char *name)
{
	struct jdict *d = jdict_new(r);
	bool input = false;
	size_t i;

	if (raw->n_pos > 1) return run_error(r, "%s expected at most 1 argument, got %zu", name, raw->n_pos);
	if (!d) return jv_none();
	if (raw->n_pos) {
		input = raw->pos[0].input;
		dict_update(r, d, raw->pos[0]);
	}
	for (i = 0; i < raw->n_kw; i++) jdict_put(r, d, raw->kw[i].name, raw->kw[i].value);
	return jv_dict(d, input);
}

static struct jv global_dict(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	return dict_from_args(r, raw, "dict");
}

static struct jv global_namespace(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	struct jv v = dict_from_args(r, raw, "namespace");

	if (v.kind == JV_DICT) v.kind = JV_NAMESPACE;
	v.input = false;
	return v;
}

static struct jv make_cycle(struct jrun *r, enum jkind kind, const struct jv *items, size_t n)
{
	struct jcycle *c = run_alloc(r, 1, sizeof(*c));
	struct jv *copy = run_alloc(r, n, sizeof(*copy));

	if (!c || !copy) return jv_none();
	if (n) memcpy(copy, items, n * sizeof(*copy));
	*c = (struct jcycle){copy, n, 0};
	return (struct jv){.kind = (uint8_t)kind, .cycle = c};
}

static struct jv global_cycler(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	if (!raw->n_pos) return run_error(r, "at least one item has to be provided");
	return make_cycle(r, JV_CYCLER, raw->pos, raw->n_pos);
}

static struct jv global_joiner(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	struct jv sep = jv_given(a[0]) ? a[0] : jv_lit(", ");

	return make_cycle(r, JV_JOINER, &sep, 1);
}

/* The message becomes the error's text as it is: it is what the client reads. */
static struct jv global_raise(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	struct jv text = jv_to_str(r, a[0]);

	if (r->rc) return jv_none();
	*r->raised = true;
	r->rc = err_set(r->err, ST_INVALID, "%.*s", (int)min_size(text.s.len, 4096), text.s.p);
	return jv_none();
}

static struct jv global_strftime(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)
{
	if (a[0].kind != JV_STR) return run_error(r, "strftime() argument 1 must be str, not %s", jv_type_name(a[0]));
	return format_time(r, a[0], r->now_s);
}

static const struct jfunction GLOBALS[] = {
	{"range", "start stop step", 1, global_range},
	{"dict", "*", 0, global_dict},
	{"namespace", "*", 0, global_namespace},
	{"cycler", "*", 0, global_cycler},
	{"joiner", "sep", 0, global_joiner},
	{"raise_exception", "message", 1, global_raise},
	{"strftime_now", "format", 1, global_strftime},
};

const struct jfunction *global_find(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(GLOBALS); i++)
		if (strlen(GLOBALS[i].name) == len && memcmp(GLOBALS[i].name, name, len) == 0) return &GLOBALS[i];
	return NULL;
}

struct jv call_value(struct jrun *r, struct jv callee, const struct jargs *args)
{
	switch (callee.kind) {
	case JV_FUNCTION:
		return call_function(r, callee.function, jv_none(), args);
	case JV_METHOD:
		return call_function(r, &callee.bound->method->f, callee.bound->self, args);
	case JV_MACRO:
		return eval_macro(r, callee.macro, args);
	case JV_LOOP:
		return eval_loop_again(r, callee, args);
	case JV_JOINER: /* nothing the first time */
		return callee.cycle->pos++ ? callee.cycle->items[0] : jv_lit("");
	case JV_UNDEFINED:
		return jv_undefined_error(r, callee);
	default:
		return run_error(r, "'%s' object is not callable", jv_type_name(callee));
	}
}
