/* sim_mesh.c - the processes of the simulation with their edges, the supervisor, and what goes wrong.
 *
 * A process does something only in a pass: it takes everything that has arrived, steps its pure core once, and sends.
 * Between passes it may die, hang or pause. The supervisor sees a death when it reaps, tells those who must know, and
 * starts again what restart.c says. */
#include "tests/sim/sim_impl.h"

#include "common/mem.h"
#include "common/status.h"
#include "proto/ids.h"

struct sim_proc *sim_proc_frontend(struct sim *s, uint32_t f)
{
	return &s->procs[f];
}

struct sim_proc *sim_proc_executor(struct sim *s)
{
	return &s->procs[SIM_FRONTENDS_MAX];
}

struct sim_proc *sim_proc_rank(struct sim *s, uint32_t rank)
{
	return &s->procs[SIM_FRONTENDS_MAX + 1 + rank];
}

static const char *mesh_name(const struct sim_proc *p)
{
	static const char *const names[] = {"frontend", "executor", "worker"};

	return names[p->kind];
}

void sim_wake(struct sim *s, uint32_t num, uint64_t at)
{
	struct sim_proc *p = &s->procs[num];

	if (!p->alive || !p->ready || p->kind == SIM_WORKER || p->stopped_until == UINT64_MAX) return;
	at = max_u64(max_u64(at, s->now), p->stopped_until);
	if (p->wake_at != 0 && p->wake_at <= at) return;
	p->wake_at = at;
	sim_push(s, at, SIM_EV_PASS, num, p->life);
}

/* A process needs a moment before it looks. */
static void mesh_wake_soon(struct sim *s, uint32_t num)
{
	sim_wake(s, num, s->now + 1 + sim_rand(s, 200 * NS_PER_US));
}

/* --- the supervisor's pipes
 * ------------------------------------------------------------------------------------------- */

static void mesh_notice(struct sim *s, struct sim_pipe *pipe, uint32_t to, struct sim_notice n)
{
	if (!s->procs[to].alive) return;
	n.at = pipe->last_at = max_u64(pipe->last_at, s->now + sim_rand(s, 3 * NS_PER_MS));
	mem_reserve(pipe->items, pipe->cap, pipe->n + 1);
	pipe->items[pipe->n++] = n;
	sim_wake(s, to, n.at);
}

static void mesh_tell_executor(struct sim *s, struct sim_notice n)
{
	mesh_notice(s, &s->executor.pipe, sim_proc_executor(s)->num, n);
}

static bool mesh_pipe_pop(struct sim *s, struct sim_pipe *pipe, struct sim_notice *out)
{
	if (pipe->n == 0 || pipe->items[0].at > s->now) return false;
	*out = pipe->items[0];
	memmove(pipe->items, pipe->items + 1, --pipe->n * sizeof(*pipe->items));
	return true;
}

static void mesh_pipe_clear(struct sim_pipe *pipe)
{
	free(pipe->items);
	*pipe = (struct sim_pipe){0};
}

/* --- frontend
 * --------------------------------------------------------------------------------------------------------- */

struct frontend_ctx {
	struct sim *s;
	uint32_t frontend;
};

static int frontend_send(void *ctx, const struct msg *m)
{
	struct sim *s = ((struct frontend_ctx *)ctx)->s;

	if (m->type == MSG_submit) sim_turns_on_send(s, &m->submit);
	/* A socket to a name that carries the epoch: what is sent while nobody listens there waits and is lost. */
	return sim_lane_send(s, &s->frontends[((struct frontend_ctx *)ctx)->frontend].up, m);
}

static bool frontend_on_token(void *ctx, void *owner, const struct live_token *t)
{
	return sim_client_on_token(((struct frontend_ctx *)ctx)->s, owner, t);
}

static void frontend_on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	sim_client_on_end(((struct frontend_ctx *)ctx)->s, owner, finish, refusal, text);
}

static void frontend_on_prompt_token(void *ctx, void *owner, const struct live_token *t)
{
	sim_client_on_prompt_token(((struct frontend_ctx *)ctx)->s, owner, t);
}

static void frontend_on_embedding(void *ctx, void *owner, struct view values)
{
	sim_client_on_embedding(((struct frontend_ctx *)ctx)->s, owner, values);
}

static struct frontend_ctx frontend_ctxs[SIM_FRONTENDS_MAX];

