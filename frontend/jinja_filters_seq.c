/* jinja_filters_seq.c - the filters on sequences and mappings.
 *
 * map, select and their kin give generators, which can be walked once, as in Python. Sorting is a merge sort: stable, and
 * a comparison that fails ends it. */
#include "frontend/jinja_filters.h"

#define FILTER(name) static struct jv name(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)

static struct jv one_part(struct jrun *r, struct jv item, struct jv part)
{
	jint number;
	size_t i;

	for (i = 0; i < part.s.len && part.s.p[i] >= '0' && part.s.p[i] <= '9';) i++;
	if (i && i == part.s.len && jfilter_parse_int(part, 10, &number)) return jv_getitem(r, item, jv_int(number));
	return jv_getitem(r, item, part);
}

struct jv jfilter_attribute(struct jrun *r, struct jv item, struct jv attribute, struct jv fallback)
{
	size_t from = 0;
	ptrdiff_t dot;

	if (attribute.kind != JV_STR) {
		if (jv_given(attribute) && !jv_is_none(attribute)) item = jv_getitem(r, item, attribute);
		from = SIZE_MAX;
	}
	while (from != SIZE_MAX && run_step(r)) {
		dot = jchars_find(r, attribute, jv_lit("."), from, attribute.s.len);
		item = one_part(r, item, jv_sub(attribute, from, (dot < 0 ? attribute.s.len : (size_t)dot) - from));
		if (item.kind == JV_UNDEFINED && jv_given(fallback)) item = fallback;
		from = dot < 0 ? SIZE_MAX : (size_t)dot + 1;
	}
	if (item.kind == JV_UNDEFINED && jv_given(fallback)) return fallback;
	return item;
}

static struct jv vec_generator(struct jrun *r, const struct jvec *v, bool input)
{
	return jv_generator(r, v->items, v->n, input);
}

FILTER(filter_first)
{
	struct jseq s;

	if (self.kind == JV_GENERATOR) { /* takes one, the others stay */
		if (self.gen->pos < self.gen->n) return self.gen->items[self.gen->pos++];
		return jv_hint("No first item, sequence was empty.");
	}
	s = jv_iterate(r, self);
	return s.n ? jseq_at(&s, 0) : jv_hint("No first item, sequence was empty.");
}

FILTER(filter_last)
{
	struct jseq s;

	if (self.kind == JV_GENERATOR) return run_error(r, "'generator' object is not reversible");
	s = jv_iterate(r, self);
	return s.n ? jseq_at(&s, s.n - 1) : jv_hint("No last item, sequence was empty.");
}

FILTER(filter_list)
{
	return jv_to_list(r, self);
}

FILTER(filter_items)
{
	struct jv v;

	if (self.kind == JV_UNDEFINED) return jv_generator(r, NULL, 0, false);
	if (self.kind != JV_DICT) return run_error(r, "Can only get item pairs from a mapping.");
	v = jdict_view(r, self, JVIEW_ITEMS);
	return jv_generator(r, v.list.items, v.list.n, self.input);
}

FILTER(filter_join)
{
	struct jv sep = jv_given(a[0]) ? jv_to_str(r, a[0]) : jv_lit("");
	struct jseq s = jv_iterate(r, self);
	struct jbuf b;
	size_t i;

	if (r->rc) return jv_none();
	jbuf_init(&b, r);
	for (i = 0; i < s.n && run_step(r); i++) {
		struct jv text = jv_to_str(r, jfilter_attribute(r, jseq_at(&s, i), a[1], (struct jv){0}));

		/* jv_to_str() may build in the same arena; the builder moves if it has to. */
		if (i) jbuf_str(&b, sep);
		if (text.kind == JV_STR) jbuf_str(&b, text);
	}
	return jbuf_finish(&b);
}

FILTER(filter_reverse)
{
	struct jseq s;
	struct jv *items, text;
	struct jbuf b;
	size_t i;

	s = jv_iterate(r, self);
	if (self.kind == JV_STR) {
		jbuf_init(&b, r);
		for (i = s.n; i > 0 && run_step(r); i--) jbuf_str(&b, s.items[i - 1]);
		text = jbuf_finish(&b);
		text.markup = self.markup;
		return text;
	}
	items = run_alloc(r, s.n, sizeof(*items));
	if (!items) return jv_none();
	for (i = 0; i < s.n; i++) items[i] = jseq_at(&s, s.n - 1 - i);
	return jv_generator(r, items, s.n, s.input);
}

