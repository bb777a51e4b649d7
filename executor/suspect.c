/* suspect.c - finds the request that brings the workers down.
 *
 * A request is blamed when the workers are lost while the oldest unanswered step contains it. A new token clears it. Blamed twice
 * in a row it is a suspect: the suspects are cut into two groups, which wait on a stack; the top group is on trial, which
 * means that nothing else is scheduled, and only one step at a time. A member is cleared by its next token; it
 * then waits in its slot. When all members are cleared the next group is on trial; when there is none, everything runs again.
 * A loss during the trial cuts the group in two, or, when it has one member, ends that with REFUSAL_POISON.
 *
 * What the pause of everybody else buys is certainty: with others in the step the wrong one could be ended. It lasts about as
 * long as computing the suspects' tokens once more.
 * Requests that bring a worker down only together are cleared one by one, gain a token each time, and end some day. */
#include "executor/core_impl.h"

uint32_t suspect_trial(const struct core *c)
{
	return c->n_groups ? c->groups[c->n_groups - 1].id : 0;
}

void suspect_clear(struct core *c, struct seq *s)
{
	uint32_t i = c->n_groups;

	s->deaths = 0;
	if (!s->group) return;
	while (c->groups[--i].id != s->group) {
	}
	c->groups[i].n--;
	s->group = 0;
	while (c->n_groups && !c->groups[c->n_groups - 1].n) c->n_groups--;
}

static void suspect_push(struct core *c, struct seq **v, uint32_t n)
{
	uint32_t i;

	if (!n) return;
	mem_reserve(c->groups, c->groups_cap, (size_t)c->n_groups + 1);
	c->groups[c->n_groups++] = (struct suspect_group){.id = ++c->group_last, .n = n};
	for (i = 0; i < n; i++) v[i]->group = c->group_last;
}

/* The first half goes on trial first. */
static void suspect_push_halves(struct core *c, struct seq **v, uint32_t n)
{
	suspect_push(c, v + (n + 1) / 2, n / 2);
	suspect_push(c, v, (n + 1) / 2);
}

/* Cuts the group on trial, whose n members are v, in two. */
static void suspect_split(struct core *c, struct seq **v, uint32_t n)
{
	if (n == 1) {
		core_refuse(c, v[0], REFUSAL_POISON,
			    "This request brought a worker down when it ran alone. It is not tried again.");
		return;
	}
	c->n_groups--;
	suspect_push_halves(c, v, n);
}

void suspect_on_loss(struct core *c, struct seq **blamed, uint32_t n)
{
	uint32_t i, n_members = 0, trial = suspect_trial(c);

	for (i = 0; i < n; i++) blamed[i]->deaths++;
	if (trial) {
		if (!n) return; /* died idle: nobody's fault */
		/* Only the group was scheduled; all of it counts, also who was not in this very step. */
		LIST_EACH(&c->seqs.in_state[SEQ_SUSPECT], it, nx) {
			struct seq *s = CONTAINER_OF(it, struct seq, link);

			if (s->group == trial) c->order[n_members++] = s;
		}
		suspect_split(c, c->order, n_members);
		return;
	}
	for (i = 0; i < n; i++) {
		if (blamed[i]->deaths < 2) continue;
		seq_move(&c->seqs, blamed[i], SEQ_SUSPECT);
		blamed[n_members++] = blamed[i];
	}
	suspect_push_halves(c, blamed, n_members);
}

void suspect_check(const struct core *c)
{
	uint32_t i, n = 0, n_suspects = 0;
	size_t state;

	for (i = 0; i < c->n_groups; i++) n += c->groups[i].n;
	CHECK(!c->n_groups || c->groups[c->n_groups - 1].n > 0);
	for (state = 0; state < SEQ_STATES; state++) {
		LIST_EACH(&c->seqs.in_state[state], it, nx) {
			const struct seq *s = CONTAINER_OF(it, struct seq, link);

			n_suspects += s->group != 0;
			CHECK((state != SEQ_SUSPECT || s->group) && ((state != SEQ_WAITING && state != SEQ_DONE) || !s->group));
		}
	}
	CHECK(n == n_suspects);
}