static void frontend_start(struct sim *s, uint32_t ix)
{
	struct sim_frontend *f = &s->frontends[ix];
	struct lives_config cfg = s->setup.lives;
	struct lives_out out = {.ctx = &frontend_ctxs[ix], .send = frontend_send, .on_token = frontend_on_token, .on_end = frontend_on_end,
				.on_prompt_token = frontend_on_prompt_token, .on_embedding = frontend_on_embedding};

	frontend_ctxs[ix] = (struct frontend_ctx){s, ix};
	cfg.frontend = ix;
	cfg.incarnation = f->incarnation = sim_proc_frontend(s, ix)->life - 1;
	f->lives = lives_new(&cfg, &out);
	f->was_welcome = false;
	if (s->executor.epoch > 0) lives_on_epoch(f->lives, s->executor.epoch, s->now);
	sim_wake(s, ix, s->now);
}

static void frontend_give(struct sim *s, uint32_t ix, struct sim_packet p)
{
	struct msg m;

	sim_unpack(s, &p, &m);
	lives_on_message(s->frontends[ix].lives, &m, s->now);
	free(p.data);
}

static void frontend_receive(struct sim *s, uint32_t ix)
{
	struct sim_frontend *f = &s->frontends[ix];
	struct sim_notice n;
	struct sim_packet p;

	while (mesh_pipe_pop(s, &f->pipe, &n)) lives_on_epoch(f->lives, n.epoch, s->now);
	while (sim_ghost_pop(s, ix, &p)) frontend_give(s, ix, p);
	while (sim_lane_pop(s, &f->down, &p)) frontend_give(s, ix, p);
	if (f->down.wants_room && f->down.queue.n <= f->down.hwm / 2) {
		f->down.wants_room = false;
		s->executor.lane_room[ix] = true;
		mesh_wake_soon(s, sim_proc_executor(s)->num);
	}
}

static void frontend_pass(struct sim *s, uint32_t ix)
{
	struct sim_frontend *f = &s->frontends[ix];
	bool clients_first = sim_chance(s, 50);
	uint64_t deadline;

	if (clients_first) sim_client_pass(s, ix);
	frontend_receive(s, ix);
	sim_client_pass(s, ix); /* also what on_token has asked for */
	lives_step(f->lives, s->now);
	lives_check(f->lives);
	if (f->was_welcome && !lives_is_welcome(f->lives)) s->counts->silence++;
	f->was_welcome = lives_is_welcome(f->lives);
	deadline = lives_deadline(f->lives);
	if (deadline != UINT64_MAX) sim_wake(s, ix, max_u64(deadline, s->now + 1));
	if (sim_reload_frontend_is_done(s, ix)) {
		sim_kill(s, sim_proc_frontend(s, ix));
		return;
	}
	/* A slow one reads in big gulps. */
	if (s->setup.has_slow_frontend && ix == 0 && sim_chance(s, 10))
		sim_proc_frontend(s, ix)->stopped_until = s->now + sim_rand(s, 60 * NS_PER_MS);
}

static void frontend_die(struct sim *s, uint32_t ix)
{
	struct sim_frontend *f = &s->frontends[ix];
	struct lives_stats st;

	s->counts->frontend_death += !sim_proc_frontend(s, ix)->retiring;
	sim_client_frontend_died(s, ix);
	if (f->lives) {
		lives_stats(f->lives, &st);
		s->counts->resubmit += st.resubmits;
		s->counts->gap += st.gaps;
		s->counts->stale_dropped += st.dropped_stale;
	}
	lives_free(f->lives);
	f->lives = NULL;
	mesh_pipe_clear(&f->pipe);
	sim_lane_sender_died(s, &f->up);
	sim_lane_receiver_died(s, &f->down);
}

/* --- executor
 * --------------------------------------------------------------------------------------------------------- */

static int executor_send(void *ctx, uint32_t frontend, uint32_t incarnation, const struct msg *m)
{
	struct sim *s = ctx;
	struct sim_executor *x = &s->executor;
	struct sim_proc *p = sim_proc_frontend(s, frontend);

	sim_turns_on_executors_word(s, m);
	if (x->lane_incarnation[frontend] != (int32_t)incarnation) {
		sim_turns_lane_closed(s, frontend);
		return ST_CLOSED;
	}
	if (p->life != incarnation + 1 || (p->reaped && !p->alive)) {
		/* Nobody reads there any more, but only the supervisor's word closes the lane. */
		if (x->dead_lane[frontend] >= s->setup.hwm_down) return ST_AGAIN;
		x->dead_lane[frontend]++;
		s->counts->message_lost++;
		return ST_OK;
	}
	SIM_EXPECT(s, m->type != MSG_results || !x->results_sent[frontend],
		   "two results messages for frontend %u in one pass", frontend);
	x->results_sent[frontend] |= m->type == MSG_results;
	return sim_lane_send(s, &s->frontends[frontend].down, m);
}

