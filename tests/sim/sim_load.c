/* sim_load.c - the requests of the simulation, their clients, and the model that everybody's tokens are compared with.
 *
 * A token is a function of the request's seed and of all tokens before it, as with a real model and Philox; so what an
 * undisturbed run gives is known when a request is made. The hash of the tokens stands for the KV cache's content. */
#include "tests/sim/sim_impl.h"

#include "common/mem.h"

#define PREFIXES   3
#define PREFIX_MAX 96

uint64_t sim_hash_next(uint64_t hash, uint32_t token)
{
	uint64_t h = sim_mix(hash * 31 + token + 1);

	return h ? h : 1; /* 0 means: nothing */
}

static bool load_is_stop(const struct sim_request *q, uint32_t token)
{
	for (uint32_t i = 0; i < q->submit.stop_ids.n; i++)
		if (q->stop_ids[i] == token) return true;
	return false;
}

uint32_t sim_model_token(const struct sim_request *q, uint64_t hash, uint32_t position)
{
	uint64_t x = sim_mix(hash ^ q->submit.seed ^ (uint64_t)position << 40);
	uint32_t token = (uint32_t)(x % SIM_VOCAB);

	if (position == q->nan_at) return q->failure;
	while (position < q->submit.n_output_min && load_is_stop(q, token)) token = (token + 1) % SIM_VOCAB;
	return token;
}

void sim_model_top(const struct sim_request *q, uint64_t hash, uint32_t chosen, uint32_t *rank, uint32_t *ids,
		   float *logprobs)
{
	*rank = q->submit.n_logprobs > 0 ? 1 + (uint32_t)(sim_mix(hash + 5) % 9) : 0;
	for (uint32_t i = 0; i < q->submit.n_logprobs; i++) {
		ids[i] = i == 0 ? chosen : (uint32_t)(sim_mix(hash + i) % SIM_VOCAB);
		logprobs[i] = -(float)(sim_mix(hash ^ (i + 77)) % 1000) / 64;
	}
}

void sim_model_prompt_top(const struct sim_request *q, uint64_t hash, uint32_t position, uint32_t *rank, uint32_t *ids,
			  float *logprobs)
{
	*rank = position == q->nan_prompt ? 0 : 1 + (uint32_t)(sim_mix(hash + 9) % 7);
	for (uint32_t i = 0; i < q->submit.n_prompt_logprobs; i++) {
		ids[i] = i == 0 ? q->prompt[position] : (uint32_t)(sim_mix(hash + 100 + i) % SIM_VOCAB);
		logprobs[i] = -(float)(sim_mix(hash ^ (i + 99)) % 1000) / 64;
	}
}

float sim_model_pooled(const struct sim_request *q, uint64_t hash, uint32_t i)
{
	return (float)(sim_mix(hash + q->submit.kind * 1000 + i) % 4096) / 64;
}

static bool load_is_pooling(const struct sim_request *q)
{
	return q->submit.kind != REQUEST_GENERATE;
}

/* Fields that the executor refuses. */
static bool load_is_invalid(const struct sim_request *q)
{
	for (uint32_t i = 0; i < q->submit.bias_ids.n; i++)
		if (q->bias_ids[i] >= SIM_VOCAB) return true;
	return q->submit.top_p <= 0 && !load_is_pooling(q);
}

/* What an undisturbed run gives. */
static void load_expect(struct sim *s, struct sim_request *q)
{
	uint32_t len_max = sim_len_max(s, s->setup.n_blocks_min);
	uint64_t hash = SIM_HASH_FIRST;

	for (uint32_t i = 0; i < q->submit.n_prompt; i++) hash = sim_hash_next(hash, q->prompt[i]);
	q->expected = mem_array(uint32_t, q->submit.n_output_max + 1);
	if (load_is_invalid(q))
		q->refusal = REFUSAL_INVALID;
	else if (q->submit.n_prompt >= len_max + load_is_pooling(q))
		q->refusal = REFUSAL_TOO_LONG;
	else if (q->poison)
		q->refusal = REFUSAL_POISON;
	else if (q->nan_prompt != UINT32_MAX)
		q->refusal = REFUSAL_NUMERIC;
	if (q->refusal) return;
	if (load_is_pooling(q)) {
		q->finish = FINISH_STOP;
		return;
	}

	while (q->finish == FINISH_NONE) {
		uint32_t token = sim_model_token(q, hash, q->n_expected);

		if (token >= TOKEN_FAILED) {
			q->refusal = token == TOKEN_NO_LOGITS ? REFUSAL_NUMERIC : REFUSAL_INVALID;
			return;
		}
		q->expected[q->n_expected++] = token;
		hash = sim_hash_next(hash, token);
		if (load_is_stop(q, token))
			q->finish = FINISH_STOP;
		else if (q->n_expected == q->submit.n_output_max || q->submit.n_prompt + q->n_expected == len_max)
			q->finish = FINISH_LENGTH;
	}
}

