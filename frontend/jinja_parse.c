/* jinja_parse.c - the parser of statements, and jinja_compile().
 *
 * Tags that load other templates (include, import, extends) are refused by name. Everything that is wrong with a template
 * and can be seen without running it is found here: unknown tags, filters and tests, a tag that is not closed. */
#include "common/mem.h"
#include "frontend/jinja_ast.h"

#include <stdio.h>

#define JINJA_TEXT_MAX (512 * KIB)    /* real templates stay below 40 KiB */
#define JINJA_COMPILED_MAX (64 * MIB) /* bytes of the syntax tree */

static struct jnode *parse_body(struct jparse *p, const char *block, const char *const *ends);

static void parse_expect_block_end(struct jparse *p)
{
	char got[100];

	if (parse_peek(p)->kind == JT_BLOCK_END) {
		p->pos++;
		return;
	}
	parse_describe(parse_peek(p), got, sizeof(got));
	parse_fail(p, parse_peek(p)->line, ST_INVALID, "expected \"%%}\", got %s", got);
}

/* The body of a block up to one of its end tags, whose name stays to be read. */
static struct jnode *parse_block_body(struct jparse *p, const char *block, const char *const *ends)
{
	parse_skip_op(p, ':'); /* allowed for people who know Python */
	parse_expect_block_end(p);
	return parse_body(p, block, ends);
}

/* The same for a block with one end tag, which is read too. */
static struct jnode *parse_closed_body(struct jparse *p, const char *block, const char *end)
{
	struct jnode *body = parse_block_body(p, block, (const char *const[]){end, NULL});

	parse_next(p);
	return body;
}

/* The target of an assignment: a name, an attribute of a namespace, or a tuple of targets. */
static struct jnode *parse_target_one(struct jparse *p, bool with_namespace)
{
	const struct jtoken *t = parse_peek(p);
	struct jnode *n = parse_primary(p);

	if (n->kind == JN_NAME && with_namespace && parse_skip_op(p, '.')) {
		n->kind = JN_NS_ATTR;
		n->value = parse_expect_name(p);
	}
	if (p->rc) return n;
	if (n->kind == JN_TUPLE) {
		size_t i;

		for (i = 0; i < n->n; i++)
			if (n->items[i]->kind != JN_NAME)
				parse_fail(p, t->line, ST_INVALID, "can only assign to names");
	} else if (n->kind != JN_NAME && n->kind != JN_NS_ATTR) {
		parse_fail(p, t->line, ST_INVALID, "cannot assign to this");
	}
	return n;
}

static struct jnode *parse_target(struct jparse *p, bool with_namespace, const char *end)
{
	uint32_t line = parse_peek(p)->line;
	struct jnode *first = parse_target_one(p, with_namespace), *n;
	struct jnode **items = NULL;
	size_t len = 0, cap = 0;

	if (!parse_is_op(p, ',')) return first;
	mem_reserve(items, cap, 1);
	items[len++] = first;
	while (!p->rc && parse_skip_op(p, ',')) {
		if ((end && parse_is_name(p, end)) || parse_is_op(p, '=')) break;
		mem_reserve(items, cap, len + 1);
		items[len++] = parse_target_one(p, with_namespace);
	}
	n = parse_node(p, JN_TUPLE, line);
	n->items = parse_alloc(p, len, sizeof(*items));
	if (n->items) memcpy(n->items, items, len * sizeof(*items));
	n->n = n->items ? len : 0;
	free(items);
	return n;
}

static struct jnode *parse_for(struct jparse *p, struct jnode *n)
{
	n->kind = JN_FOR;
	n->a = parse_target(p, false, "in");
	if (n->a->kind == JN_NAME && jv_is(n->a->value, "loop"))
		parse_fail(p, n->line, ST_INVALID, "\"loop\" cannot be the variable of a loop");
	if (!parse_skip_name(p, "in")) parse_fail(p, n->line, ST_INVALID, "expected \"in\" after \"for\"");
	n->b = parse_tuple(p, false, "recursive", false);
	if (parse_skip_name(p, "if")) n->c = parse_expression(p, true);
	n->recursive = parse_skip_name(p, "recursive");
	p->loops++;
	n->body = parse_block_body(p, "for", (const char *const[]){"else", "endfor", NULL});
	p->loops--;
	if (parse_skip_name(p, "else")) n->other = parse_closed_body(p, "for", "endfor");
	else parse_next(p);
	return n;
}