/* Follows the steps: which request sits where, and whether it may. */
static void executor_step(void *ctx, const struct msg_step *m)
{
	struct sim *s = ctx;
	struct sim_executor *x = &s->executor;

	SIM_EXPECT(s, m->epoch == x->epoch && m->number == x->step_number + 1,
		   "step %llu of epoch %llu comes after %llu", (unsigned long long)m->number,
		   (unsigned long long)m->epoch, (unsigned long long)x->step_number);
	SIM_EXPECT(s, x->steps_in_flight < s->setup.core.steps_in_flight_max, "too many steps in flight");
	x->step_number = m->number;
	x->steps_in_flight++;
	for (uint32_t i = 0; i < m->added.n; i++) {
		x->slots[col_u32(m->added, i)] = map_get(&s->by_seed, col_u64(m->added_seed, i));
		x->fresh[col_u32(m->added, i)] = true;
	}
	for (uint32_t i = 0; i < m->run.n; i++) {
		struct sim_request *q = x->slots[col_u32(m->run, i)];

		SIM_EXPECT(s, q && !q->cancelled_at_core && !q->gone_at_core,
			   "step %llu runs request %u, whose cancel has arrived", (unsigned long long)m->number,
			   q ? q->ix : UINT32_MAX);
		if (x->fresh[col_u32(m->run, i)]) {
			q->starts |= 1u << col_u32(m->run_start, i) / SIM_BLOCK;
			sim_turns_on_start(s, q, min_u32(col_u32(m->run_start, i), q->submit.n_prompt));
		}
		x->fresh[col_u32(m->run, i)] = false;
	}
	s->trace = sim_mix(s->trace + m->number * 64 + m->run.n);
	sim_workers_push(s, m);
}

static void executor_timed(void *ctx, uint64_t queued_ns, uint64_t prefill_ns)
{
	struct sim *s = ctx;

	SIM_EXPECT(s, queued_ns + prefill_ns <= s->now, "a first token took longer than the world is old");
	s->counts->timed++;
}

static void executor_start(struct sim *s)
{
	struct sim_executor *x = &s->executor;
	struct core_config cfg = s->setup.core;
	struct core_out out = {s, executor_send, executor_step, executor_timed, NULL};
	bool loaded = true;

	cfg.epoch = x->epoch;
	x->core = core_new(&cfg, &out);
	x->step_number = x->steps_in_flight = 0;
	x->result_since_loss = x->draining = false;
	for (uint32_t f = 0; f < SIM_FRONTENDS_MAX; f++) {
		x->lane_incarnation[f] = x->gone_incarnation[f] = -1;
		x->dead_lane[f] = 0;
		x->lane_room[f] = false;
	}
	for (uint32_t i = 0; i < s->setup.n_requests; i++)
		s->requests[i].cancelled_at_core = s->requests[i].gone_at_core = false;
	for (uint32_t r = 0; r < s->setup.n_ranks; r++) loaded &= sim_proc_rank(s, r)->ready;
	if (loaded) mesh_tell_executor(s, (struct sim_notice){.kind = SIM_NOTICE_LOADED});
	if (s->now >= s->setup.drain_ns) mesh_tell_executor(s, (struct sim_notice){.kind = SIM_NOTICE_DRAIN});
	sim_wake(s, sim_proc_executor(s)->num, s->now);
}

static void executor_on_hello(struct sim *s, const struct msg_hello *m)
{
	struct sim_executor *x = &s->executor;

	if (m->epoch == x->epoch && (int32_t)m->incarnation > x->gone_incarnation[m->frontend] &&
	    (int32_t)m->incarnation >= x->lane_incarnation[m->frontend]) {
		if ((int32_t)m->incarnation > x->lane_incarnation[m->frontend]) x->dead_lane[m->frontend] = 0;
		x->lane_incarnation[m->frontend] = (int32_t)m->incarnation;
	}
	core_on_hello(x->core, m, s->now);
}

