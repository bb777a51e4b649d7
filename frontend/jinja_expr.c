/* jinja_expr.c - the parser of expressions, with Jinja2's precedences:
 * if-else, or, and, not, comparisons, + and -, ~, * / // %, **, sign, then subscripts, calls, filters and tests.
 *
 * Nesting is bounded by JPARSE_DEPTH_MAX, so the recursion here cannot exhaust the stack. */
#include "common/mem.h"
#include "frontend/jinja_ast.h"

/* A growing array of nodes; the arena keeps the final copy. */
struct node_vec {
	struct jnode **items;
	size_t n, cap;
};

static void node_vec_push(struct node_vec *v, struct jnode *n)
{
	mem_reserve(v->items, v->cap, v->n + 1);
	v->items[v->n++] = n;
}

static struct jnode **node_vec_finish(struct jparse *p, struct node_vec *v)
{
	struct jnode **items = parse_alloc(p, v->n, sizeof(*items));

	if (items && v->n) memcpy(items, v->items, v->n * sizeof(*items));
	free(v->items);
	v->items = NULL;
	return items;
}

/* ---- primaries ---- */

/* A name as a variable; macros remember whether they use their special ones. */
static struct jnode *parse_variable(struct jparse *p, const struct jtoken *t)
{
	struct jnode *n = parse_node(p, JN_NAME, t->line);

	n->symbol = parse_symbol(p, t->value);
	n->value = t->value;
	if (p->macro) {
		p->macro->uses_caller |= jv_is(t->value, "caller");
		p->macro->uses_kwargs |= jv_is(t->value, "kwargs");
		p->macro->uses_varargs |= jv_is(t->value, "varargs");
	}
	return n;
}

static struct jnode *parse_name(struct jparse *p, const struct jtoken *t)
{
	struct jnode *n;
	bool yes = jv_is(t->value, "true") || jv_is(t->value, "True");

	if (yes || jv_is(t->value, "false") || jv_is(t->value, "False")) {
		n = parse_node(p, JN_CONST, t->line);
		n->value = jv_bool(yes);
		return n;
	}
	if (jv_is(t->value, "none") || jv_is(t->value, "None")) {
		n = parse_node(p, JN_CONST, t->line);
		n->value = jv_none();
		return n;
	}
	return parse_variable(p, t);
}

/* Strings that follow each other are one. */
static struct jnode *parse_strings(struct jparse *p, const struct jtoken *t)
{
	struct jnode *n = parse_node(p, JN_CONST, t->line);
	size_t from = p->pos, i, len = t->value.s.len;
	char *text;

	n->value = t->value;
	while (parse_peek(p)->kind == JT_STRING) len += parse_next(p)->value.s.len;
	if (p->pos == from) return n;
	text = parse_alloc(p, len + 1, 1);
	if (!text) return n;
	len = t->value.s.len;
	if (len) memcpy(text, t->value.s.p, len);
	for (i = from; i < p->pos; i++) {
		struct jv s = p->tokens[i].value;

		if (s.s.len) memcpy(text + len, s.s.p, s.s.len);
		len += s.s.len;
	}
	n->value = jv_view(text, len, false);
	return n;
}

static struct jnode *parse_list(struct jparse *p, uint32_t line)
{
	struct jnode *n = parse_node(p, JN_LIST, line);
	struct node_vec v = {0};

	while (!p->rc && !parse_is_op(p, ']')) {
		if (v.n) parse_expect_op(p, ',');
		if (parse_is_op(p, ']')) break;
		node_vec_push(&v, parse_expression(p, true));
	}
	parse_expect_op(p, ']');
	n->n = v.n;
	n->items = node_vec_finish(p, &v);
	return n;
}

static struct jnode *parse_dict(struct jparse *p, uint32_t line)
{
	struct jnode *n = parse_node(p, JN_DICT, line);
	struct node_vec v = {0};

