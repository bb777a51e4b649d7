/* kernbench.c - speed of the CPU operations beside what the machine can do: GB/s of weights and GMAC/s a product, time
 * of the light operations, and whole decode and prefill steps of a model with SmolLM2-135M's shapes and random weights.
 * Layers of experts and recurrent ones: layerbench.c.
 *
 *   build/bench/kernbench [threads] [level] [part ...]     parts: memory load product each light step; all by default
 *
 * Each figure is the best of many runs; with one thread it is processor time, which other work disturbs little. */
#include "tests/bench/kernbench.h"

enum { DIM = 576, FFN = 1536, HEADS = 9, KV_HEADS = 3, HEAD_DIM = 64, LAYERS = 30, VOCAB = 49152, TOKENS_MAX = 512 };

/* How fast rows of a type are brought into the device's layout, by one thread. */
static void bench_load(enum ggtype type)
{
	uint32_t rows = 1536, cols = 2048;
	struct kmat m = bench_mat(type, rows, cols);
	uint8_t *src = calloc(rows, ggtype_row_bytes(type, cols));
	uint64_t best = UINT64_MAX;

	for (int round = 0; round < 20; round++) {
		uint64_t start = bench_now_ns();

		ops->mat_put(dev, &m, 0, rows, src);
		best = min_u64(best, bench_now_ns() - start);
	}
	printf("  loading %-6s %6.2f GB/s\n", ggtype_info(type)->name, (double)m.bytes / (double)best);
	free(src);
	kdev_release(dev, m.data, m.bytes);
}

static void bench_memory(void)
{
	size_t bytes = 128 * MIB;
	uint64_t *a = bench_alloc(bytes), *b = bench_alloc(bytes), sums[4] = {0}, best_read = UINT64_MAX,
		 best_copy = UINT64_MAX;

	memset(a, 1, bytes);
	memset(b, 2, bytes);
	for (int round = 0; round < 10; round++) {
		uint64_t start = bench_now_ns(), mid;

		for (size_t i = 0; i < bytes / 8; i += 8)
			for (int j = 0; j < 4; j++) sums[j] += a[i + j] ^ a[i + j + 4];
		mid = bench_now_ns();
		memcpy(b, a, bytes);
		best_read = min_u64(best_read, mid - start);
		best_copy = min_u64(best_copy, bench_now_ns() - mid);
	}
	printf("memory, one thread: read %.1f GB/s, memcpy %.1f GB/s (read + write)  [%llu]\n",
	       (double)bytes / (double)best_read, 2 * (double)bytes / (double)best_copy,
	       (unsigned long long)(sums[0] + sums[1] + sums[2] + sums[3]) % 10);
	kdev_release(dev, a, bytes);
	kdev_release(dev, b, bytes);
}

/* Enough copies of the matrix that a pass streams them from memory. */
static void bench_product(enum ggtype type, uint32_t rows, uint32_t cols)
{
	static const uint32_t ns[] = {1, 2, 4, 8, 16, 64, 256};
	struct kmat m[64];
	uint32_t copies = (uint32_t)min_u64(64, div_up(64 * MIB, ops->mat_bytes(dev, type, rows, cols)));
	float *x = bench_floats((size_t)256 * cols), *y = bench_floats((size_t)256 * rows);

	for (uint32_t i = 0; i < copies; i++) m[i] = bench_mat(type, rows, cols);
	for (size_t j = 0; j < ARRAY_LEN(ns); j++) {
		uint64_t best = UINT64_MAX, rounds = max_u64(6, 32 / ns[j]);

		for (uint64_t round = 0; round < rounds; round++) {
			for (uint32_t i = 0; i < (ns[j] > 8 ? min_u32(copies, 4) : copies); i++) {
				struct kmat_out o = {.w = &m[i], .out = y, .ld_out = rows};
				uint64_t start;

				ops->matmul(dev, x, cols, ns[j], &o, 1);
				start = bench_now_ns();
				bench_sync();
				best = min_u64(best, bench_now_ns() - start);
			}
		}
		printf("  %-5s %5ux%-5u n=%-4u %8.1f us  %6.1f GB/s  %6.1f GMAC/s\n", ggtype_info(type)->name, rows,
		       cols, ns[j], (double)best / 1e3, (double)m[0].bytes / (double)best,
		       (double)rows * cols * ns[j] / (double)best);
	}
	for (uint32_t i = 0; i < copies; i++) kdev_release(dev, m[i].data, m[i].bytes);
	kdev_release(dev, x, (size_t)256 * cols * 4);
	kdev_release(dev, y, (size_t)256 * rows * 4);
}