/* Mostly short, sometimes long; often with a prefix that others have too. */
static void load_prompt(struct sim *s, struct sim_request *q, const uint32_t prefixes[PREFIXES][PREFIX_MAX])
{
	uint32_t n = (uint32_t)(sim_chance(s, 25) ? sim_range(s, 1, s->setup.model_len_max - 1) : sim_range(s, 1, 40));
	uint32_t n_prefix = sim_chance(s, 60) ? (uint32_t)sim_range(s, 1, PREFIX_MAX) : 0,
		 which = (uint32_t)sim_rand(s, PREFIXES);

	if (sim_chance(s, 2)) n = s->setup.model_len_max + (uint32_t)sim_rand(s, 3);
	if (n_prefix > 0 && n < s->setup.model_len_max) n = min_u32(n_prefix + n, s->setup.model_len_max - 1);
	q->prompt = mem_array(uint32_t, n);
	for (uint32_t i = 0; i < n; i++)
		q->prompt[i] = i < n_prefix ? prefixes[which][i] : (uint32_t)sim_rand(s, SIM_VOCAB);
	q->submit.n_prompt = n;
	q->submit.tokens = view_of(q->prompt, n);
}

static void load_client(struct sim *s, struct sim_request *q)
{
	q->stop_after = q->cancel_after = UINT32_MAX;
	if (q->poison || s->setup.has_race) return; /* its death, or its turn, is what is to be seen */
	if (sim_chance(s, 6)) q->stop_after = (uint32_t)sim_range(s, 1, 20);
	q->cancel_in_prefill = sim_chance(s, 5);
	if (sim_chance(s, 8)) q->cancel_after = (uint32_t)sim_range(s, 0, 20);
}

/* What only travels: the workers' model checks that it arrives. */
static void load_extras(struct sim *s, struct sim_request *q)
{
	struct msg_submit *m = &q->submit;
	uint32_t n_grammar = sim_chance(s, 20) ? (uint32_t)sim_range(s, 1, 300) : 0;

	m->repetition_penalty = sim_chance(s, 30) ? 1.25f : 0;
	m->presence_penalty = sim_chance(s, 30) ? -0.5f : 0;
	m->frequency_penalty = sim_chance(s, 30) ? 0.75f : 0;
	m->bias_ids = view_of(q->bias_ids, sim_chance(s, 20) ? sim_range(s, 1, 3) : 0);
	m->bias_values = view_of(q->bias_values, m->bias_ids.n);
	for (uint32_t i = 0; i < m->bias_ids.n; i++) {
		q->bias_ids[i] = (uint32_t)sim_rand(s, SIM_VOCAB + (sim_chance(s, 5) ? 9 : 0));
		q->bias_values[i] = (float)sim_rand(s, 9) - 4;
	}
	m->allowed_ids = view_of(q->allowed_ids, sim_chance(s, 20) ? sim_range(s, 1, 4) : 0);
	for (uint32_t i = 0; i < m->allowed_ids.n; i++) q->allowed_ids[i] = (uint32_t)sim_rand(s, SIM_VOCAB);
	q->grammar = mem_zalloc(1, n_grammar);
	for (uint32_t i = 0; i < n_grammar; i++) q->grammar[i] = (char)sim_rand(s, 256);
	m->grammar = view_of(q->grammar, n_grammar);
}

