/* balance.c - see balance.h. */
#include "frontend/balance.h"

#include <math.h>

#define BALANCE_UNUSED 0.1f /* faded requests below which a connection is not in use any more: 23 s after its only one */
#define BALANCE_SLACK 1.25  /* of a quota: connections cannot be divided */
#define BALANCE_PARTS 8     /* an excess goes in about so many; crumbs would move all the time */
#define BALANCE_ROUND_UP 0.7 /* of the difference of two: moving less than the whole of it brings them closer */

void balance_conn_init(struct balance_conn *c)
{
	*c = (struct balance_conn){.target = -1};
}

static bool balance_is_used(const struct balance_conn *c)
{
	return c->answered >= BALANCE_UNUSED;
}

static double balance_prior(double usual, double seconds)
{
	return BALANCE_PRIOR + BALANCE_PRIOR_S * fmax(1 - seconds / BALANCE_PRIOR_FADES_S, 0) * usual;
}

double balance_rate(const struct balance_conn *c, double usual)
{
	double prior = balance_prior(usual, c->seconds);

	if (!balance_is_used(c)) return 0;
	if (usual <= 0) return c->seconds > 0 ? (double)(c->answered / c->seconds) : 0;
	return (c->answered + prior) / (c->seconds + prior / usual);
}

void balance_look(struct balance_conn *c, uint32_t n_answered, double seconds, double usual, struct balance_load *load)
{
	float kept = (float)exp(-seconds / BALANCE_MEMORY_S);

	c->answered = c->answered * kept + (float)(n_answered - c->seen);
	c->seconds = c->seconds * kept + (float)seconds;
	c->seen = n_answered;
	c->target = -1;
	if (!balance_is_used(c)) {
		c->answered = c->seconds = 0; /* silence says nothing of what comes after it */
		return;
	}
	balance_moved(load, c, usual, 1);
}

void balance_moved(struct balance_load *load, const struct balance_conn *c, double usual, int sign)
{
	if (!balance_is_used(c)) return;
	load->rate += sign * balance_rate(c, usual);
	load->answered += sign * (double)c->answered;
	load->seconds += sign * (double)c->seconds;
	load->n_used += sign;
}

double balance_usual(const struct balance_view *v)
{
	double answered = 0, seconds = 0;

	for (uint32_t i = 0; i < v->n; i++) {
		if (!v->serves[i] && i != v->self) continue;
		answered += v->loads[i].answered;
		seconds += v->loads[i].seconds;
	}
	return seconds > 0 ? answered / seconds : 0;
}

struct balance_sums {
	double rate, n_used; /* means */
	double excess;       /* of all above */
	double lowest;       /* of those that may be given something; the mean when there is none */
	bool self_is_top;
};

static bool balance_may_take(const struct balance_view *v, uint32_t i, const struct balance_sums *s)
{
	return i != v->self && v->serves[i] && v->loads[i].rate < s->rate && v->loads[i].n_used <= BALANCE_COUNT_MAX * s->n_used;
}

static void balance_sum(const struct balance_view *v, struct balance_sums *s)
{
	double n = 0;

	*s = (struct balance_sums){.self_is_top = true};
	for (uint32_t i = 0; i < v->n; i++) {
		if (!v->serves[i] && i != v->self) continue;
		s->rate += v->loads[i].rate;
		s->n_used += v->loads[i].n_used;
		n++;
	}
	s->rate /= n;
	s->n_used /= n;
	s->lowest = s->rate;
	for (uint32_t i = 0; i < v->n; i++) {
		if (!v->serves[i] && i != v->self) continue;
		s->excess += fmax(v->loads[i].rate - s->rate, 0);
		if (balance_may_take(v, i, s)) s->lowest = fmin(s->lowest, v->loads[i].rate);
		if (v->loads[i].rate > v->loads[v->self].rate) s->self_is_top = false;
	}
}

