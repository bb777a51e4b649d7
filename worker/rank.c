/* rank.c - see rank.h. */
#include "worker/rank.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANK_SPIN_NS \
	(30 * NS_PER_US) /* the next step is usually there already; a sleep and its wake-up cost about 50 us */
#define RANK_CALM 20 /* looks without work, five seconds: then it looks as rarely as idle processes do, and may notice a drain so much later */
#define RANK_LOOK_NS  (250 * NS_PER_MS) /* half of the shortest --heartbeat-timeout; at work, how often a rank shows that it lives and asks whether to go on */
#define RANK_RETRY_NS (200 * NS_PER_US) /* reply ring full: its reader is behind, or dead */

struct rank {
	struct rank_io io;
	struct engine_opts opts;
	struct engine *engine;
	uint64_t generation;
	uint64_t looked_ns;
	uint64_t load_ns;
	bool ready, stopped;
	struct strbuf packed;
	struct rank_stats stats, shown;
};

struct rank *rank_new(const struct rank_io *io, const struct engine_opts *opts)
{
	struct rank *r = mem_new(struct rank);

	r->io = *io;
	r->opts = *opts;
	r->generation = ring_generation(io->steps);
	strbuf_init(&r->packed, LIMIT_REPLY_RING_BYTES / 2);
	return r;
}

void rank_free(struct rank *r)
{
	if (!r) return;
	engine_free(r->engine);
	strbuf_release(&r->packed);
	free(r);
}

void rank_stats(const struct rank *r, struct rank_stats *out)
{
	*out = r->stats;
}

struct engine *rank_engine(struct rank *r)
{
	return r->engine;
}

/* ---- signs of life ---- */

static void rank_show(struct rank *r, enum page_state state)
{
	if (r->io.slot) page_state(r->io.slot, state);
}

static void rank_beat(void *ctx)
{
	struct rank *r = ctx;

	if (r->io.slot) atomic_store_explicit(&r->io.slot->heartbeat_ns, clock_now_ns(), memory_order_relaxed);
}

/* Once in RANK_LOOK_NS: heartbeat, counters, and the question whether to go on. */
static bool rank_may_go_on(struct rank *r, uint64_t now)
{
	if (r->stopped) return false;
	if (now - r->looked_ns < RANK_LOOK_NS) return true;
	r->looked_ns = now;
	rank_beat(r);
	if (r->io.slot) {
		page_count_to(r->io.slot, COUNTER_worker_steps, r->stats.steps, &r->shown.steps);
		page_count_to(r->io.slot, COUNTER_worker_busy_ns, r->stats.busy_ns, &r->shown.busy_ns);
	}
	r->stopped = r->io.may_go_on && !r->io.may_go_on(r->io.ctx);
	return !r->stopped;
}

static void rank_on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct rank *r = ctx;

	rank_beat(r);
	if (r->io.slot && total) atomic_store(&r->io.slot->progress, (uint32_t)(done * 1000 / total));
}

/* ---- answers ---- */

static void rank_signal(const struct rank *r)
{
	const uint64_t one = 1;

	/* The only way to fail is a full counter, and then the reader is awake anyway. */
	if (r->io.event_fd >= 0 && write(r->io.event_fd, &one, sizeof(one)) != sizeof(one)) return;
}

/* Puts a message into the reply ring; waits for room, unless a new executor has come or the rank is to stop: then
 * nobody is waiting for this answer. */
static int rank_reply(struct rank *r, const struct msg *m)
{
	const struct timespec pause = {.tv_nsec = RANK_RETRY_NS};
	int rc;

	strbuf_reset(&r->packed);
	rc = msg_pack(m, &r->packed);
	if (rc != ST_OK) {
		log_error("a %s message could not be packed: %s", msg_type_name(m->type), status_text(rc));
		return rc;
	}
	for (;;) {
		rc = ring_push(r->io.replies, r->packed.data, r->packed.len);
		if (rc != ST_AGAIN) break;
		if (ring_generation(r->io.steps) != r->generation || !rank_may_go_on(r, clock_now_ns())) return ST_OK;
		nanosleep(&pause, NULL);
	}
	if (rc == ST_OK) rank_signal(r);
	return rc;
}

/* ---- calls ---- */

struct rank_call {
	const struct msg_rpc *m;
	struct errbuf err;
	uint8_t body[RPC_BODY_MAX];
	size_t len;
};

static void rank_become_ready(struct rank *r)
{
	rank_show(r, PAGE_SERVING);
	if (r->ready) return;
	r->ready = true;
	if (r->io.on_ready) r->io.on_ready(r->io.ctx);
}