/* Log-probabilities of the prompt, or no output at all. */
static void load_kind(struct sim *s, struct sim_request *q)
{
	static const uint32_t failures[] = {TOKEN_NO_LOGITS, TOKEN_NOT_ALLOWED, TOKEN_BAD_GRAMMAR};
	struct msg_submit *m = &q->submit;

	q->n_prompt_received = 1;
	q->nan_at = sim_chance(s, 2) ? (uint32_t)sim_rand(s, 5) : UINT32_MAX;
	q->failure = failures[sim_rand(s, ARRAY_LEN(failures))];
	q->nan_prompt = UINT32_MAX;
	if (sim_chance(s, 10)) {
		m->kind = sim_chance(s, 50) ? REQUEST_POOL_MEAN : REQUEST_POOL_LAST;
	} else if (sim_chance(s, 20)) {
		m->n_prompt_logprobs = (uint32_t)sim_range(s, 1, 4);
		if (sim_chance(s, 3) && m->n_prompt > 1) q->nan_prompt = (uint32_t)sim_range(s, 1, m->n_prompt - 1);
	}
}

/* A few accounts with a few tenants each; or one account's tenants, or two accounts, that race. */
static void load_tenant(struct sim *s, struct sim_request *q)
{
	uint64_t ix = sim_rand(s, s->setup.n_tenants);

	q->submit.tenant = (ix % 3) << 32 | ix / 3;
	if (!s->setup.has_race) return;
	q->party = q->ix >= s->setup.n_requests / 2;
	q->submit.tenant = s->seed % 2 ? 7ull << 32 | (1 + q->party) : (1ull + q->party) << 32;
}

static void load_request(struct sim *s, struct sim_request *q, const uint32_t prefixes[PREFIXES][PREFIX_MAX])
{
	static const char *const salts[] = {"", "tenant a", "tenant b"};
	static const uint32_t priorities[] = {1u << 31, 1u << 31, 1u << 31, 0, UINT32_MAX};
	struct msg_submit *m = &q->submit;

	load_prompt(s, q, prefixes);
	q->salt = sim_chance(s, 70) ? 0 : (uint32_t)sim_rand(s, ARRAY_LEN(salts));
	m->cache_salt = view_text(salts[q->salt]);
	m->n_output_max = (uint32_t)(sim_chance(s, 10) ? 1 : sim_range(s, 1, SIM_OUTPUT_MAX));
	m->n_output_min = sim_chance(s, 30) ? (uint32_t)sim_rand(s, m->n_output_max + 1) : 0;
	m->stop_ids.n = (uint32_t)sim_rand(s, 3);
	m->stop_ids.data = q->stop_ids;
	q->stop_ids[0] = (uint32_t)sim_rand(s, SIM_VOCAB);
	q->stop_ids[1] = (uint32_t)sim_rand(s, SIM_VOCAB);
	m->temperature = (float)sim_rand(s, 3) / 2;
	m->top_p = sim_chance(s, 1) ? 0 : 0.5f;
	m->top_k = (uint32_t)sim_rand(s, 50);
	m->min_p = 0.25f;
	m->seed = sim_mix(s->seed * 1000 + q->ix);
	m->choice = (uint32_t)sim_rand(s, 3);
	m->n_logprobs = sim_chance(s, 25) ? (uint32_t)sim_range(s, 1, 4) : 0;
	load_tenant(s, q);
	m->queue_ms = s->setup.has_queue_timeouts && sim_chance(s, 60) ? (uint32_t)sim_range(s, 1, sim_chance(s, 50) ? 60 : 800) : 0;
	m->priority = priorities[sim_rand(s, ARRAY_LEN(priorities))];
	load_extras(s, q);
	load_kind(s, q);
	q->poison = s->setup.has_poison && sim_chance(s, 5);
	load_client(s, q);
	load_expect(s, q);
	map_put(&s->by_seed, m->seed, q);
}

