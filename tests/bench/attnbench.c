/* attnbench.c - speed of attention and of the writing of its cache: time of a call, GB/s of cache read and GMAC/s, for
 * decoding and prompts, with every type of cache, windows, and latent keys.
 *
 *   build/bench/attnbench [threads] [level] [part ...]     parts: types window latent store; all by default
 *
 * Each figure is the best of many runs; with one thread it is processor time, which other work disturbs little. */
#include "tests/bench/kernbench.h"

enum { TOKENS_MAX = 512, BLOCKS_MAX = 1024, SEQS_MAX = 16 };

struct bench_shape {
	const char *name;
	uint32_t heads, kv_heads, k_dim, v_dim;
	bool latent;
};

struct bench_load {
	const char *name;
	uint32_t n_seqs, len, past; /* each sequence has `len` tokens after `past` others */
};

/* What a call needs, for one shape and load. */
struct bench {
	struct bench_shape s;
	struct bench_load l;
	struct kkv kv;
	void *memory;
	size_t bytes;
	uint32_t n, *ix; /* positions, sequences, slots, tables */
	float *q, *k, *v, *out;
	struct kbatch batch;
	struct kattn attn;
};

static struct bench bench_new(struct bench_shape s, struct bench_load l, enum ggtype type, uint32_t window)
{
	struct bench b = {.s = s, .l = l, .n = l.n_seqs * l.len};
	uint32_t per_seq = (uint32_t)div_up(l.past + l.len, KBLOCK_LEN), n_blocks = per_seq * l.n_seqs;

	b.kv = (struct kkv){
		.type = type, .kv_heads = s.kv_heads, .k_dim = s.k_dim, .v_dim = s.v_dim, .latent = s.latent};
	b.bytes = kkv_bytes(&b.kv, n_blocks);
	b.memory = bench_alloc(b.bytes);
	kkv_place(&b.kv, b.memory, n_blocks);
	b.ix = bench_alloc((3 * b.n + n_blocks) * sizeof(uint32_t));
	b.q = bench_floats((size_t)TOKENS_MAX * s.heads * s.k_dim);
	b.k = bench_floats((size_t)TOKENS_MAX * s.kv_heads * s.k_dim);
	b.v = bench_floats((size_t)TOKENS_MAX * s.kv_heads * s.v_dim);
	b.out = bench_floats((size_t)TOKENS_MAX * s.heads * s.v_dim);
	/* blocks of a sequence lie apart, as they do after a while */
	for (uint32_t i = 0; i < n_blocks; i++) b.ix[3 * b.n + i] = i % per_seq * l.n_seqs + i / per_seq;
	/* fill the whole cache */
	for (uint32_t at = 0; at < n_blocks * KBLOCK_LEN; at += b.n) {
		uint32_t n = min_u32(b.n, n_blocks * KBLOCK_LEN - at);

		for (uint32_t i = 0; i < n; i++) b.ix[2 * b.n + i] = at + i;
		ops->kv_store(dev, &b.kv, b.k, s.kv_heads * s.k_dim, s.latent ? NULL : b.v, s.kv_heads * s.v_dim,
			      b.ix + 2 * b.n, n);
		bench_sync();
	}
	for (uint32_t t = 0; t < b.n; t++) {
		uint32_t pos = l.past + t % l.len, seq = t / l.len;

		b.ix[t] = pos;
		b.ix[b.n + t] = seq;
		b.ix[2 * b.n + t] = b.ix[3 * b.n + seq * per_seq + pos / KBLOCK_LEN] * KBLOCK_LEN + pos % KBLOCK_LEN;
	}
	b.batch = (struct kbatch){.n_tokens = b.n,
				  .n_seqs = l.n_seqs,
				  .positions = b.ix,
				  .seq_ix = b.ix + b.n,
				  .slots = b.ix + 2 * b.n,
				  .block_tables = b.ix + 3 * b.n,
				  .blocks_max = per_seq};
	b.attn = (struct kattn){.out = b.out,
				.ld_out = s.heads * s.v_dim,
				.q = b.q,
				.ld_q = s.heads * s.k_dim,
				.heads = s.heads,
				.window = window,
				.scale = 0.1f};
	return b;
}

static void bench_free(struct bench *b)
{
	struct bench_shape s = b->s;

	kdev_release(dev, b->memory, b->bytes);
	kdev_release(dev, b->ix, (3 * b->n + b->batch.blocks_max * b->batch.n_seqs) * sizeof(uint32_t));
	kdev_release(dev, b->q, (size_t)TOKENS_MAX * s.heads * s.k_dim * sizeof(float));
	kdev_release(dev, b->k, (size_t)TOKENS_MAX * s.kv_heads * s.k_dim * sizeof(float));
	kdev_release(dev, b->v, (size_t)TOKENS_MAX * s.kv_heads * s.v_dim * sizeof(float));
	kdev_release(dev, b->out, (size_t)TOKENS_MAX * s.heads * s.v_dim * sizeof(float));
}

