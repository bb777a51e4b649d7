/* kernels.h - the operations that a model is made of: one contract, several devices.
 *
 * A device (struct kdev) owns memory, a stream and a table of operations. An operation ENQUEUES: it records its
 * arguments (which are copied; the arrays they point to are device memory and must stay until the stream has passed)
 * and returns at once. Operations of one stream run in order. kdev_sync() waits for all of them. On the CPU the stream
 * is a list that the pool's threads walk together with a barrier between operations; on CUDA it is a cudaStream_t.
 * Nothing outside kernels/ may assume that device memory can be read by the host: use upload and download.
 *
 * A batch is described by device arrays (struct kbatch), never by host loops over sequences.
 *
 * Determinism: every operation gives each output row bits that depend only on that row's own inputs (weights, the row's
 * activations, its KV entries by absolute position), never on the number of rows in the call, on the number of threads,
 * or on how a prompt was cut into chunks. Attention adds in tiles of KBLOCK_LEN positions anchored at position 0.
 *
 * Shapes are row-major, (outer, inner); f32 unless said otherwise. Layouts of KV, batch and weights are given at their
 * structs. Tolerances: a level of the table (ref, avx2, avx512) must agree with ref within 1e-5 relative to the largest
 * magnitude of a row in f32 operations; int8-activation products quantize identically (same rounding) and then agree as
 * f32 sums do. */
#ifndef SLUICE_KERNELS_H
#define SLUICE_KERNELS_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/ggtype.h"

#define KBLOCK_LEN 16 /* tokens a KV block; also the attention tile */

/* How inputs of quantized products are treated. */
enum kact {
	KACT_Q8, /* rounded to blocks of 32 int8 with an f32 scale, as llama.cpp does: fast */
	KACT_F32 /* weights are dequantized, products in f32: the debugging oracle */
};

enum klevel { KLEVEL_REF, KLEVEL_AVX2, KLEVEL_AVX512, KLEVEL_COUNT };

/* A weight matrix (rows, cols): out[rows] = W x[cols]. The layout of `data` is private to the device: the reference
 * keeps GGUF rows, vector levels interleave groups of rows. Owned by whoever called mat_load; freed with the memory it
 * got. */
struct kmat {
	enum ggtype type;
	uint32_t rows, cols;
	void *data; /* device */
	size_t bytes;
	uint32_t layout; /* private to the device */
};

/* KV cache of one layer, of `type` (F16 or F32); both take n_blocks * kv_heads * KBLOCK_LEN * head_dim elements.
 * V: (n_blocks, kv_heads, KBLOCK_LEN, head_dim). K is transposed within its block, (n_blocks, kv_heads, head_dim,
 * KBLOCK_LEN), so that a vector holds one dimension of the tile's positions and scores need no sums across lanes. */
struct kkv {
	void *k, *v; /* device */
	enum ggtype type;
};

/* A ragged batch of n_tokens query tokens of n_seqs sequences; mixed prefill and decode. All arrays in device memory.
 */
struct kbatch {
	uint32_t n_tokens, n_seqs;
	const uint32_t *token_ids;    /* (n_tokens) */
	const uint32_t *positions;    /* (n_tokens) absolute position in its sequence */
	const uint32_t *seq_ix;       /* (n_tokens) row of block_tables */
	const uint32_t *slots;        /* (n_tokens) where its K and V go: block * KBLOCK_LEN + offset */
	const uint32_t *block_tables; /* (n_seqs, blocks_max) block numbers by position / KBLOCK_LEN */
	uint32_t blocks_max;
	uint32_t n_out;           /* rows whose logits or last states are wanted */
	const uint32_t *out_rows; /* (n_out) token rows; NULL: all n_tokens, in order */
};

enum krope { KROPE_NORM, KROPE_NEOX }; /* pairs (2i, 2i+1), or (i, i + rot_dim/2) */

/* One output of a product: out (n, ld_out) gets rows of w; bias (rows) may be NULL; accumulate adds to what is there.
 */
struct kmat_out {
	const struct kmat *w;
	float *out;
	uint32_t ld_out; /* floats between rows of out */
	const float *bias;
	bool accumulate;
};

/* Sampling parameters of one row of logits, in the order of the vLLM pipeline. An array of these is device memory, and so is
 * `extra`, an array of 32-bit words that holds the lists; a row's lists begin at the given words. */