	while (!p->rc && !parse_is_op(p, '}')) {
		if (v.n) parse_expect_op(p, ',');
		if (parse_is_op(p, '}')) break;
		node_vec_push(&v, parse_expression(p, true));
		parse_expect_op(p, ':');
		node_vec_push(&v, parse_expression(p, true));
	}
	parse_expect_op(p, '}');
	n->n = v.n;
	n->items = node_vec_finish(p, &v);
	return n;
}

struct jnode *parse_primary(struct jparse *p)
{
	const struct jtoken *t = parse_next(p);
	struct jnode *n;
	char got[100];

	switch (t->kind) {
	case JT_NAME:
		return parse_name(p, t);
	case JT_STRING:
		return parse_strings(p, t);
	case JT_INT:
	case JT_FLOAT:
		n = parse_node(p, JN_CONST, t->line);
		n->value = t->value;
		return n;
	case JT_OP:
		if (t->op == '[') return parse_list(p, t->line);
		if (t->op == '{') return parse_dict(p, t->line);
		if (t->op != '(') break;
		n = parse_tuple(p, true, NULL, true);
		parse_expect_op(p, ')');
		return n;
	default:
		break;
	}
	parse_describe(t, got, sizeof(got));
	parse_fail(p, t->line, ST_INVALID, "expected an expression, got %s", got);
	return parse_node(p, JN_CONST, t->line);
}

static bool parse_tuple_ends(const struct jparse *p, const char *end)
{
	const struct jtoken *t = parse_peek(p);

	return t->kind == JT_VAR_END || t->kind == JT_BLOCK_END || t->kind == JT_EOF || parse_is_op(p, ')') ||
	       (end && parse_is_name(p, end));
}

struct jnode *parse_tuple(struct jparse *p, bool with_condition, const char *end, bool in_parentheses)
{
	uint32_t line = parse_peek(p)->line;
	struct node_vec v = {0};
	bool is_tuple = false;
	struct jnode *n;
	char got[100];

	while (!p->rc) {
		if (v.n) parse_expect_op(p, ',');
		if (parse_tuple_ends(p, end)) break;
		node_vec_push(&v, parse_expression(p, with_condition));
		if (!parse_is_op(p, ',')) break;
		is_tuple = true;
	}
	if (!is_tuple && v.n) {
		n = v.items[0];
		free(v.items);
		return n;
	}
	if (!is_tuple && !in_parentheses) {
		parse_describe(parse_peek(p), got, sizeof(got));
		parse_fail(p, line, ST_INVALID, "expected an expression, got %s", got);
	}
	n = parse_node(p, JN_TUPLE, line);
	n->n = v.n;
	n->items = node_vec_finish(p, &v);
	return n;
}

/* ---- calls, subscripts, filters, tests ---- */

static void parse_argument(struct jparse *p, struct jnode_args *args, struct node_vec *pos, struct node_vec *kw)
{
	const struct jtoken *t = parse_peek(p);
	bool is_kw = t->kind == JT_NAME && p->pos + 1 < p->n_tokens && p->tokens[p->pos + 1].kind == JT_OP &&
		     p->tokens[p->pos + 1].op == '=';
	struct jnode *n;

	if (!args->star && !args->star_star && parse_skip_op(p, '*')) {
		args->star = parse_expression(p, true);
	} else if (!args->star_star && parse_skip_op(p, JOP_POW)) {
		args->star_star = parse_expression(p, true);
	} else if (is_kw && !args->star_star) {
		p->pos += 2;
		n = parse_node(p, JN_OPERAND, t->line);
		n->value = t->value;
		n->a = parse_expression(p, true);
		node_vec_push(kw, n);
	} else if (!is_kw && !args->star && !args->star_star && !kw->n) {
		node_vec_push(pos, parse_expression(p, true));
	} else {
		parse_fail(p, t->line, ST_INVALID, "invalid order of the arguments of a call");
	}
}