static struct jnode *parse_if(struct jparse *p, struct jnode *first)
{
	struct jnode *n = first;

	while (!p->rc) {
		n->kind = JN_IF;
		n->a = parse_tuple(p, false, NULL, false);
		n->body = parse_block_body(p, "if", (const char *const[]){"elif", "else", "endif", NULL});
		if (parse_skip_name(p, "elif")) {
			n->other = parse_node(p, JN_IF, parse_peek(p)->line);
			n = n->other;
			continue;
		}
		if (parse_skip_name(p, "else")) n->other = parse_closed_body(p, "if", "endif");
		else parse_next(p);
		break;
	}
	return first;
}

static struct jnode *parse_set(struct jparse *p, struct jnode *n)
{
	n->a = parse_target(p, true, NULL);
	if (parse_skip_op(p, '=')) {
		n->kind = JN_SET;
		n->b = parse_tuple(p, true, NULL, false);
		return n;
	}
	n->kind = JN_SET_BLOCK;
	n->b = parse_filters(p, NULL, false);
	n->body = parse_closed_body(p, "set", "endset");
	return n;
}

/* "(a, b=1)" of a macro or a call block. */
static void parse_params(struct jparse *p, struct jmacro_def *m)
{
	uint32_t line = parse_peek(p)->line;
	size_t cap = 0, cap_symbols = 0, cap_defaults = 0, n = 0;
	struct jv *names = NULL;
	uint32_t *symbols = NULL;
	struct jnode **defaults = NULL;

	parse_expect_op(p, '(');
	while (!p->rc && !parse_is_op(p, ')')) {
		if (n) parse_expect_op(p, ',');
		if (parse_is_op(p, ')')) break;
		mem_reserve(names, cap, n + 1);
		mem_reserve(symbols, cap_symbols, n + 1);
		mem_reserve(defaults, cap_defaults, n + 1);
		names[n] = parse_expect_name(p);
		symbols[n] = parse_symbol(p, names[n]);
		defaults[n] = parse_skip_op(p, '=') ? parse_expression(p, true) : NULL;
		if (n && defaults[n - 1] && !defaults[n])
			parse_fail(p, line, ST_INVALID, "a parameter without a default follows one with a default");
		n++;
	}
	parse_expect_op(p, ')');
	m->param_names = parse_alloc(p, n, sizeof(*names));
	m->param_symbols = parse_alloc(p, n, sizeof(*symbols));
	m->defaults = parse_alloc(p, n, sizeof(struct jnode *));
	if (!p->rc && n) {
		m->n_params = n;
		memcpy(m->param_names, names, n * sizeof(*names));
		memcpy(m->param_symbols, symbols, n * sizeof(*symbols));
		memcpy(m->defaults, defaults, n * sizeof(struct jnode *));
	}
	free(names);
	free(symbols);
	free(defaults);
}

/* Parameters (when there are some) and body of a macro. An enclosing macro also counts as using what this one uses. */
static struct jmacro_def *parse_macro_def(struct jparse *p, struct jv name, const char *block, const char *end, bool with_params)
{
	struct jmacro_def *m = parse_alloc(p, 1, sizeof(*m)), *outer = p->macro;
	uint32_t loops = p->loops;

	if (!m) return NULL;
	m->name = name;
	m->symbol = parse_symbol(p, name);
	m->varargs_symbol = parse_symbol(p, jv_lit("varargs"));
	m->kwargs_symbol = parse_symbol(p, jv_lit("kwargs"));
	m->caller_symbol = parse_symbol(p, jv_lit("caller"));
	p->macro = m;
	if (with_params) parse_params(p, m);
	if (strcmp(block, "macro") == 0) {
		p->loops = 0;
		m->body = parse_closed_body(p, block, end);
	}
	p->macro = outer;
	p->loops = loops;
	return m;
}

static struct jnode *parse_macro(struct jparse *p, struct jnode *n)
{
	n->kind = JN_MACRO;
	n->macro = parse_macro_def(p, parse_expect_name(p), "macro", "endmacro", true);
	return n;
}

/* {% call(params) callee(args) %} body {% endcall %} */
static struct jnode *parse_call_block(struct jparse *p, struct jnode *n)
{
	struct jmacro_def *outer = p->macro;
	uint32_t loops = p->loops;

