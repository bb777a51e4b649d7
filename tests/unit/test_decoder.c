/* test_decoder.c - random descriptions, also such as no family has, against the decoder in plain double-precision code.
 *
 * Each seed makes a model (mixers, heads, windows, caps, sinks, gates, biases, norms, experts, shared experts, routers)
 * with random weights; two sequences run through the real decoder together, in chunks, with scattered blocks.
 * Arguments: a seed to run alone. */
#include "tests/support/plaindec.h"

#include "common/mem.h"
#include "common/splitmix.h"
#include "model/kvplan.h"
#include "proto/limits.h"
#include "worker/decoder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEQS       2
#define LEN        60
#define SEQ_BLOCKS 4
#define BATCH      64
#define LAYERS_MAX 4
#define GAP_MIN    1e-4 /* where less decides about an expert, rounding does */

#ifdef SLUICE_SAN
#define SEEDS 25
#else
#define SEEDS 150
#endif

static uint64_t rng;
static uint64_t only_seed;

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)(splitmix_next(&rng) % n);
}

static uint32_t pick(const uint32_t *values, uint32_t n)
{
	return values[rnd(n)];
}
#define PICK(...) pick((const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- a random model ---- */

struct model {
	struct spec s;
	struct spec_layer layers[LAYERS_MAX];
	double freqs[SPEC_ROPES_MAX][64];
};

static void model_rope(struct model *m, uint32_t i, uint32_t dims)
{
	m->s.ropes[i] =
		(struct spec_rope){.dims = dims, .neox = rnd(2), .freqs = m->freqs[i], .mscale = rnd(3) ? 1 : 1.2};
	for (uint32_t k = 0; k < dims / 2; k++) m->freqs[i][k] = pow(10000 + 5000 * i, -2.0 * k / dims);
}

/* Rotations have 8 elements, which every head has room for. */
static void model_attention(struct spec_layer *y)
{
	bool apart = rnd(4) == 0; /* keys and values of different sizes */

	y->mixer = SPEC_ATTENTION;
	y->kv_heads = PICK(1, 2, 3);
	y->heads = y->kv_heads * PICK(1, 2, 4);
	y->k_dim = PICK(8, 16, 24, 32);
	y->v_dim = apart ? PICK(8, 16, 20) : y->k_dim;
	y->qkv_bias = rnd(3) == 0;
	y->o_bias = rnd(3) == 0;
	y->qk_norm = rnd(3) == 0;
	y->sinks = rnd(3) == 0;
	y->out_gate = rnd(3) == 0;
	y->window = rnd(2) ? PICK(1, 5, 16, 17, 33) : 0;
	y->softcap = rnd(3) == 0 ? 3 : 0;
}

static void model_mla(struct spec_layer *y)
{
	y->mixer = SPEC_MLA;
	y->heads = y->kv_heads = PICK(1, 2, 5);
	y->nope_dim = PICK(8, 12, 16);
	y->k_dim = y->nope_dim + 8;
	y->v_dim = PICK(8, 16, 20);
	y->kv_lora = PICK(16, 24, 32);
	y->latent_eps = y->kv_lora == 24 ? 1e-2 : 1e-6;
	y->q_lora = rnd(2) ? PICK(12, 16) : 0;
}

static void model_delta(struct spec_layer *y)
{
	y->mixer = SPEC_DELTA;
	y->rope = -1;
	y->dk_heads = PICK(1, 2);
	y->dv_heads = y->dk_heads * PICK(1, 2, 3);
	y->dk_dim = PICK(8, 16, 24);
	y->dv_dim = PICK(8, 16);
	y->conv_width = PICK(2, 4, 8);
	y->dv_tiled = PICK(false, true);
}

static void model_experts(struct spec_layer *y)
{
	y->n_groups = PICK(1, 1, 2, 4);
	y->n_experts = y->n_groups * PICK(2, 3, 4);
	y->groups_used = 1 + rnd(y->n_groups);
	y->n_used = 1 + rnd(min_u32(3, y->groups_used * (y->n_experts / y->n_groups)));
	y->expert_ffn = PICK(8, 24, 40);
	y->router = (enum spec_router)rnd(3);
	y->router_norm = rnd(2);
	y->router_bias = rnd(2);
	y->router_correction = rnd(2) && y->router == SPEC_SIGMOID;
	y->expert_bias = rnd(2);
	y->router_scale = rnd(2) ? 1 : 1.7;
	y->shared_ffn = rnd(2) ? PICK(8, 32) : 0;
	y->shared_gate = y->shared_ffn && rnd(2);
}

