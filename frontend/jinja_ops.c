/* jinja_ops.c - Python's operators on values: truth, equality, order, arithmetic, membership, iteration, subscripts.
 *
 * What Python refuses with a TypeError is an error here, with Python's words, since template authors know them. */
#include "frontend/jinja_ast.h"

#include <math.h>
#include <stdio.h>

struct jv jv_undefined_error(struct jrun *r, struct jv v)
{
	struct jv of = {.kind = v.of};
	int n = (int)min_size(v.s.len, 200);

	switch (v.sub) {
	case JU_NAME:
		return run_error(r, "'%.*s' is undefined", n, v.s.p);
	case JU_UNSAFE:
		return run_error(r, "access to attribute '%.*s' of '%s' object is unsafe", n, v.s.p, jv_type_name(of));
	case JU_ATTR:
		if (v.of == JV_NONE) return run_error(r, "'None' has no attribute '%.*s'", n, v.s.p);
		return run_error(r, "'%s object' has no attribute '%.*s'", jv_type_name(of), n, v.s.p);
	default:
		return run_error(r, "%.*s", n, v.s.p);
	}
}

bool jv_truth(struct jrun *r, struct jv v)
{
	switch (v.kind) {
	case JV_MISSING:
	case JV_UNDEFINED:
	case JV_NONE:
		return false;
	case JV_BOOL:
		return v.b;
	case JV_INT:
		return v.i != 0;
	case JV_FLOAT:
		return v.f != 0;
	case JV_STR:
		return v.s.len > 0;
	case JV_LIST:
	case JV_TUPLE:
	case JV_VIEW:
		return v.list.n > 0;
	case JV_DICT:
		return v.dict->n > 0;
	case JV_RANGE:
		return v.range.n > 0;
	default:
		return true;
	}
}

static bool list_equal(struct jrun *r, struct jv a, struct jv b)
{
	bool same = a.list.n == b.list.n;
	size_t i;

	if (!run_enter(r)) same = false;
	for (i = 0; same && i < a.list.n && run_step(r); i++) same = jv_equal(r, a.list.items[i], b.list.items[i]);
	run_leave(r);
	return same && !r->rc;
}

static bool dict_equal(struct jrun *r, struct jv a, struct jv b)
{
	bool same = a.dict->n == b.dict->n;
	const struct jv *other;
	size_t i;

	if (!run_enter(r)) same = false;
	for (i = 0; same && i < a.dict->n && run_step(r); i++) {
		other = jdict_get(r, b.dict, a.dict->entries[i].key);
		same = other && jv_equal(r, a.dict->entries[i].value, *other);
	}
	run_leave(r);
	return same && !r->rc;
}

bool jv_equal(struct jrun *r, struct jv a, struct jv b)
{
	if (jv_is_number(a) && jv_is_number(b)) {
		if (jv_is_integral(a) && jv_is_integral(b)) return jv_as_int(a) == jv_as_int(b);
		return jv_as_float(a) == jv_as_float(b);
	}
	if (a.kind != b.kind) return false;
	switch (a.kind) {
	case JV_UNDEFINED:
	case JV_NONE:
		return true;
	case JV_STR:
		if (a.s.len != b.s.len) return false;
		run_work(r, a.s.len);
		return memcmp(a.s.p, b.s.p, a.s.len) == 0;
	case JV_LIST:
	case JV_TUPLE:
		return list_equal(r, a, b);
	case JV_DICT:
		return dict_equal(r, a, b);
	case JV_VIEW:
		return a.sub == b.sub && list_equal(r, a, b);
	case JV_RANGE:
		return a.range.n == b.range.n && (!a.range.n || (a.range.start == b.range.start &&
								 (a.range.n == 1 || a.range.step == b.range.step)));
	case JV_FUNCTION:
		return a.function == b.function;
	case JV_METHOD:
		return a.bound->method == b.bound->method && jv_equal(r, a.bound->self, b.bound->self);
	default:
		return a.gen == b.gen; /* the same object */
	}
}

