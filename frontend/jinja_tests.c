/* jinja_tests.c - what stands behind "is": the tests. Each gives a bool. */
#include "frontend/jinja_ast.h"

#define TEST(name) static struct jv name(struct jrun *r, struct jv v, const struct jv *a, const struct jargs *raw)

TEST(test_defined)
{
	return jv_bool(v.kind != JV_UNDEFINED);
}

TEST(test_undefined)
{
	return jv_bool(v.kind == JV_UNDEFINED);
}

TEST(test_none)
{
	return jv_bool(v.kind == JV_NONE);
}

TEST(test_boolean)
{
	return jv_bool(v.kind == JV_BOOL);
}

TEST(test_is_true)
{
	return jv_bool(v.kind == JV_BOOL && v.b);
}

TEST(test_is_false)
{
	return jv_bool(v.kind == JV_BOOL && !v.b);
}

TEST(test_integer)
{
	return jv_bool(v.kind == JV_INT);
}

TEST(test_float)
{
	return jv_bool(v.kind == JV_FLOAT);
}

TEST(test_number)
{
	return jv_bool(jv_is_number(v));
}

TEST(test_string)
{
	return jv_bool(v.kind == JV_STR);
}

TEST(test_mapping)
{
	return jv_bool(v.kind == JV_DICT);
}

TEST(test_sequence)
{
	return jv_bool(v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_DICT || v.kind == JV_RANGE ||
		       v.kind == JV_UNDEFINED);
}

TEST(test_iterable)
{
	return jv_bool(v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_DICT || v.kind == JV_RANGE ||
		       v.kind == JV_UNDEFINED || v.kind == JV_VIEW || v.kind == JV_GENERATOR || v.kind == JV_LOOP);
}

TEST(test_callable)
{
	return jv_bool(v.kind == JV_FUNCTION || v.kind == JV_METHOD || v.kind == JV_MACRO || v.kind == JV_LOOP || v.kind == JV_JOINER ||
		       v.kind == JV_UNDEFINED);
}

TEST(test_escaped)
{
	return jv_bool(v.kind == JV_STR && v.markup);
}

TEST(test_lower)
{
	return jv_bool(jchars_is_case(jv_to_str(r, v), false));
}

TEST(test_upper)
{
	return jv_bool(jchars_is_case(jv_to_str(r, v), true));
}

TEST(test_filter)
{
	return jv_bool(v.kind == JV_STR && filter_find(v));
}

TEST(test_test)
{
	return jv_bool(v.kind == JV_STR && test_find(v));
}

static struct jv remainder_is(struct jrun *r, struct jv v, struct jv by, jint want)
{
	struct jv rest = jv_arith(r, '%', v, by);

	return jv_bool(!r->rc && jv_equal(r, rest, jv_int(want)));
}

TEST(test_odd)
{
	return remainder_is(r, v, jv_int(2), 1);
}

TEST(test_even)
{
	return remainder_is(r, v, jv_int(2), 0);
}

TEST(test_divisibleby)
{
	return remainder_is(r, v, a[0], 0);
}

TEST(test_eq)
{
	return jv_bool(jv_equal(r, v, a[0]));
}

TEST(test_ne)
{
	return jv_bool(!jv_equal(r, v, a[0]));
}

TEST(test_lt)
{
	return jv_bool(jv_compare(r, v, a[0], "<") < 0);
}

TEST(test_le)
{
	return jv_bool(jv_compare(r, v, a[0], "<=") <= 0);
}

TEST(test_gt)
{
	return jv_bool(jv_compare(r, v, a[0], ">") > 0);
}

TEST(test_ge)
{
	return jv_bool(jv_compare(r, v, a[0], ">=") >= 0);
}

TEST(test_in)
{
	return jv_bool(jv_contains(r, v, a[0]));
}

/* Identity: the same kind and, for what has no identity of its own here, the same value. */
TEST(test_sameas)
{
	if (v.kind != a[0].kind) return jv_bool(false);
	if (v.kind == JV_LIST || v.kind == JV_TUPLE) return jv_bool(v.list.items == a[0].list.items && v.list.n == a[0].list.n);
	if (v.kind == JV_DICT) return jv_bool(v.dict == a[0].dict);
	return jv_bool(jv_equal(r, v, a[0]));
}

static const struct jfunction TESTS[] = {
	{"boolean", "", 0, test_boolean},
	{"callable", "", 0, test_callable},
	{"defined", "", 0, test_defined},
	{"divisibleby", "num", 1, test_divisibleby},
	{"eq", "b", 1, test_eq},
	{"==", "b", 1, test_eq},
	{"equalto", "b", 1, test_eq},
	{"escaped", "", 0, test_escaped},
	{"even", "", 0, test_even},
	{"false", "", 0, test_is_false},
	{"filter", "", 0, test_filter},
	{"float", "", 0, test_float},
	{"ge", "b", 1, test_ge},
	{">=", "b", 1, test_ge},
	{"gt", "b", 1, test_gt},
	{">", "b", 1, test_gt},
	{"greaterthan", "b", 1, test_gt},
	{"in", "seq", 1, test_in},
	{"integer", "", 0, test_integer},
	{"iterable", "", 0, test_iterable},
	{"le", "b", 1, test_le},
	{"<=", "b", 1, test_le},
	{"lessthan", "b", 1, test_lt},
	{"lower", "", 0, test_lower},
	{"lt", "b", 1, test_lt},
	{"<", "b", 1, test_lt},
	{"mapping", "", 0, test_mapping},
	{"ne", "b", 1, test_ne},
	{"!=", "b", 1, test_ne},
	{"none", "", 0, test_none},
	{"number", "", 0, test_number},
	{"odd", "", 0, test_odd},
	{"sameas", "other", 1, test_sameas},
	{"sequence", "", 0, test_sequence},
	{"string", "", 0, test_string},
	{"test", "", 0, test_test},
	{"true", "", 0, test_is_true},
	{"undefined", "", 0, test_undefined},
	{"upper", "", 0, test_upper},
};

const struct jfunction *test_find(struct jv name)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(TESTS); i++)
		if (jv_is(name, TESTS[i].name)) return &TESTS[i];
	return NULL;
}

bool test_true(struct jrun *r, const struct jfunction *test, struct jv v, const struct jargs *args)
{
	return jv_truth(r, call_function(r, test, v, args));
}
