/* cpu.h - inside of the CPU device: the recorded operation, the pool of threads, and the table of a vector level.
 *
 * Private to kernels/. Three layers:
 *   cpu_ops.c and friends  the operations of kernels.h: record arguments, cut the work into items, call the level; no cut changes
 *                 a result, and operations with little work are solo: sharing them would cost more in waiting than it saves
 *   cpu_stream.c  the list of recorded operations and the threads that walk it
 *   struct cpu_level (ref.c, avx2*.c, avx512*.c)  arithmetic on a range of rows, by one thread
 *
 * Whatever the cut, a level function computes each output row in an order that depends on that row alone. */
#ifndef SLUICE_CPU_H
#define SLUICE_CPU_H

#include "kernels/kdev.h"
#include "kernels/sampler.h"

#include <pthread.h>
#include <stdatomic.h>

#define CPU_UNIT_ROWS    16     /* weight rows an item of a product has: a multiple of every level's group */
#define CPU_TILE_ROWS    24     /* 8 plain rows and 16 interleaved ones, where weights are dequantized first */
#define CPU_ATTN_TOKENS  8      /* tokens of one sequence that an attention item takes together */
#define CPU_ATTN_QUERIES 32     /* (token, head) pairs that an attention pass keeps state for */
#define CPU_QBLOCK       32     /* columns a block of quantized activations has */
#define CPU_SOLO_FLOATS  8192   /* about 1 us of a light operation; a barrier costs 0.3 to 1 us */
#define CPU_DELTA_COLS   64     /* columns of a state that an item of the delta rule has: 32 KiB when k_dim is 128 */
#define CPU_AHEAD        8192   /* bytes of weights that are asked for ahead of those in use by many tokens, where the processor's own
				 * prefetching stops: a product with 8 tokens takes half the time */
#define CPU_SCALE_MIN    1e-30f /* blocks of smaller activations count as zeros: 1 / scale must stay finite */

/* Sanitizer builds neither inline nor unroll: every load of a tile with its checks would take minutes to compile. */
#if defined(SLUICE_SAN)
#define CPU_INLINE static inline
#define CPU_UNROLL
#else
#define CPU_INLINE static inline __attribute__((always_inline))

/* Loops over a constant that must disappear, so that arrays of vectors become registers. */
#if defined(__clang__)
#define CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CPU_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

/* Ends an expression: without it gcc reorders the integer sums of an unrolled tile until its vectors no longer fit the
 * registers. */
#define CPU_KEEP(vector) __asm__("" : "+x"(vector))

/* How a matrix lies in memory (kmat.layout). */
enum cpu_layout {
	CPU_LAYOUT_ROWS,    /* plain GGUF rows */
	CPU_LAYOUT_GROUPS8, /* groups of 8 rows interleaved, pack.c */
	CPU_LAYOUT_GROUPS16
};

/* A row of activations rounded to int8: one scale for each block of 32 columns. */
struct cpu_xq {
	int8_t *q;     /* (cols) */
	float *scale;  /* (cols / 32) */
	float *ssum;   /* (cols / 32) scale times the sum of the block's q */
	int32_t *isum; /* (cols / 32) sum of the block's q */
	int32_t *half; /* (cols / 16) sums of the halves of each block */
};

static inline size_t cpu_xq_stride(uint32_t cols)
{
	return align_up(cols, 64) + 5 * align_up((size_t)cols / CPU_QBLOCK * 4, 64);
}

static inline struct cpu_xq cpu_xq_at(void *base, uint32_t cols, size_t row)
{
	char *p = (char *)base + row * cpu_xq_stride(cols);
	size_t part = align_up((size_t)cols / CPU_QBLOCK * 4, 64);
	struct cpu_xq xq;

	xq.q = (int8_t *)p;
	p += align_up(cols, 64);
	xq.scale = (float *)p;
	xq.ssum = (float *)(p + part);
	xq.isum = (int32_t *)(p + 2 * part);
	xq.half = (int32_t *)(p + 3 * part);
	return xq;
}

/* A product as a level sees it. */
struct cpu_product {
	const struct kmat_out *o;
	const float *x;
	uint32_t ld_x;
	uint32_t n;
	void *xq;    /* n quantized rows (cpu_xq_at), or NULL when the product is in f32 */
	float *tile; /* this thread's room for CPU_TILE_ROWS dequantized rows */
};

