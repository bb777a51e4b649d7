/* bringup.c - see bringup.h. */
#include "executor/bringup.h"

#define BRINGUP_HELLO_NS (100 * NS_PER_MS) /* how often hello is repeated */

void bringup_init(struct bringup *b, uint64_t epoch, uint32_t n_ranks, uint64_t tokens_ahead)
{
	*b = (struct bringup){.epoch = epoch, .tokens_ahead = tokens_ahead};
	collective_init(&b->rpc, n_ranks);
}

static void bringup_move(struct bringup *b, enum bringup_state to)
{
	b->state = to;
	b->call_due = to != BRINGUP_WAIT_WORKERS && to != BRINGUP_DONE && to != BRINGUP_FAILED;
	b->rpc.running = false;
}

static uint64_t bringup_all(const struct bringup *b)
{
	return b->rpc.n_ranks == 64 ? UINT64_MAX : (1ull << b->rpc.n_ranks) - 1;
}

void bringup_on_worker(struct bringup *b, uint32_t rank, bool alive)
{
	if (rank >= b->rpc.n_ranks) return;
	if (alive) b->alive |= 1ull << rank;
	else b->alive &= ~(1ull << rank);
	/* Whoever died or came, what was agreed before no longer holds. */
	bringup_move(b, b->alive == bringup_all(b) ? BRINGUP_HELLO : BRINGUP_WAIT_WORKERS);
}

/* ---- answers ---- */

static int bringup_bad_body(const struct bringup *b, uint32_t rank, struct errbuf *err)
{
	return err_set(err, ST_CORRUPT, "worker %u: %s: the answer could not be read", rank, b->rpc.method);
}

/* All ranks have the same layers, so the same groups. */
static int bringup_take_kv(struct bringup *b, uint32_t rank, struct core_kv kv, struct errbuf *err)
{
	const struct core_kv *first = &b->kv;

	if (kv.n_full + kv.n_windowed > LIMIT_KV_GROUPS || (kv.n_windowed && !kv.window))
		return err_set(err, ST_INVALID, "worker %u: %u and %u KV groups, window %u", rank, kv.n_full, kv.n_windowed, kv.window);
	if (rank && (kv.n_full != first->n_full || kv.n_windowed != first->n_windowed || kv.window != first->window ||
		     kv.recurrent != first->recurrent))
		return err_set(err, ST_INVALID, "worker %u has other KV groups (%u and %u, window %u) than worker 0 (%u and %u, window %u)", rank,
			       kv.n_full, kv.n_windowed, kv.window, first->n_full, first->n_windowed, first->window);
	b->kv = kv;
	return ST_OK;
}

static int bringup_on_hello(struct bringup *b, struct errbuf *err)
{
	struct rpc_hello_reply r;
	bool ready = true;
	int rc;

	b->model_len_max = UINT32_MAX;
	for (uint32_t i = 0; i < b->rpc.n_ranks; i++) {
		const struct collective_answer *a = &b->rpc.answers[i];

		if (rpc_hello_reply_unpack(&r, a->body, a->body_len) != ST_OK) return bringup_bad_body(b, i, err);
		if (r.version != PROTO_VERSION || r.rank != i)
			return err_set(err, ST_UNSUPPORTED, "worker %u answers as rank %u with protocol %u, expected protocol %u", i, r.rank,
				       r.version, PROTO_VERSION);
		ready = ready && r.state == RPC_WORKER_READY && (i == 0 || r.n_blocks == b->n_blocks);
		b->n_blocks = r.n_blocks;
		b->model_len_max = min_u32(b->model_len_max, r.model_len_max);
		b->vocab = r.vocab;
		b->dim = r.dim;
		rc = bringup_take_kv(b, i, (struct core_kv){r.n_full, r.n_windowed, r.window, r.recurrent}, err);
		if (rc != ST_OK) return rc;
	}
	bringup_move(b, ready ? BRINGUP_RESET : BRINGUP_LOAD);
	return ST_OK;
}

