/* schemac_impl.h - what the parts of the schema compiler share.
 *
 * A *demand* is a schema that a value has to be valid for, or must not be valid for. A *node* is a set of demands that hold
 * together: what one place in the output must meet. Nodes are interned, so recursive schemas have finitely many; each becomes a rule.
 *
 * The values that meet a demand are a *sum*: for each type of JSON a union of *shapes*, each a plain conjunction of limits. Sums
 * are joined (anyOf) and cut (allOf) without looking into the shapes' parts, which are nodes again:
 *
 *   schema ──schemaread──▶ sum ──schemasum (and, or)──▶ sum of a node ──schemaput──▶ rule
 *
 * What a sum allows is always valid, but it need not be all that is valid: where something cannot be said by a grammar, a union loses a
 * part (`lost` names the first one) or, when nothing would be left, the schema is refused. So no text is ever wrong. */
#ifndef SLUICE_SCHEMAC_IMPL_H
#define SLUICE_SCHEMAC_IMPL_H

#include "common/map.h"
#include "frontend/dfa.h"
#include "frontend/gramjson.h"
#include "frontend/schemadoc.h"
#include "frontend/schemanum.h"

struct schemademand {
	const json_t *schema;
	bool negated;
};

struct schemanode {
	const struct schemademand *demands; /* sorted; none: any value */
	size_t n_demands;
	const struct schemasum *sum;        /* NULL: not worked out yet */
	uint32_t rule;                      /* + 1; 0: not asked for yet */
	uint8_t emptiness;                  /* enum schemasum_emptiness */
};

struct schemastring {
	const struct dfa *dfa; /* NULL: any */
	uint32_t min, max;     /* characters; GRAM_NO_END */
};

/* What one schema says about items: by position, and the rest. */
struct schemaitems {
	struct schemanode **prefix;
	uint32_t n_prefix;
	struct schemanode *rest; /* of the others */
	bool says_rest;          /* a keyword for the rest was there: it "evaluates" them */
	bool is_silent;          /* from within "not": evaluates nothing */
};

struct schemacontains {
	struct schemanode *node;
	uint32_t min, max;
};

struct schemaarray {
	const struct schemaitems **layers;
	uint32_t n_layers;
	const struct schemacontains **contains;
	uint32_t n_contains;
	uint32_t min, max;
	const json_t *unique_at; /* the schema that wants unique items; NULL: none */
	const json_t *at;        /* for errors; may be NULL */
};

struct schemakey {
	const char *text;
	size_t len;
};

struct schemaproperty {
	struct schemakey key;
	struct schemanode *node;
};

/* An expression for keys, in both readings of regexc.h. */
struct schemapattern {
	struct schemakey source;
	const struct dfa *narrow, *wide;
	struct schemanode *node;
};

/* What one schema says about members: by name, by expression, and the rest. */
struct schemamembers {
	struct schemaproperty *properties;
	uint32_t n_properties;
	struct schemapattern *patterns;
	uint32_t n_patterns;
	struct schemanode *rest;
	bool says_rest, is_silent;
};

struct schemaobject {
	const struct schemamembers **layers;
	uint32_t n_layers;
	const struct schemakey *required;
	uint32_t n_required;
	const struct dfa *names; /* NULL: any */
	uint32_t min, max;
	const json_t *at;
};

enum schematype {
	SCHEMATYPE_NULL = 1,
	SCHEMATYPE_BOOLEAN = 2,
	SCHEMATYPE_NUMBER = 4,
	SCHEMATYPE_STRING = 8,
	SCHEMATYPE_ARRAY = 16,
	SCHEMATYPE_OBJECT = 32,
	SCHEMATYPE_ALL = 63
};

struct schemasum {
	bool has_null;
	uint8_t booleans;          /* 1: false, 2: true */
	bool has_all_numbers;
	const struct dfa *numbers; /* when not all; may be NULL: none */
	const struct schemastring *strings;
	const struct schemaarray **arrays;
	const struct schemaobject **objects;
	uint32_t n_strings, n_arrays, n_objects;
	uint8_t inexact;           /* enum schematype: of these types more values may be valid than the sum has */
	const char *lost;          /* a part of the union that cannot be said, as an error text; NULL: none */
};

struct schemac {
	struct gramctx *g;
	struct schemadoc doc;
	struct gramjson json;
	struct map nodes, sums; /* by hash of the demands; by demand */
	struct schemanode *any, *never;
	struct schemanode **todo; /* nodes whose rule is to be written */
	size_t n_todo, cap_todo, n_done;
	const struct dfa *numbers, *whole; /* made when needed */
	const struct schemasum *sum_none, *sum_any;
	struct map formats;             /* hash of the name -> automaton */
	struct map constants;           /* a value of the document -> a schema of ours, {"const": value} */
	json_t *own;                    /* list of those */
	int depth;                      /* of demands in demands */
	bool is_silent;                 /* within "not", where nothing counts as evaluated */
	int proving;                    /* schemasum_is_empty() is at work, so many deep */
	bool is_unknown;                /* it came back to what is being read: no result from here up to it is kept */
};

