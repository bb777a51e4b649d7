/* siblings.c - see siblings.h. */
#include "frontend/siblings.h"

#include "common/clock.h"
#include "common/mem.h"
#include "frontend/handover.h"

#include <string.h>

#define SIBLINGS_LOOK_CONNS 1024          /* looked at in one tick: some 50 us */
#define SIBLINGS_FRESH_NS (1 * NS_PER_S)  /* a heartbeat comes twice a second at least; who is stopped gets a few connections at most */
#define SIBLINGS_ROOM 64                  /* connections below the limit, or an eighth of it: others give to the same one at the same time */
#define SIBLINGS_RETRY_MS 1               /* while retiring: inboxes hold ten each */

struct siblings {
	const struct boot *boot;
	struct tcp *tcp;
	struct handover *handover;
	uint32_t connections_max;
	struct balance_view view;
	struct balance_plan plan;
	double usual;
	uint64_t now, looked_ns;
	double seconds;     /* since the look before */
	uint32_t skip;      /* ticks until the next look */
	uint64_t answers;   /* at the last look */
	uv_timer_t retry;
	bool retiring;
	uint32_t next;      /* in turn */
	uint64_t given, taken;
};

static struct page_slot *siblings_slot(const struct siblings *s, uint32_t i)
{
	return &s->boot->page->frontends[i];
}

/* ---- what all know of each other ---- */

_Static_assert(sizeof(struct balance_load) == sizeof(((struct page_slot *)0)->load), "a load fits its place in the page");

static void siblings_publish(struct siblings *s)
{
	struct page_slot *slot = siblings_slot(s, s->view.self);
	uint64_t bits[4];

	memcpy(bits, &s->view.loads[s->view.self], sizeof(bits));
	for (int i = 0; i < 4; i++) atomic_store_explicit(&slot->load[i], bits[i], memory_order_relaxed);
}

/* The four may be of two looks: they differ little. */
static void siblings_read_load(const struct page_slot *slot, struct balance_load *out)
{
	uint64_t bits[4];

	for (int i = 0; i < 4; i++) bits[i] = atomic_load_explicit(&slot->load[i], memory_order_relaxed);
	memcpy(out, bits, sizeof(*out));
}

static bool siblings_serves(const struct siblings *s, uint32_t i, uint64_t now)
{
	const struct page_slot *slot = siblings_slot(s, i);
	uint64_t beat = atomic_load_explicit(&slot->heartbeat_ns, memory_order_relaxed);

	if (i == s->view.self || atomic_load(&slot->state) != PAGE_SERVING) return false;
	return now <= beat || now - beat <= SIBLINGS_FRESH_NS;
}

static bool siblings_may_give(const struct siblings *s, uint32_t i, uint64_t now)
{
	uint32_t room = min_u32(SIBLINGS_ROOM, s->connections_max / 8);

	return siblings_serves(s, i, now) && page_gauge_of(siblings_slot(s, i), GAUGE_connections) + room < s->connections_max;
}

/* How many siblings there are to give to. */
static uint32_t siblings_see(struct siblings *s, uint64_t now)
{
	struct balance_view *v = &s->view;
	uint32_t n = 0;

	v->n = min_u32(atomic_load(&s->boot->page->n_frontends), LIMIT_FRONTENDS);
	for (uint32_t i = 0; i < v->n; i++) {
		v->serves[i] = siblings_may_give(s, i, now);
		n += v->serves[i];
		if (v->serves[i]) siblings_read_load(siblings_slot(s, i), &v->loads[i]);
	}
	return n;
}

bool siblings_exist(const struct siblings *s)
{
	uint32_t n = min_u32(atomic_load(&s->boot->page->n_frontends), LIMIT_FRONTENDS);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t state = atomic_load(&siblings_slot(s, i)->state);

		if (i != s->view.self && state != PAGE_EMPTY && state != PAGE_DRAINING) return true;
	}
	return false;
}

/* ---- giving and taking ---- */

static int siblings_in_turn(struct siblings *s)
{
	for (uint32_t i = 0; i < s->view.n; i++) {
		uint32_t ix = (s->next + i) % s->view.n;

		if (!siblings_may_give(s, ix, clock_now_ns())) continue;
		s->next = ix + 1;
		return (int)ix;
	}
	return -1;
}

static bool siblings_send(struct siblings *s, int target, int fd, const struct balance_conn *b, uint32_t n_answered)
{
	struct handover_note note = {.n_answered = n_answered, .answered = b->answered, .seconds = b->seconds};

	if (handover_send(s->handover, (uint32_t)target, fd, &note) != ST_OK) return false;
	balance_moved(&s->view.loads[s->view.self], b, s->usual, -1);
	siblings_publish(s);
	s->given++;
	return true;
}

static bool on_give(void *ctx, int fd, const struct balance_conn *b, uint32_t n_answered)
{
	struct siblings *s = ctx;
	int target;

	if (b->target != TCP_TO_ANY) return siblings_send(s, b->target, fd, b, n_answered);
	/* A full inbox: the next one may have room. */
	for (uint32_t tries = 0; tries < s->view.n; tries++) {
		target = siblings_in_turn(s);
		if (target < 0) return false;
		if (siblings_send(s, target, fd, b, n_answered)) return true;
	}
	return false;
}