static int rank_hello(struct rank *r, struct rank_call *c)
{
	struct rpc_hello_reply body = {.version = PROTO_VERSION, .rank = r->io.rank, .state = RPC_WORKER_NOTHING};

	if (r->engine) {
		body.n_blocks = engine_n_blocks(r->engine);
		body.state = body.n_blocks ? RPC_WORKER_READY : RPC_WORKER_LOADED;
		body.model_len_max = engine_model_len_max(r->engine);
		body.vocab = engine_spec(r->engine)->n_tokens;
		body.dim = engine_spec(r->engine)->dim;
		body.n_full = engine_kvgroups(r->engine)->n_full;
		body.n_windowed = engine_kvgroups(r->engine)->n_windowed;
		body.window = engine_kvgroups(r->engine)->window;
		body.recurrent = engine_is_recurrent(r->engine);
	}
	c->len = rpc_hello_reply_pack(&body, c->body);
	return ST_OK;
}

static int rank_load_engine(struct rank *r, struct errbuf *err)
{
	uint64_t from = clock_now_ns();
	const struct memplan *plan;
	int rc;

	rank_show(r, PAGE_LOADING);
	rc = engine_load(&r->engine, &r->opts, rank_on_progress, r, err);
	if (rc != ST_OK) return rc;
	r->load_ns = clock_now_ns() - from;
	engine_set_beat(r->engine, rank_beat, r);
	plan = engine_plan(r->engine);
	log_info("loaded in %.1f s: %s, %u threads, weights %.0f MiB, activations %.0f MiB, states %.0f MiB", (double)r->load_ns / 1e9,
		 engine_device_name(r->engine), engine_n_threads(r->engine), (double)plan->weight_bytes / MIB,
		 (double)(plan->activation_bytes + plan->scratch_bytes) / MIB, (double)plan->state_bytes / MIB);
	return ST_OK;
}

static int rank_load(struct rank *r, struct rank_call *c)
{
	struct rpc_load_reply body;
	int rc = r->engine ? ST_OK : rank_load_engine(r, &c->err);

	if (rc != ST_OK) return rc;
	body = (struct rpc_load_reply){.weight_bytes = engine_plan(r->engine)->weight_bytes,
				       .activation_bytes = engine_plan(r->engine)->activation_bytes,
				       .model_len_max = engine_model_len_max(r->engine),
				       .vocab = engine_spec(r->engine)->n_tokens,
				       .dim = engine_spec(r->engine)->dim,
				       .n_full = engine_kvgroups(r->engine)->n_full,
				       .n_windowed = engine_kvgroups(r->engine)->n_windowed,
				       .window = engine_kvgroups(r->engine)->window,
				       .recurrent = engine_is_recurrent(r->engine),
				       .load_ns = r->load_ns};
	c->len = rpc_load_reply_pack(&body, c->body);
	return ST_OK;
}

static int rank_profile(struct rank *r, struct rank_call *c)
{
	struct rpc_profile_reply body;
	uint32_t n_blocks;
	int rc = engine_profile(r->engine, &n_blocks, &c->err);

	if (rc != ST_OK) return rc;
	body = (struct rpc_profile_reply){.n_blocks = n_blocks,
					  .block_bytes = engine_plan(r->engine)->kv_block_bytes,
					  .memory_available = engine_memory_available(r->engine)};
	c->len = rpc_profile_reply_pack(&body, c->body);
	return ST_OK;
}

static int rank_kv_init(struct rank *r, struct rank_call *c)
{
	struct rpc_kv_init_args args;
	int rc = rpc_kv_init_args_unpack(&args, c->m->args.data, c->m->args.n);

	if (rc != ST_OK || args.n_blocks > UINT32_MAX) return err_set(&c->err, ST_INVALID, "arguments of kv_init");
	rank_show(r, PAGE_WARMING);
	return engine_kv_init(r->engine, (uint32_t)args.n_blocks, &c->err);
}

static int rank_warm_up(struct rank *r, struct rank_call *c)
{
	struct rpc_warm_up_reply body;
	int rc = engine_warm_up(r->engine, &body.step_ns);

	if (rc != ST_OK) return err_set(&c->err, rc, "warming up: %s", status_text(rc));
	rank_become_ready(r);
	c->len = rpc_warm_up_reply_pack(&body, c->body);
	return ST_OK;
}

static int rank_ping(struct rank *r, struct rank_call *c)
{
	struct rpc_ping body;

	if (rpc_ping_unpack(&body, c->m->args.data, c->m->args.n) != ST_OK)
		return err_set(&c->err, ST_INVALID, "arguments of ping");
	c->len = rpc_ping_pack(&body, c->body);
	return ST_OK;
}

static int rank_reset(struct rank *r, struct rank_call *c)
{
	engine_reset(r->engine);
	if (engine_n_blocks(r->engine)) rank_become_ready(r);
	return ST_OK;
}

static const struct rank_method {
	const char *name;
	bool needs_engine;
	int (*call)(struct rank *r, struct rank_call *c);
} rank_methods[] = {
	{RPC_HELLO, false, rank_hello},    {RPC_LOAD, false, rank_load},      {RPC_PROFILE, true, rank_profile},
	{RPC_KV_INIT, true, rank_kv_init}, {RPC_WARM_UP, true, rank_warm_up}, {RPC_PING, false, rank_ping},
	{RPC_RESET, true, rank_reset},
};

