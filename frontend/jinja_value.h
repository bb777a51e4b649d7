/* jinja_value.h - values of a running template, and the run itself. Internal to frontend/jinja_*.c.
 *
 * Values are small and copied freely. What they point at lies in the run's arenas, in the compiled template or in the JSON
 * of the context, and never changes while the render lasts (only namespaces, loops and generators have state).
 *
 * Origin. A string whose `origin` is NULL comes wholly from the template (input == false) or from the context (input ==
 * true). Otherwise origin[i] tells it for byte i (1: input). Other values carry `input` too: a number or list out of the
 * context prints as input. Whoever makes a string from others goes through struct jbuf, which keeps this right.
 *
 * Failing. The first failure is kept in the run (run->rc); from then on run_step() is false, so all loops end, and every
 * function returns harmless values. Callers check run->rc only where it saves work. */
#ifndef SLUICE_JINJA_VALUE_H
#define SLUICE_JINJA_VALUE_H

#include "common/arena.h"
#include "frontend/jinja.h"

#include <string.h>

/* 128 bits: what a template computes never wraps silently; beyond is an error. Aligned to 8 to keep struct jv small. */
typedef __int128 jint __attribute__((aligned(8)));

enum jkind {
	JV_MISSING, /* no value at all: an argument that was not given */
	JV_UNDEFINED,
	JV_NONE,
	JV_BOOL,
	JV_INT,
	JV_FLOAT,
	JV_STR,
	JV_LIST,
	JV_TUPLE,
	JV_DICT,
	JV_RANGE,
	JV_VIEW,      /* dict.keys(), .values(), .items() */
	JV_GENERATOR, /* result of map, select ...: can be walked once */
	JV_NAMESPACE,
	JV_MACRO,
	JV_FUNCTION, /* a global: range, dict ... */
	JV_METHOD,   /* a method bound to its object */
	JV_LOOP,
	JV_CYCLER,
	JV_JOINER,
};

/* What an undefined value remembers for its message. */
enum jundef {
	JU_NAME,   /* a variable */
	JU_ATTR,   /* an attribute or key of a value of kind `of` */
	JU_UNSAFE, /* an attribute that the sandbox hides */
	JU_HINT,   /* the text is the message */
};

struct jdict;
struct jgen;
struct jloop;
struct jmacro;
struct jfunction;
struct jmethod;
struct jbound;
struct jcycle;
struct jrun;
struct jnode;
struct jscope;

struct jv {
	uint8_t kind; /* enum jkind */
	uint8_t sub;  /* enum jundef of JV_UNDEFINED; enum jview of JV_VIEW; 1: a JV_TUPLE of groupby */
	uint8_t of;   /* enum jkind of the object that lacks an attribute */
	bool input;
	bool markup; /* JV_STR: HTML that `+` must not escape */
	union {
		bool b;
		jint i;
		double f;
		struct {
			const char *p; /* UTF-8, not terminated; also the name or text of JV_UNDEFINED */
			size_t len;
			const uint8_t *origin;
		} s;
		struct {
			const struct jv *items;
			size_t n;
		} list; /* JV_LIST, JV_TUPLE, JV_VIEW */
		struct {
			int32_t start, stop, step;
			size_t n;
		} range;
		struct jdict *dict; /* JV_DICT, JV_NAMESPACE */
		struct jgen *gen;
		struct jloop *loop;
		struct jmacro *macro;
		const struct jfunction *function;
		struct jbound *bound;
		struct jcycle *cycle; /* JV_CYCLER, JV_JOINER */
	};
};

enum jview { JVIEW_KEYS, JVIEW_VALUES, JVIEW_ITEMS };

struct jentry {
	struct jv key, value;
	uint64_t hash;
};

/* Insertion-ordered. Linear while small, then with an index. */
struct jdict {
	struct jentry *entries;
	uint32_t *index; /* entry number + 1, 0 free; NULL while small */
	size_t n, cap, index_cap;
};

struct jgen {
	const struct jv *items;
	size_t n, pos;
};

struct jbound {
	const struct jmethod *method;
	struct jv self;
};

