/* layerbench.c - speed of layers that SmolLM2 does not have: experts against the bytes of the weights that they touch,
 * and recurrent layers against the bytes of their states.
 *
 *   build/bench/layerbench [threads] [level] [part ...]     parts: experts state; all by default */
#include "tests/bench/kernbench.h"

enum { MOE_DIM = 1024, MOE_FFN = 3584, MOE_EXPERTS = 8, MOE_TOP = 2, MOE_COPIES = 3, MOE_TOKENS = 256 };

struct bench_experts {
	struct kmat gate[MOE_COPIES][MOE_EXPERTS], up[MOE_COPIES][MOE_EXPERTS], down[MOE_COPIES][MOE_EXPERTS];
	float *x, *sorted, *g, *u, *y, *logits, *weights;
	uint32_t *tokens, *places, *starts;
};

static void bench_experts_layer(struct bench_experts *b, int copy, uint32_t n)
{
	struct kroute r = {.logits = b->logits,
			   .n = n,
			   .n_experts = MOE_EXPERTS,
			   .k = MOE_TOP,
			   .kind = KROUTE_SOFTMAX,
			   .norm = true,
			   .scale = 1,
			   .weights = b->weights,
			   .tokens = b->tokens,
			   .places = b->places,
			   .starts = b->starts};
	struct kexpert_out in[2] = {{.w = b->gate[copy], .out = b->g, .ld_out = MOE_FFN},
				    {.w = b->up[copy], .out = b->u, .ld_out = MOE_FFN}};
	struct kexpert_out down = {.w = b->down[copy], .out = b->y, .ld_out = MOE_DIM};

	ops->route(dev, &r);
	ops->gather(dev, b->sorted, b->x, b->tokens, n * MOE_TOP, MOE_DIM);
	ops->matmul_experts(dev, b->sorted, MOE_DIM, n * MOE_TOP, b->starts, MOE_EXPERTS, in, 2);
	ops->glu(dev, b->g, b->g, b->u, n * MOE_TOP, MOE_FFN, KGLU_SILU, 0);
	ops->matmul_experts(dev, b->g, MOE_FFN, n * MOE_TOP, b->starts, MOE_EXPERTS, &down, 1);
	ops->combine(dev, b->x, b->y, b->weights, b->places, n, MOE_TOP, MOE_DIM);
}

/* A layer of experts, whole: routing, products, the sum; against the bytes of the weights that it touches. */
static void bench_experts(enum ggtype type)
{
	static const uint32_t ns[] = {1, 8, 64, 256};
	struct bench_experts b = {.x = bench_floats(MOE_TOKENS * MOE_DIM),
				  .sorted = bench_floats(MOE_TOKENS * MOE_TOP * MOE_DIM),
				  .g = bench_floats(MOE_TOKENS * MOE_TOP * MOE_FFN),
				  .u = bench_floats(MOE_TOKENS * MOE_TOP * MOE_FFN),
				  .y = bench_floats(MOE_TOKENS * MOE_TOP * MOE_DIM),
				  .logits = bench_floats(MOE_TOKENS * MOE_EXPERTS),
				  .weights = bench_floats(MOE_TOKENS * MOE_TOP),
				  .tokens = bench_alloc(MOE_TOKENS * MOE_TOP * 4),
				  .places = bench_alloc(MOE_TOKENS * MOE_TOP * 4),
				  .starts = bench_alloc((MOE_EXPERTS + 1) * 4)};

	for (int c = 0; c < MOE_COPIES; c++) {
		for (int e = 0; e < MOE_EXPERTS; e++) {
			b.gate[c][e] = bench_mat(type, MOE_FFN, MOE_DIM);
			b.up[c][e] = bench_mat(type, MOE_FFN, MOE_DIM);
			b.down[c][e] = bench_mat(type, MOE_DIM, MOE_FFN);
		}
	}
	for (size_t j = 0; j < ARRAY_LEN(ns); j++) {
		uint64_t best = UINT64_MAX, touched = 0;

		for (int round = 0; round < (ns[j] > 8 ? 4 : 12); round++) {
			for (int c = 0; c < MOE_COPIES; c++) {
				uint64_t start;

				bench_experts_layer(&b, c, ns[j]);
				start = bench_now_ns();
				bench_sync();
				best = min_u64(best, bench_now_ns() - start);
			}
		}
		for (int e = 0; e < MOE_EXPERTS; e++) touched += b.starts[e + 1] > b.starts[e];
		touched *= b.gate[0][0].bytes + b.up[0][0].bytes + b.down[0][0].bytes;
		printf("  experts %-5s %ux%u, %u of %u, n=%-4u %9.1f us  %6.1f GB/s of touched weights  %6.1f GMAC/s\n",
		       ggtype_info(type)->name, MOE_FFN, MOE_DIM, MOE_TOP, MOE_EXPERTS, ns[j], (double)best / 1e3,
		       (double)touched / (double)best, 3.0 * MOE_FFN * MOE_DIM * MOE_TOP * ns[j] / (double)best);
	}
	for (int c = 0; c < MOE_COPIES; c++) {
		for (int e = 0; e < MOE_EXPERTS; e++) {
			kdev_release(dev, b.gate[c][e].data, b.gate[c][e].bytes);
			kdev_release(dev, b.up[c][e].data, b.up[c][e].bytes);
			kdev_release(dev, b.down[c][e].data, b.down[c][e].bytes);
		}
	}
}