static int list_compare(struct jrun *r, struct jv a, struct jv b, const char *op)
{
	size_t i;
	int c = 0;

	if (run_enter(r)) {
		for (i = 0; i < a.list.n && i < b.list.n && run_step(r); i++) {
			if (jv_equal(r, a.list.items[i], b.list.items[i])) continue;
			c = jv_compare(r, a.list.items[i], b.list.items[i], op);
			break;
		}
		if (i == a.list.n || i == b.list.n) c = (a.list.n > b.list.n) - (a.list.n < b.list.n);
	}
	run_leave(r);
	return c;
}

int jv_compare(struct jrun *r, struct jv a, struct jv b, const char *op)
{
	int c;

	if (jv_is_integral(a) && jv_is_integral(b)) return (jv_as_int(a) > jv_as_int(b)) - (jv_as_int(a) < jv_as_int(b));
	if (jv_is_number(a) && jv_is_number(b)) return (jv_as_float(a) > jv_as_float(b)) - (jv_as_float(a) < jv_as_float(b));
	if (a.kind == JV_STR && b.kind == JV_STR) {
		run_work(r, min_size(a.s.len, b.s.len));
		c = memcmp(a.s.p, b.s.p, min_size(a.s.len, b.s.len));
		return c ? c : (a.s.len > b.s.len) - (a.s.len < b.s.len);
	}
	if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) return list_compare(r, a, b, op);
	if (a.kind == JV_UNDEFINED) jv_undefined_error(r, a);
	else if (b.kind == JV_UNDEFINED) jv_undefined_error(r, b);
	else run_error(r, "'%s' not supported between instances of '%s' and '%s'", op, jv_type_name(a), jv_type_name(b));
	return 0;
}

bool jv_contains(struct jrun *r, struct jv item, struct jv in)
{
	struct jseq s;
	size_t i;

	switch (in.kind) {
	case JV_STR:
		if (item.kind == JV_STR) return jchars_find(r, in, item, 0, in.s.len) >= 0;
		run_error(r, "'in <string>' requires string as left operand, not %s", jv_type_name(item));
		return false;
	case JV_DICT:
		return jdict_get(r, in.dict, item) != NULL;
	case JV_LIST:
	case JV_TUPLE:
	case JV_VIEW:
	case JV_RANGE:
	case JV_GENERATOR:
	case JV_UNDEFINED:
		s = jv_iterate(r, in);
		for (i = 0; i < s.n && run_step(r); i++)
			if (jv_equal(r, jseq_at(&s, i), item)) return true;
		return false;
	default:
		run_error(r, "argument of type '%s' is not iterable", jv_type_name(in));
		return false;
	}
}

/* ---- arithmetic ---- */

static struct jv bad_operands(struct jrun *r, const char *op, struct jv a, struct jv b)
{
	if (a.kind == JV_UNDEFINED) return jv_undefined_error(r, a);
	if (b.kind == JV_UNDEFINED) return jv_undefined_error(r, b);
	return run_error(r, "unsupported operand type(s) for %s: '%s' and '%s'", op, jv_type_name(a), jv_type_name(b));
}

static struct jv add_lists(struct jrun *r, struct jv a, struct jv b)
{
	struct jv *items = run_alloc(r, a.list.n + b.list.n, sizeof(*items));

	if (!items) return a;
	if (a.list.n) memcpy(items, a.list.items, a.list.n * sizeof(*items));
	if (b.list.n) memcpy(items + a.list.n, b.list.items, b.list.n * sizeof(*items));
	return jv_list(a.kind, items, a.list.n + b.list.n, a.input || b.input);
}

static struct jv add_markup(struct jrun *r, struct jv a, struct jv b)
{
	struct jv s = jv_concat(r, a.markup ? a : jchars_escape(r, a), b.markup ? b : jchars_escape(r, b));

	s.markup = true;
	return s;
}

struct jv jv_add(struct jrun *r, struct jv a, struct jv b)
{
	if (a.kind == JV_STR && b.kind == JV_STR) return a.markup || b.markup ? add_markup(r, a, b) : jv_concat(r, a, b);
	if (jv_is_number(a) && jv_is_number(b)) return jv_arith(r, '+', a, b);
	if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) return add_lists(r, a, b);
	if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED) return bad_operands(r, "+", a, b);
	if (a.kind == JV_STR || a.kind == JV_LIST || a.kind == JV_TUPLE)
		return run_error(r, "can only concatenate %s (not \"%s\") to %s", jv_type_name(a), jv_type_name(b), jv_type_name(a));
	return bad_operands(r, "+", a, b);
}

