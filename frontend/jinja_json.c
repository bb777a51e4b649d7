/* jinja_json.c - the filter tojson: Python's json.dumps(ensure_ascii=False) without HTML escaping.
 *
 * Texts keep their origin byte by byte; punctuation has the origin of the list or dict it belongs to. */
#include "common/utf8.h"
#include "frontend/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct jdump {
	struct jbuf b;
	struct jv indent; /* a text, or none */
	struct jv item_sep, key_sep;
	bool ensure_ascii, sort_keys;
	size_t level;
};

static void dump_value(struct jdump *d, struct jv v);

static void dump_string(struct jdump *d, struct jv s)
{
	static const char FROM[] = "\"\\\b\f\n\r\t", TO[] = "\"\\bfnrt";
	bool in = jv_has_input(s);
	char text[32];
	const char *c;
	size_t at, plain = 0;
	uint32_t cp;
	int n;

	jbuf_puts(&d->b, "\"", in);
	for (at = 0; at < s.s.len && !d->b.run->rc; at += (size_t)n) {
		n = utf8_decode(s.s.p + at, &cp);
		c = cp && cp < 0x80 ? strchr(FROM, (int)cp) : NULL;
		if (!c && cp >= 0x20 && (!d->ensure_ascii || cp < 0x7f)) continue;
		if (c) snprintf(text, sizeof(text), "\\%c", TO[c - FROM]);
		else if (cp < 0x10000) snprintf(text, sizeof(text), "\\u%04x", cp);
		else snprintf(text, sizeof(text), "\\u%04x\\u%04x", 0xd7c0 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
		jbuf_str(&d->b, jv_sub(s, plain, at - plain));
		jbuf_puts(&d->b, text, s.s.origin ? s.s.origin[at] : s.input);
		plain = at + (size_t)n;
	}
	if (!d->b.run->rc) jbuf_str(&d->b, jv_sub(s, plain, s.s.len - plain));
	jbuf_puts(&d->b, "\"", in);
}

static void dump_newline(struct jdump *d, bool input)
{
	size_t i;

	if (jv_is_none(d->indent)) return;
	jbuf_puts(&d->b, "\n", input);
	for (i = 0; i < d->level && !d->b.run->rc; i++) jbuf_put(&d->b, d->indent.s.p, d->indent.s.len, input);
}

static void dump_sep(struct jdump *d, struct jv sep, bool input)
{
	jbuf_put(&d->b, sep.s.p, sep.s.len, input || jv_has_input(sep));
}

static void dump_list(struct jdump *d, struct jv v)
{
	size_t i;

	jbuf_puts(&d->b, "[", v.input);
	d->level++;
	for (i = 0; i < v.list.n && run_step(d->b.run); i++) {
		if (i) dump_sep(d, d->item_sep, v.input);
		dump_newline(d, v.input);
		dump_value(d, v.list.items[i]);
	}
	d->level--;
	if (v.list.n) dump_newline(d, v.input);
	jbuf_puts(&d->b, "]", v.input);
}

static void dump_number(struct jdump *d, struct jv v)
{
	char text[64];

	if (v.kind == JV_INT) jint_text(v.i, text);
	else if (isnan(v.f)) strcpy(text, "NaN");
	else if (isinf(v.f)) strcpy(text, v.f < 0 ? "-Infinity" : "Infinity");
	else text[jfloat_repr(v.f, text)] = 0;
	jbuf_puts(&d->b, text, v.input);
}

static void dump_key(struct jdump *d, struct jv key)
{
	switch (key.kind) {
	case JV_STR:
		dump_string(d, key);
		return;
	case JV_INT:
	case JV_FLOAT:
	case JV_BOOL:
	case JV_NONE:
		jbuf_puts(&d->b, "\"", key.input);
		dump_value(d, key);
		jbuf_puts(&d->b, "\"", key.input);
		return;
	default:
		run_error(d->b.run, "keys must be str, int, float, bool or None, not %s", jv_type_name(key));
	}
}

/* Entry numbers in the order of the keys: a merge sort, because comparing can fail and keys come from clients. */
static void sort_keys(struct jrun *r, const struct jdict *d, uint32_t *ix, uint32_t *tmp, size_t n)
{
	size_t half = n / 2, a = 0, b = half, k = 0;

	if (n < 2 || r->rc) return;
	sort_keys(r, d, ix, tmp, half);
	sort_keys(r, d, ix + half, tmp, n - half);
	while (a < half && b < n && run_step(r))
		tmp[k++] = jv_compare(r, d->entries[ix[b]].key, d->entries[ix[a]].key, "<") < 0 ? ix[b++] : ix[a++];
	while (a < half) tmp[k++] = ix[a++];
	if (r->rc) return;
	memcpy(ix, tmp, k * sizeof(*ix));
}

static void dump_dict(struct jdump *d, struct jv v)
{
	struct jrun *r = d->b.run;
	uint32_t *order = NULL, *tmp = NULL;
	const struct jentry *e;
	size_t i;

	if (d->sort_keys && v.dict->n) {
		order = run_alloc(r, v.dict->n, sizeof(*order));
		tmp = run_alloc(r, v.dict->n, sizeof(*tmp));
		if (!order || !tmp) return;
		for (i = 0; i < v.dict->n; i++) order[i] = (uint32_t)i;
		sort_keys(r, v.dict, order, tmp, v.dict->n);
	}
	jbuf_puts(&d->b, "{", v.input);
	d->level++;
	for (i = 0; i < v.dict->n && run_step(r); i++) {
		e = &v.dict->entries[order ? order[i] : i];
		if (i) dump_sep(d, d->item_sep, v.input);
		dump_newline(d, v.input);
		dump_key(d, e->key);
		dump_sep(d, d->key_sep, v.input);
		dump_value(d, e->value);
	}
	d->level--;
	if (v.dict->n) dump_newline(d, v.input);
	jbuf_puts(&d->b, "}", v.input);
}

static void dump_value(struct jdump *d, struct jv v)
{
	struct jrun *r = d->b.run;

	if (!run_enter(r)) {
		run_leave(r);
		return;
	}
	switch (v.kind) {
	case JV_NONE:
		jbuf_puts(&d->b, "null", v.input);
		break;
	case JV_BOOL:
		jbuf_puts(&d->b, v.b ? "true" : "false", v.input);
		break;
	case JV_INT:
	case JV_FLOAT:
		dump_number(d, v);
		break;
	case JV_STR:
		dump_string(d, v);
		break;
	case JV_LIST:
	case JV_TUPLE:
		dump_list(d, v);
		break;
	case JV_DICT:
		dump_dict(d, v);
		break;
	default:
		run_error(r, "Object of type %s is not JSON serializable", jv_type_name(v));
	}
	run_leave(r);
}

/* indent=n means n blanks. */
static struct jv dump_indent(struct jrun *r, struct jv indent)
{
	struct jbuf b;
	int64_t n;

	if (indent.kind == JV_STR || indent.kind == JV_NONE) return indent;
	if (indent.kind == JV_MISSING) return jv_none();
	jbuf_init(&b, r);
	for (n = arg_int(r, indent, 0, -1000, 1000); n > 0; n--) jbuf_puts(&b, " ", false);
	return jbuf_finish(&b);
}

struct jv jv_tojson(struct jrun *r, struct jv v, struct jv indent, struct jv separators, bool ensure_ascii, bool sort)
{
	struct jdump d = {.ensure_ascii = ensure_ascii, .sort_keys = sort};

	d.indent = dump_indent(r, indent);
	d.item_sep = jv_lit(jv_is_none(d.indent) ? ", " : ",");
	d.key_sep = jv_lit(": ");
	if (jv_given(separators) && !jv_is_none(separators)) {
		if ((separators.kind != JV_TUPLE && separators.kind != JV_LIST) || separators.list.n != 2 ||
		    separators.list.items[0].kind != JV_STR || separators.list.items[1].kind != JV_STR)
			return run_error(r, "tojson: separators must be a pair of strings");
		d.item_sep = separators.list.items[0];
		d.key_sep = separators.list.items[1];
	}
	jbuf_init(&d.b, r);
	dump_value(&d, v);
	return jbuf_finish(&d.b);
}