static void model_layer(struct model *m, struct spec_layer *y)
{
	*y = (struct spec_layer){.rope = (int32_t)rnd(m->s.n_ropes + 1) - 1, .post_norms = rnd(3) == 0};
	switch (rnd(4)) {
	case 0:
		model_mla(y);
		break;
	case 1:
		model_delta(y);
		break;
	default:
		model_attention(y);
	}
	y->scale = y->mixer == SPEC_DELTA ? 0 : 1 / sqrt(y->k_dim);
	y->glu = (enum spec_glu)rnd(3);
	y->glu_limit = 0.8;
	y->n_groups = y->groups_used = 1;
	if (rnd(2)) {
		model_experts(y);
	} else {
		y->ffn = PICK(16, 48, 100);
		y->ffn_bias = rnd(3) == 0;
	}
}

static void model_init(struct model *m)
{
	uint32_t vocab = 50 + rnd(30);

	*m = (struct model){.s = {.family = "random",
				  .n_layers = 1 + rnd(LAYERS_MAX),
				  .dim = PICK(32, 40, 64),
				  .vocab = vocab,
				  .n_tokens = vocab,
				  .context_len = 256,
				  .tied = rnd(2),
				  .eps = 1e-5,
				  .embed_scale = rnd(2) ? 1 : 5.6,
				  .logit_softcap = rnd(3) == 0 ? 4 : 0,
				  .n_ropes = 1 + rnd(2)}};
	m->s.layers = m->layers;
	for (uint32_t i = 0; i < m->s.n_ropes; i++) model_rope(m, i, 8);
	for (uint32_t i = 0; i < m->s.n_layers; i++) model_layer(m, &m->layers[i]);
}

/* ---- its weights on the device ---- */

struct rig {
	struct kdev *dev;
	struct weights w;
	struct kvgroups groups;
	struct decoder d;
	void *blocks[LAYERS_MAX * SPEC_ROLE_COUNT * 4]; /* what was allocated */
	size_t bytes[LAYERS_MAX * SPEC_ROLE_COUNT * 4];
	uint32_t n_blocks;
};

static void *rig_alloc(struct rig *r, size_t bytes)
{
	void *p = kdev_alloc(r->dev, max_size(bytes, 1));

	assert_non_null(p);
	assert_true(r->n_blocks < ARRAY_LEN(r->blocks));
	r->blocks[r->n_blocks] = p;
	r->bytes[r->n_blocks++] = max_size(bytes, 1);
	return p;
}

static void rig_mat(struct rig *r, struct kmat *m, const float *values, uint32_t rows, uint32_t cols)
{
	const struct kops *k = kdev_ops(r->dev);

	k->mat_init(r->dev, m, rig_alloc(r, k->mat_bytes(r->dev, GGTYPE_F32, rows, cols)), GGTYPE_F32, rows, cols);
	k->mat_put(r->dev, m, 0, rows, values);
}

static void rig_role(struct rig *r, const struct plaindec *p, uint32_t layer, enum spec_role role)
{
	struct weights_layer *w = &r->w.layers[layer];
	const float *values = p->values[layer][role];
	struct spec_shape shape;

	if (!values) return;
	shape = spec_role_shape(p->spec, role, layer);
	switch (spec_role_form(role)) {
	case SPEC_MAT:
		rig_mat(r, &w->mat[role], values, shape.rows, shape.cols);
		break;
	case SPEC_EACH:
		w->each[role] = mem_array(struct kmat, shape.n);
		for (uint32_t i = 0; i < shape.n; i++)
			rig_mat(r, &w->each[role][i], values + (size_t)i * shape.rows * shape.cols, shape.rows,
				shape.cols);
		break;
	default:
		w->vec[role] = rig_alloc(r, (size_t)shape.n * shape.cols * sizeof(float));
		kdev_upload(r->dev, w->vec[role], values, (size_t)shape.n * shape.cols * sizeof(float));
	}
}