static void on_connection(void *ctx, int fd, const struct handover_note *note)
{
	struct siblings *s = ctx;
	struct balance_conn b = {.answered = note->answered, .seconds = note->seconds, .seen = note->n_answered, .target = -1};

	b.settled_ns = clock_now_ns() + BALANCE_SETTLE_NS;
	s->taken++;
	/* At once: others must see it before they give more. */
	balance_moved(&s->view.loads[s->view.self], &b, s->usual, 1);
	siblings_publish(s);
	tcp_take(s->tcp, fd, &b, note->n_answered);
}

/* ---- balance ---- */

static void on_look(void *ctx, struct balance_conn *b, uint32_t n_answered)
{
	struct siblings *s = ctx;

	balance_look(b, n_answered, s->seconds, s->usual, &s->view.loads[s->view.self]);
}

static void on_pick(void *ctx, struct balance_conn *b, uint32_t n_answered)
{
	struct siblings *s = ctx;

	b->target = balance_pick(&s->plan, b, balance_rate(b, s->usual), s->now);
}

static bool siblings_is_time(struct siblings *s)
{
	static const enum page_counter counters[] = {COUNTER_http_2xx, COUNTER_http_4xx, COUNTER_http_5xx};
	struct tcp_stats ts;
	uint64_t answers = 0;

	if (s->skip > 0 && s->skip--) return false;
	for (size_t i = 0; i < ARRAY_LEN(counters); i++) answers += page_counter_get(siblings_slot(s, s->view.self), counters[i]);
	if (answers == s->answers && s->view.loads[s->view.self].n_used <= 0) return false;
	s->answers = answers;
	tcp_stats(s->tcp, &ts);
	s->skip = (uint32_t)(ts.n_open / SIBLINGS_LOOK_CONNS);
	return true;
}

void siblings_tick(struct siblings *s, uint64_t now)
{
	struct balance_load *own = &s->view.loads[s->view.self];

	if (s->retiring || !s->boot->config.balance_connections || !siblings_is_time(s)) return;
	if (siblings_see(s, now) == 0) return;
	s->now = now;
	s->seconds = (double)(now - s->looked_ns) / NS_PER_S;
	s->looked_ns = now;
	s->usual = balance_usual(&s->view);
	*own = (struct balance_load){0};
	tcp_visit(s->tcp, on_look, s);
	siblings_publish(s);
	if (balance_plan(&s->plan, &s->view)) tcp_visit(s->tcp, on_pick, s);
}

/* ---- retiring ---- */

static bool siblings_are_full(const struct siblings *s, uint64_t now)
{
	bool full = false;

	for (uint32_t i = 0; i < s->view.n; i++) {
		if (siblings_may_give(s, i, now)) return false;
		full |= siblings_serves(s, i, now);
	}
	return full;
}

static void on_retry(uv_timer_t *t)
{
	struct siblings *s = t->data;

	s->view.n = min_u32(atomic_load(&s->boot->page->n_frontends), LIMIT_FRONTENDS);
	tcp_give_idle(s->tcp);
	tcp_end_after_answers(s->tcp, siblings_are_full(s, clock_now_ns()));
}

void siblings_retire(struct siblings *s)
{
	if (s->retiring) return;
	s->retiring = true;
	tcp_retire(s->tcp);
	handover_shut(s->handover);
	uv_timer_start(&s->retry, on_retry, 0, SIBLINGS_RETRY_MS);
}

/* ---- the whole ---- */

int siblings_open(struct siblings **out, const struct boot *boot, uv_loop_t *loop, struct tcp *tcp, uint32_t connections_max, int inbox_fd,
		  struct errbuf *err)
{
	struct siblings *s = mem_new(struct siblings);
	struct handover_config c = {.ipc_dir = boot->ipc_dir, .self = boot->index, .key = boot->key, .inbox_fd = inbox_fd};
	int rc;

	s->boot = boot;
	s->tcp = tcp;
	s->connections_max = connections_max;
	s->view.self = boot->index;
	s->looked_ns = clock_now_ns();
	rc = handover_open(&s->handover, loop, &c, on_connection, s, err);
	if (rc != ST_OK) {
		free(s);
		return rc;
	}
	uv_timer_init(loop, &s->retry);
	s->retry.data = s;
	siblings_publish(s);
	tcp_on_give(tcp, on_give, s);
	*out = s;
	return ST_OK;
}

void siblings_stats(const struct siblings *s, struct siblings_stats *out)
{
	*out = (struct siblings_stats){.given = s->given, .taken = s->taken, .dropped = handover_dropped(s->handover)};
}

static void on_retry_closed(uv_handle_t *h)
{
	free(h->data);
}

void siblings_close(struct siblings *s)
{
	tcp_on_give(s->tcp, NULL, NULL);
	handover_close(s->handover);
	uv_close((uv_handle_t *)&s->retry, on_retry_closed);
}