/* "(...)", or no arguments when there is no bracket. */
static struct jnode_args *parse_args(struct jparse *p)
{
	struct jnode_args *args = parse_alloc(p, 1, sizeof(*args));
	struct node_vec pos = {0}, kw = {0};
	size_t i;

	if (!args || !parse_skip_op(p, '(')) return args;
	while (!p->rc && !parse_is_op(p, ')')) {
		if (pos.n || kw.n || args->star || args->star_star) parse_expect_op(p, ',');
		if (parse_is_op(p, ')')) break;
		parse_argument(p, args, &pos, &kw);
	}
	parse_expect_op(p, ')');
	args->n_pos = pos.n;
	args->pos = node_vec_finish(p, &pos);
	args->kw = parse_alloc(p, kw.n, sizeof(*args->kw));
	for (i = 0; args->kw && i < kw.n; i++) args->kw[i] = (struct jnode_kw){kw.items[i]->value, kw.items[i]->a};
	args->n_kw = kw.n;
	free(kw.items);
	return args;
}

/* What stands in "[...]": an expression or start:stop:step. */
static struct jnode *parse_subscribed(struct jparse *p)
{
	uint32_t line = parse_peek(p)->line;
	struct jnode *start = NULL, *n;

	if (!parse_is_op(p, ':')) {
		start = parse_expression(p, true);
		if (!parse_is_op(p, ':')) return start;
	}
	parse_skip_op(p, ':');
	n = parse_node(p, JN_SLICE, line);
	n->a = start;
	if (!parse_is_op(p, ':') && !parse_is_op(p, ']') && !parse_is_op(p, ',')) n->b = parse_expression(p, true);
	if (parse_skip_op(p, ':') && !parse_is_op(p, ']') && !parse_is_op(p, ',')) n->c = parse_expression(p, true);
	return n;
}

static struct jnode *parse_item(struct jparse *p, struct jnode *on)
{
	uint32_t line = parse_peek(p)->line;
	struct jnode *n = parse_node(p, JN_ITEM, line);
	struct node_vec v = {0};

	while (!p->rc && !parse_is_op(p, ']')) {
		if (v.n) parse_expect_op(p, ',');
		node_vec_push(&v, parse_subscribed(p));
	}
	parse_expect_op(p, ']');
	n->a = on;
	if (v.n == 1) {
		n->b = v.items[0];
		free(v.items);
		return n;
	}
	if (!v.n) parse_fail(p, line, ST_INVALID, "expected an expression, got \"]\"");
	n->b = parse_node(p, JN_TUPLE, line);
	n->b->n = v.n;
	n->b->items = node_vec_finish(p, &v);
	return n;
}

static struct jnode *parse_attr(struct jparse *p, struct jnode *on)
{
	const struct jtoken *t = parse_next(p);
	struct jnode *n = parse_node(p, t->kind == JT_INT ? JN_ITEM : JN_ATTR, t->line);
	char got[100];

	n->a = on;
	if (t->kind == JT_NAME) {
		n->value = t->value;
	} else if (t->kind == JT_INT) { /* x.0 is x[0] */
		n->b = parse_node(p, JN_CONST, t->line);
		n->b->value = t->value;
	} else {
		parse_describe(t, got, sizeof(got));
		parse_fail(p, t->line, ST_INVALID, "expected a name or number after \".\", got %s", got);
	}
	return n;
}

struct jnode *parse_postfix(struct jparse *p, struct jnode *on)
{
	struct jnode *n;

	while (!p->rc) {
		if (parse_skip_op(p, '.')) {
			on = parse_attr(p, on);
		} else if (parse_skip_op(p, '[')) {
			on = parse_item(p, on);
		} else if (parse_is_op(p, '(')) {
			n = parse_node(p, JN_CALL, parse_peek(p)->line);
			n->a = on;
			n->args = parse_args(p);
			on = n;
		} else {
			break;
		}
	}
	return on;
}

