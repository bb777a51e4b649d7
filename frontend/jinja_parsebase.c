/* jinja_parsebase.c - what both halves of the parser stand on: tokens, nodes, symbols, failing, nesting.
 *
 * The first failure is kept; from then on every token reads as JT_EOF, which ends all loops of the parser. */
#include "common/mem.h"
#include "frontend/jinja_ast.h"

#include <stdarg.h>
#include <stdio.h>

struct jnode *parse_fail(struct jparse *p, uint32_t line, int rc, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (p->rc) return NULL;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p->rc = err_set(p->err, rc, "line %u: %s", line, text);
	return NULL;
}

void *parse_alloc(struct jparse *p, size_t n, size_t size)
{
	size_t bytes;
	void *m = NULL;

	if (!__builtin_mul_overflow(n, size, &bytes)) m = arena_alloc(&p->t->arena, bytes, 16);
	if (m) return memset(m, 0, bytes);
	parse_fail(p, parse_peek(p)->line, ST_LIMIT, "the template needs more than %zu bytes", p->t->budget.bytes_max);
	return NULL;
}

struct jnode *parse_node(struct jparse *p, enum jnode_kind kind, uint32_t line)
{
	static struct jnode spare; /* never used: p->rc is set */
	struct jnode *n = parse_alloc(p, 1, sizeof(*n));

	if (!n) return &spare;
	n->kind = kind;
	n->line = line;
	return n;
}

static const struct jtoken TOKEN_END = {.kind = JT_EOF};

const struct jtoken *parse_peek(const struct jparse *p)
{
	if (p->rc || p->pos >= p->n_tokens) return &TOKEN_END;
	return &p->tokens[p->pos];
}

const struct jtoken *parse_next(struct jparse *p)
{
	const struct jtoken *t = parse_peek(p);

	if (t->kind != JT_EOF) p->pos++;
	return t;
}

bool parse_is_op(const struct jparse *p, int op)
{
	const struct jtoken *t = parse_peek(p);

	return t->kind == JT_OP && t->op == op;
}

bool parse_is_name(const struct jparse *p, const char *name)
{
	const struct jtoken *t = parse_peek(p);

	return t->kind == JT_NAME && jv_is(t->value, name);
}

bool parse_skip_op(struct jparse *p, int op)
{
	bool is = parse_is_op(p, op);

	if (is) p->pos++;
	return is;
}

bool parse_skip_name(struct jparse *p, const char *name)
{
	bool is = parse_is_name(p, name);

	if (is) p->pos++;
	return is;
}

void parse_describe(const struct jtoken *t, char *out, size_t n)
{
	static const char *const NAMES[] = {
		[JT_EOF] = "end of template", [JT_DATA] = "text", [JT_VAR_BEGIN] = "{{", [JT_VAR_END] = "}}",
		[JT_BLOCK_BEGIN] = "{%", [JT_BLOCK_END] = "%}", [JT_STRING] = "a string", [JT_INT] = "a number",
		[JT_FLOAT] = "a number",
	};

	if (t->kind == JT_NAME)
		snprintf(out, n, "\"%.*s\"", (int)min_size(t->value.s.len, 60), t->value.s.p);
	else if (t->kind == JT_OP && t->op > 0xff)
		snprintf(out, n, "\"%c%c\"", t->op >> 8, t->op & 0xff);
	else if (t->kind == JT_OP)
		snprintf(out, n, "\"%c\"", t->op);
	else
		snprintf(out, n, "%s", NAMES[t->kind]);
}

void parse_expect_op(struct jparse *p, int op)
{
	char got[100];

	if (parse_skip_op(p, op)) return;
	parse_describe(parse_peek(p), got, sizeof(got));
	parse_fail(p, parse_peek(p)->line, ST_INVALID, "expected \"%c\", got %s", op, got);
}

struct jv parse_expect_name(struct jparse *p)
{
	const struct jtoken *t = parse_peek(p);
	char got[100];

	if (t->kind == JT_NAME) return parse_next(p)->value;
	parse_describe(t, got, sizeof(got));
	parse_fail(p, t->line, ST_INVALID, "expected a name, got %s", got);
	return jv_lit("");
}

bool parse_enter(struct jparse *p)
{
	if (++p->depth <= JPARSE_DEPTH_MAX) return !p->rc;
	parse_fail(p, parse_peek(p)->line, ST_LIMIT, "nested deeper than %d levels", JPARSE_DEPTH_MAX);
	return false;
}

void parse_leave(struct jparse *p)
{
	p->depth--;
}

static uint64_t symbol_hash(struct jv name)
{
	uint64_t h = 0xcbf29ce484222325ull;
	size_t i;

	for (i = 0; i < name.s.len; i++) h = (h ^ (unsigned char)name.s.p[i]) * 0x100000001b3ull;
	return h ^ h >> 29;
}

static void symbol_index_put(struct jinja *t, uint32_t symbol)
{
	size_t at = symbol_hash(t->symbols[symbol]) & (t->symbol_index_cap - 1);

	while (t->symbol_index[at]) at = (at + 1) & (t->symbol_index_cap - 1);
	t->symbol_index[at] = symbol + 1;
}

uint32_t parse_symbol(struct jparse *p, struct jv name)
{
	struct jinja *t = p->t;
	size_t at;
	uint32_t i;

	if (t->n_symbols * 2 >= t->symbol_index_cap) {
		t->symbol_index_cap = max_size(t->symbol_index_cap * 2, 64);
		free(t->symbol_index);
		t->symbol_index = mem_array(uint32_t, t->symbol_index_cap);
		for (i = 0; i < t->n_symbols; i++) symbol_index_put(t, i);
	}
	for (at = symbol_hash(name) & (t->symbol_index_cap - 1); t->symbol_index[at]; at = (at + 1) & (t->symbol_index_cap - 1)) {
		struct jv other = t->symbols[t->symbol_index[at] - 1];

		if (other.s.len == name.s.len && memcmp(other.s.p, name.s.p, name.s.len) == 0) return t->symbol_index[at] - 1;
	}
	mem_reserve(t->symbols, t->cap_symbols, t->n_symbols + 1);
	t->symbols[t->n_symbols] = name;
	symbol_index_put(t, (uint32_t)t->n_symbols);
	return (uint32_t)t->n_symbols++;
}