/* Of counts that come by chance, the standard deviation of the sum of rates, as a part of it. */
static double balance_noise(const struct balance_load *l, double usual)
{
	return sqrt(l->answered) / (l->answered + balance_prior(usual, l->seconds / l->n_used) * l->n_used);
}

/* Own share of what is above the mean goes to those below it. */
static bool balance_plan_rates(struct balance_plan *p, const struct balance_view *v, const struct balance_sums *s)
{
	const struct balance_load *own = &v->loads[v->self];
	double excess = own->rate - s->rate, tolerance = (BALANCE_TOLERANCE + BALANCE_SIGMAS * balance_noise(own, balance_usual(v))) * s->rate;

	if (excess <= 0 || s->lowest >= s->rate) return false;
	/* One far below is helped, too, although none is far above. */
	if (excess <= tolerance && !(s->self_is_top && s->rate - s->lowest > tolerance)) return false;
	p->rate_min = fmin(excess / BALANCE_PARTS, own->rate / own->n_used / 2);
	p->rate_max = INFINITY;
	for (uint32_t i = 0; i < v->n; i++) {
		if (!balance_may_take(v, i, s)) continue;
		p->quota[i] = (s->rate - v->loads[i].rate) * excess / s->excess;
		if (p->quota[i] > p->quota[p->lowest]) p->lowest = i;
	}
	if (s->self_is_top) p->round_up = BALANCE_ROUND_UP * (own->rate - v->loads[p->lowest].rate);
	return true;
}

/* Too many that ask for little: with them the frontend would never get those that ask for much. */
static bool balance_plan_counts(struct balance_plan *p, const struct balance_view *v, const struct balance_sums *s)
{
	const struct balance_load *own = &v->loads[v->self];
	double room = 0, n = own->n_used - BALANCE_COUNT_SHED_TO * s->n_used;

	if (own->n_used <= BALANCE_COUNT_MAX * s->n_used) return false;
	for (uint32_t i = 0; i < v->n; i++)
		if (i != v->self && v->serves[i]) room += fmax(s->n_used - v->loads[i].n_used, 0);
	if (room <= 0) return false;
	p->by_count = true;
	p->rate_max = own->rate / own->n_used;
	p->rate_left = BALANCE_TOLERANCE * s->rate;
	for (uint32_t i = 0; i < v->n; i++)
		if (i != v->self && v->serves[i]) p->quota[i] = fmax(s->n_used - v->loads[i].n_used, 0) * n / room;
	return true;
}

bool balance_plan(struct balance_plan *p, const struct balance_view *v)
{
	const struct balance_load *own = &v->loads[v->self];
	struct balance_sums s;

	if (own->n_used < 2) return false; /* giving the only one away would move the load, not spread it */
	if (own->seconds < BALANCE_SEEN_S * own->n_used) return false;
	balance_sum(v, &s);
	*p = (struct balance_plan){.n = v->n, .moves_left = max_u32(BALANCE_MOVES_MIN, (uint32_t)(own->n_used / 16))};
	return balance_plan_rates(p, v, &s) || balance_plan_counts(p, v, &s);
}

static uint32_t balance_roomiest(const struct balance_plan *p)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < p->n; i++)
		if (p->quota[i] > p->quota[best]) best = i;
	return best;
}

int balance_pick(struct balance_plan *p, const struct balance_conn *c, double rate, uint64_t now)
{
	double size = p->by_count ? 1 : rate;
	uint32_t best;

	if (p->moves_left == 0 || now < c->settled_ns || rate <= 0 || rate < p->rate_min || rate > p->rate_max) return -1;
	if (p->by_count && rate > p->rate_left) return -1;
	best = balance_roomiest(p);
	if (p->quota[best] <= 0) return -1;
	if (size > p->quota[best] * BALANCE_SLACK) {
		if (size > p->round_up) return -1;
		best = p->lowest;
	}
	p->round_up = 0; /* also after a move of the usual kind: it has changed what rounding was reckoned from */
	p->quota[best] -= size;
	p->rate_left -= rate;
	p->moves_left--;
	return (int)best;
}