static int rank_dispatch(struct rank *r, struct rank_call *c)
{
	for (size_t i = 0; i < ARRAY_LEN(rank_methods); i++) {
		const struct rank_method *m = &rank_methods[i];

		if (strlen(m->name) != c->m->method.n || memcmp(m->name, c->m->method.data, c->m->method.n) != 0)
			continue;
		if (m->needs_engine && !r->engine) return err_set(&c->err, ST_INVALID, "%s before load", m->name);
		return m->call(r, c);
	}
	return err_set(&c->err, ST_UNSUPPORTED, "no such method");
}

static int rank_on_call(struct rank *r, const struct msg_rpc *m)
{
	struct rank_call c = {.m = m};
	int rc = rank_dispatch(r, &c);
	struct msg reply = {.type = MSG_rpc_reply,
			    .rpc_reply = {.epoch = m->epoch,
					  .id = m->id,
					  .rank = r->io.rank,
					  .status = (uint32_t)-rc,
					  .text = view_text(c.err.text),
					  .body = view_of(c.body, c.len)}};

	r->stats.calls++;
	/* The answer carries the reason, and who asked says it. */
	if (rc != ST_OK) log_debug("%.*s: %s", (int)m->method.n, (const char *)m->method.data, c.err.text);
	rank_beat(r);
	return rank_reply(r, &reply);
}

/* ---- steps ---- */

static void rank_log_hashes(const struct msg_step_result *res)
{
	for (uint32_t i = 0; i < res->hashes.n; i++)
		log_info("step %" PRIu64 " slot %u token %u logits %016" PRIx64, res->number, col_u32(res->slots, i),
			 col_u32(res->tokens, i), col_u64(res->hashes, i));
}

static int rank_on_step(struct rank *r, const struct msg_step *m)
{
	struct msg reply = {.type = MSG_step_result};
	uint64_t from = clock_now_ns();
	int rc;

	if (r->engine) {
		rc = engine_step(r->engine, m, &reply.step_result);
	} else {
		rc = ST_INVALID;
		reply.step_result =
			(struct msg_step_result){.epoch = m->epoch, .number = m->number, .status = (uint32_t)-rc};
	}
	r->stats.busy_ns += clock_now_ns() - from;
	r->stats.steps++;
	if (rc == ST_INVALID) {
		r->stats.bad_steps++;
		log_error("step %" PRIu64 " of epoch %" PRIu64 " is refused: %s", m->number, m->epoch,
			  r->engine ? engine_why(r->engine) : "nothing is loaded");
	}
	rank_log_hashes(&reply.step_result);
	if (r->io.rank != 0) return rc == ST_DEVICE ? rc : ST_OK;
	if (rank_reply(r, &reply) == ST_CORRUPT) return ST_CORRUPT;
	return rc == ST_DEVICE ? rc : ST_OK;
}

/* ---- the loop ---- */

static void rank_follow_generation(struct rank *r)
{
	uint64_t generation = ring_generation(r->io.steps);

	if (generation == r->generation) return;
	r->generation = generation;
	if (r->engine) engine_reset(r->engine);
}

static int rank_on_record(struct rank *r, const void *data, size_t len)
{
	struct msg m;

	rank_follow_generation(r);
	if (msg_unpack(&m, data, len) != ST_OK || (m.type != MSG_step && m.type != MSG_rpc)) {
		r->stats.unreadable++;
		return ST_OK;
	}
	if ((m.type == MSG_step ? m.step.epoch : m.rpc.epoch) != r->generation) {
		r->stats.skipped++;
		return ST_OK;
	}
	return m.type == MSG_step ? rank_on_step(r, &m.step) : rank_on_call(r, &m.rpc);
}

int rank_pass(struct rank *r, uint64_t timeout_ns)
{
	const void *data;
	size_t len;
	int rc = ring_peek(r->io.steps, &data, &len);

	if (rc == ST_AGAIN) {
		rc = ring_wait(r->io.steps, RANK_SPIN_NS, timeout_ns);
		if (rc == ST_OK) rc = ring_peek(r->io.steps, &data, &len);
	}
	if (rc == ST_AGAIN) return ST_TIMEOUT;
	if (rc != ST_OK) return rc;
	rc = rank_on_record(r, data, len);
	ring_pop(r->io.steps);
	return rc;
}

int rank_run(struct rank *r)
{
	uint64_t calm_ns = max_u64(RANK_LOOK_NS, r->io.calm_look_ns);
	uint32_t n_idle = 0;
	int rc = ST_OK;

	while (rank_may_go_on(r, clock_now_ns())) {
		rc = rank_pass(r, n_idle < RANK_CALM ? RANK_LOOK_NS : calm_ns);
		n_idle = rc == ST_TIMEOUT ? min_u32(n_idle + 1, RANK_CALM) : 0;
		if (rc == ST_DEVICE || rc == ST_CORRUPT) return rc;
	}
	return ST_OK;
}