static struct jv repeat(struct jrun *r, struct jv what, jint times)
{
	struct jbuf b;
	struct jv *items, v;
	size_t i, n;

	if (times < 0) times = 0;
	if (what.kind == JV_STR) {
		if (!what.s.len) return what;
		jbuf_init(&b, r);
		for (; times && run_step(r); times--) jbuf_str(&b, what);
		v = jbuf_finish(&b);
		v.markup = what.markup;
		return v;
	}
	if (!what.list.n) return what;
	if (times > (jint)(r->limits->memory_max / sizeof(*items) / what.list.n)) times = (jint)(r->limits->memory_max / sizeof(*items));
	n = (size_t)times * what.list.n;
	items = run_alloc(r, n, sizeof(*items));
	for (i = 0; items && i < n && run_work(r, sizeof(*items)); i++) items[i] = what.list.items[i % what.list.n];
	return jv_list(what.kind, items, items && !r->rc ? n : 0, what.input);
}

static struct jv too_large(struct jrun *r)
{
	return run_fail(r, ST_LIMIT, "a number became too large");
}

static struct jv int_pow(struct jrun *r, jint a, jint b)
{
	jint v = 1;

	if (b < 0) return a ? jv_float(pow((double)a, (double)b)) : run_error(r, "0.0 cannot be raised to a negative power");
	if (a == 0 || a == 1) return jv_int(b == 0 ? 1 : a);
	if (a == -1) return jv_int(b % 2 ? -1 : 1);
	if (b > 127) return too_large(r);
	for (; b; b--)
		if (__builtin_mul_overflow(v, a, &v)) return too_large(r);
	return jv_int(v);
}

static struct jv int_arith(struct jrun *r, int op, jint a, jint b)
{
	const jint lowest = (jint)((unsigned __int128)1 << 127);
	jint v = 0;
	bool over = false;

	if ((op == '/' || op == JOP_FLOORDIV || op == '%') && b == 0)
		return run_error(r, op == '/' ? "division by zero" : "integer division or modulo by zero");
	if ((op == JOP_FLOORDIV || op == '%') && a == lowest && b == -1) return too_large(r);
	switch (op) {
	case '+':
		over = __builtin_add_overflow(a, b, &v);
		break;
	case '-':
		over = __builtin_sub_overflow(a, b, &v);
		break;
	case '*':
		over = __builtin_mul_overflow(a, b, &v);
		break;
	case '/':
		return jv_float((double)a / (double)b);
	case JOP_FLOORDIV:
		v = a / b - (a % b != 0 && (a < 0) != (b < 0));
		break;
	case '%':
		v = a % b;
		if (v != 0 && (v < 0) != (b < 0)) v += b;
		break;
	default:
		return int_pow(r, a, b);
	}
	return over ? too_large(r) : jv_int(v);
}

static struct jv float_arith(struct jrun *r, int op, double a, double b)
{
	double v;

	switch (op) {
	case '+':
		return jv_float(a + b);
	case '-':
		return jv_float(a - b);
	case '*':
		return jv_float(a * b);
	case JOP_POW:
		v = pow(a, b);
		if (isnan(v) && !isnan(a) && !isnan(b)) return run_error(r, "the power is not a real number");
		if (isinf(v) && !isinf(a) && !isinf(b)) return run_error(r, "the power is out of range");
		return jv_float(v);
	}
	if (b == 0) return run_error(r, op == '/' ? "float division by zero" : "float floor division or modulo by zero");
	if (op == '/') return jv_float(a / b);
	v = fmod(a, b);
	if (v != 0 && (v < 0) != (b < 0)) v += b;
	if (op == '%') return jv_float(v);
	return jv_float(floor((a - v) / b + 0.5));
}

struct jv jv_arith(struct jrun *r, int op, struct jv a, struct jv b)
{
	char name[3] = {(char)(op > 0xff ? op >> 8 : op), (char)(op > 0xff ? op & 0xff : 0), 0};
	struct jv v;