static void executor_give(struct sim *s, struct sim_packet p)
{
	struct sim_executor *x = &s->executor;
	struct sim_request *q;
	struct msg m;

	sim_unpack(s, &p, &m);
	switch (m.type) {
	case MSG_hello: executor_on_hello(s, &m.hello); break;
	case MSG_submit:
		q = map_get(&s->by_id, m.submit.client_id);
		if (q && m.submit.epoch == x->epoch)
			q->cancelled_at_core = false; /* a late copy from a dead frontend */
		if (x->lane_incarnation[client_id_frontend(m.submit.client_id)] == (int32_t)client_id_incarnation(m.submit.client_id))
			sim_turns_on_submit(s, &m.submit);
		core_on_submit(x->core, &m.submit, s->now);
		break;
	case MSG_cancel:
		q = map_get(&s->by_id, m.cancel.client_id);
		SIM_EXPECT(s, q && (q->state == SIM_CANCELLED || q->state == SIM_BROKEN || q->state == SIM_ENDED),
			   "a cancel of request %u, which is live", q ? q->ix : UINT32_MAX);
		q->cancelled_at_core = true;
		core_on_cancel(x->core, &m.cancel, s->now);
		break;
	default: sim_fail(s, "the executor gets a %s", msg_type_name(m.type));
	}
	free(p.data);
}

static void executor_receive(struct sim *s)
{
	struct sim_proc *self = sim_proc_executor(s);
	struct sim_packet p;
	uint32_t first = (uint32_t)sim_rand(s, s->n_frontends);

	while (sim_ghost_pop(s, self->num, &p)) executor_give(s, p);
	for (uint32_t i = 0; i < s->n_frontends; i++) {
		struct sim_lane *up = &s->frontends[(first + i) % s->n_frontends].up;

		while (sim_lane_pop(s, up, &p)) executor_give(s, p);
		if (up->wants_room && up->queue.n <= up->hwm / 2) {
			up->wants_room = false;
			mesh_wake_soon(s, (first + i) % s->n_frontends);
		}
	}
}

static void executor_results(struct sim *s)
{
	struct sim_executor *x = &s->executor;
	struct sim_queue *q = &s->workers.replies;
	struct sim_packet p;
	struct msg m;

	while (q->n > 0 && sim_queue_at(q, 0)->at <= s->now) {
		p = sim_queue_pop(q);
		sim_unpack(s, &p, &m);
		if (m.step_result.epoch == x->epoch) {
			if (x->steps_in_flight > 0) x->steps_in_flight--;
			x->result_since_loss = true;
		}
		core_on_step_result(x->core, &m.step_result, s->now);
		free(p.data);
	}
}

static void executor_gone(struct sim *s, uint32_t frontend, uint32_t incarnation)
{
	struct sim_executor *x = &s->executor;

	sim_turns_lane_closed(s, frontend);
	x->gone_incarnation[frontend] = (int32_t)incarnation;
	if (x->lane_incarnation[frontend] <= (int32_t)incarnation) x->lane_incarnation[frontend] = -1;
	for (uint32_t i = 0; i < s->setup.n_requests; i++) {
		struct sim_request *q = &s->requests[i];

		if (q->state == SIM_BROKEN && q->frontend == frontend && q->incarnation <= incarnation)
			q->gone_at_core = true;
	}
	core_on_frontend_gone(x->core, frontend, incarnation, s->now);
}

/* The executor asks all ranks to attach and size; done when all are alive and the step before is over. */
static void executor_attach(struct sim *s)
{
	struct sim_executor *x = &s->executor;
	uint32_t n_blocks = s->setup.n_blocks;
	uint64_t until;

	for (uint32_t r = 0; r < s->setup.n_ranks; r++)
		if (!sim_proc_rank(s, r)->ready) return; /* it comes again when that one has loaded */
	if (s->workers.busy || sim_workers_stopped(s, &until)) {
		mesh_tell_executor(s, (struct sim_notice){.kind = SIM_NOTICE_LOADED});
		return;
	}
	if (s->setup.n_blocks > s->setup.n_blocks_min)
		n_blocks = (uint32_t)sim_range(s, s->setup.n_blocks_min, s->setup.n_blocks);
	sim_workers_reset(s, x->epoch, n_blocks);
	x->steps_in_flight = 0;
	memset(x->slots, 0, sizeof(x->slots));
	sim_note(s, "workers attach to epoch %llu: %u blocks", (unsigned long long)x->epoch, n_blocks);
	core_on_workers_ready(x->core, &(struct core_workers){n_blocks, s->setup.model_len_max, SIM_VOCAB, SIM_DIM, s->setup.kv}, s->now);
}