/* The small products of latent attention: 16 heads. */
static void bench_each(enum ggtype type)
{
	enum { HEADS_EACH = 16, ROWS = 128, COLS = 512 };
	struct kmat m[HEADS_EACH];
	float *x = bench_floats(HEADS_EACH * COLS), *y = bench_floats(HEADS_EACH * ROWS);
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < HEADS_EACH; i++) m[i] = bench_mat(type, ROWS, COLS);
	for (int round = 0; round < 30; round++) {
		uint64_t start;

		ops->matmul_each(dev, x, HEADS_EACH * COLS, COLS, 1, m, HEADS_EACH, y, HEADS_EACH * ROWS, ROWS);
		start = bench_now_ns();
		bench_sync();
		best = min_u64(best, bench_now_ns() - start);
	}
	printf("  each  %-5s %d x %dx%d n=1 %8.1f us  %6.1f GMAC/s\n", ggtype_info(type)->name, HEADS_EACH, ROWS, COLS,
	       (double)best / 1e3, (double)HEADS_EACH * ROWS * COLS / (double)best);
	for (int i = 0; i < HEADS_EACH; i++) kdev_release(dev, m[i].data, m[i].bytes);
}

struct bench_model {
	struct kmat qkv[LAYERS][3], o[LAYERS], gate[LAYERS], up[LAYERS], down[LAYERS], table;
	struct kkv kv[LAYERS];
	float *norm, *cos_sin;
	float *x, *h, *q, *k, *v, *att, *ffn, *ffn2, *logits;
	uint32_t *ix; /* ids, positions, seqs, slots, out rows: TOKENS_MAX each; then block tables */
	struct ksample *params;
	struct ksampled *sampled;
	uint32_t n_blocks;
};

static void bench_model_make(struct bench_model *b)
{
	b->n_blocks = 64 * 64 + 1;
	for (int l = 0; l < LAYERS; l++) {
		size_t kv_bytes = (size_t)b->n_blocks * KV_HEADS * KBLOCK_LEN * HEAD_DIM * 2;

		for (int i = 0; i < 3; i++) b->qkv[l][i] = bench_mat(GGTYPE_Q4_1, i ? KV_HEADS * HEAD_DIM : DIM, DIM);
		b->o[l] = bench_mat(GGTYPE_Q4_1, DIM, DIM);
		b->gate[l] = bench_mat(GGTYPE_Q4_1, FFN, DIM);
		b->up[l] = bench_mat(GGTYPE_Q4_1, FFN, DIM);
		b->down[l] = bench_mat(GGTYPE_Q4_1, DIM, FFN);
		b->kv[l] = (struct kkv){.k = bench_alloc(kv_bytes),
					.v = bench_alloc(kv_bytes),
					.type = GGTYPE_F16,
					.kv_heads = KV_HEADS,
					.k_dim = HEAD_DIM,
					.v_dim = HEAD_DIM};
	}
	b->table = bench_mat(GGTYPE_Q8_0, VOCAB, DIM);
	b->norm = bench_floats(DIM);
	b->cos_sin = bench_floats((size_t)2048 * HEAD_DIM);
	b->x = bench_floats((size_t)TOKENS_MAX * DIM);
	b->h = bench_floats((size_t)TOKENS_MAX * DIM);
	b->q = bench_floats((size_t)TOKENS_MAX * DIM);
	b->k = bench_floats((size_t)TOKENS_MAX * DIM);
	b->v = bench_floats((size_t)TOKENS_MAX * DIM);
	b->att = bench_floats((size_t)TOKENS_MAX * DIM);
	b->ffn = bench_floats((size_t)TOKENS_MAX * FFN);
	b->ffn2 = bench_floats((size_t)TOKENS_MAX * FFN);
	b->logits = bench_floats((size_t)64 * VOCAB);
	b->ix = bench_alloc((5 * TOKENS_MAX + 64 * 64) * sizeof(uint32_t));
	b->params = bench_alloc(64 * sizeof(*b->params));
	b->sampled = bench_alloc(64 * sizeof(*b->sampled));
}

static void bench_norm(float *out, const float *x, const float *w, uint32_t n)
{
	struct knorm a = {
		.out = out, .ld_out = DIM, .x = x, .ld_x = DIM, .w = w, .groups = 1, .dim = DIM, .eps = 1e-5f};

	ops->norm(dev, &a, n);
}