	if (jv_is_number(a) && jv_is_number(b)) {
		v = jv_is_integral(a) && jv_is_integral(b) ? int_arith(r, op, jv_as_int(a), jv_as_int(b))
							   : float_arith(r, op, jv_as_float(a), jv_as_float(b));
		v.input = a.input || b.input;
		return v;
	}
	if (op == '*') {
		if ((a.kind == JV_STR || a.kind == JV_LIST || a.kind == JV_TUPLE) && jv_is_integral(b)) return repeat(r, a, jv_as_int(b));
		if ((b.kind == JV_STR || b.kind == JV_LIST || b.kind == JV_TUPLE) && jv_is_integral(a)) return repeat(r, b, jv_as_int(a));
	}
	if (op == '%' && a.kind == JV_STR && b.kind != JV_UNDEFINED) return format_percent(r, a, b);
	return bad_operands(r, op == JOP_POW ? "** or pow()" : name, a, b);
}

struct jv jv_negate(struct jrun *r, struct jv v, bool minus)
{
	struct jv n;

	if (v.kind == JV_UNDEFINED) return jv_undefined_error(r, v);
	if (!jv_is_number(v)) return run_error(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+', jv_type_name(v));
	if (v.kind == JV_FLOAT) n = jv_float(minus ? -v.f : v.f);
	else n = minus ? int_arith(r, '-', 0, jv_as_int(v)) : jv_int(jv_as_int(v));
	n.input = v.input;
	return n;
}

/* ---- sequences ---- */

struct jv jseq_at(const struct jseq *s, size_t ix)
{
	if (s->items) return s->items[ix];
	return jv_int((jint)s->start + (jint)ix * s->step);
}

/* The characters of a text as an array. */
static struct jseq iterate_chars(struct jrun *r, struct jv v)
{
	size_t n = jchars_count(r, v), i, at = 0;
	struct jv *items = run_alloc(r, n ? n : 1, sizeof(*items));

	if (!items) return (struct jseq){.step = 1};
	for (i = 0; i < n; i++) {
		size_t from = at++;

		while (at < v.s.len && ((unsigned char)v.s.p[at] & 0xc0) == 0x80) at++;
		items[i] = jv_sub(v, from, at - from);
	}
	return (struct jseq){.items = items, .n = n, .input = jv_has_input(v)};
}

struct jseq jv_iterate(struct jrun *r, struct jv v)
{
	struct jseq s = {.step = 1, .input = v.input};

	switch (v.kind) {
	case JV_UNDEFINED:
		if (v.sub == JU_UNSAFE) jv_undefined_error(r, v);
		break;
	case JV_LIST:
	case JV_TUPLE:
	case JV_VIEW:
		s.items = v.list.items;
		s.n = v.list.n;
		break;
	case JV_DICT:
		v = jdict_view(r, v, JVIEW_KEYS);
		s.items = v.list.items;
		s.n = v.list.n;
		break;
	case JV_STR:
		return iterate_chars(r, v);
	case JV_RANGE:
		s.start = v.range.start;
		s.step = v.range.step;
		s.n = v.range.n;
		break;
	case JV_GENERATOR:
		s.items = v.gen->items ? v.gen->items + v.gen->pos : NULL;
		s.n = v.gen->n - v.gen->pos;
		v.gen->pos = v.gen->n;
		break;
	default:
		run_error(r, "'%s' object is not iterable", jv_type_name(v));
	}
	if (r->rc) s.n = 0;
	return s;
}

struct jv jv_to_list(struct jrun *r, struct jv v)
{
	struct jseq s = jv_iterate(r, v);
	struct jv *items;
	size_t i;

	if (s.items || !s.n) return jv_list(JV_LIST, s.items, s.n, s.input);
	items = run_alloc(r, s.n, sizeof(*items));
	if (!items) return jv_list(JV_LIST, NULL, 0, false);
	for (i = 0; i < s.n; i++) items[i] = jseq_at(&s, i);
	return jv_list(JV_LIST, items, s.n, s.input);
}

size_t jv_length(struct jrun *r, struct jv v)
{
	switch (v.kind) {
	case JV_UNDEFINED:
		return 0;
	case JV_STR:
		return jchars_count(r, v);
	case JV_LIST:
	case JV_TUPLE:
	case JV_VIEW:
		return v.list.n;
	case JV_DICT:
		return v.dict->n;
	case JV_RANGE:
		return v.range.n;
	default:
		run_error(r, "object of type '%s' has no len()", jv_type_name(v));
		return 0;
	}
}

/* ---- subscripts ---- */

static struct jv get_namespace(struct jrun *r, struct jv obj, struct jv name)
{
	const struct jv *v = jdict_get(r, obj.dict, name);