/* Best time of a call: at least 10 of them, and a third of a second. */
static uint64_t bench_best(struct bench *b, bool store)
{
	uint64_t best = UINT64_MAX, sum = 0;

	b->attn.kv = &b->kv;
	for (int i = 0; i < 10 || sum < NS_PER_S / 3; i++) {
		uint64_t start = bench_now_ns(), ns;

		if (store)
			ops->kv_store(dev, &b->kv, b->k, b->s.kv_heads * b->s.k_dim, b->s.latent ? NULL : b->v,
				      b->s.kv_heads * b->s.v_dim, b->batch.slots, b->n);
		else
			ops->attention(dev, &b->attn, &b->batch);
		bench_sync();
		ns = bench_now_ns() - start;
		best = min_u64(best, ns);
		sum += ns;
	}
	return best;
}

/* Prints a line; gives the time. */
static uint64_t bench_attention(struct bench_shape s, struct bench_load l, enum ggtype type, uint32_t window,
				uint64_t beside)
{
	struct bench b = bench_new(s, l, type, window);
	uint64_t ns = bench_best(&b, false), pairs = 0, read = 0;

	for (uint32_t t = 0; t < b.n; t++) {
		uint64_t seen = b.ix[t] + 1;

		pairs += window ? min_u64(window, seen) : seen;
	}
	for (uint32_t i = 0; i < l.n_seqs; i++)
		read += window ? min_u64(window + l.len, l.past + l.len) : l.past + l.len;
	printf("  %-10s %-9s %-8s window %-5u %9.1f us %7.1f GMAC/s %6.1f GB/s", s.name, l.name,
	       ggtype_info(type)->name, window, (double)ns / 1e3,
	       (double)pairs * s.heads * (s.k_dim + s.v_dim) / (double)ns,
	       (double)(read * kkv_block_bytes(&b.kv) / KBLOCK_LEN) / (double)ns);
	if (beside) printf("  x %.2f", (double)ns / (double)beside);
	printf("\n");
	bench_free(&b);
	return ns;
}

static const enum ggtype bench_types[] = {GGTYPE_F16, GGTYPE_F32, GGTYPE_BF16, GGTYPE_F8_E4M3, GGTYPE_I8};
static const struct bench_load bench_loads[] = {
	{"1 x 1000", 1, 1, 999}, {"8 x 4000", 8, 1, 3999}, {"prompt", 1, 512, 0}, {"chunk", 1, 128, 3872}};

static void bench_all_types(const struct bench_shape *shapes, size_t n_shapes)
{
	for (size_t i = 0; i < n_shapes; i++) {
		for (size_t l = 0; l < ARRAY_LEN(bench_loads); l++) {
			uint64_t f16 = 0;

			for (size_t t = 0; t < ARRAY_LEN(bench_types); t++) {
				uint64_t ns = bench_attention(shapes[i], bench_loads[l], bench_types[t], 0, f16);

				if (t == 0) f16 = ns;
			}
		}
	}
}

static void bench_window(void)
{
	static const struct bench_shape shape = {"16/8/256", 16, 8, 256, 256, false};
	static const struct bench_load loads[] = {
		{"at 1000", 1, 1, 999}, {"at 16000", 1, 1, 15999}, {"chunk", 1, 128, 15872}};
	static const uint32_t windows[] = {0, 512, 128};

	for (size_t l = 0; l < ARRAY_LEN(loads); l++)
		for (size_t w = 0; w < ARRAY_LEN(windows); w++)
			bench_attention(shape, loads[l], GGTYPE_F16, windows[w], 0);
}

static void bench_store(void)
{
	static const struct bench_shape shape = {"32/8/128", 32, 8, 128, 128, false};
	static const struct bench_load loads[] = {{"decode", 8, 1, 100}, {"prompt", 1, 512, 0}};

	for (size_t l = 0; l < ARRAY_LEN(loads); l++) {
		for (size_t t = 0; t < ARRAY_LEN(bench_types); t++) {
			struct bench b = bench_new(shape, loads[l], bench_types[t], 0);

			printf("  kv_store %s, %s, %s: %.2f us a token\n", shape.name, loads[l].name,
			       ggtype_info(bench_types[t])->name, (double)bench_best(&b, true) / 1e3 / b.n);
			bench_free(&b);
		}
	}
}

int main(int argc, char **argv)
{
	static const struct bench_shape dense[] = {{"9/3/64", 9, 3, 64, 64, false},
						   {"32/8/128", 32, 8, 128, 128, false},
						   {"16/8/256", 16, 8, 256, 256, false}};
	static const struct bench_shape latent[] = {{"latent 16", 16, 1, 576, 512, true},
						    {"latent 128", 128, 1, 576, 512, true}};
	int rc = bench_open(argc, argv, &(struct kdev_limits){0});

	if (rc) return rc;
	if (bench_wants(argc, argv, "types")) bench_all_types(dense, ARRAY_LEN(dense));
	if (bench_wants(argc, argv, "window")) bench_window();
	if (bench_wants(argc, argv, "latent")) bench_all_types(latent, ARRAY_LEN(latent));
	if (bench_wants(argc, argv, "store")) bench_store();
	kdev_close(dev);
	return 0;
}