static void bench_layer(struct bench_model *b, int l, const struct kbatch *batch)
{
	uint32_t n = batch->n_tokens;
	struct kmat_out qkv[3] = {{.w = &b->qkv[l][0], .out = b->q, .ld_out = DIM},
				  {.w = &b->qkv[l][1], .out = b->k, .ld_out = KV_HEADS * HEAD_DIM},
				  {.w = &b->qkv[l][2], .out = b->v, .ld_out = KV_HEADS * HEAD_DIM}};
	struct kmat_out o = {.w = &b->o[l], .out = b->x, .ld_out = DIM, .accumulate = true};
	struct kmat_out ffn[2] = {{.w = &b->gate[l], .out = b->ffn, .ld_out = FFN},
				  {.w = &b->up[l], .out = b->ffn2, .ld_out = FFN}};
	struct kmat_out down = {.w = &b->down[l], .out = b->x, .ld_out = DIM, .accumulate = true};
	struct kattn attn = {
		.out = b->att, .ld_out = DIM, .q = b->q, .ld_q = DIM, .kv = &b->kv[l], .heads = HEADS, .scale = 0.125f};

	bench_norm(b->h, b->x, b->norm, n);
	ops->matmul(dev, b->h, DIM, n, qkv, 3);
	ops->rope(dev, b->q, DIM, batch->positions, n, HEADS, HEAD_DIM, HEAD_DIM, b->cos_sin, KROPE_NORM);
	ops->rope(dev, b->k, KV_HEADS * HEAD_DIM, batch->positions, n, KV_HEADS, HEAD_DIM, HEAD_DIM, b->cos_sin,
		  KROPE_NORM);
	ops->kv_store(dev, &b->kv[l], b->k, KV_HEADS * HEAD_DIM, b->v, KV_HEADS * HEAD_DIM, batch->slots, n);
	ops->attention(dev, &attn, batch);
	ops->matmul(dev, b->att, DIM, n, &o, 1);
	bench_norm(b->h, b->x, b->norm, n);
	ops->matmul(dev, b->h, DIM, n, ffn, 2);
	ops->glu(dev, b->ffn, b->ffn, b->ffn2, n, FFN, KGLU_SILU, 0);
	ops->matmul(dev, b->ffn, FFN, n, &down, 1);
}

/* n_seqs sequences, each with `len` tokens after `past` others. Best time in ns of some rounds. */
static uint64_t bench_step(struct bench_model *b, uint32_t n_seqs, uint32_t len, uint32_t past, int rounds,
			   float temperature)
{
	uint32_t n = n_seqs * len, *ix = b->ix, *tables = ix + 5 * TOKENS_MAX;
	struct kbatch batch = {.n_tokens = n,
			       .n_seqs = n_seqs,
			       .token_ids = ix,
			       .positions = ix + TOKENS_MAX,
			       .seq_ix = ix + 2 * TOKENS_MAX,
			       .slots = ix + 3 * TOKENS_MAX,
			       .block_tables = tables,
			       .blocks_max = 64,
			       .n_out = n_seqs,
			       .out_rows = ix + 4 * TOKENS_MAX};
	struct kmat_out logits = {.w = &b->table, .out = b->logits, .ld_out = VOCAB};
	uint64_t best = UINT64_MAX;

	for (uint32_t s = 0; s < n_seqs; s++) {
		for (uint32_t i = 0; i < 64; i++) tables[s * 64 + i] = s * 64 + i;
		for (uint32_t i = 0; i < len; i++) {
			uint32_t t = s * len + i, pos = past + i;

			ix[t] = t * 97 % VOCAB;
			ix[TOKENS_MAX + t] = pos;
			ix[2 * TOKENS_MAX + t] = s;
			ix[3 * TOKENS_MAX + t] = tables[s * 64 + pos / KBLOCK_LEN] * KBLOCK_LEN + pos % KBLOCK_LEN;
		}
		ix[4 * TOKENS_MAX + s] = (s + 1) * len - 1;
		b->params[s] = (struct ksample){.temperature = temperature, .top_p = 1, .seed = s};
	}
	for (int round = 0; round < rounds; round++) {
		uint64_t start = bench_now_ns();

		ops->embed(dev, b->x, &b->table, batch.token_ids, n, 1);
		for (int l = 0; l < LAYERS; l++) bench_layer(b, l, &batch);
		ops->gather(dev, b->h, b->x, batch.out_rows, n_seqs, DIM);
		bench_norm(b->h, b->h, b->norm, n_seqs);
		ops->matmul(dev, b->h, DIM, n_seqs, &logits, 1);
		ops->sample(dev, b->sampled, b->logits, n_seqs, VOCAB, b->params, NULL);
		bench_sync();
		best = min_u64(best, bench_now_ns() - start);
	}
	return best;
}