struct jnode *parse_filters(struct jparse *p, struct jnode *on, bool at_name)
{
	struct jnode *n;
	struct jv name;
	uint32_t line;

	while (!p->rc && (at_name || parse_skip_op(p, '|'))) {
		at_name = false;
		line = parse_peek(p)->line;
		name = parse_expect_name(p);
		n = parse_node(p, JN_FILTER, line);
		n->a = on;
		n->value = name;
		n->function = filter_find(name);
		if (!n->function && !p->rc)
			parse_fail(p, line, ST_INVALID, "no filter named \"%.*s\"", (int)min_size(name.s.len, 60), name.s.p);
		n->args = parse_args(p);
		on = n;
	}
	return on;
}

/* Behind "is". */
static struct jnode *parse_test(struct jparse *p, struct jnode *on)
{
	bool negated = parse_skip_name(p, "not");
	struct jnode *n, *not;
	const struct jtoken *t = parse_peek(p);
	struct jv name = parse_expect_name(p);

	n = parse_node(p, JN_TEST, t->line);
	n->a = on;
	n->value = name;
	n->function = test_find(name);
	if (!n->function && !p->rc)
		parse_fail(p, t->line, ST_INVALID, "no test named \"%.*s\"", (int)min_size(name.s.len, 60), name.s.p);
	t = parse_peek(p);
	if (parse_is_op(p, '(')) {
		n->args = parse_args(p);
	} else {
		n->args = parse_alloc(p, 1, sizeof(*n->args));
		if (parse_is_name(p, "is")) parse_fail(p, t->line, ST_INVALID, "tests cannot be chained with \"is\"");
		if ((t->kind == JT_NAME && !jv_is(t->value, "else") && !jv_is(t->value, "or") && !jv_is(t->value, "and")) ||
		    t->kind == JT_STRING || t->kind == JT_INT || t->kind == JT_FLOAT || parse_is_op(p, '[') || parse_is_op(p, '{')) {
			struct node_vec v = {0};

			node_vec_push(&v, parse_postfix(p, parse_primary(p)));
			if (n->args) n->args->n_pos = 1, n->args->pos = node_vec_finish(p, &v);
			free(v.items);
		}
	}
	if (!negated) return n;
	not = parse_node(p, JN_NOT, n->line);
	not->a = n;
	return not;
}

/* ---- operators, from the tightest to the loosest ---- */

static struct jnode *parse_unary(struct jparse *p, bool with_filter)
{
	const struct jtoken *t = parse_peek(p);
	struct jnode *n;

	if (!parse_enter(p)) {
		parse_leave(p);
		return parse_node(p, JN_CONST, t->line);
	}
	if (parse_skip_op(p, '-') || parse_skip_op(p, '+')) {
		n = parse_node(p, JN_SIGN, t->line);
		n->op = t->op;
		n->a = parse_unary(p, false);
	} else {
		n = parse_primary(p);
	}
	n = parse_postfix(p, n);
	while (with_filter && !p->rc) {
		if (parse_is_op(p, '|')) n = parse_filters(p, n, false);
		else if (parse_skip_name(p, "is")) n = parse_test(p, n);
		else if (parse_is_op(p, '(')) n = parse_postfix(p, n);
		else break;
	}
	parse_leave(p);
	return n;
}

static struct jnode *parse_arith(struct jparse *p, int level);

/* level 0: + -; 1: * / // %; 2: **. Between 0 and 1 lies ~, see parse_concat(). */
static struct jnode *parse_concat(struct jparse *p)
{
	uint32_t line = parse_peek(p)->line;
	struct node_vec v = {0};
	struct jnode *first = parse_arith(p, 1), *n;

	if (!parse_is_op(p, '~')) return first;
	node_vec_push(&v, first);
	while (parse_skip_op(p, '~')) node_vec_push(&v, parse_arith(p, 1));
	n = parse_node(p, JN_CONCAT, line);
	n->n = v.n;
	n->items = node_vec_finish(p, &v);
	return n;
}