/* The inputs of a product: rows of activations, and how they are rounded. */
struct cpu_inputs {
	const float *x;
	uint32_t ld_x, n, cols;
	bool quantized; /* some weights take int8 activations ... */
	bool alone;     /* ... which each thread makes for itself */
};

/* Columns [0, cols) of a head's state of the delta rule, and one token (kernels.h, struct kdelta). */
struct cpu_delta {
	float *s; /* (k_dim, cols), ld_s floats apart */
	size_t ld_s;
	uint32_t k_dim, cols;
	const float *q, *k; /* (k_dim), normalised */
	const float *v;     /* (cols) */
	float decay, beta;
	float *out; /* (cols) */
};

struct cpu_attention {
	struct kattn a; /* its kv is NULL: the copy below is what a level looks at */
	struct kkv kv;
	struct kbatch b; /* with the block tables of the layer's group */
};

/* Arithmetic of one level; every function works on the calling thread alone. */
struct cpu_level {
	struct kops ops;
	enum cpu_layout layout; /* of matrices whose type has an interleaved form */
	void (*quantize)(struct cpu_xq out, const float *x, uint32_t cols);
	/* Rows [row, row_end) of o->out for all n rows of x; row is a multiple of CPU_UNIT_ROWS. */
	void (*product)(const struct cpu_product *p, uint32_t row, uint32_t row_end);
	/* One group of a row; w may be NULL. */
	void (*norm)(float *out, const float *x, const float *w, uint32_t dim, float eps, bool accumulate);
	void (*glu)(float *out, const float *gate, const float *up, size_t len, enum kglu kind, float limit);
	/* One row; gate_dim is 1 or dim. */
	void (*sigmoid)(float *out, const float *x, const float *gate, uint32_t gate_dim, uint32_t dim, bool accumulate);
	void (*softcap)(float *x, size_t len, float cap);
	/* x (dim) += sum of weights[j] * y[j * dim ..] in the order of j, y rows being y + places[j] * dim. */
	void (*combine)(float *x, const float *y, const float *weights, const uint32_t *places, uint32_t k, uint32_t dim);
	/* out (n) = silu(sum over j < width of w[j * ld_w + i] * rows[j][i]). */
	void (*conv)(float *out, const float *const *rows, const float *w, uint32_t ld_w, uint32_t width, uint32_t n);
	void (*delta)(const struct cpu_delta *a);
	void (*rope)(float *head, const float *cos_sin, uint32_t rot_dim, enum krope style);
	void (*kv_store)(const struct kkv *kv, const float *k, const float *v, uint32_t slot);
	/* Heads [head, head_end), which share one kv head, of tokens [token, token_end), which belong to one sequence.
	 */
	void (*attention)(const struct cpu_attention *a, uint32_t token, uint32_t token_end, uint32_t head,
			  uint32_t head_end, float *scratch);
	struct sampler_math sampler;
};

/* The first position that a query at `position` sees. */
static inline uint32_t cpu_attention_first(const struct cpu_attention *a, uint32_t position)
{
	return a->a.window == 0 || position < a->a.window ? 0 : position - a->a.window + 1;
}

extern const struct cpu_level cpu_level_ref, cpu_level_avx2, cpu_level_avx512;

struct cpu_dev;
struct cpu_op;

/* One thread of the pool; number 0 is whoever calls kdev_sync(). */
struct cpu_thread {
	struct cpu_dev *dev;
	uint32_t ix;
	pthread_t handle;
	char *scratch; /* dev->thread_scratch bytes */
	bool prepared; /* the current operation's private preparation (quantized rows) is in scratch */
};

