/* sim_turns.c - whose turn it is at the executor: queue timeouts, shares of tenants, limits.
 *
 * Looks at what goes in and out of the executor, not into it, and keeps books of its own:
 * - a queue timeout ends only requests that this executor, as long as it has known them, has not run, and whose frontend has
 *   nothing of them, and none before its time; and none runs for the first time after its time;
 * - of two tenants that both have waiting requests all the time, none gets more than the other by more than the virtual token counter
 *   allows: twice what the longest prompt, or all outputs of whoever may run, cost (Sheng et al., theorem 4.4);
 * - no more requests run, and no more are held, than the limits say. */
#include "tests/sim/sim_impl.h"

#include <stdlib.h>

#define TURNS_OUTPUT_WEIGHT 2

static bool turns_is_held(const struct sim *s, const struct sim_request *q)
{
	return q->held_epoch == s->executor.epoch;
}

static bool turns_has_run(const struct sim *s, const struct sim_request *q)
{
	return q->ran_epoch == s->executor.epoch;
}

/* The executor knows nothing of it any more; a later attempt is a new request to it. */
static void turns_forget(struct sim_request *q)
{
	q->held_epoch = q->ran_epoch = 0;
}

void sim_turns_on_send(struct sim *s, const struct msg_submit *m)
{
	struct sim_request *q = map_get(&s->by_id, m->client_id);

	if (q && m->attempt == 1) q->sent_at = s->now;
	if (q && m->queue_ms > 0 && m->attempt > 1) s->counts->queue_timeout_resubmitted++;
}

void sim_turns_on_submit(struct sim *s, const struct msg_submit *m)
{
	struct sim_request *q = map_get(&s->by_id, m->client_id);

	if (!q || m->epoch != s->executor.epoch || turns_is_held(s, q)) return;
	q->held_epoch = m->epoch;
	q->expires_at = m->queue_ms ? s->now + m->queue_ms * NS_PER_MS : UINT64_MAX;
	s->race.n_waiting[q->party]++;
}

void sim_turns_on_start(struct sim *s, struct sim_request *q, uint32_t start)
{
	if (turns_has_run(s, q)) return;
	q->ran_epoch = s->executor.epoch;
	SIM_EXPECT(s, !turns_is_held(s, q) || s->now < q->expires_at, "request %u begins %llu us after its time", q->ix,
		   (unsigned long long)(s->now - q->expires_at) / 1000);
	s->race.n_waiting[q->party]--;
	s->race.served[q->party] += q->submit.n_prompt - start;
}

static void turns_on_refused(struct sim *s, const struct msg_refused *m)
{
	struct sim_request *q = map_get(&s->by_id, m->client_id);

	if (!q) return;
	if (m->reason == REFUSAL_QUEUE_TIMEOUT) {
		SIM_EXPECT(s, !turns_has_run(s, q), "request %u has run, and its queue timeout ends it", q->ix);
		SIM_EXPECT(s, q->submit.queue_ms && s->now >= q->sent_at + q->submit.queue_ms * NS_PER_MS,
			   "request %u is ended %llu us after it was sent", q->ix, (unsigned long long)(s->now - q->sent_at) / 1000);
	}
	if (turns_is_held(s, q) && !turns_has_run(s, q)) s->race.n_waiting[q->party]--;
	turns_forget(q);
}

static void turns_on_results(struct sim *s, const struct msg_results *m)
{
	for (uint32_t i = 0; i < m->client_ids.n; i++) {
		struct sim_request *q = map_get(&s->by_id, col_u64(m->client_ids, i));

		if (!q) continue;
		s->race.served[q->party] += TURNS_OUTPUT_WEIGHT * col_u32_or_0(m->n_tokens, i);
		if (col_u32_or_0(m->finishes, i) != FINISH_NONE) turns_forget(q);
	}
}

void sim_turns_on_executors_word(struct sim *s, const struct msg *m)
{
	if (m->type == MSG_refused) turns_on_refused(s, &m->refused);
	if (m->type == MSG_results) turns_on_results(s, &m->results);
}

void sim_turns_lane_closed(struct sim *s, uint32_t frontend)
{
	for (uint32_t i = 0; i < s->setup.n_requests; i++)
		if (s->requests[i].frontend == frontend) turns_forget(&s->requests[i]);
}

/* Both have waiting requests: what they have been given since then differs by a bound without time in it. */
static void turns_check_race(struct sim *s)
{
	const struct sim_setup *t = &s->setup;
	struct sim_race *r = &s->race;
	int64_t lead = r->served[0] - r->served[1];
	int64_t most = max_u32(t->model_len_max, TURNS_OUTPUT_WEIGHT * t->core.seqs_max * SIM_OUTPUT_MAX);
	int64_t unseen = TURNS_OUTPUT_WEIGHT * t->core.seqs_max * t->core.steps_in_flight_max; /* tokens that were not sent yet */

	if (r->n_waiting[0] <= 0 || r->n_waiting[1] <= 0) {
		r->is_on = false;
		return;
	}
	if (!r->is_on) r->lead = lead;
	r->is_on = true;
	s->counts->fair_pass++;
	SIM_EXPECT(s, llabs(lead - r->lead) <= 2 * most + unseen, "tenants got %lld and %lld, which is unfair", (long long)r->served[0],
		   (long long)r->served[1]);
}

void sim_turns_check(struct sim *s)
{
	struct core_stats st;

	core_stats(s->executor.core, &st);
	SIM_EXPECT(s, st.n_running <= s->setup.core.seqs_max, "%llu requests run", (unsigned long long)st.n_running);
	SIM_EXPECT(s, st.n_running + st.n_waiting + st.n_suspects <= s->setup.core.requests_max, "%llu requests are held",
		   (unsigned long long)(st.n_running + st.n_waiting + st.n_suspects));
	if (s->setup.has_race) turns_check_race(s);
}