	n->kind = JN_CALL_BLOCK;
	n->macro = parse_macro_def(p, jv_lit("caller"), "call", "endcall", parse_is_op(p, '('));
	n->a = parse_postfix(p, parse_primary(p));
	if (n->a->kind != JN_CALL) parse_fail(p, n->line, ST_INVALID, "\"call\" needs a call of a macro");
	p->macro = n->macro;
	p->loops = 0;
	if (n->macro) n->macro->body = parse_closed_body(p, "call", "endcall");
	/* The body runs inside the outer macro's scope: what it uses is the outer macro's. */
	if (outer && n->macro) {
		outer->uses_caller |= n->macro->uses_caller;
		outer->uses_kwargs |= n->macro->uses_kwargs;
		outer->uses_varargs |= n->macro->uses_varargs;
	}
	p->macro = outer;
	p->loops = loops;
	return n;
}

static struct jnode *parse_with(struct jparse *p, struct jnode *n)
{
	struct jnode **items = NULL;
	size_t cap = 0, len = 0;

	n->kind = JN_WITH;
	while (!p->rc && parse_peek(p)->kind != JT_BLOCK_END) {
		if (len) parse_expect_op(p, ',');
		mem_reserve(items, cap, len + 2);
		items[len++] = parse_target_one(p, false);
		parse_expect_op(p, '=');
		items[len++] = parse_expression(p, true);
	}
	n->items = parse_alloc(p, len, sizeof(*items));
	if (n->items && len) memcpy(n->items, items, len * sizeof(*items));
	n->n = n->items ? len : 0;
	free(items);
	n->body = parse_closed_body(p, "with", "endwith");
	return n;
}

static struct jnode *parse_filter_block(struct jparse *p, struct jnode *n)
{
	n->kind = JN_FILTER_BLOCK;
	n->b = parse_filters(p, NULL, true);
	n->body = parse_closed_body(p, "filter", "endfilter");
	return n;
}

/* transformers marks what the assistant wrote; the text stays as it is. The body is a macro of its own there. */
static struct jnode *parse_generation(struct jparse *p, struct jnode *n)
{
	uint32_t loops = p->loops;

	p->loops = 0;
	n->kind = JN_SCOPE;
	n->body = parse_closed_body(p, "generation", "endgeneration");
	p->loops = loops;
	return n;
}

static struct jnode *parse_named_block(struct jparse *p, struct jnode *n)
{
	struct jv name = parse_expect_name(p);

	n->kind = JN_SCOPE;
	parse_skip_name(p, "scoped");
	n->body = parse_closed_body(p, "block", "endblock");
	if (parse_peek(p)->kind == JT_NAME && parse_peek(p)->value.s.len == name.s.len &&
	    memcmp(parse_peek(p)->value.s.p, name.s.p, name.s.len) == 0)
		parse_next(p);
	return n;
}

static struct jnode *parse_autoescape(struct jparse *p, struct jnode *n)
{
	struct jnode *on = parse_expression(p, true);

	if (on->kind != JN_CONST || on->value.kind != JV_BOOL || on->value.b)
		parse_fail(p, n->line, ST_UNSUPPORTED, "the tag \"autoescape\" is supported with \"false\" only");
	n->kind = JN_SCOPE;
	n->body = parse_closed_body(p, "autoescape", "endautoescape");
	return n;
}

static struct jnode *parse_jump(struct jparse *p, struct jnode *n, enum jnode_kind kind)
{
	n->kind = kind;
	if (!p->loops) parse_fail(p, n->line, ST_INVALID, "\"%s\" outside of a loop", kind == JN_BREAK ? "break" : "continue");
	return n;
}

static struct jnode *parse_statement(struct jparse *p)
{
	const struct jtoken *t = parse_peek(p);
	struct jv name = parse_expect_name(p);
	struct jnode *n = parse_node(p, JN_SCOPE, t->line);

	if (p->rc) return n;
	if (jv_is(name, "if")) return parse_if(p, n);
	if (jv_is(name, "for")) return parse_for(p, n);
	if (jv_is(name, "set")) return parse_set(p, n);
	if (jv_is(name, "macro")) return parse_macro(p, n);
	if (jv_is(name, "call")) return parse_call_block(p, n);
	if (jv_is(name, "filter")) return parse_filter_block(p, n);
	if (jv_is(name, "with")) return parse_with(p, n);
	if (jv_is(name, "generation")) return parse_generation(p, n);
	if (jv_is(name, "block")) return parse_named_block(p, n);
	if (jv_is(name, "autoescape")) return parse_autoescape(p, n);
	if (jv_is(name, "break")) return parse_jump(p, n, JN_BREAK);
	if (jv_is(name, "continue")) return parse_jump(p, n, JN_CONTINUE);
	if (jv_is(name, "print")) {
		n->kind = JN_PRINT;
		n->a = parse_tuple(p, true, NULL, false);
		return n;
	}
	if (jv_is(name, "include") || jv_is(name, "import") || jv_is(name, "from") || jv_is(name, "extends"))
		parse_fail(p, t->line, ST_UNSUPPORTED, "the tag \"%.*s\" is not supported", (int)name.s.len, name.s.p);
	else if (p->block)
		parse_fail(p, t->line, ST_INVALID, "unknown tag \"%.*s\"; the innermost block that is open is \"%s\"",
			   (int)min_size(name.s.len, 60), name.s.p, p->block);
	else
		parse_fail(p, t->line, ST_INVALID, "unknown tag \"%.*s\"", (int)min_size(name.s.len, 60), name.s.p);
	return n;
}

