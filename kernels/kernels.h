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

#define KBLOCK_LEN    16 /* tokens a KV block; also the attention tile */
#define KMAT_PUT_ROWS 16 /* rows that mat_put takes together */

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

/* KV cache of one layer, for n_blocks blocks of KBLOCK_LEN positions.
 * K is transposed within its block, (n_blocks, kv_heads, k_dim, KBLOCK_LEN), so that a vector holds one dimension of the tile's
 * positions and scores need no sums across lanes. V: (n_blocks, kv_heads, KBLOCK_LEN, v_dim).
 * latent (MLA): there is no V, the first v_dim dimensions of K are the values too; kv_heads is 1.
 * type: F16, BF16, F32; F8_E4M3 (rounded to nearest even, saturated at 448, NaN is 0x7f; scale 1); I8: rounded to nearest, with a scale (amax / 127)
 * for each position and head: k_scale and v_scale (n_blocks, kv_heads, KBLOCK_LEN) f32; latent has k_scale alone. */
struct kkv {
	void *k, *v;              /* device; v is NULL when latent */
	float *k_scale, *v_scale; /* device, I8 only */
	enum ggtype type;
	uint32_t kv_heads, k_dim, v_dim;
	bool latent;
};

/* Bytes of one block, scales included, as kkv_place() lays it out. The layout of a layer's memory: K of all blocks, V, then the
 * scales, each 64-byte aligned. */
size_t kkv_bytes(const struct kkv *kv, uint32_t n_blocks);
/* Bytes of KBLOCK_LEN positions without any rounding to 64: what one more block costs. */
size_t kkv_block_bytes(const struct kkv *kv);
/* Sets the pointers for memory at base (kkv_bytes() long, 64-byte aligned). */
void kkv_place(struct kkv *kv, void *base, uint32_t n_blocks);
bool kkv_type_built(enum ggtype type);

/* A ragged batch of n_tokens query tokens of n_seqs sequences; mixed prefill and decode. All arrays in device memory.
 */