static void bench_steps(void)
{
	static const struct {
		uint32_t n_seqs, len, past;
	} steps[] = {{1, 1, 16},  {1, 1, 500},  {1, 1, 1000}, {2, 1, 100}, {4, 1, 100}, {8, 1, 16},
		     {8, 1, 500}, {16, 1, 100}, {64, 1, 100}, {1, 128, 0}, {1, 512, 0}};
	struct bench_model *b = calloc(1, sizeof(*b));

	bench_model_make(b);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		uint32_t n = steps[i].n_seqs * steps[i].len;
		uint64_t ns = bench_step(b, steps[i].n_seqs, steps[i].len, steps[i].past, n > 32 ? 6 : 40, 0);

		printf("  step: %2u sequences x %3u tokens after %4u: %8.2f ms, %7.0f tokens/s\n", steps[i].n_seqs,
		       steps[i].len, steps[i].past, (double)ns / 1e6, n * 1e9 / (double)ns);
	}
	printf("  sampling with temperature adds %.1f us a row\n",
	       ((double)bench_step(b, 1, 1, 16, 40, 1) - (double)bench_step(b, 1, 1, 16, 40, 0)) / 1e3);
	free(b);
}

static void bench_light(void)
{
	float *x = bench_floats(64 * FFN), *w = bench_floats(FFN);
	static const uint32_t ns[] = {1, 64};

	for (size_t j = 0; j < ARRAY_LEN(ns); j++) {
		uint64_t best[3] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};

		for (int round = 0; round < 300; round++) {
			for (int op = 0; op < 3; op++) {
				uint64_t start;

				for (int i = 0; i < 10; i++) {
					if (op == 0) bench_norm(x, x, w, ns[j]);
					if (op == 1) ops->glu(dev, x, x, x, ns[j], FFN, KGLU_SILU, 0);
					if (op == 2)
						ops->glu(dev, x, x, x, 1, 8 * 256, KGLU_SILU,
							 0); /* little work: mostly the barrier */
				}
				start = bench_now_ns();
				bench_sync();
				best[op] = min_u64(best[op], bench_now_ns() - start);
			}
		}
		printf("  n=%-3u norm(%d) %.2f us, silu(%d) %.2f us; 2048 silus and a barrier %.2f us\n", ns[j], DIM,
		       (double)best[0] / 1e4, FFN, (double)best[1] / 1e4, (double)best[2] / 1e4);
	}
}

int main(int argc, char **argv)
{
	struct kdev_limits lim = {.n_tokens = TOKENS_MAX, .cols = 4096, .vocab = VOCAB};
	int rc = bench_open(argc, argv, &lim);

	if (rc != 0) return rc;
	if (bench_wants(argc, argv, "memory")) bench_memory();
	if (bench_wants(argc, argv, "product")) {
		bench_product(GGTYPE_Q4_1, FFN, DIM);
		bench_product(GGTYPE_Q4_1, DIM, FFN);
		bench_product(GGTYPE_Q4_0, FFN, DIM);
		bench_product(GGTYPE_Q4_Z, FFN, DIM);
		bench_product(GGTYPE_Q8_0, VOCAB, DIM);
		bench_product(GGTYPE_F8_B32, FFN, DIM);
		bench_product(GGTYPE_F16, FFN, DIM);
		bench_product(GGTYPE_BF16, FFN, DIM);
		bench_product(GGTYPE_F32, FFN, DIM);
		bench_product(GGTYPE_Q5_0, FFN, DIM);
		bench_product(GGTYPE_MXFP4, FFN, DIM);
		bench_product(GGTYPE_IQ4_NL, FFN, DIM);
		bench_product(GGTYPE_Q2_K, DIM, FFN);
		bench_product(GGTYPE_Q3_K, DIM, FFN);
		bench_product(GGTYPE_Q4_K, DIM, FFN);
		bench_product(GGTYPE_Q5_K, DIM, FFN);
		bench_product(GGTYPE_Q6_K, DIM, FFN);
	}
	if (bench_wants(argc, argv, "load")) {
		static const enum ggtype types[] = {GGTYPE_F32,  GGTYPE_BF16, GGTYPE_F8_B32, GGTYPE_Q8_0, GGTYPE_Q4_1,
						    GGTYPE_Q4_Z, GGTYPE_Q5_0, GGTYPE_Q2_K,   GGTYPE_Q3_K, GGTYPE_Q4_K,
						    GGTYPE_Q5_K, GGTYPE_Q6_K, GGTYPE_MXFP4};

		for (size_t i = 0; i < ARRAY_LEN(types); i++) bench_load(types[i]);
	}
	if (bench_wants(argc, argv, "each")) {
		bench_each(GGTYPE_BF16);
		bench_each(GGTYPE_F8_B32);
		bench_each(GGTYPE_Q8_0);
		bench_each(GGTYPE_Q4_K);
	}
	if (bench_wants(argc, argv, "light")) bench_light();
	if (bench_wants(argc, argv, "step")) bench_steps();
	kdev_close(dev);
	return 0;
}
