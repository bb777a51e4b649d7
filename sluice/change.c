/* change.c - see change.h. */
#include "sluice/change.h"

#include <stdio.h>

void change_init(struct change *c, struct fleet *fleet, uint64_t farewell_ns, const struct change_out *out)
{
	*c = (struct change){.fleet = fleet, .out = *out, .farewell_ns = farewell_ns};
}

static void change_begin(struct change *c, enum change_kind kind)
{
	struct change_out out = c->out;

	CHECK(!change_is_running(c));
	change_init(c, c->fleet, c->farewell_ns, &out);
	c->kind = kind;
	c->old = c->successor = c->leaving = FLEET_NONE;
}

void change_scale(struct change *c, uint32_t n_frontends)
{
	change_begin(c, CHANGE_SCALE);
	c->target = n_frontends;
}

void change_reload(struct change *c)
{
	change_begin(c, CHANGE_RELOAD);
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) c->todo[i] = fleet_is_here(c->fleet, i);
}

static void change_end(struct change *c, bool good, const char *text)
{
	c->kind = CHANGE_NONE;
	c->out.done(c->out.ctx, good, text);
}

static void change_stop_trials(struct change *c)
{
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++)
		if (change_is_trial(c, i)) c->out.stop(c->out.ctx, i);
}

void change_cancel(struct change *c, const char *why)
{
	if (!change_is_running(c)) return;
	change_stop_trials(c);
	change_end(c, false, why);
}

static void change_fail(struct change *c, const char *why)
{
	if (!c->has_failed) snprintf(c->why.text, sizeof(c->why.text), "%s", why); /* the first reason has the others behind it */
	c->has_failed = true;
}

/* ---- events ---- */

bool change_is_trial(const struct change *c, uint32_t slot)
{
	return change_is_running(c) && c->mine[slot] && c->fleet->slots[slot].state == FLEET_STARTING;
}

void change_on_trial_gone(struct change *c, uint32_t slot, const char *why)
{
	c->mine[slot] = false;
	fleet_remove(c->fleet, slot);
	change_fail(c, why);
}

void change_on_engine_ready(struct change *c)
{
	c->engine_ready = c->asked;
}

void change_on_engine_failed(struct change *c, const char *why)
{
	if (change_is_running(c) && c->asked && !c->engine_ready) change_fail(c, why);
}

/* ---- frontends ---- */

static bool is_any_trial(const struct change *c)
{
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++)
		if (change_is_trial(c, i)) return true;
	return false;
}

/* A new frontend, in place of another unless that is FLEET_NONE. */
static uint32_t change_start(struct change *c, uint32_t replaces, uint64_t now)
{
	uint32_t slot = fleet_add(c->fleet, replaces);

	if (slot == FLEET_NONE) {
		change_fail(c, "there is no room for one more frontend: all places are taken, or no listening socket could be had");
		return FLEET_NONE;
	}
	c->mine[slot] = true;
	c->deadline_ns = now + CHANGE_START_NS;
	c->out.start(c->out.ctx, slot);
	return slot;
}

static void change_retire(struct change *c, uint32_t slot, uint32_t successor, uint64_t now)
{
	char text[96];

	if (successor == FLEET_NONE) snprintf(text, sizeof(text), "frontend %u retires", slot);
	else snprintf(text, sizeof(text), "frontend %u is replaced by frontend %u", slot, successor);
	c->out.progress(c->out.ctx, text);
	fleet_retire(c->fleet, slot, successor);
	c->out.retire(c->out.ctx, slot);
	c->leaving = slot;
	c->settle_ns = now + CHANGE_SETTLE_NS;
	c->n_changed++;
}

static bool is_settled(const struct change *c, uint64_t now)
{
	return c->leaving == FLEET_NONE || c->fleet->slots[c->leaving].state != FLEET_RETIRING || now >= c->settle_ns;
}

static uint32_t scale_pick(const struct fleet *f)
{
	uint32_t best = FLEET_NONE;

	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) {
		if (!fleet_is_here(f, i)) continue;
		if (best == FLEET_NONE || f->slots[i].state != FLEET_SERVING || f->slots[best].state == FLEET_SERVING) best = i;
	}
	return best;
}

