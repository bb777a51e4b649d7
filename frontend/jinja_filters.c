/* jinja_filters.c - the filters that work on one value: texts, numbers, JSON, defaults; and the table of all filters.
 *
 * Filters on sequences are in jinja_filters_seq.c, on words in jinja_filters_words.c. Not supported, and refused by name
 * when the template is compiled: urlize, random. */
#include "common/utf8.h"
#include "frontend/jinja_filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name) static struct jv name(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw)

FILTER(filter_upper)
{
	return jchars_case(r, jv_to_str(r, self), JCASE_UPPER);
}

FILTER(filter_lower)
{
	return jchars_case(r, jv_to_str(r, self), JCASE_LOWER);
}

FILTER(filter_capitalize)
{
	return jchars_case(r, jv_to_str(r, self), JCASE_CAPITALIZE);
}

FILTER(filter_trim)
{
	return jchars_strip(r, jv_to_str(r, self), a[0], true, true);
}

FILTER(filter_replace)
{
	return jchars_replace(r, jv_to_str(r, self), jv_to_str(r, a[0]), jv_to_str(r, a[1]), arg_int(r, a[2], -1, -1, INT64_MAX));
}

FILTER(filter_escape)
{
	struct jv s = jv_to_str(r, self);

	return s.markup ? s : jchars_escape(r, s);
}

FILTER(filter_forceescape)
{
	return jchars_escape(r, jv_to_str(r, self));
}

FILTER(filter_safe)
{
	struct jv s = jv_to_str(r, self);

	s.markup = true;
	return s;
}

FILTER(filter_string)
{
	return jv_to_str(r, self);
}

FILTER(filter_pprint)
{
	return jv_repr(r, self);
}

FILTER(filter_center)
{
	return jfilter_pad(r, jv_to_str(r, self), arg_int(r, a[0], 80, 0, INT32_MAX), jv_lit(" "), JPAD_CENTER);
}

FILTER(filter_format)
{
	struct jdict *d;
	size_t i;

	if (raw->n_pos && raw->n_kw) return run_error(r, "can't handle positional and keyword arguments at the same time");
	if (!raw->n_kw) return format_percent(r, jv_to_str(r, self), jv_list(JV_TUPLE, raw->pos, raw->n_pos, false));
	d = jdict_new(r);
	for (i = 0; d && i < raw->n_kw; i++) jdict_put(r, d, raw->kw[i].name, raw->kw[i].value);
	return format_percent(r, jv_to_str(r, self), jv_dict(d, false));
}

FILTER(filter_tojson)
{
	return jv_tojson(r, self, a[1], a[2], arg_bool(r, a[0], false), arg_bool(r, a[3], false));
}

FILTER(filter_default)
{
	if (self.kind == JV_UNDEFINED || (arg_bool(r, a[1], false) && !jv_truth(r, self))) return jv_given(a[0]) ? a[0] : jv_lit("");
	return self;
}

FILTER(filter_length)
{
	return jv_int((jint)jv_length(r, self));
}

/* An attribute in Python's sense; never a key of a dict. */
FILTER(filter_attr)
{
	struct jv name = jv_to_str(r, a[0]);

	if (self.kind == JV_DICT && !method_find(JV_DICT, name) && !method_is_hidden(JV_DICT, name))
		return jv_undefined(JU_ATTR, name, JV_DICT);
	return jv_getattr(r, self, name);
}

/* ---- numbers ---- */

FILTER(filter_int)
{
	int64_t base = arg_int(r, a[1], 10, 0, 36);
	struct jv v = {.kind = JV_MISSING};
	double f;

	if (self.kind == JV_UNDEFINED) return jv_undefined_error(r, self);
	if (jv_is_integral(self)) v = jv_int(jv_as_int(self));
	else if (self.kind == JV_STR && jfilter_parse_int(self, (int)base, &v.i)) v.kind = JV_INT;
	if (!jv_given(v) && (self.kind == JV_FLOAT || self.kind == JV_STR)) {
		f = self.f;
		if ((self.kind == JV_FLOAT || jfilter_parse_float(self, &f)) && isfinite(f) && fabs(f) < 1e38) v = jv_int((jint)f);
	}
	if (!jv_given(v)) return jv_given(a[0]) ? a[0] : jv_int(0);
	v.input = jv_has_input(self);
	return v;
}

FILTER(filter_float)
{
	struct jv v = jv_float(0);

	if (self.kind == JV_UNDEFINED) return jv_undefined_error(r, self);
	if (jv_is_number(self)) v.f = jv_as_float(self);
	else if (self.kind != JV_STR || !jfilter_parse_float(self, &v.f)) return jv_given(a[0]) ? a[0] : v;
	v.input = jv_has_input(self);
	return v;
}