	return v ? *v : jv_undefined(JU_ATTR, name, JV_NAMESPACE);
}

/* A method or an attribute in Python's sense; JV_MISSING when there is none. */
static struct jv get_attr(struct jrun *r, struct jv obj, struct jv name)
{
	const struct jmethod *m;
	struct jbound *b;

	if (obj.kind == JV_NAMESPACE) return get_namespace(r, obj, name);
	if (name.s.len > 1 && name.s.p[0] == '_' && name.s.p[1] == '_') return jv_undefined(JU_UNSAFE, name, obj.kind);
	m = method_find(obj.kind, name);
	if (!m) return method_is_hidden(obj.kind, name) ? jv_undefined(JU_UNSAFE, name, obj.kind) : (struct jv){.kind = JV_MISSING};
	b = run_alloc(r, 1, sizeof(*b));
	if (!b) return jv_none();
	*b = (struct jbound){m, obj};
	return (struct jv){.kind = JV_METHOD, .input = obj.input, .bound = b};
}

struct jv jv_getattr(struct jrun *r, struct jv obj, struct jv name)
{
	const struct jv *item;
	struct jv v;

	if (obj.kind == JV_UNDEFINED) return jv_undefined_error(r, obj);
	if (obj.kind == JV_LOOP) return eval_loop_attr(r, obj, name);
	if (obj.kind == JV_TUPLE && obj.sub && jv_is(name, "grouper")) return obj.list.items[0];
	if (obj.kind == JV_TUPLE && obj.sub && jv_is(name, "list")) return obj.list.items[1];
	if (obj.kind == JV_DICT && (!name.s.len || name.s.p[0] != '_') && !method_find(JV_DICT, name) && !method_is_hidden(JV_DICT, name)) {
		item = jdict_get(r, obj.dict, name);
		return item ? *item : jv_undefined(JU_ATTR, name, JV_DICT);
	}
	v = get_attr(r, obj, name);
	if (jv_given(v)) return v;
	item = obj.kind == JV_DICT ? jdict_get(r, obj.dict, name) : NULL;
	return item ? *item : jv_undefined(JU_ATTR, name, obj.kind);
}

static struct jv no_element(struct jrun *r, struct jv obj, struct jv key)
{
	struct jv text = jv_repr(r, key);
	size_t n = 80 + min_size(text.s.len, 100);
	char *hint = run_alloc(r, n, 1);

	if (!hint) return jv_none();
	if (obj.kind == JV_NONE) snprintf(hint, n, "None has no element %.*s", (int)min_size(text.s.len, 100), text.s.p);
	else snprintf(hint, n, "%s object has no element %.*s", jv_type_name(obj), (int)min_size(text.s.len, 100), text.s.p);
	return jv_hint(hint);
}

/* Element number `ix` (from the end when negative) of what has an order; JV_MISSING outside. */
static struct jv get_element(struct jrun *r, struct jv obj, jint ix)
{
	struct jv missing = {.kind = JV_MISSING};
	size_t n = obj.kind == JV_STR ? 0 : jv_length(r, obj), at, end;

	if (obj.kind == JV_STR) {
		if (ix < 0) ix += (jint)jchars_count(r, obj);
		if (ix < 0 || ix >= (jint)obj.s.len) return missing;
		at = jchars_offset(r, obj, (size_t)ix);
		if (at == obj.s.len) return missing;
		for (end = at + 1; end < obj.s.len && ((unsigned char)obj.s.p[end] & 0xc0) == 0x80;) end++;
		return jv_sub(obj, at, end - at);
	}
	if (ix < 0) ix += (jint)n;
	if (ix < 0 || ix >= (jint)n) return missing;
	if (obj.kind == JV_RANGE) return jv_int((jint)obj.range.start + ix * obj.range.step);
	return obj.list.items[ix];
}

struct jv jv_getitem(struct jrun *r, struct jv obj, struct jv key)
{
	struct jv v = {.kind = JV_MISSING};
	const struct jv *item;

