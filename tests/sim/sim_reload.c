/* sim_reload.c - planned changes of the simulated mesh, as `sluice reload` and `sluice scale` make them: a frontend retires and another
 * one with a new id takes its place, the executor is replaced, all workers are.
 *
 * A frontend that retires takes nothing new (its successor does), finishes what it has, and ends; its id never comes back.
 * Executor and workers are stopped and started again at once. */
#include "tests/sim/sim_impl.h"

void sim_reload_frontend(struct sim *s)
{
	struct sim_proc *p = sim_proc_frontend(s, (uint32_t)sim_rand(s, s->n_frontends));
	uint32_t successor = s->n_frontends;

	if (!p->exists || p->retiring || s->n_frontends == SIM_FRONTENDS_MAX) return;
	sim_note(s, "frontend %u retires, %u comes", p->ix, successor);
	s->counts->frontend_retired++;
	p->retiring = true;
	sim_mesh_add_frontend(s);
	for (uint32_t i = 0; i < s->setup.n_requests; i++) {
		struct sim_request *q = &s->requests[i];

		if (q->frontend == p->ix && (q->state == SIM_ABSENT || q->state == SIM_ARRIVED)) q->frontend = successor;
	}
	sim_wake(s, p->num, s->now);
}

bool sim_reload_frontend_is_done(const struct sim *s, uint32_t frontend)
{
	struct lives_stats st;

	if (!s->procs[frontend].retiring) return false;
	lives_stats(s->frontends[frontend].lives, &st);
	return st.n_live == 0;
}

void sim_reload_executor(struct sim *s)
{
	struct sim_proc *p = sim_proc_executor(s);

	if (!sim_mesh_may_strike(s, p)) return;
	sim_note(s, "the executor is replaced");
	s->counts->executor_reload++;
	p->planned = true;
	sim_kill(s, p);
}

void sim_reload_workers(struct sim *s)
{
	for (uint32_t r = 0; r < s->setup.n_ranks; r++)
		if (!sim_mesh_may_strike(s, sim_proc_rank(s, r))) return;
	sim_note(s, "all workers are replaced");
	s->counts->worker_reload++;
	for (uint32_t r = 0; r < s->setup.n_ranks; r++) {
		sim_proc_rank(s, r)->planned = true;
		sim_kill(s, sim_proc_rank(s, r));
	}
}