static void rig_open(struct rig *r, const struct plaindec *p, enum klevel level)
{
	const struct spec *s = p->spec;
	struct kdev_opts opts = {.level_max = level, .act = KACT_F32, .n_threads = 1 + rnd(3)};
	struct memplan_sizes sizes = {
		.batched_tokens_max = BATCH, .seqs_max = SEQS, .model_len_max = s->context_len, .kv_type = GGTYPE_F32};
	struct kvplan_shape shape;
	struct memplan plan;
	struct errbuf err = {{0}};

	*r = (struct rig){0};
	if (kvplan_shape(&shape, s, GGTYPE_F32, 1, s->context_len, &err) != ST_OK) fail_msg("%s", err.text);
	r->groups = shape.groups;
	sizes.kv_groups = max_u32(1, kvgroups_n(&r->groups));
	memplan_init(&plan, s, &sizes);
	plan.kv_block_bytes = shape.block_bytes;
	plan.ffn_rows = 1 + rnd(plan.ffn_rows); /* a batch goes through in more pieces than it has to */
	plan.expert_rows = 1 + rnd(plan.expert_rows);
	plan.logits_rows = 1 + rnd(plan.logits_rows);
	opts.scratch_bytes = plan.scratch_bytes;
	if (kdev_open_cpu(&r->dev, &opts, &err) != ST_OK) fail_msg("%s", err.text);
	r->w = (struct weights){
		.dev = r->dev, .layers = mem_array(struct weights_layer, s->n_layers + 1), .n_layers = s->n_layers};
	for (uint32_t i = 0; i <= s->n_layers; i++)
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) rig_role(r, p, i, role);
	assert_int_equal(kdev_sync(r->dev), ST_OK);
	if (decoder_init(&r->d, r->dev, s, &r->w, &r->groups, &plan, &err) != ST_OK) fail_msg("%s", err.text);
	if (decoder_kv_init(&r->d, SEQS * SEQ_BLOCKS * sizes.kv_groups, &err) != ST_OK) fail_msg("%s", err.text);
}

static void rig_close(struct rig *r)
{
	decoder_release(&r->d);
	for (uint32_t i = 0; i < r->n_blocks; i++) kdev_release(r->dev, r->blocks[i], r->bytes[i]);
	kdev_close(r->dev);
	for (uint32_t i = 0; i <= r->w.n_layers; i++)
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) free(r->w.layers[i].each[role]);
	free(r->w.layers);
}

/* ---- a batch ---- */

struct arrays {
	uint32_t ids[BATCH], positions[BATCH], seq_ix[BATCH], slots[BATCH * LIMIT_KV_GROUPS], rows[BATCH];
	uint32_t tables[SEQS * SEQ_BLOCKS * LIMIT_KV_GROUPS], starts[SEQS + 1], states[SEQS];
};

/* Block `i` of sequence q in group g: scattered, and no two alike. */
static uint32_t block_of(uint32_t g, uint32_t q, uint32_t i)
{
	return (g * SEQS + (q + i) % SEQS) * SEQ_BLOCKS + (SEQ_BLOCKS - 1 - i);
}

/* Runs tokens [at[q], at[q] + n[q]) of each sequence; want: rows whose logits are fetched, a bit a row (0: none), into
 * logits. */
static void rig_run(struct rig *r, uint32_t tokens[SEQS][LEN], const uint32_t *at, const uint32_t *n, bool all,
		    float *logits)
{
	struct arrays *a = rig_alloc(r, sizeof(*a));
	uint32_t n_groups = max_u32(1, kvgroups_n(&r->groups)), row = 0, n_out = 0, vocab = r->d.vocab;
	struct kbatch b = {.n_tokens = n[0] + n[1],
			   .n_seqs = SEQS,
			   .token_ids = a->ids,
			   .positions = a->positions,
			   .seq_ix = a->seq_ix,
			   .slots = a->slots,
			   .block_tables = a->tables,
			   .blocks_max = SEQ_BLOCKS,
			   .seq_starts = a->starts,
			   .states = a->states};

	for (uint32_t q = 0; q < SEQS; q++) {
		a->starts[q] = row;
		a->states[q] = SEQS - 1 - q;
		for (uint32_t g = 0; g < n_groups; g++)
			for (uint32_t i = 0; i < SEQ_BLOCKS; i++)
				a->tables[(g * SEQS + q) * SEQ_BLOCKS + i] = block_of(g, q, i);
		for (uint32_t p = at[q]; p < at[q] + n[q]; p++, row++) {
			a->ids[row] = tokens[q][p];
			a->positions[row] = p;
			a->seq_ix[row] = q;
			for (uint32_t g = 0; g < n_groups; g++)
				a->slots[g * b.n_tokens + row] =
					block_of(g, q, p / KBLOCK_LEN) * KBLOCK_LEN + p % KBLOCK_LEN;
			if (all || p + 1 == at[q] + n[q]) a->rows[n_out++] = row;
		}
	}
	a->starts[SEQS] = row;
	b.n_out = n_out;
	b.out_rows = n_out == row ? NULL : a->rows;
	assert_int_equal(decoder_reach(&r->d, max_u32(at[0] + n[0], at[1] + n[1])), ST_OK);
	assert_int_equal(decoder_forward(&r->d, &b), ST_OK);
	for (uint32_t i = 0, m; i < n_out; i += m) {
		m = min_u32(r->d.plan.logits_rows, n_out - i);
		kdev_download(r->dev, logits + (size_t)i * vocab, decoder_logits(&r->d, i, m),
			      (size_t)m * vocab * sizeof(*logits));
		assert_int_equal(kdev_sync(r->dev), ST_OK);
	}
}

