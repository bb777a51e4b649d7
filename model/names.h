/* names.h - which tensor a role is, and which of its rows: the tables of names, and what wsrc_find() makes of them.
 *
 * GGUF files spell tensors alike for all architectures, folders nearly so; a family lists where it differs. A role may
 * have several rows: the first one whose tensor exists counts. */
#ifndef SLUICE_NAMES_H
#define SLUICE_NAMES_H

#include "model/ckpt.h"
#include "model/spec.h"

/* Where in its tensor a weight's rows are. Shapes are the tensor's. */
enum names_cut {
	NAMES_WHOLE, /* the tensor itself; of EACH: one a matrix, its number is in the name; of VECS: (n, cols) */
	NAMES_STACK, /* (n, rows, cols) */
	NAMES_QKV,   /* rows of q, of k, of v: Phi-3 */
	NAMES_LOW,   /* the first of two halves of rows: gate */
	NAMES_HIGH,  /* the second: up */
	NAMES_STACK_LOW,
	NAMES_STACK_HIGH, /* (n, 2 rows, cols) */
	NAMES_BESIDE,     /* q of a head, its gate, q of the next head ... */
	NAMES_BESIDE_2,   /* the gate of these */
	NAMES_QKVZ,       /* by k head of a delta net: q, k, v and z of its v heads; the first three */
	NAMES_QKVZ_Z,
	NAMES_BA, /* by k head: b, a; the first */
	NAMES_BA_A,
	NAMES_KV_B, /* by head of MLA: nope_dim rows for k, v_dim for v; k transposed */
	NAMES_KV_B_V,
	NAMES_TURNED, /* (n, cols, rows) */
	NAMES_EVEN,   /* (n, cols, 2 rows): the even columns; bias: (n, 2 cols) */
	NAMES_ODD,
	NAMES_CODES,      /* MXFP4: NAME_blocks (n, rows, cols / 32, 16), NAME_scales (n, rows, cols / 32) */
	NAMES_CODES_EVEN, /* the same with 2 rows: the even ones */
	NAMES_CODES_ODD
};

struct names_row {
	enum spec_role role; /* SPEC_ROLE_COUNT ends a list */
	const char *name; /* the first %u is the layer, the second the number of the matrix; in folders "=" goes before
			     what has no prefix */
	enum names_cut cut;
};

/* The prefix of a folder's tensors ("model.", "model.language_model." ...), by where the embedding is; "model." when
 * nowhere. */
const char *names_prefix(const struct ckpt *c);

/* True for a tensor that may be left out: buffers, scales of KV caches, a vision part, layers that predict further
 * tokens. */
bool names_harmless(const struct spec *s, const struct ckpt_tensor *t, uint32_t mtp_layers);

/* A role's rows one after the other: start with {0}; NULL at the end. */
struct names_walk {
	size_t ix;  /* the next row of the family's list, */
	bool usual; /* or of the usual one */
};
const struct names_row *names_next(const struct spec *s, enum spec_role role, struct names_walk *walk);

struct names_text {
	char text[160];
};
struct names_text names_spell(const struct spec *s, const struct names_row *row, uint32_t layer, uint32_t ix);
/* The matrix's number is in the name. */
bool names_is_each(const struct names_row *row);

/* For messages: the setting that fills a field of struct spec or spec_layer, as the checkpoint spells it; and those
 * that a role's shape comes from, "num_attention_heads, head_dim, hidden_size". */
struct names_text names_setting(const struct spec *s, const struct ckpt *c, const char *field);
struct names_text names_settings(const struct spec *s, const struct ckpt *c, enum spec_role role);

#endif
