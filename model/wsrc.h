/* wsrc.h - where the rows of a weight come from, and how they become rows that kernels know.
 *
 * The families (family.h) say which tensor is which role under which name; this says how it is stored: as it is, a part of a fused
 * tensor, transposed, one of a stack of experts, or in codes with scales beside it (float8 in blocks, GPTQ, AWQ, MXFP4 of
 * safetensors). The loader then asks for rows and knows nothing of this. */
#ifndef SLUICE_WSRC_H
#define SLUICE_WSRC_H

#include "model/ckpt.h"
#include "model/spec.h"

enum wsrc_code {
	WSRC_PLAIN, /* rows of t->type: F32, F16, BF16, or a GGUF type */
	WSRC_FP8,   /* F8_E4M3 (rows, cols), scales: F32, BF16 or E8M0, one for each block of block_rows x block_cols -> F8_B32 */
	WSRC_GPTQ,  /* qweight I32 (cols / 8, rows), qzeros (groups, rows / 8) stored minus 1 (v1) or not (v2), scales F16, BF16 or F32 (groups, rows), g_idx
		     * I32 (cols) or none -> Q4_0 when all zeros are 8, else Q4_Z; with a g_idx that is not in order, F32 */
	WSRC_AWQ,   /* qweight I32 (cols, rows / 8), qzeros (groups, rows / 8), scales as GPTQ, nibbles in AWQ's order -> Q4_Z */
	WSRC_MXFP4  /* blocks U8 (.., rows, cols / 32, 16), scales U8 (.., rows, cols / 32) -> MXFP4 */
};

/* Values of vectors are changed on their way. */
enum wsrc_map { WSRC_AS_IS, WSRC_PLUS_ONE, WSRC_NEG_EXP };

/* `rows` rows of a weight: row r of them is row first + r / run * step + r % run of the tensor's (its column, when transposed). */
struct wsrc_piece {
	uint32_t rows;
	uint64_t first, run, step;
};
#define WSRC_PIECES_MAX 3

/* kdequant_row() of the kernels. */
typedef int wsrc_dequant(enum ggtype type, const void *row, float *out, uint64_t cols);

struct wsrc {
	const struct ckpt_tensor *t; /* the values, or the codes */
	const struct ckpt_tensor *scales, *zeros, *order;
	enum wsrc_code code;
	enum wsrc_map map;
	enum ggtype type;    /* of the rows that wsrc_rows() gives: wsrc_settle() */
	uint32_t rows, cols; /* of this weight; a vector is one row or one column */
	uint32_t rows_pad;   /* the last ones of `rows`, which no file has: zeros that make a vocabulary's shares equal */
	/* Its rows, one piece after the other: three where the tensor (qkvz of a delta net), or a rank's share of it, has q, k and v apart. */
	struct wsrc_piece pieces[WSRC_PIECES_MAX];
	uint32_t n_pieces;
	bool transposed;      /* the tensor is (cols, rows): F32, F16 and BF16 as they are; GGUF types and codes become F32 */
	uint64_t at;          /* rows of the tensor before this one of a stack: of experts, or of heads in kv_b_proj; 0 */
	uint64_t tensor_rows; /* of one of the stack (GPTQ, AWQ: of all): rows of the tensor, seen as (rows of all, columns), */
	uint64_t tensor_cols; /* and columns. transposed: tensor_rows == cols (but in GPTQ and AWQ), and pieces count columns */
	uint64_t col_first;      /* a rank's columns begin here */
	uint32_t block_rows, block_cols; /* FP8; GPTQ and AWQ: block_cols is the group */
	bool zeros_minus_one;            /* GPTQ v1 */
	wsrc_dequant *dequant; /* for a GGUF type transposed; set by whoever asks for rows (kernels are not known here) */
};

/* A share of a tensor-parallel group. */
struct wsrc_rank {
	uint32_t rank, size; /* 0, 1: everything */
};

/* The source of a role: of the `ix`-th matrix (SPEC_EACH) or row of vectors (SPEC_VECS); 0 for the others. Checks names, shapes, types
 * and companions: errors as spec_read(). Implemented beside the tables of names (family). */
int wsrc_find(struct wsrc *out, const struct spec *s, const struct ckpt *c, enum spec_role role, uint32_t layer, uint32_t ix,
	      struct errbuf *err) MUST_CHECK;

/* wsrc_find()'s last step, when all other members are set and the tensors' shapes are checked: which type the rows will have. F32 where
 * blocks of the usual one would not fit. */
void wsrc_settle(struct wsrc *w);

/* How many of a role's matrices or vectors (SPEC_EACH, SPEC_VECS; else 1) a rank has, and which of all its ix-th is: its own heads of
 * K_B and V_B, its own channels of D_CONV, all of the others, of each of which wsrc_shard() then takes a share. */
int wsrc_share(uint32_t *n, const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank, struct errbuf *err) MUST_CHECK;
uint32_t wsrc_share_ix(const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank, uint32_t ix);

/* Narrows it to a rank's share by the role's shard; a vocabulary's rows beyond spec.n_tokens are left out, of one rank's too. ST_INVALID:
 * the size does not divide; the text lists what does. */
int wsrc_shard(struct wsrc *w, const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank, struct errbuf *err) MUST_CHECK;

/* n rows from `row` on as GGUF rows of w->type to out (n * ggtype_row_bytes(w->type, w->cols) bytes). ST_INVALID: a scale that is NaN
 * or infinite; the text names tensor and place. Any thread. */
int wsrc_rows(const struct wsrc *w, uint32_t row, uint32_t n, void *out, struct errbuf *err) MUST_CHECK;
/* The rows where they lie, when they are stored just so, one after the other; else NULL. They are not checked for NaN: wsrc_check(). */
const void *wsrc_direct(const struct wsrc *w, uint32_t row, uint32_t n);
/* Finite scales (or values) in n rows of w->type at rows: what wsrc_rows() checks itself. */
int wsrc_check(const struct wsrc *w, uint32_t row, uint32_t n, const void *rows, struct errbuf *err) MUST_CHECK;
/* The whole weight (a vector, or one of vectors) as f32, mapped: rows * cols floats. Refuses NaN and infinity, likewise. */
int wsrc_floats(const struct wsrc *w, float *out, struct errbuf *err) MUST_CHECK;
/* The part of the bytes of w->t that so many rows lie in; codes and columns lie all over it. */
void wsrc_span(const struct wsrc *w, uint32_t row, uint32_t n, uint64_t *from, uint64_t *bytes);
/* True when rows are cheaper to have all at once: each of the tensor's own is decoded for all of them. */
bool wsrc_wants_all(const struct wsrc *w);
/* Bytes in the files that reading all of it touches. */
uint64_t wsrc_file_bytes(const struct wsrc *w);

#endif
