/* suspect.c - finds the request that brings the workers down.
 *
 * A request is blamed when the workers are lost while the oldest unanswered step contains it. A new token clears it. Blamed twice
 * in a row it is a suspect: suspects are tried one by one, which means that nothing else is scheduled, and only one step at a time.
 * Its next token clears it; it then waits in its slot. When all are cleared everything runs again. A loss during a trial ends its
 * request with REFUSAL_POISON.
 *
 * So the guilty one is found with the third loss, however many ran beside it: a loss costs a worker's start, which may load hundreds
 * of gigabytes, and what everybody has computed. Halving the suspects would cost a loss for each half. Trials cost the suspects'
 * prompts once more, which the replay would compute anyway, if less well filled. There are not many of them: the second loss happens
 * in the replay, where a step has --max-num-batched-tokens tokens and each request whose turn was earlier has its token.
 * First are tried those that never had a token, the latest first: what has served for a while has shown that it can be served, and
 * the latest one is what has changed.
 *
 * What the pause of everybody else buys is certainty: with others in the step the wrong one could be ended.
 * Requests that bring a worker down only together are cleared one by one, gain a token each time, and end some day. */
#include "executor/core_impl.h"

static bool suspect_before(const struct seq *a, const struct seq *b)
{
	bool a_had = seq_n_output(a) > 0, b_had = seq_n_output(b) > 0;

	return a_had != b_had ? !a_had : a->arrival > b->arrival;
}

/* The suspect to be tried next, or NULL. */
static struct seq *suspect_next(const struct core *c)
{
	struct seq *best = NULL;

	LIST_EACH(&c->seqs.in_state[SEQ_SUSPECT], it, nx) {
		struct seq *s = CONTAINER_OF(it, struct seq, link);

		if (s->suspect && (!best || suspect_before(s, best))) best = s;
	}
	return best;
}

void suspect_forgive(struct core *c, struct seq *s)
{
	s->deaths = 0;
	s->suspect = false;
	if (c->on_trial == s) c->on_trial = suspect_next(c);
}

void suspect_on_loss(struct core *c, struct seq **blamed, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) blamed[i]->deaths++;
	if (c->on_trial) {
		if (n && blamed[0] == c->on_trial) /* else it died idle: nobody's fault */
			core_refuse(c, blamed[0], REFUSAL_POISON,
				    "This request brought a worker down when it ran alone. It is not tried again.");
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (blamed[i]->deaths < 2) continue;
		blamed[i]->suspect = true;
		seq_move(&c->seqs, blamed[i], SEQ_SUSPECT);
	}
	c->on_trial = suspect_next(c);
}

void suspect_check(const struct core *c)
{
	bool any = false;

	for (size_t state = 0; state < SEQ_STATES; state++) {
		LIST_EACH(&c->seqs.in_state[state], it, nx) {
			const struct seq *s = CONTAINER_OF(it, struct seq, link);

			any |= s->suspect;
			CHECK(state == SEQ_SUSPECT ? s->suspect : !s->suspect || (state == SEQ_RUNNING && s == c->on_trial));
		}
	}
	CHECK(any == (c->on_trial != NULL) && (!c->on_trial || c->on_trial->suspect));
}