static int bringup_on_load(struct bringup *b, struct errbuf *err)
{
	struct rpc_load_reply r;
	int rc;

	b->model_len_max = UINT32_MAX;
	for (uint32_t i = 0; i < b->rpc.n_ranks; i++) {
		const struct collective_answer *a = &b->rpc.answers[i];

		if (rpc_load_reply_unpack(&r, a->body, a->body_len) != ST_OK) return bringup_bad_body(b, i, err);
		b->model_len_max = min_u32(b->model_len_max, r.model_len_max);
		b->vocab = r.vocab;
		b->dim = r.dim;
		rc = bringup_take_kv(b, i, (struct core_kv){r.n_full, r.n_windowed, r.window, r.recurrent}, err);
		if (rc != ST_OK) return rc;
	}
	bringup_move(b, BRINGUP_PROFILE);
	return ST_OK;
}

static int bringup_on_profile(struct bringup *b, struct errbuf *err)
{
	struct rpc_profile_reply r;
	uint32_t smallest = 0;
	uint64_t len;

	b->n_blocks = UINT64_MAX;
	for (uint32_t i = 0; i < b->rpc.n_ranks; i++) {
		const struct collective_answer *a = &b->rpc.answers[i];

		if (rpc_profile_reply_unpack(&r, a->body, a->body_len) != ST_OK) return bringup_bad_body(b, i, err);
		if (r.n_blocks < b->n_blocks) smallest = i; /* it decides for all */
		b->n_blocks = min_u64(b->n_blocks, r.n_blocks);
	}
	len = core_kv_len(&b->kv, b->tokens_ahead, b->n_blocks);
	if (len < b->model_len_max)
		return err_set(err, ST_NO_MEMORY,
			       "worker %u has room for %llu KV blocks, which hold one request of %llu tokens, but --max-model-len is %u: the "
			       "largest that fits is %llu",
			       smallest, (unsigned long long)b->n_blocks, (unsigned long long)len, b->model_len_max, (unsigned long long)len);
	bringup_move(b, BRINGUP_KV_INIT);
	return ST_OK;
}

int bringup_on_reply(struct bringup *b, const struct msg_rpc_reply *m, struct errbuf *err)
{
	int rc;

	if (m->epoch != b->epoch) return ST_OK;
	rc = collective_on_reply(&b->rpc, m, err);
	if (rc == ST_NOT_FOUND || rc == ST_AGAIN) return ST_OK;
	if (rc == ST_OK) {
		switch (b->state) {
		case BRINGUP_HELLO:
			rc = bringup_on_hello(b, err);
			break;
		case BRINGUP_LOAD:
			rc = bringup_on_load(b, err);
			break;
		case BRINGUP_PROFILE:
			rc = bringup_on_profile(b, err);
			break;
		case BRINGUP_KV_INIT:
			bringup_move(b, BRINGUP_WARM_UP);
			break;
		case BRINGUP_WARM_UP:
		case BRINGUP_RESET:
			bringup_move(b, BRINGUP_DONE);
			break;
		default:
			break;
		}
	}
	if (rc != ST_OK) bringup_move(b, BRINGUP_FAILED);
	return rc;
}

/* ---- calls ---- */

bool bringup_step(struct bringup *b, uint64_t now, struct msg *m)
{
	static const char *const methods[] = {
		[BRINGUP_HELLO] = RPC_HELLO,     [BRINGUP_LOAD] = RPC_LOAD,       [BRINGUP_PROFILE] = RPC_PROFILE,
		[BRINGUP_KV_INIT] = RPC_KV_INIT, [BRINGUP_WARM_UP] = RPC_WARM_UP, [BRINGUP_RESET] = RPC_RESET,
	};
	uint8_t args[RPC_BODY_MAX];
	size_t len = 0;

	if (b->state == BRINGUP_HELLO && b->rpc.running && now >= b->rpc.deadline_ns) b->call_due = true;
	if (!b->call_due) return false;
	b->call_due = false;
	if (b->state == BRINGUP_KV_INIT) len = rpc_kv_init_args_pack(&(struct rpc_kv_init_args){b->n_blocks}, args);
	/* Only hello has a time limit: loading may take as long as it takes, and a worker that dies meanwhile is reported. */
	collective_call(&b->rpc, b->epoch, methods[b->state], args, len, now, b->state == BRINGUP_HELLO ? BRINGUP_HELLO_NS : 0, m);
	return true;
}

uint64_t bringup_deadline(const struct bringup *b)
{
	if (b->call_due) return 0;
	return b->rpc.running ? b->rpc.deadline_ns : UINT64_MAX;
}