void sim_load_init(struct sim *s)
{
	uint32_t prefixes[PREFIXES][PREFIX_MAX];

	for (uint32_t i = 0; i < PREFIXES * PREFIX_MAX; i++)
		prefixes[i / PREFIX_MAX][i % PREFIX_MAX] = (uint32_t)sim_rand(s, SIM_VOCAB);
	map_init(&s->by_seed);
	map_init(&s->by_id);
	s->requests = mem_array(struct sim_request, s->setup.n_requests);
	s->n_open = s->setup.n_requests;
	s->counts->request += s->setup.n_requests;
	for (uint32_t i = 0; i < s->setup.n_requests; i++) {
		struct sim_request *q = &s->requests[i];
		/* Half of them come in bursts. */
		uint64_t at =
			sim_chance(s, 50) ? s->setup.arrive_ns * sim_rand(s, 4) / 4 : sim_rand(s, s->setup.arrive_ns);

		q->ix = i;
		if (s->setup.has_race) at = i * 10 * NS_PER_US;
		q->frontend = (uint32_t)sim_rand(s, s->setup.n_frontends);
		load_request(s, q, prefixes);
		sim_push(s, at, SIM_EV_ARRIVE, i, 0);
		if (!q->poison && !s->setup.has_race && sim_chance(s, 20))
			sim_push(s, at + sim_rand(s, sim_chance(s, 50) ? 8 * NS_PER_MS : 400 * NS_PER_MS),
				 SIM_EV_VANISH, i, 0);
	}
}

void sim_load_release(struct sim *s)
{
	for (uint32_t i = 0; i < s->setup.n_requests; i++) {
		free(s->requests[i].prompt);
		free(s->requests[i].expected);
		free(s->requests[i].grammar);
	}
	free(s->requests);
	map_release(&s->by_seed);
	map_release(&s->by_id);
}

static void load_close(struct sim *s, struct sim_request *q, enum sim_request_state state)
{
	SIM_EXPECT(s, q->state == SIM_LIVE || q->state == SIM_ARRIVED, "request %u ends twice", q->ix);
	q->state = state;
	q->live = NULL;
	s->n_open--;
}

/* The client has gone, or its stop string is complete. */
static void load_count_cancel(struct sim *s, const struct sim_request *q)
{
	if (q->sampled)
		s->counts->cancel_in_decode++;
	else if (q->ran)
		s->counts->cancel_in_prefill++;
	else
		s->counts->cancel_in_queue++;
	sim_note(s, "request %u is cancelled after %u tokens", q->ix, q->n_received);
}

void sim_load_arrive(struct sim *s, struct sim_request *q)
{
	if (q->state != SIM_ABSENT) return;
	q->state = SIM_ARRIVED;
	sim_wake(s, sim_proc_frontend(s, q->frontend)->num, s->now);
}

/* The frontend's HTTP side in one pass: new requests, and connections that have ended. */
void sim_client_pass(struct sim *s, uint32_t frontend)
{
	struct sim_frontend *f = &s->frontends[frontend];

	for (uint32_t i = 0; i < s->setup.n_requests; i++) {
		struct sim_request *q = &s->requests[i];

		if (q->frontend != frontend) continue;
		if (q->state == SIM_ARRIVED && !q->cancel_wanted) {
			q->live = lives_start(f->lives, &q->submit, q, s->now);
			SIM_EXPECT(s, q->live, "request %u is not taken", i);
			q->state = SIM_LIVE;
			q->incarnation = f->incarnation;
			q->client_id = live_client_id(q->live);
			map_put(&s->by_id, q->client_id, q);
			sim_note(s, "request %u starts at frontend %u: prompt %u, output %u%s", i, frontend,
				 q->submit.n_prompt, q->n_expected, q->poison ? ", poison" : "");
		}
		if (!q->cancel_wanted) continue;
		if (q->state == SIM_LIVE) {
			SIM_EXPECT(s, live_n_output(q->live) == q->n_received, "request %u: live_n_output", i);
			load_count_cancel(s, q);
			lives_cancel(f->lives, q->live);
		}
		if (q->state == SIM_LIVE || q->state == SIM_ARRIVED) load_close(s, q, SIM_CANCELLED);
	}
}

