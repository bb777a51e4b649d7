/* jinja_ast.h - tokens and syntax tree of a template. Internal to frontend/jinja_*.c.
 *
 * Everything lies in the arena of the compiled template and is never changed after jinja_compile(). */
#ifndef SLUICE_JINJA_AST_H
#define SLUICE_JINJA_AST_H

#include "frontend/jinja_value.h"

enum jtoken_kind {
	JT_EOF,
	JT_DATA,
	JT_VAR_BEGIN,
	JT_VAR_END,
	JT_BLOCK_BEGIN,
	JT_BLOCK_END,
	JT_NAME,
	JT_STRING,
	JT_INT,
	JT_FLOAT,
	JT_OP, /* op: the character, or one of the two-character ones below */
};

#define JOP2(a, b) ((a) << 8 | (b))
enum jop {
	JOP_EQ = JOP2('=', '='),
	JOP_NE = JOP2('!', '='),
	JOP_LE = JOP2('<', '='),
	JOP_GE = JOP2('>', '='),
	JOP_FLOORDIV = JOP2('/', '/'),
	JOP_POW = JOP2('*', '*'),
	JOP_IN = JOP2('i', 'n'),
	JOP_NOT_IN = JOP2('n', 'i'),
};

struct jtoken {
	enum jtoken_kind kind;
	int op;
	uint32_t line;
	struct jv value; /* text of names, strings and data; numbers */
};

enum jnode_kind {
	/* expressions */
	JN_CONST,    /* value */
	JN_NAME,     /* symbol, value (its text) */
	JN_LIST,     /* items */
	JN_TUPLE,    /* items */
	JN_DICT,     /* items: key, value, key, value ... */
	JN_ARITH,    /* op, a, b */
	JN_AND,      /* a, b */
	JN_OR,       /* a, b */
	JN_NOT,      /* a */
	JN_SIGN,     /* op '-' or '+', a */
	JN_CONCAT,   /* items */
	JN_COMPARE,  /* a, items: JN_OPERAND */
	JN_OPERAND,  /* op, a */
	JN_COND,     /* a: test, b: then, c: else or NULL */
	JN_ATTR,     /* a, value: name */
	JN_ITEM,     /* a, b */
	JN_SLICE,    /* a, b, c: start, stop, step or NULL; only as b of JN_ITEM */
	JN_CALL,     /* a, args */
	JN_FILTER,   /* a (NULL: what the block captured), function, args */
	JN_TEST,     /* a, function, args */
	JN_NS_ATTR,  /* symbol, value: name; only as the target of a set */
	/* statements; `next` links the statements of a body */
	JN_TEXT,     /* value */
	JN_PRINT,    /* a */
	JN_IF,       /* a, body, other */
	JN_FOR,      /* a: target, b: iterable, c: test or NULL, body, other, recursive */
	JN_SET,      /* a: target, b */
	JN_SET_BLOCK, /* a: target, b: filters or NULL, body */
	JN_MACRO,    /* macro */
	JN_CALL_BLOCK, /* a: the call, macro */
	JN_FILTER_BLOCK, /* b: filters, body */
	JN_WITH,     /* items: target, value ...; body */
	JN_SCOPE,    /* body */
	JN_BREAK,
	JN_CONTINUE,
};

struct jnode_kw {
	struct jv name;
	struct jnode *value;
};

struct jnode_args {
	struct jnode **pos;
	size_t n_pos;
	struct jnode_kw *kw;
	size_t n_kw;
	struct jnode *star, *star_star; /* *list and **dict, or NULL */
};

struct jmacro_def {
	struct jv name;
	uint32_t symbol;
	size_t n_params;
	struct jv *param_names;
	uint32_t *param_symbols;
	struct jnode **defaults; /* NULL where a parameter has none */
	struct jnode *body;
	bool uses_varargs, uses_kwargs, uses_caller;
	uint32_t varargs_symbol, kwargs_symbol, caller_symbol;
};

struct jnode {
	enum jnode_kind kind;
	int op;
	uint32_t line;
	uint32_t symbol;
	bool recursive;
	struct jnode *a, *b, *c;
	struct jnode *body, *other;
	struct jnode *next;
	struct jnode **items;
	size_t n;
	struct jv value;
	const struct jfunction *function;
	struct jnode_args *args;
	struct jmacro_def *macro;
};

struct jinja {
	struct arena_budget budget;
	struct arena arena;
	struct jnode *body;
	struct jv *symbols; /* names by symbol number */
	size_t n_symbols, cap_symbols;
	uint32_t loop_symbol;
	uint32_t *symbol_index; /* hash table, only while compiling */
	size_t symbol_index_cap;
};

/* A compile at work. As in a run, the first failure is kept; afterwards every token reads as JT_EOF. */
struct jparse {
	struct jinja *t;
	struct errbuf *err;
	int rc;
	struct jtoken *tokens;
	size_t n_tokens, cap_tokens;
	size_t pos;
	uint32_t depth;
	uint32_t loops;                /* enclosing for loops in this macro */
	struct jmacro_def *macro;      /* innermost macro that is being parsed */
	const char *block;             /* innermost open block, for messages */
};

#define JPARSE_DEPTH_MAX 200 /* nesting in the source; real templates stay below 20 */

/* jinja_parsebase.c */
struct jnode *parse_fail(struct jparse *p, uint32_t line, int rc, const char *fmt, ...) PRINTF_LIKE(4, 5);
void *parse_alloc(struct jparse *p, size_t n, size_t size);
struct jnode *parse_node(struct jparse *p, enum jnode_kind kind, uint32_t line);
uint32_t parse_symbol(struct jparse *p, struct jv name);
const struct jtoken *parse_peek(const struct jparse *p);
const struct jtoken *parse_next(struct jparse *p);
bool parse_is_op(const struct jparse *p, int op);
bool parse_is_name(const struct jparse *p, const char *name);
bool parse_skip_op(struct jparse *p, int op);
bool parse_skip_name(struct jparse *p, const char *name);
void parse_expect_op(struct jparse *p, int op);
struct jv parse_expect_name(struct jparse *p);
void parse_describe(const struct jtoken *t, char *out, size_t n);
bool parse_enter(struct jparse *p);
void parse_leave(struct jparse *p);

/* jinja_expr.c */
struct jnode *parse_expression(struct jparse *p, bool with_condition);
/* One expression, or a tuple of several; `end` is a name that ends it, or NULL. */
struct jnode *parse_tuple(struct jparse *p, bool with_condition, const char *end, bool in_parentheses);
struct jnode *parse_filters(struct jparse *p, struct jnode *on, bool at_name);
struct jnode *parse_postfix(struct jparse *p, struct jnode *n);
struct jnode *parse_primary(struct jparse *p);

/* Statements (jinja_parse.c) and tokens (jinja_lex.c). */
void lex_run(struct jparse *p, const char *text, size_t len);
void parse_run(struct jparse *p);

#endif