struct ksample {
	bool has_mask;    /* only tokens whose bit is set may be drawn: vocab bits from word mask_at on, lowest first */
	bool is_given;    /* nothing is drawn: the token is `given`, and its log-probability is wanted */
	bool want_logprob; /* of the untouched logits (before all of this), log-softmax */
	uint32_t mask_at;
	uint32_t given;
	uint32_t n_banned, banned_at; /* ids that must not be drawn (min_tokens) */
	uint32_t n_bias, bias_at;     /* logit_bias: pairs of id and f32 */
	uint32_t n_seen, seen_at;     /* distinct tokens of the sequence: pairs of id and (output count | KSEEN_PROMPT) */
	float repetition;             /* of tokens seen anywhere: positive logits are divided by it, others multiplied; 0, 1 = off */
	float frequency, presence;    /* taken off for each, or any, occurrence in the output; 0 = off */
	float temperature;            /* 0: argmax, lowest id on a tie */
	float top_p;                  /* (0, 1]; 1 = off */
	float min_p;                  /* [0, 1]; 0 = off */
	uint32_t top_k;               /* 0 = off */
	uint64_t seed;                /* Philox key */
	uint32_t choice;              /* Philox counter: choice index */
	uint32_t position;            /* Philox counter: absolute position of the token to be drawn */
	uint32_t n_top;               /* log-probabilities wanted beside the chosen one, <= KTOP_MAX */
};

#define KSEEN_PROMPT 0x80000000u

/* Tokens of struct ksampled that are none. */
#define KTOKEN_NO_LOGITS   UINT32_MAX       /* a NaN, +infinity, or nothing finite in the row, or made so by a penalty or bias */
#define KTOKEN_NOT_ALLOWED (UINT32_MAX - 1) /* mask and bans leave nothing */

#define KTOP_MAX 20 /* vLLM's default --max-logprobs */

struct ksampled {
	uint32_t token;
	uint32_t n_top;
	float logprob;              /* of the chosen token; 0 when not wanted */
	uint32_t rank;              /* 1 + number of tokens with a larger logit; 0 when not wanted */
	uint32_t top_ids[KTOP_MAX]; /* best first, lowest id first on a tie */
	float top_logprobs[KTOP_MAX];
	uint64_t logits_hash; /* XXH3-64 of the row's bits, when kdev_opts.hash_logits; else 0 */
};

struct kdev;

/* The table of operations. `n` counts rows. Every function that can fail returns a status; argument errors are our own
 * mistakes and CHECKed. */
struct kops {
	const char *name; /* "ref", "avx2", "avx512", "cuda" */

	/* Bytes that a matrix takes on the device, 0 when the type is not supported for products. */
	size_t (*mat_bytes)(struct kdev *d, enum ggtype type, uint32_t rows, uint32_t cols);
	/* Fills m (type, rows, cols, layout) from GGUF rows in host memory into dst (mat_bytes long, device, 64-byte
	 * aligned). Immediate, not enqueued; several may run at once on different matrices from different host threads.
	 */
	void (*mat_load)(struct kdev *d, struct kmat *m, void *dst, enum ggtype type, uint32_t rows, uint32_t cols,
			 const void *src);

