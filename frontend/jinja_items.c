/* jinja_items.c - what is inside a value: walking it, its length, attributes, subscripts and slices.
 *
 * Attributes follow the sandbox: a method of the type comes first (obj.items), then a key; names with two leading
 * underscores and methods that change their object give an undefined value that cannot be used. */
#include "frontend/jinja_value.h"

#include <stdio.h>

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

	v.markup = false; /* iterating Markup gives plain strings */
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

#define SLICE_STEP_MAX ((jint)1 << 40) /* no sequence is longer */

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
	if (by > SLICE_STEP_MAX || by < -SLICE_STEP_MAX) by = by > 0 ? SLICE_STEP_MAX : -SLICE_STEP_MAX;
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
	if (obj.kind == JV_RANGE) {
		obj.range.stop = (int32_t)(obj.range.start + (int64_t)to * obj.range.step);
		obj.range.start = (int32_t)(obj.range.start + (int64_t)from * obj.range.step);
		obj.range.step = (int32_t)(obj.range.step * by);
		obj.range.n = count;
		return obj;
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