static void load_check_top(struct sim *s, const struct sim_request *q, const struct live_token *t)
{
	uint64_t hash = SIM_HASH_FIRST;
	uint32_t rank, ids[LIMIT_TOP_LOGPROBS + 1];
	float logprobs[LIMIT_TOP_LOGPROBS + 1];

	for (uint32_t i = 0; i < q->submit.n_prompt; i++) hash = sim_hash_next(hash, q->prompt[i]);
	for (uint32_t i = 0; i < t->position; i++) hash = sim_hash_next(hash, q->expected[i]);
	sim_model_top(q, hash, t->id, &rank, ids, logprobs);
	SIM_EXPECT(s, t->rank == rank && t->n_top == q->submit.n_logprobs,
		   "request %u: rank %u, %u entries at %u, not %u, %u", q->ix, t->rank, t->n_top, t->position, rank,
		   q->submit.n_logprobs);
	for (uint32_t i = 0; i < t->n_top; i++)
		SIM_EXPECT(s, col_u32(t->top_ids, i) == ids[i] && col_f32(t->top_logprobs, i) == logprobs[i],
			   "request %u: another log-probability at %u", q->ix, t->position);
}

/* What counts as cached is what a run was started with; of which run, the executors decide. */
static void load_check_cached(struct sim *s, const struct sim_request *q)
{
	uint32_t n = live_n_cached(q->live);

	for (uint32_t k = 0; k < 32; k++)
		if (q->starts >> k & 1 && n == min_u32(k * SIM_BLOCK, q->submit.n_prompt)) return;
	sim_fail(s, "request %u has %u cached tokens, starts %x", q->ix, n, q->starts);
}

void sim_client_on_prompt_token(void *ctx, void *owner, const struct live_token *t)
{
	struct sim *s = ctx;
	struct sim_request *q = owner;
	uint64_t hash = SIM_HASH_FIRST;
	uint32_t rank, ids[LIMIT_TOP_LOGPROBS + 1];
	float logprobs[LIMIT_TOP_LOGPROBS + 1];

	SIM_EXPECT(s, q->state == SIM_LIVE && q->submit.n_prompt_logprobs > 0 && q->n_received == 0,
		   "request %u gets a prompt's log-probability at %u", q->ix, t->position);
	SIM_EXPECT(s, t->position == q->n_prompt_received && t->position < q->submit.n_prompt && t->id == q->prompt[t->position],
		   "request %u gets token %u at prompt position %u, not %u", q->ix, t->id, t->position, q->n_prompt_received);
	for (uint32_t i = 0; i < t->position; i++) hash = sim_hash_next(hash, q->prompt[i]);
	sim_model_prompt_top(q, hash, t->position, &rank, ids, logprobs);
	SIM_EXPECT(s, t->rank == rank && t->n_top == q->submit.n_prompt_logprobs, "request %u: rank %u, %u entries at %u of the prompt",
		   q->ix, t->rank, t->n_top, t->position);
	for (uint32_t i = 0; i < t->n_top; i++)
		SIM_EXPECT(s, col_u32(t->top_ids, i) == ids[i] && col_f32(t->top_logprobs, i) == logprobs[i],
			   "request %u: another log-probability at %u of the prompt", q->ix, t->position);
	q->n_prompt_received++;
	s->counts->prompt_row++;
}

void sim_client_on_embedding(void *ctx, void *owner, struct view values)
{
	struct sim *s = ctx;
	struct sim_request *q = owner;
	uint64_t hash = SIM_HASH_FIRST;

	SIM_EXPECT(s, q->state == SIM_LIVE && load_is_pooling(q) && !q->embedded && values.n == SIM_DIM,
		   "request %u gets a state of %u elements", q->ix, values.n);
	for (uint32_t i = 0; i < q->submit.n_prompt; i++) hash = sim_hash_next(hash, q->prompt[i]);
	for (uint32_t i = 0; i < SIM_DIM; i++)
		SIM_EXPECT(s, col_f32(values, i) == sim_model_pooled(q, hash, i), "request %u: another state", q->ix);
	q->embedded = true;
	s->counts->embedding++;
}

