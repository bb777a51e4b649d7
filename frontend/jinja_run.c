/* jinja_run.c - one render: its limits, its memory, its output; and jinja_render().
 *
 * A run owns three arenas on one budget: texts, origins of mixed texts, and everything else. They are given back when the
 * render ends, however it ends. Work is counted in steps: one a node or loop turn, and one for every 32 bytes handled, so
 * that steps_max bounds the time whatever the template does. */
#include "common/mem.h"
#include "frontend/jinja_ast.h"

#include <stdarg.h>
#include <stdio.h>

/* 5 million steps take some tenths of a second; a long conversation needs some ten thousand. */
const struct jinja_limits JINJA_LIMITS_DEFAULT = {
	.steps_max = 5 * 1000 * 1000,
	.output_max = 32 * MIB,
	.memory_max = 128 * MIB,
	.depth_max = 600,
};

#define RUN_BYTES_PER_STEP 32

void jinja_out_init(struct jinja_out *o)
{
	*o = (struct jinja_out){0};
	strbuf_init(&o->text, 0);
}

void jinja_out_release(struct jinja_out *o)
{
	strbuf_release(&o->text);
	free(o->spans);
	jinja_out_init(o);
}

struct jv run_fail(struct jrun *r, int rc, const char *fmt, ...)
{
	char text[640];
	va_list ap;

	if (r->rc) return jv_none();
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->rc = err_set(r->err, rc, "line %u: %s", r->line, text);
	return jv_none();
}

bool run_step(struct jrun *r)
{
	if (r->rc) return false;
	if (r->steps_left) {
		r->steps_left--;
		return true;
	}
	run_fail(r, ST_LIMIT, "the template did not end within %llu steps", (unsigned long long)r->limits->steps_max);
	return false;
}

bool run_work(struct jrun *r, size_t bytes)
{
	uint64_t steps;

	if (r->rc) return false;
	r->work += bytes;
	steps = r->work / RUN_BYTES_PER_STEP;
	r->work %= RUN_BYTES_PER_STEP;
	if (steps <= r->steps_left) {
		r->steps_left -= steps;
		return true;
	}
	r->steps_left = 0;
	return run_step(r);
}

bool run_enter(struct jrun *r)
{
	r->depth++;
	if (r->depth <= r->limits->depth_max) return !r->rc;
	run_fail(r, ST_LIMIT, "nested deeper than %u levels", r->limits->depth_max);
	return false;
}

void run_leave(struct jrun *r)
{
	r->depth--;
}

void *run_alloc(struct jrun *r, size_t n, size_t size)
{
	size_t bytes;
	void *p = NULL;

	if (r->rc) return NULL;
	if (!__builtin_mul_overflow(n, size, &bytes)) p = arena_alloc(&r->objects, bytes, 16);
	if (p) {
		run_work(r, bytes);
		return memset(p, 0, bytes);
	}
	run_fail(r, ST_LIMIT, "the template needs more than %zu bytes of memory", r->limits->memory_max);
	return NULL;
}

static void out_span(struct jinja_out *o, size_t len, bool is_input)
{
	if (o->n_spans && o->spans[o->n_spans - 1].is_input == is_input) {
		o->spans[o->n_spans - 1].len += len;
		return;
	}
	mem_reserve(o->spans, o->cap_spans, o->n_spans + 1);
	o->spans[o->n_spans++] = (struct jinja_span){len, is_input};
}

void run_emit(struct jrun *r, struct jv s)
{
	size_t from, to;

	if (!s.s.len || !run_work(r, s.s.len)) return;
	if (r->capture) {
		jbuf_str(r->capture, s);
		return;
	}
	strbuf_append(&r->out->text, s.s.p, s.s.len);
	if (r->out->text.overflow) {
		run_fail(r, ST_LIMIT, "the rendered text is longer than %zu bytes", r->limits->output_max);
		return;
	}
	if (!s.s.origin) {
		out_span(r->out, s.s.len, s.input);
		return;
	}
	for (from = 0; from < s.s.len; from = to) {
		for (to = from + 1; to < s.s.len && s.s.origin[to] == s.s.origin[from];) to++;
		out_span(r->out, to - from, s.s.origin[from]);
	}
}

/* The value of a variable that no scope has: from the trusted ones, the context or the functions of the environment. */
static struct jv run_global(struct jrun *r, struct jv name, json_t *context, json_t *trusted)
{
	const struct jfunction *f;
	char key[128];
	json_t *j;

	if (name.s.len < sizeof(key)) {
		memcpy(key, name.s.p, name.s.len);
		key[name.s.len] = 0;
		j = json_object_get(trusted, key);
		if (j) return jv_from_json(r, j, false);
		j = json_object_get(context, key);
		if (j) return jv_from_json(r, j, true);
	}
	f = global_find(name.s.p, name.s.len);
	if (f) return (struct jv){.kind = JV_FUNCTION, .function = f};
	return (struct jv){.kind = JV_MISSING};
}

int jinja_render(const struct jinja *t, json_t *context, json_t *trusted, int64_t now_s, const struct jinja_limits *limits,
		 struct jinja_out *out, bool *raised, struct errbuf *err)
{
	struct jrun r = {.template = t, .limits = limits, .out = out, .err = err, .raised = raised, .now_s = now_s};
	size_t i;

	*raised = false;
	jinja_out_release(out);
	strbuf_init(&out->text, limits->output_max);
	r.steps_left = limits->steps_max;
	r.budget.bytes_max = limits->memory_max;
	arena_init(&r.text, &r.budget);
	arena_init(&r.origins, &r.budget);
	arena_init(&r.objects, &r.budget);
	r.line = 1;
	r.globals = run_alloc(&r, t->n_symbols, sizeof(*r.globals));
	for (i = 0; r.globals && i < t->n_symbols; i++) r.globals[i] = run_global(&r, t->symbols[i], context, trusted);
	if (!r.rc) exec_body(&r, t->body);
	arena_release(&r.text);
	arena_release(&r.origins);
	arena_release(&r.objects);
	if (r.rc) jinja_out_release(out);
	return r.rc;
}
