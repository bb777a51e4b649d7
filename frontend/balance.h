/* balance.h - which connections a frontend gives to its siblings, so that each serves as many requests as the others.
 *
 * SO_REUSEPORT spreads connections, and not evenly; what they ask for differs besides. So each frontend keeps, for each connection, how
 * many requests it has answered in how many seconds, both fading (BALANCE_MEMORY_S), and publishes the sum of what it expects of them.
 * One that is above the mean by more than its tolerance gives connections away, to siblings below the mean.
 *
 * Expected requests a second of a connection: (answered + k) / (seconds + k / usual), where usual is the mean of all connections of the
 * mesh and k = BALANCE_PRIOR requests and, at first, what is usual in BALANCE_PRIOR_S. Where little has been seen this balances the
 * number of connections in use, and with time what they do.
 * A connection that has asked for nothing yet counts nothing.
 *
 * Tolerance: BALANCE_TOLERANCE, and BALANCE_SIGMAS times the noise of the counts. All frontends decide by themselves and at the same
 * time: each takes of a sibling's gap only its own share of the excess, and only the most loaded one may round up. So no gap is filled
 * twice, as long as a sibling adds what it is given to its load at once, not at its next look. A connection that has moved stays for BALANCE_SETTLE_NS.
 * Frontends differ in speed, too: a slow one answers less, and would be given more and more. So none is given connections when it has
 * BALANCE_COUNT_MAX times the mean of those in use. One may have still more of them because they ask for little: it gives some of
 * these away, or it would never be given those that ask for much.
 *
 * Pure: numbers and the time go in, a target comes out. */
#ifndef SLUICE_BALANCE_H
#define SLUICE_BALANCE_H

#include "common/base.h"
#include "proto/limits.h"

#define BALANCE_MEMORY_S 10.0
#define BALANCE_PRIOR 4.0       /* requests, and ... */
#define BALANCE_PRIOR_S 0.5     /* ... seconds: a frontend that is held up for a moment has no other clients for it ... */
#define BALANCE_PRIOR_FADES_S 4.0 /* ... less and less until so much has been seen */
#define BALANCE_TOLERANCE 0.03  /* of the mean */
#define BALANCE_SIGMAS 1.5
#define BALANCE_SEEN_S 0.25     /* of an average connection: when all begin at once, siblings show what they saw at different times */
#define BALANCE_COUNT_MAX 1.35
#define BALANCE_COUNT_SHED_TO 1.2
#define BALANCE_MOVES_MIN 32    /* a plan at most, and a sixteenth of the connections in use */
#define BALANCE_SETTLE_NS (3 * NS_PER_S)

/* Of a connection; travels with it. */
struct balance_conn {
	float answered, seconds; /* faded */
	uint32_t seen;           /* requests answered at the last look */
	int target;              /* slot of the sibling that it goes to when it is idle; -1: it stays */
	uint64_t settled_ns;     /* it stays until then */
};

/* Of a frontend; siblings read it from the status page. */
struct balance_load {
	double rate;     /* requests a second that it expects */
	double answered, seconds, n_used; /* of its connections that have asked for something */
};

/* Of all frontends that serve. */
struct balance_view {
	struct balance_load loads[LIMIT_FRONTENDS];
	bool serves[LIMIT_FRONTENDS]; /* and may be given connections */
	uint32_t n, self;
};

struct balance_plan {
	double quota[LIMIT_FRONTENDS]; /* requests a second that each may be given; by_count: connections */
	double round_up;               /* what one connection more may bring to `lowest`; 0: nothing */
	double rate_min, rate_max;     /* of a connection: smaller ones would need too many moves */
	double rate_left;              /* by_count: of all that go */
	bool by_count;
	uint32_t n, lowest, moves_left;
};

void balance_conn_init(struct balance_conn *c);
/* A look after `seconds`: n_answered: of the connection since it began. Adds it to the load. usual: of balance_usual(). */
void balance_look(struct balance_conn *c, uint32_t n_answered, double seconds, double usual, struct balance_load *load);
/* Requests a second that are expected of it. */
double balance_rate(const struct balance_conn *c, double usual);
/* What a connection adds to a load when it comes (sign 1), or takes with it when it goes (-1). */
void balance_moved(struct balance_load *load, const struct balance_conn *c, double usual, int sign);
/* Requests a second of one connection in use; 0: none is. */
double balance_usual(const struct balance_view *v);

/* False: nothing is to be done. */
bool balance_plan(struct balance_plan *p, const struct balance_view *v);
/* Where the connection goes, or -1. Takes it off the plan. */
int balance_pick(struct balance_plan *p, const struct balance_conn *c, double rate, uint64_t now);

#endif