/* True: something was done, look again. */
static bool step_scale(struct change *c, uint64_t now)
{
	uint32_t n = fleet_count(c->fleet);

	if (n < c->target) {
		char text[64];

		snprintf(text, sizeof(text), "starting %u frontend%s", c->target - n, c->target - n == 1 ? "" : "s");
		c->out.progress(c->out.ctx, text);
		for (; n < c->target && !c->has_failed; n++) change_start(c, FLEET_NONE, now);
		return true;
	}
	if (!is_settled(c, now)) return false;
	if (n > c->target) {
		change_retire(c, scale_pick(c->fleet), FLEET_NONE, now);
		return true;
	}
	c->phase = CHANGE_FAREWELL;
	c->deadline_ns = now + c->farewell_ns;
	return true;
}

static bool step_reload_frontends(struct change *c, uint64_t now)
{
	uint32_t old = 0;

	if (c->successor != FLEET_NONE) { /* it is no trial any more: it serves, or has */
		if (fleet_is_here(c->fleet, c->old)) change_retire(c, c->old, c->successor, now);
		c->successor = c->old = FLEET_NONE;
		return true;
	}
	if (!is_settled(c, now)) return false;
	while (old < LIMIT_FRONTENDS && !(c->todo[old] && fleet_is_here(c->fleet, old))) old++;
	if (old == LIMIT_FRONTENDS) {
		c->phase = CHANGE_EXECUTOR;
		return true;
	}
	c->todo[old] = false;
	c->old = old;
	c->successor = change_start(c, old, now);
	return true;
}

/* ---- the engine ---- */

static bool step_engine(struct change *c, uint64_t now)
{
	bool is_executor = c->phase == CHANGE_EXECUTOR;

	if (!c->asked) {
		c->asked = true;
		c->engine_ready = false;
		(is_executor ? c->out.replace_executor : c->out.replace_workers)(c->out.ctx);
		return true;
	}
	if (!c->engine_ready) return false;
	c->asked = c->engine_ready = false;
	c->phase = is_executor ? CHANGE_WORKERS : CHANGE_FAREWELL;
	c->deadline_ns = now + c->farewell_ns;
	return true;
}

/* ---- the end ---- */

static bool step_farewell(struct change *c, uint64_t now)
{
	uint32_t n = fleet_count_in(c->fleet, FLEET_RETIRING), k = fleet_count(c->fleet);
	char text[160];
	int len;

	if (n && now < c->deadline_ns) return false;
	if (c->kind == CHANGE_SCALE) len = snprintf(text, sizeof(text), "%u frontend%s", k, k == 1 ? " serves" : "s serve");
	else len = snprintf(text, sizeof(text), "reloaded");
	if (n)
		snprintf(text + len, sizeof(text) - (size_t)len, "; %u that %s finish%s running answers and end%s then", n, n == 1 ? "retires" : "retire",
			 n == 1 ? "es" : "", n == 1 ? "s" : "");
	change_end(c, true, text);
	return false;
}

static void step_failed(struct change *c)
{
	if (!c->stopped) {
		c->stopped = true;
		change_stop_trials(c);
	}
	if (!is_any_trial(c)) change_end(c, false, c->why.text);
}

static bool step_once(struct change *c, uint64_t now)
{
	if (!c->has_failed && is_any_trial(c)) {
		if (now < c->deadline_ns) return false;
		change_fail(c, "a new frontend was not ready in time; its log lines may say why");
	}
	if (c->has_failed) {
		step_failed(c);
		return false;
	}
	switch (c->phase) {
	case CHANGE_FRONTENDS:
		return c->kind == CHANGE_SCALE ? step_scale(c, now) : step_reload_frontends(c, now);
	case CHANGE_EXECUTOR:
	case CHANGE_WORKERS:
		return step_engine(c, now);
	case CHANGE_FAREWELL:
		return step_farewell(c, now);
	}
	return false;
}

void change_step(struct change *c, uint64_t now)
{
	if (c->is_stepping) return; /* it looks again */
	c->is_stepping = true;
	while (change_is_running(c) && step_once(c, now)) continue;
	c->is_stepping = false;
}