/* map(attribute=...) or map('filter', arguments). */
FILTER(filter_map)
{
	struct jv attribute = {0}, fallback = {0}, v;
	const struct jfunction *f = NULL;
	struct jargs rest = *raw;
	struct jvec out = {0};
	struct jseq s;
	size_t i;

	if (!jv_truth(r, self)) return jv_generator(r, NULL, 0, false);
	if (raw->n_pos) {
		v = jv_to_str(r, raw->pos[0]);
		f = filter_find(v);
		if (!f) return run_error(r, "No filter named '%.*s'.", (int)min_size(v.s.len, 60), v.s.p);
		rest.pos++;
		rest.n_pos--;
	}
	for (i = 0; !f && i < raw->n_kw; i++) {
		if (jv_is(raw->kw[i].name, "attribute")) attribute = raw->kw[i].value;
		else if (jv_is(raw->kw[i].name, "default")) fallback = raw->kw[i].value;
		else return run_error(r, "Unexpected keyword argument");
	}
	if (!f && !jv_given(attribute)) return run_error(r, "map requires a filter argument");
	if (jv_is_none(fallback)) fallback.kind = JV_MISSING;
	s = jv_iterate(r, self);
	for (i = 0; i < s.n && run_step(r); i++) {
		v = jseq_at(&s, i);
		jvec_push(r, &out, f ? call_function(r, f, v, &rest) : jfilter_attribute(r, v, attribute, fallback));
	}
	return vec_generator(r, &out, s.input);
}

/* select, reject, selectattr, rejectattr: the items whose test (or truth) is `want`. */
static struct jv pick(struct jrun *r, struct jv self, const struct jargs *raw, bool by_attribute, bool want)
{
	struct jargs rest = *raw;
	const struct jfunction *test = NULL;
	struct jv attribute = {0}, v;
	struct jvec out = {0};
	struct jseq s;
	size_t i;
	bool is;

	if (!jv_truth(r, self)) return jv_generator(r, NULL, 0, false);
	if (by_attribute) {
		if (!rest.n_pos) return run_error(r, "Missing parameter for attribute name");
		attribute = *rest.pos++;
		rest.n_pos--;
	}
	if (rest.n_pos) {
		v = jv_to_str(r, rest.pos[0]);
		test = test_find(v);
		if (!test) return run_error(r, "No test named '%.*s'.", (int)min_size(v.s.len, 60), v.s.p);
		rest.pos++;
		rest.n_pos--;
	}
	s = jv_iterate(r, self);
	for (i = 0; i < s.n && run_step(r); i++) {
		v = jfilter_attribute(r, jseq_at(&s, i), attribute, (struct jv){0});
		is = test ? test_true(r, test, v, &rest) : jv_truth(r, v);
		if (is == want) jvec_push(r, &out, jseq_at(&s, i));
	}
	return vec_generator(r, &out, s.input);
}

FILTER(filter_select)
{
	return pick(r, self, raw, false, true);
}

FILTER(filter_reject)
{
	return pick(r, self, raw, false, false);
}

FILTER(filter_selectattr)
{
	return pick(r, self, raw, true, true);
}

FILTER(filter_rejectattr)
{
	return pick(r, self, raw, true, false);
}

/* ---- sorting ---- */

struct sort_item {
	struct jv key, value;
};

static void sort_run(struct jrun *r, struct sort_item *v, struct sort_item *tmp, size_t n, bool down)
{
	size_t half = n / 2, x = 0, y = half, k = 0;
	int c;

	if (n < 2 || r->rc) return;
	sort_run(r, v, tmp, half, down);
	sort_run(r, v + half, tmp, n - half, down);
	while (x < half && y < n && run_step(r)) {
		c = down ? jv_compare(r, v[x].key, v[y].key, "<") : jv_compare(r, v[y].key, v[x].key, "<");
		tmp[k++] = c < 0 ? v[y++] : v[x++];
	}
	if (r->rc) return;
	while (x < half) tmp[k++] = v[x++];
	memcpy(v, tmp, k * sizeof(*v));
}

static struct jv sort_key(struct jrun *r, struct jv v, bool case_sensitive)
{
	return v.kind == JV_STR && !case_sensitive ? jchars_case(r, v, JCASE_LOWER) : v;
}

/* The key of one item; a list of several attributes ("age,name") gives a list. */
static struct jv sort_item_key(struct jrun *r, struct jv item, struct jv attribute, bool case_sensitive)
{
	struct jv parts, *keys;
	size_t i;

	if (attribute.kind != JV_STR || jchars_find(r, attribute, jv_lit(","), 0, attribute.s.len) < 0)
		return sort_key(r, jfilter_attribute(r, item, attribute, (struct jv){0}), case_sensitive);
	parts = jchars_split(r, attribute, jv_lit(","), -1, false);
	keys = r->rc ? NULL : run_alloc(r, parts.list.n, sizeof(*keys));
	if (!keys) return jv_none();
	for (i = 0; i < parts.list.n; i++)
		keys[i] = sort_key(r, jfilter_attribute(r, item, parts.list.items[i], (struct jv){0}), case_sensitive);
	return jv_list(JV_LIST, keys, parts.list.n, false);
}