struct kbatch {
	uint32_t n_tokens, n_seqs;
	const uint32_t *token_ids;    /* (n_tokens) */
	const uint32_t *positions;    /* (n_tokens) absolute position in its sequence */
	const uint32_t *seq_ix;       /* (n_tokens) row of block_tables */
	/* Of KV group 0; the others' follow: group g's begin g * n_tokens, and g * n_seqs * blocks_max, further. */
	const uint32_t *slots;        /* (n_tokens) where its K and V go: block * KBLOCK_LEN + offset */
	const uint32_t *block_tables; /* (n_seqs, blocks_max) block numbers by position / KBLOCK_LEN; before a group's windows, anything */
	uint32_t blocks_max;
	/* Tokens of one sequence lie together and in order of their positions, without a gap. */
	const uint32_t *seq_starts; /* (n_seqs + 1) token rows: sequence s has [seq_starts[s], seq_starts[s + 1]) */
	const uint32_t *states;     /* (n_seqs) which state of recurrent layers is the sequence's own */
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

/* out (n, groups * dim) = x / sqrt(mean of x^2 over the group + eps) * w; with accumulate, added to out. Row i's group g begins at
 * x + i * ld_x + g * dim; all groups share w (dim), NULL: ones. out may be x. */
struct knorm {
	float *out;
	uint32_t ld_out;
	const float *x;
	uint32_t ld_x;
	const float *w;
	uint32_t groups, dim;
	float eps;
	bool accumulate;
};

/* Causal attention of each token over positions max(0, p - window + 1) .. p of its own sequence, p being its own position.
 * score = softcap(scale * q k) (softcap(x) = cap * tanh(x / cap); 0: none), softmax over the positions, and, with sinks (heads), one
 * more term exp(sinks[h]) in the sum, which has no value. Query head h reads kv head h / (heads / kv_heads).
 * Tiles lie at multiples of KBLOCK_LEN from position 0, also with a window. */
struct kattn {
	float *out; /* (n_tokens, heads * v_dim) */
	uint32_t ld_out;
	const float *q; /* (n_tokens, heads * k_dim) */
	uint32_t ld_q;
	const struct kkv *kv;
	uint32_t heads;
	uint32_t window; /* positions seen, its own included; 0: all */
	float scale, softcap;
	const float *sinks; /* (heads) or NULL */
	const uint32_t *block_tables; /* of this layer's KV group; NULL: the batch's own */
};

/* How a gate g and an up-projection u become one: silu(g) * u; gelu_tanh(g) * u; and gpt-oss' own: with limit L,
 * g' = min(g, L), u' = clamp(u, -L, L): g' * sigmoid(1.702 g') * (u' + 1). */
enum kglu { KGLU_SILU, KGLU_GELU_TANH, KGLU_OAI };

/* out (n, dim) = x * sigmoid(gate); gate is (n, dim) or, with gate_dim 1, (n, 1). accumulate adds to out. out may be x. */
struct ksigmoid {
	float *out;
	uint32_t ld_out;
	const float *x;
	uint32_t ld_x;
	const float *gate;
	uint32_t ld_gate, gate_dim, dim;
	bool accumulate;
};

/* out + i * ld_out + g * out_step gets dim floats of x + i * ld_x + g * x_step, for each row i and group g; x NULL: zeros. They do not
 * overlap. */
struct kcopy {
	float *out;
	uint32_t ld_out, out_step;
	const float *x;
	uint32_t ld_x, x_step;
	uint32_t groups, dim;
};

enum kroute_kind {
	KROUTE_SOFTMAX,      /* probabilities over all experts, then the k best */
	KROUTE_SOFTMAX_TOPK, /* the k best logits, then softmax over these */
	KROUTE_SIGMOID
};

/* Chooses k of n_experts for each of n rows and sorts the (row, choice) pairs by expert, so that an expert's rows lie together.
 * Choosing: by score, lowest expert first on a tie; with a correction (n_experts) by score + correction, the score itself stays the
 * weight. n_groups > 1: only experts of the groups_used best groups count; a group's rank is the sum of its two best scores (with a
 * correction), else its best one (DeepSeek-V3 and V2). Then norm: weights are divided by their sum (+ 1e-20 with KROUTE_SIGMOID); then
 * times scale. */
struct kroute {
	const float *logits; /* (n, n_experts) */
	const float *correction;
	uint32_t n, n_experts, k, n_groups, groups_used;
	enum kroute_kind kind;
	bool norm;
	float scale;
	/* Out, device: */
	float *weights;   /* (n, k) in the order of choice */
	uint32_t *tokens; /* (n * k) sorted place -> row */
	uint32_t *places; /* (n, k) -> sorted place; ascending in the row within an expert */
	uint32_t *starts; /* (n_experts + 1) places of each expert */
};

/* out (n_rows, w->rows) of sorted rows: rows [starts[e], starts[e + 1]) go through w[e]; all w have the same sizes. */
struct kexpert_out {
	const struct kmat *w; /* (n_experts); host memory that stays */
	float *out;
	uint32_t ld_out;
	const float *bias; /* (n_experts, w->rows) or NULL */
};

/* Causal depthwise convolution over each sequence, then silu: out[t][c] = silu(sum over j < width of w[c][j] * x[t - width + 1 + j][c]).
 * What lies before position 0 is 0; what lies before the batch's first token of a sequence is in its state, (width - 1, channels) f32,
 * which is brought up to date. States begin anew at position 0, whatever they hold. out may be x. */
struct kconv {
	float *out;
	uint32_t ld_out;
	const float *x;
	uint32_t ld_x;
	const float *w; /* (channels, width) */
	uint32_t channels, width; /* width <= KCONV_WIDTH_MAX */
	float *state; /* state s begins at state + s * state_step floats */
	size_t state_step;
};
#define KCONV_WIDTH_MAX 8

/* The gated delta rule (Yang et al. 2024, "Gated Delta Networks"; as transformers' qwen3_next computes it token by token). For each
 * sequence and value head h, with state S (k_dim, v_dim) f32, zero before position 0; k head h / (v_heads / k_heads),
 * or h % k_heads when tiled:
 *   q = q / sqrt(sum q^2 + 1e-6) / sqrt(k_dim), k = k / sqrt(sum k^2 + 1e-6)
 *   S *= exp(neg_a[h] * softplus(a[t][h] + dt_bias[h]));  d = sigmoid(b[t][h]) * (v - k S);  S += k d^T;  out = q S */
struct kdelta {
	float *out; /* (n_tokens, v_heads * v_dim) */
	uint32_t ld_out;
	const float *qkv; /* (n_tokens, [q: k_heads * k_dim | k: the same | v: v_heads * v_dim]) */
	uint32_t ld_qkv;
	const float *a, *b; /* (n_tokens, v_heads) */
	uint32_t ld_a, ld_b;
	const float *neg_a, *dt_bias; /* (v_heads) */
	uint32_t k_heads, v_heads, k_dim, v_dim;
	bool tiled;
	float *state; /* state s begins at state + s * state_step floats: (v_heads, k_dim, v_dim) */
	size_t state_step;
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
	/* Makes m an empty matrix in dst (mat_bytes long, device, 64-byte aligned), to be filled by mat_put. */
	void (*mat_init)(struct kdev *d, struct kmat *m, void *dst, enum ggtype type, uint32_t rows, uint32_t cols);
	/* Fills n rows from `row` on (a multiple of KMAT_PUT_ROWS; so is n but at the end) from GGUF rows in host memory. Immediate, not
	 * enqueued; several may run at once on different rows from different host threads. */
	void (*mat_put)(struct kdev *d, const struct kmat *m, uint32_t row, uint32_t n, const void *src);
	/* True when the device can multiply with GGUF rows where they lie in host memory (any alignment): then m is made of them without a
	 * copy and src must stay. Else m is untouched. */
	bool (*mat_view)(struct kdev *d, struct kmat *m, enum ggtype type, uint32_t rows, uint32_t cols, const void *src);