static struct jnode *parse_print(struct jparse *p)
{
	struct jnode *n = parse_node(p, JN_PRINT, parse_next(p)->line);
	char got[100];

	n->a = parse_tuple(p, true, NULL, false);
	if (parse_peek(p)->kind == JT_VAR_END) {
		p->pos++;
		return n;
	}
	parse_describe(parse_peek(p), got, sizeof(got));
	parse_fail(p, n->line, ST_INVALID, "expected \"}}\", got %s", got);
	return n;
}

/* The tag that starts at the token behind "{%" is one of `ends`. */
static bool parse_at_end(const struct jparse *p, const char *const *ends)
{
	const struct jtoken *t = p->pos + 1 < p->n_tokens ? &p->tokens[p->pos + 1] : NULL;

	for (; t && t->kind == JT_NAME && ends && *ends; ends++)
		if (jv_is(t->value, *ends)) return true;
	return false;
}

static void parse_unclosed(struct jparse *p, const char *block, uint32_t line, const char *const *ends)
{
	size_t last = 0;

	while (ends[last + 1]) last++;
	parse_fail(p, line, ST_INVALID, "the template ended inside the block \"%s\": \"%s\" is missing", block, ends[last]);
}

/* Statements up to an end tag (whose name is then the next token) or, without `ends`, to the end of the template. */
static struct jnode *parse_body(struct jparse *p, const char *block, const char *const *ends)
{
	const char *outer = p->block;
	uint32_t line = parse_peek(p)->line, from = p->pos ? p->tokens[p->pos - 1].line : line;
	struct jnode *first = NULL, **at = &first;

	if (!parse_enter(p)) {
		parse_leave(p);
		return NULL;
	}
	p->block = block;
	while (!p->rc) {
		const struct jtoken *t = parse_peek(p);

		if (t->kind == JT_EOF) {
			if (ends) parse_unclosed(p, block, from, ends);
			break;
		}
		if (t->kind == JT_DATA) {
			*at = parse_node(p, JN_TEXT, t->line);
			(*at)->value = parse_next(p)->value;
		} else if (t->kind == JT_VAR_BEGIN) {
			*at = parse_print(p);
		} else {
			bool is_end = parse_at_end(p, ends);

			p->pos++;
			if (is_end) break;
			*at = parse_statement(p);
			parse_expect_block_end(p);
		}
		at = &(*at)->next;
	}
	p->block = outer;
	parse_leave(p);
	return p->rc ? NULL : first;
}

void parse_run(struct jparse *p)
{
	p->t->loop_symbol = parse_symbol(p, jv_lit("loop"));
	p->t->body = parse_body(p, NULL, NULL);
}

int jinja_compile(struct jinja **out, const char *text, size_t len, struct errbuf *err)
{
	struct jinja *t;
	struct jparse p = {.err = err};

	*out = NULL;
	if (len > JINJA_TEXT_MAX) return err_set(err, ST_LIMIT, "the template has %zu bytes; at most %zu are allowed", len, JINJA_TEXT_MAX);
	t = mem_new(struct jinja);
	t->budget.bytes_max = JINJA_COMPILED_MAX;
	arena_init(&t->arena, &t->budget);
	p.t = t;
	lex_run(&p, text, len);
	if (!p.rc) parse_run(&p);
	free(p.tokens);
	free(t->symbol_index);
	t->symbol_index = NULL;
	if (p.rc) {
		jinja_free(t);
		return p.rc;
	}
	*out = t;
	return ST_OK;
}

void jinja_free(struct jinja *t)
{
	if (!t) return;
	arena_release(&t->arena);
	free(t->symbols);
	free(t);
}