static struct sort_item *sort_items(struct jrun *r, const struct jseq *s, struct jv attribute, bool case_sensitive, bool down)
{
	struct sort_item *v = run_alloc(r, s->n, sizeof(*v)), *tmp = run_alloc(r, s->n, sizeof(*tmp));
	size_t i;

	if (!v || !tmp) return NULL;
	for (i = 0; i < s->n && run_step(r); i++) {
		v[i].value = jseq_at(s, i);
		v[i].key = sort_item_key(r, v[i].value, attribute, case_sensitive);
	}
	sort_run(r, v, tmp, s->n, down);
	return r->rc ? NULL : v;
}

FILTER(filter_sort)
{
	struct jseq s = jv_iterate(r, self);
	struct sort_item *v = sort_items(r, &s, a[2], arg_bool(r, a[1], false), arg_bool(r, a[0], false));
	struct jv *items = run_alloc(r, s.n, sizeof(*items));
	size_t i;

	if (!v || !items) return jv_none();
	for (i = 0; i < s.n; i++) items[i] = v[i].value;
	return jv_list(JV_LIST, items, s.n, s.input);
}

FILTER(filter_dictsort)
{
	struct jseq s;
	struct sort_item *v;
	struct jv *items, by = jv_int(0);
	size_t i;

	if (self.kind == JV_UNDEFINED) return jv_undefined_error(r, self);
	if (self.kind != JV_DICT) return run_error(r, "'%s' object has no attribute 'items'", jv_type_name(self));
	if (jv_is(a[1], "value")) by = jv_int(1);
	else if (jv_given(a[1]) && !jv_is(a[1], "key")) return run_error(r, "You can only sort by either \"key\" or \"value\"");
	s = jv_iterate(r, jdict_view(r, self, JVIEW_ITEMS));
	v = sort_items(r, &s, by, arg_bool(r, a[0], false), arg_bool(r, a[2], false));
	items = run_alloc(r, s.n, sizeof(*items));
	if (!v || !items) return jv_none();
	for (i = 0; i < s.n; i++) items[i] = v[i].value;
	return jv_list(JV_LIST, items, s.n, self.input);
}

FILTER(filter_groupby)
{
	struct jseq s = jv_iterate(r, self);
	bool case_sensitive = arg_bool(r, a[2], false);
	struct jvec out = {0};
	struct sort_item *v;
	struct jv *members, *pair, group;
	size_t i, from;

	v = run_alloc(r, s.n, sizeof(*v));
	members = run_alloc(r, s.n, sizeof(*members));
	if (!v || !members) return jv_none();
	for (i = 0; i < s.n && run_step(r); i++) {
		v[i].value = jseq_at(&s, i);
		v[i].key = sort_key(r, jfilter_attribute(r, v[i].value, a[0], jv_given(a[1]) && !jv_is_none(a[1]) ? a[1] : (struct jv){0}),
				    case_sensitive);
	}
	sort_run(r, v, run_alloc(r, s.n, sizeof(*v)), s.n, false);
	for (from = i = 0; i < s.n && run_step(r); i++) {
		members[i] = v[i].value;
		if (i + 1 < s.n && jv_equal(r, v[i].key, v[i + 1].key)) continue;
		pair = run_alloc(r, 2, sizeof(*pair));
		if (!pair) break;
		/* The group is named by its first member's own spelling. */
		pair[0] = jfilter_attribute(r, members[from], a[0], jv_given(a[1]) && !jv_is_none(a[1]) ? a[1] : (struct jv){0});
		pair[1] = jv_list(JV_LIST, members + from, i + 1 - from, s.input);
		group = jv_list(JV_TUPLE, pair, 2, s.input);
		group.sub = 1;
		jvec_push(r, &out, group);
		from = i + 1;
	}
	return jv_list(JV_LIST, out.items, out.n, s.input);
}

FILTER(filter_unique)
{
	struct jseq s = jv_iterate(r, self);
	struct jdict *seen = jdict_new(r);
	struct jvec out = {0};
	size_t i, n;

	for (i = 0; seen && i < s.n && run_step(r); i++) {
		n = seen->n;
		jdict_put(r, seen, sort_key(r, jfilter_attribute(r, jseq_at(&s, i), a[1], (struct jv){0}), arg_bool(r, a[0], false)), jv_none());
		if (seen->n > n) jvec_push(r, &out, jseq_at(&s, i));
	}
	return vec_generator(r, &out, s.input);
}

static struct jv extreme(struct jrun *r, struct jv self, const struct jv *a, bool max)
{
	struct jseq s = jv_iterate(r, self);
	struct jv best = jv_hint("No aggregated item, sequence was empty."), best_key = {0}, key;
	size_t i;