	/* out (n, cols) = scale * rows ids[n] of the table (rows, cols). ids < rows. */
	void (*embed)(struct kdev *d, float *out, const struct kmat *table, const uint32_t *ids, uint32_t n, float scale);
	void (*norm)(struct kdev *d, const struct knorm *a, uint32_t n);
	/* For each output o: o.out (n, o.w->rows) [+]= x (n, cols) W^T [+ bias]. All w share cols; x is quantized once.
	 * 1 to 4 outputs. The outputs do not overlap each other or x. */
	void (*matmul)(struct kdev *d, const float *x, uint32_t ld_x, uint32_t n, const struct kmat_out *outs,
		       uint32_t n_outs);
	/* n_mats small products side by side, inputs never quantized: out[i] + m * out_step = w[m] (x[i] + m * x_step). All w have the same
	 * sizes. w is host memory that stays. */
	void (*matmul_each)(struct kdev *d, const float *x, uint32_t ld_x, uint32_t x_step, uint32_t n, const struct kmat *w, uint32_t n_mats,
			    float *out, uint32_t ld_out, uint32_t out_step);
	/* Rotates x (n, n_heads, head_dim) in place: the first rot_dim elements of each head; cos_sin (positions, rot_dim/2, 2) is a device
	 * table indexed by position. x may point into the heads: head_dim is the distance between them. */
	void (*rope)(struct kdev *d, float *x, uint32_t ld_x, const uint32_t *positions, uint32_t n, uint32_t n_heads,
		     uint32_t head_dim, uint32_t rot_dim, const float *cos_sin, enum krope style);
	/* Writes k (n, kv_heads, k_dim) and v (n, kv_heads, v_dim; NULL when latent) to their slots. */
	void (*kv_store)(struct kdev *d, const struct kkv *kv, const float *k, uint32_t ld_k, const float *v, uint32_t ld_v,
			 const uint32_t *slots, uint32_t n);
	void (*attention)(struct kdev *d, const struct kattn *a, const struct kbatch *b);
	/* out (n, dim) = glu(gate, up); limit is KGLU_OAI's L. out may be gate. Rows lie `dim` apart. */
	void (*glu)(struct kdev *d, float *out, const float *gate, const float *up, uint32_t n, uint32_t dim, enum kglu kind, float limit);
	void (*sigmoid)(struct kdev *d, const struct ksigmoid *a, uint32_t n);
	/* x (n, dim) = cap * tanh(x / cap). */
	void (*softcap)(struct kdev *d, float *x, uint32_t n, uint32_t dim, float cap);
	void (*route)(struct kdev *d, const struct kroute *r);
	/* x (n_rows, cols) in sorted order; 1 to 4 outputs. Inputs are quantized as in matmul. */
	void (*matmul_experts)(struct kdev *d, const float *x, uint32_t ld_x, uint32_t n_rows, const uint32_t *starts, uint32_t n_experts,
			       const struct kexpert_out *outs, uint32_t n_outs);
	/* x (n, dim) += sum over j < k, in order, of weights[i][j] * y[places[i][j]]. */
	void (*combine)(struct kdev *d, float *x, const float *y, const float *weights, const uint32_t *places, uint32_t n, uint32_t k,
			uint32_t dim);
	void (*conv)(struct kdev *d, const struct kconv *a, const struct kbatch *b);
	void (*delta)(struct kdev *d, const struct kdelta *a, const struct kbatch *b);
	/* out (n, dim) = x[rows[i]]. */
	void (*gather)(struct kdev *d, float *out, const float *x, const uint32_t *rows, uint32_t n, uint32_t dim);
	void (*copy)(struct kdev *d, const struct kcopy *a, uint32_t n);
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
	uint32_t n_tokens, cols, seqs, heads, head_dim, positions, vocab; /* n_tokens: rows of any product; head_dim: of a key or value */
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
/* The same in small pages, for memory of which only a little is touched at first, here and there (a KV cache: with large pages, the first
 * token of a small model would take hundreds of MB); kdev_large_pages(): what is touched from now on comes in large pages. */
void *kdev_alloc_small(struct kdev *d, size_t bytes) MUST_CHECK;
void kdev_large_pages(struct kdev *d, void *ptr, size_t bytes);
void kdev_release(struct kdev *d, void *ptr, size_t bytes);

/* Enqueued copies. The host memory must stay until kdev_sync(). */
void kdev_upload(struct kdev *d, void *dst, const void *src_host, size_t bytes);
void kdev_download(struct kdev *d, void *dst_host, const void *src, size_t bytes);

/* beat(ctx) is called by kdev_sync() while it gets on: after each operation, and after each share of a large one. It is the sign of life of
 * a step that takes long, so it is cheap. NULL: none. */
void kdev_set_beat(struct kdev *d, void (*beat)(void *ctx), void *ctx);

/* Runs everything that is enqueued and waits. ST_DEVICE when the device failed (CUDA). */
int kdev_sync(struct kdev *d) MUST_CHECK;

/* Dequantizes one GGUF row (host memory, plain layout) to f32. Every type of the table in ggtype.h that the README
 * calls supported; ST_UNSUPPORTED for the others. The oracle of all products. cols is a multiple of the block length.
 */
int kdequant_row(enum ggtype type, const void *row, float *out, uint64_t cols) MUST_CHECK;
bool kdequant_supported(enum ggtype type);

/* Quantizes f32 to a GGUF row; Q8_0, F16, BF16, F32 (bit-exact with gguf's own quantizer), Q4_0, Q4_1, Q4_Z, F8_B32. Used by tests
 * and tools. */
int kquant_row(enum ggtype type, const float *x, void *row, uint64_t cols) MUST_CHECK;

/* Philox4x32-10 (Salmon et al., SC'11): one block of four words for (key, counter). */
void kphilox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
