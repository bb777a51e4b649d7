/* maskdfa.h - walks of the vocabulary's trie through one grammar, made deterministic as they go, and what they found.
 *
 * A set here is a place (maskplace.h) cut off at some frame, which is its bottom: nothing in it says what lies under.
 * So all strings of a schema share their sets, whatever they are strings of. Where a set `ends`, the bottom is reached,
 * and the text may go on with what lies under it: such trie nodes are reported as exits, for the caller to go on from.
 *
 * Everything in here is a cache: it can be thrown away between two calls, and only costs time. A walk is bounded by
 * MASKDFA_WORK_MAX; whether it is reached does not depend on what is cached. */
#ifndef SLUICE_MASKDFA_H
#define SLUICE_MASKDFA_H

#include "common/base.h"
#include "worker/maskplace.h"
#include "worker/masktrie.h"

/* Ways of all sets that one fill goes through, each set counted once a walk. An ordinary one has tens; this many take
 * less than a second. */
#define MASKDFA_WORK_MAX 32768

/* Exits are of use when at most every so many-th of the trie's nodes lies below them. */
#define MASKDFA_BELOW_SHARE 16

#define MASKDFA_SHORT_LEN 16 /* bytes of a token that MASKDFA_SHORT looks at */

enum maskdfa_kind {
	MASKDFA_ALL,
	MASKDFA_SHORT, /* tokens of at most MASKDFA_SHORT_LEN bytes */
	MASKDFA_LONG,  /* longer ones */
	MASKDFA_KINDS
};

/* What a walk from the root found. Either list or bits. */
struct maskdfa_found {
	uint32_t n;        /* tokens after which the set is not dead */
	uint32_t *list;    /* (n) */
	uint64_t *bits;    /* by token */
	uint32_t cost_max; /* the most that it costs to reach the bottom after one of them */
	uint32_t *exits;   /* (n_exits) nodes with children at which the bottom is reached, in order; none when it is too many */
	uint32_t n_exits;
	uint64_t n_below; /* nodes below the exits */
	uint32_t work;
	size_t bytes;
};

#define MASKDFA_ROW 16 /* bytes' next sets that are kept together */

struct maskdfa_set {
	uint32_t at, n; /* ways */
	uint32_t cost;  /* maskplace_cost() */
	bool ends;
	uint32_t walk; /* number of the last walk that came here */
	uint32_t rows[256 / MASKDFA_ROW];
	struct maskdfa_found *found[MASKDFA_KINDS];
};

struct maskdfa_row {
	uint32_t next[MASKDFA_ROW]; /* sets; 0: not known yet */
};

#define MASKDFA_DEAD 1u /* the set from which nothing can be read */

struct maskdfa {
	const struct masktrie *trie; /* borrowed, as is frames.g */
	uint32_t vocab;
	struct maskframes frames;
	struct maskdfa_set *sets; /* from 2 on */
	uint32_t n_sets, sets_cap;
	struct maskway *ways;
	uint32_t n_ways, ways_cap;
	struct maskdfa_row *rows; /* from 1 on */
	uint32_t n_rows, rows_cap;
	uint32_t *slots; /* sets by their ways; open addressing */
	uint32_t n_slots;
	size_t found_bytes;
	uint32_t walk;
	uint64_t n_walks;      /* ever */
	struct maskplace next; /* where a set leads, before it has a number */
};

void maskdfa_init(struct maskdfa *d, const struct gram *g, const struct masktrie *trie, uint32_t vocab);
void maskdfa_release(struct maskdfa *d);
void maskdfa_reset(struct maskdfa *d);
size_t maskdfa_bytes(const struct maskdfa *d);

/* The set of a place whose frames are d's. Sorts its ways. */
uint32_t maskdfa_set(struct maskdfa *d, struct maskplace *p);

/* Nodes at which a walk reached the bottom. */
struct maskdfa_exits {
	uint32_t *nodes;
	uint32_t n, cap;
};

/* A walk that is not kept. */
struct maskdfa_walk {
	uint64_t *bits;              /* tokens are added to it; NULL: only the exits are wanted */
	uint32_t cost_max;           /* in: a token after which the end costs more is left out; UINT32_MAX: none is */
	struct maskdfa_exits *exits; /* appended to; may be NULL */
	uint32_t work;               /* added to; above MASKDFA_WORK_MAX the walk is given up */
};

/* A kept walk from the trie's root; NULL when it is too much work. *work is added to as if nothing had been kept. */
const struct maskdfa_found *maskdfa_find(struct maskdfa *d, struct maskscratch *x, uint32_t set, enum maskdfa_kind kind,
					 uint32_t *work);

/* Walks the kind's tokens from the root. */
void maskdfa_filter(struct maskdfa *d, struct maskscratch *x, uint32_t set, enum maskdfa_kind kind,
		    struct maskdfa_walk *w);

/* Walks the tokens below the nodes, being at `set` on each of them. */
void maskdfa_go_on(struct maskdfa *d, struct maskscratch *x, uint32_t set, const struct maskdfa_exits *from,
		   struct maskdfa_walk *w);

#endif