	for (i = 0; i < s.n && run_step(r); i++) {
		key = sort_key(r, jfilter_attribute(r, jseq_at(&s, i), a[1], (struct jv){0}), arg_bool(r, a[0], false));
		if (i && (max ? jv_compare(r, key, best_key, ">") <= 0 : jv_compare(r, key, best_key, "<") >= 0)) continue;
		best = jseq_at(&s, i);
		best_key = key;
	}
	return best;
}

FILTER(filter_min)
{
	return extreme(r, self, a, false);
}

FILTER(filter_max)
{
	return extreme(r, self, a, true);
}

FILTER(filter_sum)
{
	struct jv sum = jv_given(a[1]) ? a[1] : jv_int(0);
	struct jseq s = jv_iterate(r, self);
	size_t i;

	if (sum.kind == JV_STR) return run_error(r, "sum() can't sum strings [use ''.join(seq) instead]");
	for (i = 0; i < s.n && run_step(r); i++) sum = jv_add(r, sum, jfilter_attribute(r, jseq_at(&s, i), a[0], (struct jv){0}));
	return sum;
}

FILTER(filter_batch)
{
	struct jv list = jv_to_list(r, self), row, *items;
	int64_t width = arg_int(r, a[0], 1, INT32_MIN, INT32_MAX);
	struct jvec out = {0};
	size_t i, j, n;

	if (r->rc) return jv_none();
	if (width < 1) width = 1;
	for (i = 0; i < list.list.n && run_step(r); i += (size_t)width) {
		n = min_size((size_t)width, list.list.n - i);
		row = jv_list(JV_LIST, list.list.items + i, n, list.input);
		if (n < (size_t)width && jv_given(a[1]) && !jv_is_none(a[1])) {
			items = run_alloc(r, (size_t)width, sizeof(*items));
			if (!items) break;
			for (j = 0; j < (size_t)width; j++) items[j] = j < n ? list.list.items[i + j] : a[1];
			row = jv_list(JV_LIST, items, (size_t)width, list.input);
		}
		jvec_push(r, &out, row);
	}
	return vec_generator(r, &out, list.input);
}

FILTER(filter_slice)
{
	struct jv list = jv_to_list(r, self), row, *items;
	int64_t slices = arg_int(r, a[0], 1, INT32_MIN, INT32_MAX), i;
	struct jvec out = {0};
	size_t at = 0, n, each, extra;

	if (r->rc) return jv_none();
	if (slices == 0) return run_error(r, "integer division or modulo by zero");
	if (slices < 0) return jv_generator(r, NULL, 0, false);
	each = list.list.n / (size_t)slices;
	extra = list.list.n % (size_t)slices;
	for (i = 0; i < slices && run_step(r); i++) {
		n = each + ((size_t)i < extra);
		row = jv_list(JV_LIST, list.list.items ? list.list.items + at : NULL, n, list.input);
		if ((size_t)i >= extra && jv_given(a[1]) && !jv_is_none(a[1])) {
			items = run_alloc(r, n + 1, sizeof(*items));
			if (!items) break;
			if (n) memcpy(items, list.list.items + at, n * sizeof(*items));
			items[n] = a[1];
			row = jv_list(JV_LIST, items, n + 1, list.input);
		}
		jvec_push(r, &out, row);
		at += n;
	}
	return vec_generator(r, &out, list.input);
}

static const struct jfunction FILTERS_SEQ[] = {
	{"batch", "linecount fill_with", 1, filter_batch},
	{"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
	{"first", "", 0, filter_first},
	{"groupby", "attribute default case_sensitive", 1, filter_groupby},
	{"items", "", 0, filter_items},
	{"join", "d attribute", 0, filter_join},
	{"last", "", 0, filter_last},
	{"list", "", 0, filter_list},
	{"map", "*", 0, filter_map},
	{"max", "case_sensitive attribute", 0, filter_max},
	{"min", "case_sensitive attribute", 0, filter_min},
	{"reject", "*", 0, filter_reject},
	{"rejectattr", "*", 0, filter_rejectattr},
	{"reverse", "", 0, filter_reverse},
	{"select", "*", 0, filter_select},
	{"selectattr", "*", 0, filter_selectattr},
	{"slice", "slices fill_with", 1, filter_slice},
	{"sort", "reverse case_sensitive attribute", 0, filter_sort},
	{"sum", "attribute start", 0, filter_sum},
	{"unique", "case_sensitive attribute", 0, filter_unique},
};

const struct jfunction *jfilter_seq_table(size_t *n)
{
	*n = ARRAY_LEN(FILTERS_SEQ);
	return FILTERS_SEQ;
}