static void executor_notices(struct sim *s)
{
	struct sim_executor *x = &s->executor;
	struct sim_notice n;

	while (mesh_pipe_pop(s, &x->pipe, &n)) {
		switch (n.kind) {
		case SIM_NOTICE_GONE: executor_gone(s, n.frontend, n.incarnation); break;
		case SIM_NOTICE_LOST:
			x->steps_in_flight = 0;
			x->result_since_loss = false;
			core_on_workers_lost(x->core, s->now);
			break;
		case SIM_NOTICE_LOADED: executor_attach(s); break;
		case SIM_NOTICE_DRAIN:
			x->draining = true;
			core_drain(x->core);
			break;
		case SIM_NOTICE_EPOCH: break;
		}
	}
}

static void executor_pass(struct sim *s)
{
	struct sim_executor *x = &s->executor;
	struct core_stats st;
	uint64_t deadline;

	if (sim_chance(s, 50)) executor_results(s);
	if (sim_chance(s, 50)) executor_receive(s);
	executor_notices(s);
	executor_receive(s);
	executor_results(s);
	for (uint32_t f = 0; f < s->n_frontends; f++) {
		if (x->lane_room[f]) core_on_lane_ready(x->core, f, s->now);
		x->lane_room[f] = false;
	}
	memset(x->results_sent, 0, sizeof(x->results_sent));
	core_step(x->core, s->now);
	core_check(x->core);
	sim_turns_check(s);
	core_stats(x->core, &st);
	SIM_EXPECT(s, st.blocks_free + st.blocks_cached + st.blocks_used == st.blocks_total,
		   "free + cached + used is not all");
	deadline = core_deadline(x->core);
	if (deadline != UINT64_MAX) sim_wake(s, sim_proc_executor(s)->num, max_u64(deadline, s->now + 1));
}

static void executor_forget(struct sim *s)
{
	struct core_stats st;

	if (!s->executor.core) return;
	core_stats(s->executor.core, &st);
	s->counts->preemption += st.preemptions;
	s->counts->replay += st.replays;
	s->counts->discarded_token += st.tokens_discarded;
	s->counts->stale_dropped += st.dropped_stale;
	core_free(s->executor.core);
	s->executor.core = NULL;
}

static void executor_die(struct sim *s)
{
	s->counts->executor_death++;
	executor_forget(s);
	mesh_pipe_clear(&s->executor.pipe);
	for (uint32_t f = 0; f < s->n_frontends; f++) {
		sim_lane_receiver_died(s, &s->frontends[f].up);
		sim_lane_sender_died(s, &s->frontends[f].down);
	}
}

/* --- supervisor
 * ------------------------------------------------------------------------------------------------------- */

void sim_kill(struct sim *s, struct sim_proc *p)
{
	if (!p->alive) return;
	sim_note(s, "%s %u dies", mesh_name(p), p->ix);
	p->alive = p->ready = p->reaped = false;
	p->wake_at = p->stopped_until = 0;
	switch (p->kind) {
	case SIM_FRONTEND: frontend_die(s, p->ix); break;
	case SIM_EXECUTOR: executor_die(s); break;
	case SIM_WORKER:
		s->counts->worker_death++;
		sim_workers_died(s);
		break;
	}
	sim_push(s, s->now + 1 + sim_rand(s, 3 * NS_PER_MS), SIM_EV_REAP, p->num, p->life);
}

static void mesh_reap(struct sim *s, struct sim_proc *p)
{
	p->reaped = true;
	restart_on_exited(&p->restart, s->now);
	if (p->kind == SIM_FRONTEND) {
		mesh_tell_executor(
			s, (struct sim_notice){.kind = SIM_NOTICE_GONE, .frontend = p->ix, .incarnation = p->life - 1});
		sim_lane_receiver_died(s, &s->frontends[p->ix].down); /* what was sent to the corpse */
	}
	if (p->kind == SIM_WORKER) mesh_tell_executor(s, (struct sim_notice){.kind = SIM_NOTICE_LOST});
	if (p->retiring) p->exists = false;
	if (p->planned) restart_init(&p->restart, &s->setup.restart, s->now);
	p->planned = false;
	if (p->exists) sim_push(s, restart_deadline(&p->restart), SIM_EV_SPAWN, p->num, p->life);
}