struct jcycle {
	const struct jv *items; /* a joiner has one item */
	size_t n, pos;
};

/* A sequence to walk by number, whatever it was. */
struct jseq {
	const struct jv *items; /* NULL: a range */
	size_t n;
	int64_t start, step;
	bool input;
};

struct jkeyword {
	struct jv name; /* JV_STR */
	struct jv value;
};

struct jargs {
	const struct jv *pos;
	size_t n_pos;
	const struct jkeyword *kw;
	size_t n_kw;
};

/* A text under construction, in the run's text arena. */
struct jbuf {
	struct jrun *run;
	char *p;
	uint8_t *origin; /* NULL while all bytes have one origin */
	size_t len, cap;
	bool input; /* the one origin */
};

struct jrun_placeholder;
struct jrun {
	const struct jinja *template;
	const struct jinja_limits *limits;
	struct jinja_out *out;
	struct jbuf *capture; /* where output goes instead of `out`, or NULL */
	struct errbuf *err;
	bool *raised;
	int rc;
	uint32_t line; /* of the statement or expression at work, for messages */
	uint32_t depth;
	uint64_t steps_left;
	uint64_t work; /* bytes handled since the last step was charged for them */
	int64_t now_s;
	struct arena_budget budget;
	struct arena text, origins, objects;
	struct jv *globals; /* by symbol */
	struct jv captured; /* what a filter or set block has captured, for its filters */
	struct jscope *scope;
};

/* ---- the run (jinja_run.c) ---- */