	/* out (n, cols) = rows ids[n] of the table (rows, cols). ids < rows. */
	void (*embed)(struct kdev *d, float *out, const struct kmat *table, const uint32_t *ids, uint32_t n);
	/* out (n, dim) = x / sqrt(mean(x^2) + eps) * w; out may be x. */
	void (*rms_norm)(struct kdev *d, float *out, const float *x, const float *w, uint32_t n, uint32_t dim,
			 float eps);
	/* For each output o: o.out (n, o.w->rows) [+]= x (n, cols) W^T [+ bias]. All w share cols; x is quantized once.
	 * 1 to 4 outputs. The outputs do not overlap each other or x. */
	void (*matmul)(struct kdev *d, const float *x, uint32_t ld_x, uint32_t n, const struct kmat_out *outs,
		       uint32_t n_outs);
	/* Rotates x (n, n_heads, head_dim) in place; cos_sin (positions, rot_dim/2, 2) is a device table indexed by
	 * position. */
	void (*rope)(struct kdev *d, float *x, uint32_t ld_x, const uint32_t *positions, uint32_t n, uint32_t n_heads,
		     uint32_t head_dim, uint32_t rot_dim, const float *cos_sin, enum krope style);
	/* Writes k and v (n, kv_heads, head_dim) to their slots. */
	void (*kv_store)(struct kdev *d, const struct kkv *kv, const float *k, const float *v, uint32_t ld,
			 const uint32_t *slots, uint32_t n, uint32_t kv_heads, uint32_t head_dim);
	/* out (n_tokens, heads, head_dim): causal attention of each token over positions 0..its own, through its block
	 * table. */
	void (*attention)(struct kdev *d, float *out, const float *q, uint32_t ld_q, const struct kkv *kv,
			  const struct kbatch *b, uint32_t heads, uint32_t kv_heads, uint32_t head_dim, float scale);
	/* out (n, dim) = gate / (1 + exp(-gate)) * up; out may be gate. */
	void (*silu_mul)(struct kdev *d, float *out, const float *gate, const float *up, uint32_t n, uint32_t dim);
	/* out (n, dim) = x[rows[i]]. */
	void (*gather)(struct kdev *d, float *out, const float *x, const uint32_t *rows, uint32_t n, uint32_t dim);
	/* out[n] from logits (n, vocab), vLLM order: mask, bans, bias, penalties (repetition, frequency, presence),
	 * temperature (0: argmax), min_p, top_k (ties with the k-th stay), top_p (drop from the bottom while the
	 * cumulative probability <= 1 - top_p, on the distribution after top_k), draw with Philox4x32-10 keyed by seed,
	 * counter (choice, position). A row from which nothing can be drawn gives a KTOKEN. Logits are not changed.
	 * Rows are independent. extra may be NULL when no row has lists. */
	void (*sample)(struct kdev *d, struct ksampled *out, const float *logits, uint32_t n, uint32_t vocab,
		       const struct ksample *params, const uint32_t *extra);
};

struct kdev_opts {
	enum klevel level_max; /* a mask for tests and bug reports: no level above this */
	enum kact act;
	uint32_t n_threads; /* >= 1; includes the calling thread */
	bool pin_threads;
	bool hash_logits;
	uint32_t spin_us;     /* how long a waiting thread spins before it sleeps; 0 = default */
	size_t scratch_bytes; /* workspace of the operations, from kdev_scratch_bytes() */
};

/* Largest sizes that the operations will see; decides the workspace. */
struct kdev_limits {
	uint32_t n_tokens, cols, seqs, heads, head_dim, positions, vocab;
};

size_t kdev_scratch_bytes(const struct kdev_limits *lim);

/* The CPU device: picks the best level the processor has, at most opts->level_max. */
int kdev_open_cpu(struct kdev **out, const struct kdev_opts *opts, struct errbuf *err) MUST_CHECK;
void kdev_close(struct kdev *d);

const struct kops *kdev_ops(const struct kdev *d);
enum klevel kdev_level(const struct kdev *d);
/* Best level of this processor. */
enum klevel klevel_of_cpu(void);
const char *klevel_name(enum klevel level);
bool klevel_parse(const char *name, enum klevel *out);

/* Device memory, 64-byte aligned, zeroed lazily (untouched pages cost nothing on the CPU). NULL when there is not
 * enough. */
void *kdev_alloc(struct kdev *d, size_t bytes) MUST_CHECK;
void kdev_release(struct kdev *d, void *ptr, size_t bytes);

/* Enqueued copies. The host memory must stay until kdev_sync(). */
void kdev_upload(struct kdev *d, void *dst, const void *src_host, size_t bytes);
void kdev_download(struct kdev *d, void *dst_host, const void *src, size_t bytes);

/* Runs everything that is enqueued and waits. ST_DEVICE when the device failed (CUDA). */
int kdev_sync(struct kdev *d) MUST_CHECK;

/* Dequantizes one GGUF row (host memory, plain layout) to f32. Every type of the table in ggtype.h that the README
 * calls supported; ST_UNSUPPORTED for the others. The oracle of all products. cols is a multiple of the block length.
 */
int kdequant_row(enum ggtype type, const void *row, float *out, uint64_t cols) MUST_CHECK;
bool kdequant_supported(enum ggtype type);

/* Quantizes f32 to a GGUF row; Q8_0, F16, BF16, F32 (bit-exact with gguf's own quantizer), Q4_0, Q4_1. Used by tests
 * and tools. */
int kquant_row(enum ggtype type, const float *x, void *row, uint64_t cols) MUST_CHECK;

/* Philox4x32-10 (Salmon et al., SC'11): one block of four words for (key, counter). */
void kphilox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