static void mesh_spawn(struct sim *s, struct sim_proc *p)
{
	enum restart_action action = restart_step(&p->restart, s->now);
	uint64_t load_ns = p->kind == SIM_WORKER ? 150 * NS_PER_MS : 20 * NS_PER_MS;

	SIM_EXPECT(s, action == RESTART_SPAWN, "%s %u: restart says %d", mesh_name(p), p->ix, action);
	p->alive = true;
	p->life++;
	sim_note(s, "%s %u is started, life %u", mesh_name(p), p->ix, p->life);
	if (p->kind == SIM_EXECUTOR) {
		s->executor.epoch++;
		for (uint32_t f = 0; f < s->n_frontends; f++)
			mesh_notice(s, &s->frontends[f].pipe, f,
				    (struct sim_notice){.kind = SIM_NOTICE_EPOCH, .epoch = s->executor.epoch});
	}
	sim_push(s, s->now + load_ns / 2 + sim_rand(s, load_ns), SIM_EV_READY, p->num, p->life);
}

static void mesh_ready(struct sim *s, struct sim_proc *p)
{
	bool all = true;

	if (p->restart.ever_ready && s->faults_left > 0 && sim_chance(s, 5)) {
		s->counts->start_failure++;
		sim_kill(s, p);
		return;
	}
	p->ready = true;
	restart_on_ready(&p->restart, s->now);
	switch (p->kind) {
	case SIM_FRONTEND: frontend_start(s, p->ix); break;
	case SIM_EXECUTOR: executor_start(s); break;
	case SIM_WORKER:
		for (uint32_t r = 0; r < s->setup.n_ranks; r++) all &= sim_proc_rank(s, r)->ready;
		if (all) mesh_tell_executor(s, (struct sim_notice){.kind = SIM_NOTICE_LOADED});
		break;
	}
}

/* --- faults
 * ----------------------------------------------------------------------------------------------------------- */

/* A worker may be killed when nobody could be blamed for it: the rule is that only one who brings a worker down alone
 * is ended, and chance could strike the same lonely request again and again. */
bool sim_mesh_may_strike(struct sim *s, const struct sim_proc *p)
{
	struct core_stats st;

	if (!p->alive || !p->ready || p->stopped_until > s->now) return false;
	if (p->kind != SIM_WORKER) return true;
	if (s->setup.has_poison || !s->executor.core || !s->executor.result_since_loss || !s->workers.up) return false;
	core_stats(s->executor.core, &st);
	return st.n_suspects == 0;
}

static struct sim_proc *mesh_victim(struct sim *s)
{
	uint64_t kind = sim_rand(s, 3);

	if (kind == 0) return sim_proc_frontend(s, (uint32_t)sim_rand(s, s->n_frontends));
	if (kind == 1) return sim_proc_executor(s);
	return sim_proc_rank(s, (uint32_t)sim_rand(s, s->setup.n_ranks));
}

static void mesh_stop(struct sim *s, struct sim_proc *p, uint64_t until)
{
	p->stopped_until = until;
	p->wake_at = 0;
}

/* Something between two who live goes wrong. */
static void mesh_glitch(struct sim *s, uint32_t frontend)
{
	struct sim_frontend *f = &s->frontends[frontend];

	if (sim_chance(s, 70)) {
		sim_lane_glitch(s, sim_chance(s, 50) ? &f->up : &f->down);
		return;
	}
	sim_note(s, "the executor's lane to frontend %u closes", frontend);
	s->counts->lane_closed++;
	s->executor.lane_incarnation[frontend] = -1;
}

static void mesh_fault(struct sim *s)
{
	uint64_t which = sim_rand(s, 100);
	struct sim_proc *p = mesh_victim(s), *q = mesh_victim(s);

	s->faults_left--;
	if (s->setup.has_glitches && sim_chance(s, 30)) {
		mesh_glitch(s, (uint32_t)sim_rand(s, s->n_frontends));
		return;
	}
	if (!sim_mesh_may_strike(s, p)) return;
	if (which < 45) {
		sim_kill(s, p);
	} else if (which < 70) {
		if (p == q || !sim_mesh_may_strike(s, q)) return;
		s->counts->two_deaths_at_once++;
		sim_kill(s, p);
		sim_kill(s, q);
	} else if (which < 85) {
		sim_note(s, "%s %u hangs", mesh_name(p), p->ix);
		s->counts->hang_then_kill++;
		mesh_stop(s, p, UINT64_MAX);
		sim_push(s, s->now + s->setup.hang_limit_ns, SIM_EV_KILL, p->num, p->life);
	} else {
		s->counts->pause++;
		mesh_stop(s, p, s->now + 1 + sim_rand(s, s->setup.hang_limit_ns));
		sim_note(s, "%s %u pauses for %llu us", mesh_name(p), p->ix,
			 (unsigned long long)(p->stopped_until - s->now) / 1000);
		sim_push(s, p->stopped_until, SIM_EV_RESUME, p->num, p->life);
	}
}

