/* jinja_ops.c - Python's operators on values: truth, equality, order, arithmetic, membership.
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
	if (v == 0) v = copysign(0, b);
	else if ((v < 0) != (b < 0)) v += b;
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
	if (op == '%' && a.kind == JV_STR) return format_percent(r, a, b);
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