struct cpu_op {
	_Alignas(64) _Atomic uint32_t next; /* first item that nobody has taken */
	uint32_t n_items;
	bool solo; /* all of it is done by thread 0: neighbours that are solo too need no barrier between them */
	/* Does items [begin, end). */
	void (*run)(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end);
	union {
		struct {
			void *dst;
			const void *src;
			size_t bytes;
		} copy;
		struct {
			float *out;
			struct kmat table;
			const uint32_t *ids;
			float scale;
		} embed;
		struct knorm norm;
		struct cpu_inputs quantize;
		struct {
			struct cpu_inputs in;
			uint32_t n_outs;
			struct kmat w[4];
			struct kmat_out outs[4];
			uint32_t item_end[4]; /* items of outs[0..i] */
		} matmul;
		struct {
			struct cpu_inputs in;
			const struct kmat *w;
			float *out;
			uint32_t x_step, ld_out, out_step;
		} matmul_each;
		struct {
			struct cpu_inputs in; /* sorted rows [row, row + in.n) */
			uint32_t row, n_experts, n_outs;
			const uint32_t *starts;
			struct kexpert_out outs[4];
			uint32_t item_end[4];
		} experts;
		struct kroute route;
		struct {
			float *x;
			const float *y, *weights;
			const uint32_t *places;
			uint32_t k, dim;
		} combine;
		struct {
			struct kconv a;
			struct kbatch b;
		} conv;
		struct {
			struct kdelta a;
			struct kbatch b;
		} delta;
		struct ksigmoid sigmoid;
		struct {
			float *x;
			size_t len;
			float cap;
		} softcap;
		struct {
			float *x;
			const uint32_t *positions;
			const float *cos_sin;
			uint32_t ld_x, n_heads, head_dim, rot_dim;
			enum krope style;
		} rope;
		struct {
			struct kkv kv;
			const float *k, *v;
			const uint32_t *slots;
			uint32_t ld_k, ld_v;
		} kv_store;
		struct {
			struct cpu_attention a;
			uint32_t tokens_item; /* consecutive tokens an item has */
			uint32_t heads_item;  /* heads of a group that an item has, at most */
		} attention;
		struct {
			float *out;
			const float *gate, *up;
			size_t len;
			enum kglu kind;
			float limit;
		} glu;
		struct {
			float *out;
			const float *x;
			const uint32_t *rows;
			uint32_t dim;
		} gather;
		struct kcopy copy_rows;
		struct {
			struct ksampled *out;
			const float *logits;
			uint32_t vocab;
			const struct ksample *params;
			const uint32_t *extra;
		} sample;
	} u;
};

/* The list of operations and the threads that walk it. */
struct cpu_stream {
	struct cpu_op *ops; /* 64-byte aligned */
	size_t n_ops, cap;
	uint32_t n_threads;
	uint64_t spin_ns;
	struct cpu_thread *threads; /* (n_threads) */
	uint32_t n_started;         /* threads that pthread_create gave us, without the caller */

	_Alignas(64) _Atomic uint32_t walk; /* +1 for each kdev_sync(); threads wait for it to change */
	_Atomic uint32_t walk_sleepers;
	_Atomic bool stop;
	_Alignas(64) _Atomic uint32_t arrived; /* at the current barrier */
	_Alignas(64) _Atomic uint32_t passed;  /* barriers passed; its change opens the barrier */
	_Atomic uint32_t barrier_sleepers;
};

struct cpu_dev {
	struct kdev base;
	const struct cpu_level *level;
	struct kdev_opts opts;
	struct cpu_stream stream;
	char *scratch;         /* opts.scratch_bytes: quantized activations of a product that all threads share */
	size_t thread_scratch; /* bytes of each thread's own workspace; grown by enqueueing, never while walking */
};

static inline struct cpu_dev *cpu_dev_of(struct kdev *d)
{
	return CONTAINER_OF(d, struct cpu_dev, base);
}

/* kdev_open_cpu() with a table of the caller's choice (tests run AVX-512 code emulated). */
int cpu_dev_open(struct kdev **out, const struct cpu_level *table, enum klevel level, const struct kdev_opts *opts,
		 struct errbuf *err) MUST_CHECK;
int cpu_stream_init(struct cpu_dev *d, struct errbuf *err) MUST_CHECK;
void cpu_stream_release(struct cpu_dev *d);
/* A new operation at the end of the list: zeroed but for run, n_items and solo. */
struct cpu_op *cpu_stream_push(struct cpu_dev *d, void (*run)(struct cpu_thread *, struct cpu_op *, uint32_t, uint32_t),
			       uint64_t n_items, bool solo);
void cpu_stream_walk(struct cpu_dev *d);

/* Makes sure that each thread's workspace has so many bytes. Not while the stream is walking. */
void cpu_dev_need(struct cpu_dev *d, size_t bytes);
/* Zeroed pages, taken lazily; NULL when there are none. */
void *cpu_pages_alloc(size_t bytes, bool large_pages);
void cpu_pages_large(void *ptr, size_t bytes);
void cpu_pages_free(void *ptr, size_t bytes);

static inline bool cpu_is_solo(uint64_t n, uint64_t width)
{
	return n * width <= CPU_SOLO_FLOATS;
}

/* How the inputs of a product are rounded: with in->quantized given, sets in->alone and how many rows at most go together, and makes
 * room for both. */