/* ---- schemasum.c ---- */

void schemasum_init(struct schemac *c);
struct schemanode *schemasum_node(struct schemac *c, const struct schemademand *demands, size_t n);
struct schemanode *schemasum_node_of(struct schemac *c, const json_t *schema, bool negated);
struct schemanode *schemasum_both(struct schemac *c, const struct schemanode *a, const struct schemanode *b);

/* Any value of the types (bits). */
const struct schemasum *schemasum_types(struct schemac *c, unsigned types);
const struct schemasum *schemasum_and(struct schemac *c, const struct schemasum *a, const struct schemasum *b);
const struct schemasum *schemasum_or(struct schemac *c, const struct schemasum *a, const struct schemasum *b);
/* All values of other types, and of this one those of the shape. */
const struct schemasum *schemasum_string(struct schemac *c, struct schemastring s);
const struct schemasum *schemasum_numbers(struct schemac *c, const struct dfa *numbers);
const struct schemasum *schemasum_array(struct schemac *c, const struct schemaarray *a);
const struct schemasum *schemasum_object(struct schemac *c, const struct schemaobject *o);
/* Nothing, but there would be values of the types. */
const struct schemasum *schemasum_lost(struct schemac *c, const json_t *at, const char *what, unsigned types);
const struct schemasum *schemasum_inexact(struct schemac *c, const struct schemasum *s, unsigned types);
/* Only the values of the types. */
const struct schemasum *schemasum_only(struct schemac *c, const struct schemasum *s, unsigned types);

/* The values that meet all of a node's demands. */
const struct schemasum *schemasum_of(struct schemac *c, struct schemanode *n);
/* True: surely no value meets them. */
bool schemasum_is_empty(struct schemac *c, struct schemanode *n);
bool schemasum_object_is_empty(struct schemac *c, const struct schemaobject *o);
const struct dfa *schemasum_string_dfa(struct schemac *c, const struct schemastring *s);

/* ---- schemaread.c and its parts: a demand to a sum ----
 *
 * Each part reads its keywords. Not negated: the values that meet them all; negated: those that break one. */

const struct schemasum *schemaread(struct schemac *c, const json_t *schema, bool negated);
/* The schema that {"$ref": ...} alone leads to. */
const json_t *schemaread_target(struct schemac *c, const json_t *schema);
const struct schemasum *schemavalue_read_numbers(struct schemac *c, const json_t *schema, bool negated);
const struct schemasum *schemavalue_read_types(struct schemac *c, const json_t *schema, bool negated);
const struct schemasum *schemavalue_read_constants(struct schemac *c, const json_t *schema, bool negated);
const struct schemasum *schemavalue_read_strings(struct schemac *c, const json_t *schema, bool negated);
const struct schemasum *schemamember_read_arrays(struct schemac *c, const json_t *schema, bool negated);
const struct schemasum *schemamember_read_objects(struct schemac *c, const json_t *schema, bool negated);
const struct schemasum *schemamember_read_dependencies(struct schemac *c, const json_t *schema, bool negated);
/* "unevaluatedItems" and "unevaluatedProperties": what the sum's layers say nothing about. Not negated. */
const struct schemasum *schemamember_unevaluated(struct schemac *c, const json_t *schema, const struct schemasum *sum);
/* The automaton of a keyword's expression, a search. Never NULL. */
const struct dfa *schemavalue_pattern(struct schemac *c, const json_t *at, const char *keyword, const char *text, size_t len, bool wide);
/* A keyword's count, when it is there. Fails when it is no count. */
bool schemavalue_count(struct schemac *c, const json_t *schema, const char *keyword, uint32_t *out);

/* ---- schemaformat.c ---- */

/* The texts of a format, all of them valid for whoever checks it; NULL: not one we know, or none there is to say of. */
const struct dfa *schemaformat(struct schemac *c, const char *name);

/* ---- schemaput.c and its parts: a node to a rule ---- */

uint32_t schemaput_rule(struct schemac *c, struct schemanode *n);
/* Writes the rules that were asked for, and those that these ask for. */
void schemaput_all(struct schemac *c);
/* Into the rule, from the state; returns the state behind it. */
uint32_t schemaput_node(struct schemac *c, struct schemanode *n, uint32_t rule, uint32_t from);
uint32_t schemaputarr(struct schemac *c, const struct schemaarray *a, uint32_t rule, uint32_t from);
uint32_t schemaputobj(struct schemac *c, const struct schemaobject *o, uint32_t rule, uint32_t from);

#endif
