/* pace.h - holds back a loop that is woken for one message at a time: several messages then share a pass, and what a pass costs (system
 * calls, a packet here and there, the wake-ups of others). The idea of an Ethernet card's interrupt moderation.
 *
 * A loop makes PACE_FREE_PER_S passes a second as they come. Beyond that its passes are a gap apart. So a loop that has little to
 * do answers at once, one whose passes are longer than the gap is never held, and in between the time until an answer grows by a gap at
 * most at each loop on the way. An engine whose steps are shorter than the executor's gap is slower for it. pace_pass() is pure;
 * pace_hold() looks at the clock and sleeps, to which the kernel adds its timers' slack. */
#ifndef SLUICE_PACE_H
#define SLUICE_PACE_H

#include "common/base.h"
#include "common/clock.h"

#include <stdint.h>

#define PACE_FREE_PER_S 2500
#define PACE_BURST 8 /* passes beyond that rate before the first is held */
/* A request passes a frontend twice and the executor twice; a pass of a frontend costs several times what one of the executor does. */
#define PACE_FRONTEND_NS 300000u
#define PACE_EXECUTOR_NS 100000u

/* Zero at first. */
struct pace {
	uint64_t paid_ns;  /* until then the passes so far are paid for, at the free rate */
	uint64_t began_ns; /* the last pass */
};

/* A pass ends at `now`. Returns the time before which the next should not begin; `now` when it may begin at once. */
static inline uint64_t pace_pass(struct pace *p, uint64_t now, uint64_t gap_ns)
{
	const uint64_t cost = NS_PER_S / PACE_FREE_PER_S;
	uint64_t next = now;

	p->paid_ns = max_u64(p->paid_ns, now) + cost;
	if (p->paid_ns - now > PACE_BURST * cost) {
		p->paid_ns = now + PACE_BURST * cost;
		next = max_u64(now, p->began_ns + gap_ns);
	}
	p->began_ns = next;
	return next;
}

/* At the end of each pass: returns when the next may begin. */
static inline void pace_hold(struct pace *p, uint64_t gap_ns)
{
	uint64_t now = clock_now_ns(), next = pace_pass(p, now, gap_ns);

	if (next > now) clock_sleep_until(next);
}

#endif