static void check_row(uint64_t seed, const float *got, const double *want, uint32_t vocab, uint32_t seq,
		      uint32_t position)
{
	double size = 1;

	for (uint32_t i = 0; i < vocab; i++) size = fmax(size, fabs(want[i]));
	for (uint32_t i = 0; i < vocab; i++)
		if (!(fabs((double)got[i] - want[i]) <= 5e-4 * size))
			fail_msg("seed %llu: sequence %u, position %u, token %u: logit %g, expected %g",
				 (unsigned long long)seed, seq, position, i, (double)got[i], want[i]);
}

static void run_chunks(struct rig *r, uint64_t seed, uint32_t tokens[SEQS][LEN], double *const *want)
{
	uint32_t at[SEQS] = {0}, n[SEQS], vocab = r->d.vocab;
	float *logits = mem_array(float, (size_t)BATCH *vocab);

	while (at[0] < LEN || at[1] < LEN) {
		bool all = rnd(2);
		uint32_t row = 0;

		for (uint32_t q = 0; q < SEQS; q++) n[q] = min_u32(LEN - at[q], rnd(3) ? rnd(BATCH / SEQS + 1) : 1);
		if (n[0] + n[1] == 0) continue;
		rig_run(r, tokens, at, n, all, logits);
		for (uint32_t q = 0; q < SEQS; q++) {
			for (uint32_t p = at[q]; p < at[q] + n[q]; p++)
				if (all || p + 1 == at[q] + n[q])
					check_row(seed, logits + (size_t)row++ * vocab, want[q] + (size_t)p * vocab,
						  vocab, q, p);
			at[q] += n[q];
		}
	}
	free(logits);
}

static bool run_seed(uint64_t seed, enum klevel level)
{
	uint32_t tokens[SEQS][LEN];
	double *want[SEQS];
	struct plaindec plain;
	struct model m;
	struct rig r;

	rng = seed * 7919;
	model_init(&m);
	plaindec_init(&plain, &m.s, seed);
	for (uint32_t q = 0; q < SEQS; q++) {
		for (uint32_t p = 0; p < LEN; p++) tokens[q][p] = rnd(m.s.n_tokens);
		want[q] = plaindec_run(&plain, tokens[q], LEN);
	}
	if (plain.route_gap > GAP_MIN) {
		rig_open(&r, &plain, level);
		run_chunks(&r, seed, tokens, want);
		rig_close(&r);
	}
	for (uint32_t q = 0; q < SEQS; q++) free(want[q]);
	plaindec_release(&plain);
	return plain.route_gap > GAP_MIN;
}

static void random_models_agree_with_plain_code(void **state)
{
	uint32_t n = 0;

	for (enum klevel level = KLEVEL_REF; level <= klevel_of_cpu(); level++)
		for (uint64_t seed = 1; seed <= SEEDS; seed++)
			if (only_seed == 0 || seed == only_seed) n += run_seed(seed, level);
	print_message("%u models, those left out that rounding may lead to other experts\n", n);
	assert_true(only_seed || n > SEEDS);
}

static void check_rope(const struct rig *r, const struct spec_rope *rope, uint32_t position)
{
	const float *row = (const float *)decoder_part(&r->d, &r->d.plan.rope[0]) + (size_t)position * rope->dims;

	for (uint32_t i = 0; i < rope->dims / 2; i++) {
		assert_true(fabs((double)row[2 * i] - cos(position * rope->freqs[i]) * rope->mscale) < 1e-6);
		assert_true(fabs((double)row[2 * i + 1] - sin(position * rope->freqs[i]) * rope->mscale) < 1e-6);
	}
}

static void rotation_tables_grow_with_the_longest_sequence(void **state)
{
	static const uint32_t steps[] = {1, 1, 1024, 1025, 2048, 2600};
	struct plaindec plain;
	struct model m;
	struct rig r;

	rng = 5;
	model_init(&m);
	m.s.context_len = 2598; /* and the spare positions */
	plaindec_init(&plain, &m.s, 1);
	rig_open(&r, &plain, KLEVEL_REF);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		assert_int_equal(decoder_reach(&r.d, steps[i]), ST_OK);
		assert_in_range(r.d.n_positions, steps[i], steps[i] + 1024);
		for (uint32_t p = 0; p < steps[i]; p += p % 1024 == 1023 ? 1 : 31) check_rope(&r, &m.s.ropes[0], p);
		check_rope(&r, &m.s.ropes[0], steps[i] - 1);
	}
	assert_int_equal(r.d.n_positions, 2600);
	rig_close(&r);
	plaindec_release(&plain);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rotation_tables_grow_with_the_longest_sequence),
		cmocka_unit_test(random_models_agree_with_plain_code),
	};

	if (argc > 1) only_seed = strtoull(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