	if (obj.kind == JV_UNDEFINED) return jv_undefined_error(r, obj);
	if (obj.kind == JV_DICT && key.kind != JV_LIST && key.kind != JV_DICT) {
		item = jdict_get(r, obj.dict, key);
		if (item) return *item;
	} else if (jv_is_integral(key) &&
		   (obj.kind == JV_STR || obj.kind == JV_LIST || obj.kind == JV_TUPLE || obj.kind == JV_RANGE)) {
		v = get_element(r, obj, jv_as_int(key));
	}
	if (jv_given(v)) return v;
	if (key.kind != JV_STR) return no_element(r, obj, key);
	if (obj.kind == JV_LOOP) return eval_loop_attr(r, obj, key);
	v = get_attr(r, obj, key);
	return jv_given(v) ? v : jv_undefined(JU_ATTR, key, obj.kind);
}

/* One bound of a slice, clamped as Python does. */
static jint slice_bound(struct jrun *r, struct jv v, jint fallback, jint n, bool backwards)
{
	jint i;

	if (!jv_given(v) || jv_is_none(v)) return fallback;
	if (v.kind == JV_UNDEFINED) jv_undefined_error(r, v);
	else if (!jv_is_integral(v)) run_error(r, "slice indices must be integers or None or have an __index__ method");
	if (r->rc) return fallback;
	i = jv_as_int(v);
	if (i < 0) i += n;
	if (i < 0) return backwards ? -1 : 0;
	if (i >= n) return backwards ? n - 1 : n;
	return i;
}

struct jv jv_slice(struct jrun *r, struct jv obj, struct jv start, struct jv stop, struct jv step)
{
	jint by = jv_given(step) && jv_is_integral(step) ? jv_as_int(step) : 1, n, from, to;
	size_t count, i;
	struct jseq s;
	struct jv *items, v;
	struct jbuf b;

	if (obj.kind == JV_UNDEFINED) return jv_undefined_error(r, obj);
	if (obj.kind != JV_STR && obj.kind != JV_LIST && obj.kind != JV_TUPLE && obj.kind != JV_RANGE) return no_element(r, obj, jv_lit("slice"));
	if (by == 0) return run_error(r, "slice step cannot be zero");
	if (by > INT32_MAX || by < -INT32_MAX) by = by > 0 ? INT32_MAX : -INT32_MAX; /* no sequence is longer */
	n = (jint)jv_length(r, obj);
	from = slice_bound(r, start, by > 0 ? 0 : n - 1, n, by < 0);
	to = slice_bound(r, stop, by > 0 ? n : -1, n, by < 0);
	count = by > 0 ? (from < to ? (size_t)((to - from - 1) / by + 1) : 0) : (from > to ? (size_t)((from - to - 1) / -by + 1) : 0);
	if (r->rc) return jv_none();
	if (obj.kind == JV_STR && by == 1) {
		size_t at = jchars_offset(r, obj, (size_t)from);
		struct jv rest = jv_sub(obj, at, obj.s.len - at);

		return jv_sub(rest, 0, jchars_offset(r, rest, count));
	}
	s = jv_iterate(r, obj);
	if (obj.kind == JV_STR) {
		jbuf_init(&b, r);
		for (i = 0; i < count && run_step(r); i++) jbuf_str(&b, jseq_at(&s, (size_t)(from + (jint)i * by)));
		v = jbuf_finish(&b);
		v.markup = obj.markup;
		return v;
	}
	if (by == 1 && s.items) return jv_list(obj.kind, s.items + (count ? from : 0), count, obj.input);
	items = run_alloc(r, count, sizeof(*items));
	for (i = 0; items && i < count; i++) items[i] = jseq_at(&s, (size_t)(from + (jint)i * by));
	return jv_list(obj.kind == JV_TUPLE ? JV_TUPLE : JV_LIST, items, items ? count : 0, obj.input);
}