/* Sets the failure; returns a harmless value. Only the first one counts. */
struct jv run_fail(struct jrun *r, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define run_error(r, ...) run_fail(r, ST_INVALID, __VA_ARGS__)
/* One unit of work; false when the run has failed or is out of steps. */
bool run_step(struct jrun *r);
/* Work that is proportional to bytes. */
bool run_work(struct jrun *r, size_t bytes);
bool run_enter(struct jrun *r); /* one level deeper; false when too deep */
void run_leave(struct jrun *r);
/* Zeroed memory of the run, NULL (and failed) when over the limit. */
void *run_alloc(struct jrun *r, size_t n, size_t size);
void run_emit(struct jrun *r, struct jv s); /* a JV_STR to the output or the capture */

/* ---- making values (jinja_value.c) ---- */

static inline struct jv jv_none(void)
{
	return (struct jv){.kind = JV_NONE};
}

static inline struct jv jv_bool(bool b)
{
	return (struct jv){.kind = JV_BOOL, .b = b};
}

static inline struct jv jv_int(jint i)
{
	return (struct jv){.kind = JV_INT, .i = i};
}

static inline struct jv jv_float(double f)
{
	return (struct jv){.kind = JV_FLOAT, .f = f};
}

static inline struct jv jv_view(const char *p, size_t len, bool input)
{
	return (struct jv){.kind = JV_STR, .input = input, .s = {p, len, NULL}};
}

static inline struct jv jv_lit(const char *text)
{
	return jv_view(text, strlen(text), false);
}

static inline struct jv jv_list(enum jkind kind, const struct jv *items, size_t n, bool input)
{
	return (struct jv){.kind = (uint8_t)kind, .input = input, .list = {items, n}};
}

static inline struct jv jv_undefined(enum jundef why, struct jv name, enum jkind of)
{
	return (struct jv){.kind = JV_UNDEFINED, .sub = (uint8_t)why, .of = (uint8_t)of, .s = {name.s.p, name.s.len, NULL}};
}

static inline struct jv jv_hint(const char *message)
{
	return jv_undefined(JU_HINT, jv_lit(message), JV_MISSING);
}

static inline bool jv_is_none(struct jv v)
{
	return v.kind == JV_NONE;
}

static inline bool jv_given(struct jv v)
{
	return v.kind != JV_MISSING;
}

static inline bool jv_is_integral(struct jv v)
{
	return v.kind == JV_INT || v.kind == JV_BOOL;
}

static inline bool jv_is_number(struct jv v)
{
	return jv_is_integral(v) || v.kind == JV_FLOAT;
}

static inline jint jv_as_int(struct jv v)
{
	return v.kind == JV_BOOL ? v.b : v.i;
}

static inline double jv_as_float(struct jv v)
{
	return v.kind == JV_FLOAT ? v.f : (double)jv_as_int(v);
}

bool jv_is(struct jv s, const char *text); /* a JV_STR with exactly this text */
/* True when any part of it came from the context. */
bool jv_has_input(struct jv v);
/* Bytes [from, from + len) of a string; shares its memory. */
struct jv jv_sub(struct jv s, size_t from, size_t len);
struct jv jv_generator(struct jrun *r, const struct jv *items, size_t n, bool input);
/* Input values, strings as views of the JSON. */
struct jv jv_from_json(struct jrun *r, json_t *json, bool input);

struct jdict *jdict_new(struct jrun *r);
/* False (and failed) for a key that cannot be hashed. Replaces the value of an equal key. */
bool jdict_put(struct jrun *r, struct jdict *d, struct jv key, struct jv value);
const struct jv *jdict_get(struct jrun *r, const struct jdict *d, struct jv key);
const struct jv *jdict_get_text(struct jrun *r, const struct jdict *d, const char *key);
struct jv jv_dict(struct jdict *d, bool input);
/* A list of the keys, values or (key, value) tuples. */
struct jv jdict_view(struct jrun *r, struct jv dict, enum jview what);

/* ---- text (jinja_text.c, jinja_json.c) ---- */

void jbuf_init(struct jbuf *b, struct jrun *r);
void jbuf_put(struct jbuf *b, const char *p, size_t len, bool input);
void jbuf_puts(struct jbuf *b, const char *text, bool input);
void jbuf_str(struct jbuf *b, struct jv s); /* a JV_STR with its origins */
struct jv jbuf_finish(struct jbuf *b);

const char *jv_type_name(struct jv v); /* Python's: str, int, NoneType ... */
struct jv jv_to_str(struct jrun *r, struct jv v);
struct jv jv_repr(struct jrun *r, struct jv v);
void jbuf_repr(struct jbuf *b, struct jv v);
struct jv jv_concat(struct jrun *r, struct jv a, struct jv b); /* of two JV_STR */
/* Shortest text that reads back as the same double, as Python writes it. Returns its length; out holds at least 40. */
size_t jfloat_repr(double f, char *out);
size_t jint_text(jint i, char *out); /* out holds at least 48 */
struct jv jv_tojson(struct jrun *r, struct jv v, struct jv indent, struct jv separators, bool ensure_ascii, bool sort_keys);

/* ---- operations (jinja_ops.c) ---- */

bool jv_truth(struct jrun *r, struct jv v);
bool jv_equal(struct jrun *r, struct jv a, struct jv b);
/* < 0, 0, > 0; fails for kinds that have no order ("op" for the message). */
int jv_compare(struct jrun *r, struct jv a, struct jv b, const char *op);
bool jv_contains(struct jrun *r, struct jv item, struct jv in);
struct jv jv_add(struct jrun *r, struct jv a, struct jv b);
struct jv jv_arith(struct jrun *r, int op, struct jv a, struct jv b); /* op: '+' '-' '*' '/' 'f' '%' 'p' */
struct jv jv_negate(struct jrun *r, struct jv v, bool minus);
/* Fails with the message of an undefined value. */
struct jv jv_undefined_error(struct jrun *r, struct jv v);

/* ---- contents (jinja_items.c) ---- */

/* What Python's iter() walks; fails for what cannot be walked. A generator is used up. */
struct jseq jv_iterate(struct jrun *r, struct jv v);
struct jv jseq_at(const struct jseq *s, size_t ix);
/* All items as an array. */
struct jv jv_to_list(struct jrun *r, struct jv v);
size_t jv_length(struct jrun *r, struct jv v);
struct jv jv_getattr(struct jrun *r, struct jv obj, struct jv name);
struct jv jv_getitem(struct jrun *r, struct jv obj, struct jv key);
struct jv jv_slice(struct jrun *r, struct jv obj, struct jv start, struct jv stop, struct jv step);

/* ---- UTF-8 (jinja_chars.c) ---- */

size_t jchars_count(struct jrun *r, struct jv s);
/* Byte offset of character number `ix` (at most the count). */
size_t jchars_offset(struct jrun *r, struct jv s, size_t ix);
bool jchars_is_space(uint32_t cp);
struct jv jchars_strip(struct jrun *r, struct jv s, struct jv chars, bool left, bool right);
enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_CAPITALIZE, JCASE_SWAP, JCASE_FOLD };
struct jv jchars_case(struct jrun *r, struct jv s, enum jcase how);
void jbuf_case(struct jbuf *b, struct jv s, enum jcase how);
/* Offset of the first (last) occurrence in bytes [from, to) of s, or -1. */
ptrdiff_t jchars_find(struct jrun *r, struct jv s, struct jv what, size_t from, size_t to);
ptrdiff_t jchars_rfind(struct jrun *r, struct jv s, struct jv what, size_t from, size_t to);
struct jv jchars_replace(struct jrun *r, struct jv s, struct jv old, struct jv with, jint count);
struct jv jchars_split(struct jrun *r, struct jv s, struct jv sep, jint max, bool from_right);
struct jv jchars_splitlines(struct jrun *r, struct jv s, bool keep_ends);
struct jv jchars_escape(struct jrun *r, struct jv s);
/* Has letters with case, and all of them are upper (lower). */
bool jchars_is_case(struct jv s, bool upper);
bool jchars_is_cased(uint32_t cp);