FILTER(filter_abs)
{
	struct jv v = self;

	if (v.kind == JV_UNDEFINED) return jv_undefined_error(r, v);
	if (!jv_is_number(v)) return run_error(r, "bad operand type for abs(): '%s'", jv_type_name(v));
	if (v.kind == JV_FLOAT) v.f = fabs(v.f);
	else v = jv_as_int(v) < 0 ? jv_negate(r, v, true) : jv_int(jv_as_int(v));
	v.input = self.input;
	return v;
}

double jround(double f, int digits)
{
	char text[400];
	double scale;

	if (!isfinite(f)) return f;
	if (digits < 0) { /* halves to even, as Python */
		scale = pow(10, -digits);
		return isinf(scale) ? 0 : nearbyint(f / scale) * scale;
	}
	/* The C library rounds the exact binary value, as Python does. */
	snprintf(text, sizeof(text), "%.*f", digits > 60 ? 60 : digits, f);
	return strtod(text, NULL);
}

FILTER(filter_round)
{
	int digits = (int)arg_int(r, a[0], 0, -400, 400);
	struct jv v;
	double scale = pow(10, digits);

	if (self.kind == JV_UNDEFINED) return jv_undefined_error(r, self);
	if (!jv_is_number(self)) return run_error(r, "type %s doesn't define __round__ method", jv_type_name(self));
	if (!jv_given(a[1]) || jv_is(a[1], "common")) {
		if (jv_is_integral(self) && digits >= 0) return self.kind == JV_BOOL ? jv_int(self.b) : self;
		v = jv_float(jround(jv_as_float(self), digits));
		if (jv_is_integral(self)) v = jv_int((jint)v.f);
	} else if (jv_is(a[1], "ceil") || jv_is(a[1], "floor")) {
		v = jv_float(jv_is(a[1], "ceil") ? ceil(jv_as_float(self) * scale) / scale : floor(jv_as_float(self) * scale) / scale);
	} else {
		return run_error(r, "method must be common, ceil or floor");
	}
	v.input = self.input;
	return v;
}

FILTER(filter_filesizeformat)
{
	bool binary = arg_bool(r, a[0], false);
	double bytes = self.f, base = binary ? 1024 : 1000, unit = base;
	char text[80];
	size_t i = 0;
	struct jbuf b;

	if (jv_is_number(self)) bytes = jv_as_float(self);
	else if (self.kind != JV_STR || !jfilter_parse_float(self, &bytes)) return run_error(r, "could not convert '%s' to float", jv_type_name(self));
	if (bytes == 1) snprintf(text, sizeof(text), "1 Byte");
	else if (bytes < base) snprintf(text, sizeof(text), "%.0f Bytes", trunc(bytes));
	else {
		for (unit = base * base; i < 7 && bytes >= unit; i++) unit *= base;
		snprintf(text, sizeof(text), "%.1f %c%sB", fmin(base * bytes / unit, 1e30), (binary ? "KMGTPEZY" : "kMGTPEZY")[i],
			 binary ? "i" : "");
	}
	jbuf_init(&b, r);
	jbuf_puts(&b, text, jv_has_input(self));
	return jbuf_finish(&b);
}

static const struct jfunction FILTERS[] = {
	{"abs", "", 0, filter_abs},
	{"attr", "name", 1, filter_attr},
	{"capitalize", "", 0, filter_capitalize},
	{"center", "width", 0, filter_center},
	{"count", "", 0, filter_length},
	{"d", "default_value boolean", 0, filter_default},
	{"default", "default_value boolean", 0, filter_default},
	{"e", "", 0, filter_escape},
	{"escape", "", 0, filter_escape},
	{"filesizeformat", "binary", 0, filter_filesizeformat},
	{"float", "default", 0, filter_float},
	{"forceescape", "", 0, filter_forceescape},
	{"format", "*", 0, filter_format},
	{"int", "default base", 0, filter_int},
	{"length", "", 0, filter_length},
	{"lower", "", 0, filter_lower},
	{"pprint", "", 0, filter_pprint},
	{"replace", "old new count", 2, filter_replace},
	{"round", "precision method", 0, filter_round},
	{"safe", "", 0, filter_safe},
	{"string", "", 0, filter_string},
	{"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
	{"trim", "chars", 0, filter_trim},
	{"upper", "", 0, filter_upper},
};

const struct jfunction *filter_find(struct jv name)
{
	size_t i, n;
	const struct jfunction *f;

	for (i = 0; i < ARRAY_LEN(FILTERS); i++)
		if (jv_is(name, FILTERS[i].name)) return &FILTERS[i];
	for (f = jfilter_seq_table(&n); n; n--, f++)
		if (jv_is(name, f->name)) return f;
	for (f = jfilter_words_table(&n); n; n--, f++)
		if (jv_is(name, f->name)) return f;
	return NULL;
}