/* A recurrent layer of Qwen3-Next's size: the states of 8 sequences, 2 MiB each, in turns. */
static void bench_state(void)
{
	enum {
		K_HEADS = 16,
		V_HEADS = 32,
		D = 128,
		CHANNELS = (2 * K_HEADS + V_HEADS) * D,
		STATE = V_HEADS * D * D,
		N = 256
	};
	static const struct {
		uint32_t n_seqs, len;
	} cases[] = {{1, 1}, {8, 1}, {1, 256}};
	float *qkv = bench_floats(N * CHANNELS), *out = bench_floats(N * V_HEADS * D),
	      *ab = bench_floats(N * 2 * V_HEADS);
	float *heads = bench_floats(2 * V_HEADS), *w = bench_floats(4 * CHANNELS), *y = bench_floats(N * CHANNELS);
	float *state = bench_floats(8 * STATE), *window = bench_floats(8 * 3 * CHANNELS);
	uint32_t *ix = bench_alloc(1024 * 4);
	struct kconv conv = {.out = y,
			     .ld_out = CHANNELS,
			     .x = qkv,
			     .ld_x = CHANNELS,
			     .w = w,
			     .channels = CHANNELS,
			     .width = 4,
			     .state = window,
			     .state_step = 3 * CHANNELS};
	struct kdelta delta = {.out = out,
			       .ld_out = V_HEADS * D,
			       .qkv = qkv,
			       .ld_qkv = CHANNELS,
			       .a = ab,
			       .b = ab + V_HEADS,
			       .ld_a = 2 * V_HEADS,
			       .ld_b = 2 * V_HEADS,
			       .neg_a = heads,
			       .dt_bias = heads + V_HEADS,
			       .k_heads = K_HEADS,
			       .v_heads = V_HEADS,
			       .k_dim = D,
			       .v_dim = D,
			       .state = state,
			       .state_step = STATE};

	for (int h = 0; h < V_HEADS; h++) heads[h] = -0.1f;
	for (size_t j = 0; j < ARRAY_LEN(cases); j++) {
		uint32_t n = cases[j].n_seqs * cases[j].len;
		uint64_t best[2] = {UINT64_MAX, UINT64_MAX};

		for (uint32_t round = 0; round < 80; round++) {
			struct kbatch b = {.n_tokens = n,
					   .n_seqs = cases[j].n_seqs,
					   .positions = ix,
					   .seq_starts = ix + 512,
					   .states = ix + 768};

			for (uint32_t i = 0; i < n; i++) ix[i] = 1 + i % cases[j].len;
			for (uint32_t s = 0; s <= b.n_seqs; s++) ix[512 + s] = s * cases[j].len;
			for (uint32_t s = 0; s < b.n_seqs; s++) ix[768 + s] = (s + round) % 8;
			for (int op = 0; op < 2; op++) {
				uint64_t start;

				if (op)
					ops->delta(dev, &delta, &b);
				else
					ops->conv(dev, &conv, &b);
				start = bench_now_ns();
				bench_sync();
				best[op] = min_u64(best[op], bench_now_ns() - start);
			}
		}
		printf("  state: %u sequences x %3u tokens: conv %.1f us a token, delta %.1f us a token (%.1f GB/s of "
		       "states read and written)\n",
		       cases[j].n_seqs, cases[j].len, (double)best[0] / 1e3 / n, (double)best[1] / 1e3 / n,
		       2.0 * STATE * 4 * cases[j].n_seqs / (double)best[1]);
	}
}

int main(int argc, char **argv)
{
	struct kdev_limits lim = {.n_tokens = 512, .cols = 4096};
	int rc = bench_open(argc, argv, &lim);

	if (rc != 0) return rc;
	if (bench_wants(argc, argv, "experts")) {
		bench_experts(GGTYPE_Q4_1);
		bench_experts(GGTYPE_F8_B32);
	}
	if (bench_wants(argc, argv, "state")) bench_state();
	kdev_close(dev);
	return 0;
}