bool sim_client_on_token(void *ctx, void *owner, const struct live_token *t)
{
	struct sim *s = ctx;
	struct sim_request *q = owner;

	SIM_EXPECT(s, !q->submit.n_prompt_logprobs || q->n_prompt_received == q->submit.n_prompt,
		   "request %u gets a token before prompt position %u", q->ix, q->n_prompt_received);

	SIM_EXPECT(s, q->state == SIM_LIVE, "request %u is over and gets a token", q->ix);
	SIM_EXPECT(s, t->position == q->n_received, "request %u gets position %u, not %u", q->ix, t->position,
		   q->n_received);
	SIM_EXPECT(s, q->n_received < q->n_expected && t->id == q->expected[q->n_received],
		   "request %u gets token %u at %u", q->ix, t->id, q->n_received);
	if (q->submit.n_logprobs > 0)
		load_check_top(s, q, t);
	else
		SIM_EXPECT(s, t->rank == 0 && t->n_top == 0, "request %u gets log-probabilities", q->ix);
	load_check_cached(s, q);
	SIM_EXPECT(s, (t->queued_us > 0) == (t->position == 0) && (t->prefill_us > 0) == (t->position == 0),
		   "request %u: %u and %u us at position %u", q->ix, t->queued_us, t->prefill_us, t->position);
	q->n_received++;
	s->counts->token++;
	if (q->n_received >= q->cancel_after) q->cancel_wanted = true;
	if (q->n_received < q->stop_after) return false;
	load_count_cancel(s, q);
	load_close(s, q, SIM_CANCELLED);
	return true;
}

static bool load_may_refuse(const struct sim *s, const struct sim_request *q, uint32_t refusal)
{
	if (refusal == q->refusal) return true;
	if (refusal == REFUSAL_QUEUE_TIMEOUT) return q->submit.queue_ms && q->n_received == 0 && q->n_prompt_received == 1;
	/* Nobody has promised anything yet. */
	if (live_is_accepted(q->live)) return false;
	return (refusal == REFUSAL_QUEUE_FULL && s->setup.core.requests_max < s->setup.n_requests) ||
	       (refusal == REFUSAL_DRAINING && s->now >= s->setup.drain_ns);
}

void sim_client_on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	struct sim *s = ctx;
	struct sim_request *q = owner;

	if (refusal) {
		SIM_EXPECT(s, load_may_refuse(s, q, refusal), "request %u is refused: %.*s", q->ix, (int)text.n,
			   (const char *)text.data);
		SIM_EXPECT(s, text.n > 0, "request %u is refused without a word", q->ix);
		s->counts->poison_refused += refusal == REFUSAL_POISON;
		s->counts->refused_too_long += refusal == REFUSAL_TOO_LONG;
		s->counts->refused_queue_full += refusal == REFUSAL_QUEUE_FULL;
		s->counts->refused_numeric += refusal == REFUSAL_NUMERIC;
		s->counts->queue_timeout += refusal == REFUSAL_QUEUE_TIMEOUT;
		s->counts->refused_draining += refusal == REFUSAL_DRAINING;
		s->counts->refused_invalid += refusal == REFUSAL_INVALID;
	} else {
		SIM_EXPECT(s, !q->refusal && finish == q->finish && q->n_received == q->n_expected,
			   "request %u ends with finish %u after %u tokens, not with %u after %u", q->ix, finish,
			   q->n_received, q->finish, q->n_expected);
		SIM_EXPECT(s, q->embedded == load_is_pooling(q), "request %u ends without its state", q->ix);
		SIM_EXPECT(s, !q->submit.n_prompt_logprobs || q->n_prompt_received == q->submit.n_prompt,
			   "request %u ends without prompt position %u", q->ix, q->n_prompt_received);
	}
	sim_note(s, "request %u ends after %u tokens, finish %u, refusal %u", q->ix, q->n_received, finish, refusal);
	load_close(s, q, SIM_ENDED);
}

void sim_client_frontend_died(struct sim *s, uint32_t frontend)
{
	for (uint32_t i = 0; i < s->setup.n_requests; i++) {
		struct sim_request *q = &s->requests[i];

		if (q->frontend != frontend || q->state != SIM_LIVE) continue;
		s->counts->broken_by_frontend_death++;
		load_close(s, q, SIM_BROKEN);
	}
}
