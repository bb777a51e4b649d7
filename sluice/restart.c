/* restart.c - see restart.h. */
#include "sluice/restart.h"

const struct restart_config restart_config_default = {
	.delay_min_ns = 100 * NS_PER_MS,
	.delay_max_ns = 10 * NS_PER_S,
	.healthy_ns = 30 * NS_PER_S,
	.start_failures_max = 5, /* 100 + 200 + 400 + 800 ms of waiting: a transient cause has had its chance */
};

const struct restart_config restart_config_frontend = {
	.delay_min_ns = 100 * NS_PER_MS,
	.delay_max_ns = NS_PER_S, /* the kernel goes on queueing connections for it: they wait as long */
	.healthy_ns = 30 * NS_PER_S,
	.start_failures_max = 5,
};

void restart_init(struct restart *r, const struct restart_config *cfg, uint64_t now)
{
	CHECK(cfg->delay_min_ns > 0 && cfg->delay_min_ns <= cfg->delay_max_ns && cfg->start_failures_max > 0);
	*r = (struct restart){
		.cfg = *cfg, .state = RESTART_WAITING, .spawn_ns = now, .exit_code = RESTART_EXIT_DEFAULT};
}

/* No use in trying again. */
static bool restart_is_hopeless(const struct restart *r)
{
	if (r->ever_ready) return r->cfg.deaths_max && r->deaths_in_row >= r->cfg.deaths_max;
	return r->has_failed || r->start_failures >= r->cfg.start_failures_max;
}

enum restart_action restart_step(struct restart *r, uint64_t now)
{
	if (r->state != RESTART_WAITING) return RESTART_NOTHING;
	if (restart_is_hopeless(r)) {
		r->state = RESTART_FAILED;
		return RESTART_GIVE_UP;
	}
	if (now < r->spawn_ns) return RESTART_NOTHING;
	r->state = RESTART_STARTING;
	r->spawn_ns = now;
	return RESTART_SPAWN;
}

uint64_t restart_deadline(const struct restart *r)
{
	if (r->state != RESTART_WAITING) return UINT64_MAX;
	return restart_is_hopeless(r) ? 0 : r->spawn_ns;
}

void restart_on_ready(struct restart *r, uint64_t now)
{
	if (r->state != RESTART_STARTING) return; /* a child may say it twice */
	r->state = RESTART_RUNNING;
	r->ready_ns = now;
	r->ever_ready = true;
}

void restart_on_failed(struct restart *r, int exit_code)
{
	if (!restart_is_alive(r)) return;
	r->has_failed = true;
	/* 0 would tell whoever started us that all is well. */
	r->exit_code = exit_code > 0 && exit_code < 256 ? exit_code : RESTART_EXIT_DEFAULT;
}

static uint64_t restart_next_delay(const struct restart *r)
{
	if (r->delay_ns == 0) return r->cfg.delay_min_ns;
	return min_u64(2 * r->delay_ns, r->cfg.delay_max_ns);
}

static void restart_on_planned_end(struct restart *r, uint64_t now)
{
	r->planned = r->has_failed = false;
	r->spawn_ns = now;
	r->state = r->draining ? RESTART_STOPPED : RESTART_WAITING;
}

void restart_on_exited(struct restart *r, uint64_t now)
{
	if (!restart_is_alive(r)) return;
	if (r->planned) {
		restart_on_planned_end(r, now);
		return;
	}
	r->deaths++;
	if (!r->ever_ready) r->start_failures++;
	if (r->state == RESTART_RUNNING && now - r->ready_ns >= r->cfg.healthy_ns) r->delay_ns = r->deaths_in_row = 0;
	r->deaths_in_row++;
	if (r->draining) {
		r->state = RESTART_STOPPED;
		return;
	}
	r->delay_ns = restart_next_delay(r);
	r->spawn_ns = max_u64(now, r->spawn_ns + r->delay_ns);
	r->state = RESTART_WAITING;
}

void restart_plan(struct restart *r)
{
	r->planned = restart_is_alive(r);
}

void restart_drain(struct restart *r)
{
	r->draining = true;
	if (r->state == RESTART_WAITING) r->state = RESTART_STOPPED;
}

bool restart_is_alive(const struct restart *r)
{
	return r->state == RESTART_STARTING || r->state == RESTART_RUNNING;
}