static void mesh_reload(struct sim *s)
{
	uint64_t which = sim_rand(s, 4);

	if (which < 2) sim_reload_frontend(s);
	else if (which == 2) sim_reload_executor(s);
	else sim_reload_workers(s);
}

/* A frontend that reads nothing must not keep the others waiting. */
static void mesh_freeze(struct sim *s)
{
	sim_note(s, "frontend 0 freezes");
	mesh_stop(s, &s->procs[0], s->now + 60 * NS_PER_S);
	sim_push(s, s->procs[0].stopped_until, SIM_EV_THAW, 0, 0);
}

static void mesh_thaw(struct sim *s)
{
	for (uint32_t i = 0; i < s->setup.n_requests; i++) {
		const struct sim_request *q = &s->requests[i];

		SIM_EXPECT(s, q->frontend == 0 || (q->state != SIM_LIVE && q->state != SIM_ARRIVED),
			   "request %u waits because another frontend does not read", i);
	}
	sim_wake(s, 0, s->now);
}

static void mesh_drain(struct sim *s)
{
	sim_note(s, "drain");
	mesh_tell_executor(s, (struct sim_notice){.kind = SIM_NOTICE_DRAIN});
}

static uint64_t mesh_first_at(const struct sim_queue *q)
{
	return q->n > 0 ? sim_queue_at(q, 0)->at : UINT64_MAX;
}

/* What is on its way arrives also when the process was not ready at the time it was sent, or has looked too early. */
static void mesh_wake_for_inputs(struct sim *s, const struct sim_proc *p)
{
	const struct sim_pipe *pipe = p->kind == SIM_FRONTEND ? &s->frontends[p->ix].pipe : &s->executor.pipe;
	uint64_t at = pipe->n > 0 ? pipe->items[0].at : UINT64_MAX;

	for (size_t i = 0; i < s->ghosts.n; i++) {
		const struct sim_packet *g = sim_queue_at(&s->ghosts, i);

		if (g->to == p->num) at = min_u64(at, g->at);
	}
	if (p->kind == SIM_FRONTEND) at = min_u64(at, mesh_first_at(&s->frontends[p->ix].down.queue));
	else at = min_u64(at, mesh_first_at(&s->workers.replies));
	for (uint32_t f = 0; p->kind == SIM_EXECUTOR && f < s->n_frontends; f++)
		at = min_u64(at, mesh_first_at(&s->frontends[f].up.queue));
	if (at != UINT64_MAX) sim_wake(s, p->num, max_u64(at, s->now + 1));
}

static void mesh_pass(struct sim *s, struct sim_proc *p)
{
	if (p->wake_at != s->now) return; /* another one is due */
	p->wake_at = 0;
	if (p->stopped_until > s->now) {
		sim_wake(s, p->num, s->now); /* then */
		return;
	}
	if (p->kind == SIM_FRONTEND)
		frontend_pass(s, p->ix);
	else
		executor_pass(s);
	mesh_wake_for_inputs(s, p);
}

static void mesh_vanish(struct sim *s, struct sim_request *q)
{
	if (q->state == SIM_LIVE || q->state == SIM_ARRIVED) q->cancel_wanted = true;
	sim_wake(s, q->frontend, s->now);
}

void sim_mesh_event(struct sim *s, const struct sim_event *e)
{
	struct sim_proc *p;

	switch (e->kind) {
	case SIM_EV_STEP_DONE: sim_workers_done(s, e->life); return;
	case SIM_EV_FAULT: mesh_fault(s); return;
	case SIM_EV_RELOAD: mesh_reload(s); return;
	case SIM_EV_ARRIVE: sim_load_arrive(s, &s->requests[e->num]); return;
	case SIM_EV_VANISH: mesh_vanish(s, &s->requests[e->num]); return;
	case SIM_EV_FREEZE: mesh_freeze(s); return;
	case SIM_EV_THAW: mesh_thaw(s); return;
	case SIM_EV_DRAIN: mesh_drain(s); return;
	default: break;
	}
	p = &s->procs[e->num];
	if (e->life != p->life) return; /* it was another one */
	switch (e->kind) {
	case SIM_EV_PASS:
		if (p->alive && p->ready) mesh_pass(s, p);
		break;
	case SIM_EV_SPAWN: mesh_spawn(s, p); break;
	case SIM_EV_READY:
		if (p->alive) mesh_ready(s, p);
		break;
	case SIM_EV_REAP: mesh_reap(s, p); break;
	case SIM_EV_KILL: sim_kill(s, p); break;
	case SIM_EV_RESUME: sim_wake(s, p->num, s->now); break;
	default: break;
	}
}