void cpu_inputs_plan(struct cpu_dev *d, struct cpu_inputs *in, uint32_t *chunk);
/* Rows [row, row + n) of the inputs; enqueues their rounding unless threads do it alone. n <= chunk. */
struct cpu_inputs cpu_inputs_part(struct cpu_dev *d, const struct cpu_inputs *all, uint32_t row, uint32_t n);
/* What a thread gives to its level, rounded when that is its own business: all but the output. */
struct cpu_product cpu_inputs_product(struct cpu_thread *t, const struct cpu_inputs *in);

/* The operations of kernels.h but for `name`, for a level's table. */
#define CPU_OPS(level_name)                                                                                             \
	{                                                                                                               \
		.name = level_name, .mat_bytes = cpu_mat_bytes, .mat_init = cpu_mat_init, .mat_put = cpu_mat_put,       \
		.mat_view = cpu_mat_view, .embed = cpu_embed, .norm = cpu_norm, .matmul = cpu_matmul,                   \
		.matmul_each = cpu_matmul_each, .rope = cpu_rope, .kv_store = cpu_kv_store, .attention = cpu_attention, \
		.glu = cpu_glu, .sigmoid = cpu_sigmoid, .softcap = cpu_softcap, .route = cpu_route,                     \
		.matmul_experts = cpu_matmul_experts, .combine = cpu_combine, .conv = cpu_conv, .delta = cpu_delta,     \
		.gather = cpu_gather, .copy = cpu_copy, .sample = cpu_sample                                            \
	}

size_t cpu_mat_bytes(struct kdev *d, enum ggtype type, uint32_t rows, uint32_t cols);
void cpu_mat_init(struct kdev *d, struct kmat *m, void *dst, enum ggtype type, uint32_t rows, uint32_t cols);
void cpu_mat_put(struct kdev *d, const struct kmat *m, uint32_t row, uint32_t n, const void *src);
bool cpu_mat_view(struct kdev *d, struct kmat *m, enum ggtype type, uint32_t rows, uint32_t cols, const void *src);
void cpu_embed(struct kdev *d, float *out, const struct kmat *table, const uint32_t *ids, uint32_t n, float scale);
void cpu_norm(struct kdev *d, const struct knorm *a, uint32_t n);
void cpu_matmul(struct kdev *d, const float *x, uint32_t ld_x, uint32_t n, const struct kmat_out *outs,
		uint32_t n_outs);
void cpu_matmul_each(struct kdev *d, const float *x, uint32_t ld_x, uint32_t x_step, uint32_t n, const struct kmat *w,
		     uint32_t n_mats, float *out, uint32_t ld_out, uint32_t out_step);
void cpu_rope(struct kdev *d, float *x, uint32_t ld_x, const uint32_t *positions, uint32_t n, uint32_t n_heads,
	      uint32_t head_dim, uint32_t rot_dim, const float *cos_sin, enum krope style);
void cpu_kv_store(struct kdev *d, const struct kkv *kv, const float *k, uint32_t ld_k, const float *v, uint32_t ld_v,
		  const uint32_t *slots, uint32_t n);
void cpu_attention(struct kdev *d, const struct kattn *a, const struct kbatch *b);
void cpu_glu(struct kdev *d, float *out, const float *gate, const float *up, uint32_t n, uint32_t dim, enum kglu kind, float limit);
void cpu_sigmoid(struct kdev *d, const struct ksigmoid *a, uint32_t n);
void cpu_softcap(struct kdev *d, float *x, uint32_t n, uint32_t dim, float cap);
void cpu_route(struct kdev *d, const struct kroute *r);
void cpu_matmul_experts(struct kdev *d, const float *x, uint32_t ld_x, uint32_t n_rows, const uint32_t *starts, uint32_t n_experts,
			const struct kexpert_out *outs, uint32_t n_outs);
void cpu_combine(struct kdev *d, float *x, const float *y, const float *weights, const uint32_t *places, uint32_t n, uint32_t k,
		 uint32_t dim);
void cpu_conv(struct kdev *d, const struct kconv *a, const struct kbatch *b);
void cpu_delta(struct kdev *d, const struct kdelta *a, const struct kbatch *b);
void cpu_gather(struct kdev *d, float *out, const float *x, const uint32_t *rows, uint32_t n, uint32_t dim);
void cpu_copy(struct kdev *d, const struct kcopy *a, uint32_t n);
void cpu_sample(struct kdev *d, struct ksampled *out, const float *logits, uint32_t n, uint32_t vocab,
		const struct ksample *params, const uint32_t *extra);

#endif