/* ---- calls (jinja_call.c): filters, tests, methods and globals share one way to bind arguments ---- */

#define JPARAMS_MAX 6

/* a: the arguments by position, JV_MISSING where not given. raw: all of them as they came. */
typedef struct jv jinja_fn(struct jrun *r, struct jv self, const struct jv *a, const struct jargs *raw);

struct jfunction {
	const char *name;
	const char *params; /* names, separated by blanks; "*" for any arguments (use raw) */
	uint8_t required;   /* how many of them must be given */
	jinja_fn *fn;
};

struct jmethod {
	uint8_t kind; /* enum jkind of the object */
	struct jfunction f;
};

/* A growing array of values. */
struct jvec {
	struct jv *items;
	size_t n, cap;
};
bool jvec_push(struct jrun *r, struct jvec *v, struct jv item);

struct jv call_function(struct jrun *r, const struct jfunction *f, struct jv self, const struct jargs *args);
struct jv call_value(struct jrun *r, struct jv callee, const struct jargs *args);
const struct jfunction *filter_find(struct jv name);
const struct jfunction *test_find(struct jv name);
const struct jfunction *global_find(const char *name, size_t len);
const struct jmethod *method_find(enum jkind kind, struct jv name);
/* Methods that Python has and we do not, or that the sandbox hides: they exist, but cannot be used. */
bool method_is_hidden(enum jkind kind, struct jv name);
bool test_true(struct jrun *r, const struct jfunction *test, struct jv v, const struct jargs *args);
/* Python's round() to `digits` places after the point. */
double jround(double f, int digits);
/* "%"-formatting; args is a tuple, a dict or one value. */
struct jv format_percent(struct jrun *r, struct jv fmt, struct jv args);
struct jv format_braces(struct jrun *r, struct jv fmt, const struct jargs *args);
struct jv format_time(struct jrun *r, struct jv fmt, int64_t now_s);

/* An argument as an integer in [min, max]; `fallback` when it is missing or None. */
int64_t arg_int(struct jrun *r, struct jv v, int64_t fallback, int64_t min, int64_t max);
bool arg_bool(struct jrun *r, struct jv v, bool fallback);

/* ---- evaluation (jinja_eval.c, jinja_stmt.c) ---- */

struct jv eval(struct jrun *r, const struct jnode *n);
struct jv eval_macro(struct jrun *r, struct jmacro *m, const struct jargs *args);
struct jv eval_loop_attr(struct jrun *r, struct jv loop, struct jv name);
struct jv eval_loop_again(struct jrun *r, struct jv loop, const struct jargs *args);
void exec_body(struct jrun *r, const struct jnode *body);

#endif