static struct jnode *parse_operand(struct jparse *p, int level)
{
	if (level == 0) return parse_concat(p);
	return level == 1 ? parse_arith(p, 2) : parse_unary(p, true);
}

static struct jnode *parse_arith(struct jparse *p, int level)
{
	static const int OPS[3][4] = {{'+', '-'}, {'*', '/', JOP_FLOORDIV, '%'}, {JOP_POW}};
	struct jnode *left = parse_operand(p, level), *n;
	int i;

	while (!p->rc) {
		for (i = 0; i < 4 && OPS[level][i] && !parse_is_op(p, OPS[level][i]);) i++;
		if (i == 4 || !OPS[level][i]) break;
		n = parse_node(p, JN_ARITH, parse_next(p)->line);
		n->op = OPS[level][i];
		n->a = left;
		n->b = parse_operand(p, level);
		left = n;
	}
	return left;
}

/* The comparison operator at hand, skipped; 0 when there is none. */
static int parse_compare_op(struct jparse *p)
{
	static const int OPS[] = {JOP_EQ, JOP_NE, JOP_LE, JOP_GE, '<', '>'};
	size_t i;

	for (i = 0; i < ARRAY_LEN(OPS); i++)
		if (parse_skip_op(p, OPS[i])) return OPS[i];
	if (parse_skip_name(p, "in")) return JOP_IN;
	if (!parse_is_name(p, "not") || p->pos + 1 >= p->n_tokens) return 0;
	if (p->tokens[p->pos + 1].kind != JT_NAME || !jv_is(p->tokens[p->pos + 1].value, "in")) return 0;
	p->pos += 2;
	return JOP_NOT_IN;
}

static struct jnode *parse_compare(struct jparse *p)
{
	uint32_t line = parse_peek(p)->line;
	struct jnode *first = parse_arith(p, 0), *n;
	struct node_vec v = {0};
	int op;

	while (!p->rc && (op = parse_compare_op(p))) {
		n = parse_node(p, JN_OPERAND, line);
		n->op = op;
		n->a = parse_arith(p, 0);
		node_vec_push(&v, n);
	}
	if (!v.n) return first;
	n = parse_node(p, JN_COMPARE, line);
	n->a = first;
	n->n = v.n;
	n->items = node_vec_finish(p, &v);
	return n;
}

static struct jnode *parse_not(struct jparse *p)
{
	uint32_t line = parse_peek(p)->line;
	uint32_t depth = p->depth;
	struct jnode *top = NULL, **at = &top;

	while (parse_skip_name(p, "not") && parse_enter(p)) {
		*at = parse_node(p, JN_NOT, line);
		at = &(*at)->a;
	}
	*at = parse_compare(p);
	p->depth = depth;
	return top;
}

static struct jnode *parse_logic(struct jparse *p, bool is_or)
{
	struct jnode *left = is_or ? parse_logic(p, false) : parse_not(p), *n;
	uint32_t line = parse_peek(p)->line;

	while (!p->rc && parse_skip_name(p, is_or ? "or" : "and")) {
		n = parse_node(p, is_or ? JN_OR : JN_AND, line);
		n->a = left;
		n->b = is_or ? parse_logic(p, false) : parse_not(p);
		left = n;
	}
	return left;
}

struct jnode *parse_expression(struct jparse *p, bool with_condition)
{
	uint32_t line = parse_peek(p)->line;
	struct jnode *left, *n;

	if (!parse_enter(p)) {
		parse_leave(p);
		return parse_node(p, JN_CONST, line);
	}
	left = parse_logic(p, true);
	while (with_condition && !p->rc && parse_skip_name(p, "if")) {
		n = parse_node(p, JN_COND, line);
		n->b = left;
		n->a = parse_logic(p, true);
		if (parse_skip_name(p, "else")) n->c = parse_expression(p, true);
		left = n;
	}
	parse_leave(p);
	return left;
}