/* --- beginning and end
 * ------------------------------------------------------------------------------------------------ */

static void mesh_add(struct sim *s, uint32_t num, enum sim_kind kind, uint32_t ix)
{
	struct sim_proc *p = &s->procs[num];

	p->num = num;
	p->kind = kind;
	p->ix = ix;
	p->exists = true;
	restart_init(&p->restart, &s->setup.restart, s->now);
	sim_push(s, s->now, SIM_EV_SPAWN, num, 0);
}

void sim_mesh_add_frontend(struct sim *s)
{
	uint32_t f = s->n_frontends++;

	mesh_add(s, f, SIM_FRONTEND, f);
	s->frontends[f].up = (struct sim_lane){.to = sim_proc_executor(s)->num, .hwm = s->setup.hwm_up};
	s->frontends[f].down = (struct sim_lane){.to = f, .hwm = s->setup.hwm_down};
}

void sim_mesh_init(struct sim *s)
{
	s->n_procs = SIM_FRONTENDS_MAX + 1 + s->setup.n_ranks;
	mesh_add(s, SIM_FRONTENDS_MAX, SIM_EXECUTOR, 0);
	for (uint32_t r = 0; r < s->setup.n_ranks; r++) mesh_add(s, SIM_FRONTENDS_MAX + 1 + r, SIM_WORKER, r);
	for (uint32_t f = 0; f < s->setup.n_frontends; f++) sim_mesh_add_frontend(s);
	for (uint32_t i = 0; i < s->setup.n_reloads; i++)
		sim_push(s, 50 * NS_PER_MS + sim_rand(s, s->setup.arrive_ns), SIM_EV_RELOAD, 0, 0);
	s->faults_left = s->setup.n_faults;
	for (uint32_t i = 0; i < s->setup.n_faults; i++)
		sim_push(s, 50 * NS_PER_MS + sim_rand(s, s->setup.arrive_ns), SIM_EV_FAULT, 0, 0);
	if (s->setup.has_frozen_frontend)
		sim_push(s, 100 * NS_PER_MS + sim_rand(s, s->setup.arrive_ns), SIM_EV_FREEZE, 0, 0);
	if (s->setup.drain_ns != UINT64_MAX) sim_push(s, s->setup.drain_ns, SIM_EV_DRAIN, 0, 0);
}

void sim_mesh_release(struct sim *s)
{
	executor_forget(s);
	mesh_pipe_clear(&s->executor.pipe);
	for (uint32_t f = 0; f < s->n_frontends; f++) {
		struct sim_frontend *fe = &s->frontends[f];
		struct lives_stats st;

		if (fe->lives) {
			lives_stats(fe->lives, &st);
			s->counts->resubmit += st.resubmits;
			s->counts->gap += st.gaps;
			s->counts->stale_dropped += st.dropped_stale;
		}
		lives_free(fe->lives);
		mesh_pipe_clear(&fe->pipe);
		sim_lane_release(&fe->up);
		sim_lane_release(&fe->down);
	}
	sim_queue_release(&s->ghosts);
}

/* Everybody is there and nobody has anything left to do. */
bool sim_mesh_is_quiet(const struct sim *s)
{
	struct lives_stats st;

	if (s->n_open > 0 || s->faults_left > 0) return false;
	for (size_t i = 0; i < s->ghosts.n; i++)
		if (s->procs[sim_queue_at(&s->ghosts, i)->to].exists) return false;
	for (uint32_t i = 0; i < s->n_procs; i++)
		if (s->procs[i].exists && (!s->procs[i].ready || s->procs[i].stopped_until > s->now)) return false;
	for (uint32_t f = 0; f < s->n_frontends; f++) {
		if (!s->procs[f].exists) continue;
		if (s->procs[f].retiring) return false;
		lives_stats(s->frontends[f].lives, &st);
		if (st.n_live > 0 || !lives_is_welcome(s->frontends[f].lives)) return false;
	}
	return core_is_idle(s->executor.core);
}

void sim_mesh_check_end(struct sim *s)
{
	struct core_stats st;

	core_check(s->executor.core);
	core_stats(s->executor.core, &st);
	SIM_EXPECT(s, st.blocks_used == 0 && st.blocks_free + st.blocks_cached == st.blocks_total,
		   "%llu blocks are used in the end", (unsigned long long)st.blocks_used);
	SIM_EXPECT(s, st.n_running == 0 && st.n_waiting == 0 && st.n_suspects == 0, "requests are left in the end");
}
