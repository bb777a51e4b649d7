/* wsrc_shard.c - see wsrc.h: a tensor-parallel rank's share of each weight.
 *
 * Shares are whole heads, and equal. What a unit of a role is, and how many there are, is said once (wsrc_units); the rest is cutting
 * pieces. Which sizes work follows from the same function, so an error can list them. */
#include "model/wsrc_impl.h"

#include "common/strbuf.h"

#include <stdlib.h>

#define WSRC_SIZES_SHOWN 64 /* sizes of groups that an error looks at */

/* What is shared out, whole: n of them. */
struct wsrc_units {
	const char *name;
	uint32_t n;
};

static struct wsrc_units wsrc_units(const struct spec *s, enum spec_role role, uint32_t layer)
{
	const struct spec_layer *y = spec_role_scope(role) == SPEC_LAYER ? &s->layers[layer] : NULL;

	switch ((int)role) {
	case SPEC_D_QKV:
	case SPEC_D_Z:
	case SPEC_D_B:
	case SPEC_D_A:
	case SPEC_D_CONV:
	case SPEC_D_DT_BIAS:
	case SPEC_D_NEG_A:
	case SPEC_D_OUT:
		return (struct wsrc_units){"key heads", y->dk_heads}; /* value heads follow theirs */
	case SPEC_GATE:
	case SPEC_UP:
	case SPEC_DOWN:
	case SPEC_GATE_BIAS:
	case SPEC_UP_BIAS:
		return (struct wsrc_units){"feed-forward rows", y->ffn};
	case SPEC_EXP_GATE:
	case SPEC_EXP_UP:
	case SPEC_EXP_DOWN:
	case SPEC_EXP_GATE_BIAS:
	case SPEC_EXP_UP_BIAS:
		return (struct wsrc_units){"rows of an expert", y->expert_ffn};
	case SPEC_SH_GATE:
	case SPEC_SH_UP:
	case SPEC_SH_DOWN:
		return (struct wsrc_units){"rows of the shared expert", y->shared_ffn};
	default:
		return (struct wsrc_units){"heads", y ? y->heads : 1};
	}
}

/* Columns that a share must be a multiple of: blocks are not cut. Codes with scales beside them can be: they become F32 where they do
 * not fit (wsrc_settle()). */
static uint32_t wsrc_col_unit(const struct wsrc *w)
{
	if (w->code == WSRC_MXFP4) return 32;
	return w->code == WSRC_PLAIN ? ggtype_info(w->t->type)->block_len : 1;
}

/* w may be NULL: then a share is by matrices, not of one. */
static bool wsrc_may_share(const struct wsrc *w, const struct spec *s, enum spec_role role, uint32_t layer, uint32_t size)
{
	struct wsrc_units u = wsrc_units(s, role, layer);

	switch (spec_role_shard(role)) {
	case SPEC_WHOLE:
	case SPEC_VOCAB:
		return true;
	case SPEC_ROWS:
		return u.n % size == 0;
	case SPEC_COLS:
		return u.n % size == 0 && (!w || w->cols / size % wsrc_col_unit(w) == 0);
	case SPEC_KV:
		return u.n % size == 0 && (s->layers[layer].kv_heads % size == 0 || size % s->layers[layer].kv_heads == 0);
	}
	return false;
}

static int wsrc_refuse_size(const struct wsrc *w, const struct spec *s, enum spec_role role, uint32_t layer, uint32_t size,
			    struct errbuf *err)
{
	struct wsrc_units u = wsrc_units(s, role, layer);
	struct strbuf sizes;
	int rc;

	strbuf_init(&sizes, 512);
	for (uint32_t n = 1; n <= WSRC_SIZES_SHOWN; n++)
		if (wsrc_may_share(w, s, role, layer, n)) strbuf_printf(&sizes, "%s%u", n > 1 ? ", " : "", n);
	if (w && spec_role_shard(role) == SPEC_COLS && u.n % size == 0)
		rc = err_set(err, ST_INVALID, "tensor %.*s: %u columns of %s, in blocks of %u, cannot be shared by %u ranks; up to %d these can: %s",
			     (int)w->t->name.len, w->t->name.s, w->cols, ckpt_type_name(w->t->type), wsrc_col_unit(w), size,
			     WSRC_SIZES_SHOWN, sizes.data);
	else
		rc = err_set(err, ST_INVALID, "layer %u, %s: %u %s%s cannot be shared by %u ranks; up to %d these can: %s", layer,
			     spec_role_name(role), u.n, u.name, spec_role_shard(role) == SPEC_KV ? " with their KV heads" : "", size,
			     WSRC_SIZES_SHOWN, sizes.data);
	strbuf_release(&sizes);
	return rc;
}

/* ---- cutting ---- */

/* Appends rows [from, from + n) of the old pieces to w's. */
static void wsrc_take_rows(struct wsrc *w, const struct wsrc *old, uint32_t from, uint32_t n)
{
	for (uint32_t i = 0; i < old->n_pieces && n > 0; i++) {
		struct wsrc_piece p = old->pieces[i];
		uint32_t m;

		if (from >= p.rows) {
			from -= p.rows;
			continue;
		}
		m = min_u32(n, p.rows - from);
		p.first += from / p.run * p.step;
		if (from % p.run != 0) {
			/* A share begins inside of a run only when it ends there too: runs are heads, or all there is. */
			CHECK(from % p.run + m <= p.run);
			p.first += from % p.run;
			p.run = p.step = m;
		}
		p.rows = m;
		CHECK(w->n_pieces < WSRC_PIECES_MAX);
		w->pieces[w->n_pieces++] = p;
		w->rows += m;
		from = 0;
		n -= m;
	}
	CHECK(n == 0);
}

/* A vector that is one row is cut by columns. */
static bool wsrc_is_one_row(const struct wsrc *w, enum spec_role role)
{
	enum spec_form form = spec_role_form(role);

	return (form == SPEC_VEC || form == SPEC_VECS) && w->rows == 1;
}

static uint32_t wsrc_length(const struct wsrc *w, enum spec_role role)
{
	return wsrc_is_one_row(w, role) ? w->cols : w->rows;
}

/* Keeps [from, from + n) of this length. */
static void wsrc_keep(struct wsrc *w, enum spec_role role, uint32_t from, uint32_t n)
{
	struct wsrc old = *w;

	if (wsrc_is_one_row(w, role)) {
		CHECK(from + n <= w->cols);
		w->col_first += from;
		w->cols = n;
		return;
	}
	w->rows = w->n_pieces = 0;
	wsrc_take_rows(w, &old, from, n);
}

/* Lengths of q, k and v of a delta net, and the ratio of each to the number of ranks. */
static void wsrc_delta_parts(const struct spec_layer *y, uint32_t out[3])
{
	out[0] = out[1] = y->dk_heads * y->dk_dim;
	out[2] = y->dv_heads * y->dv_dim;
}

static void wsrc_keep_delta(struct wsrc *w, const struct spec_layer *y, struct wsrc_rank r)
{
	struct wsrc old = *w;
	uint32_t parts[3], at = 0;

	wsrc_delta_parts(y, parts);
	w->rows = w->n_pieces = 0;
	for (int i = 0; i < 3; i++) {
		uint32_t n = parts[i] / r.size;

		wsrc_take_rows(w, &old, at + r.rank * n, n);
		at += parts[i];
	}
}

static void wsrc_keep_kv(struct wsrc *w, enum spec_role role, uint32_t kv_heads, struct wsrc_rank r)
{
	uint32_t head = wsrc_length(w, role) / kv_heads;

	if (r.size <= kv_heads)
		wsrc_keep(w, role, r.rank * (kv_heads / r.size) * head, kv_heads / r.size * head);
	else
		wsrc_keep(w, role, r.rank / (r.size / kv_heads) * head, head);
}

/* Shares are equal; the last ones are filled up with rows of zeros. */
static void wsrc_keep_vocab(struct wsrc *w, uint32_t n_tokens, struct wsrc_rank r)
{
	uint32_t share = (uint32_t)div_up(n_tokens, r.size);
	uint32_t from = (uint32_t)min_u64((uint64_t)share * r.rank, n_tokens), n = min_u32(share, n_tokens - from);
	struct wsrc old = *w;

	w->rows = w->n_pieces = 0;
	wsrc_take_rows(w, &old, from, n);
	w->rows_pad = share - n;
	w->rows = share;
}

int wsrc_shard(struct wsrc *w, const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank, struct errbuf *err)
{
	enum spec_shard how = spec_role_shard(role);

	CHECK(rank.size >= 1 && rank.rank < rank.size);
	if (how == SPEC_VOCAB) wsrc_keep_vocab(w, s->n_tokens, rank);
	/* Heads and channels that are matrices or vectors of their own: wsrc_share(). */
	if (rank.size == 1 || role == SPEC_K_B || role == SPEC_V_B || role == SPEC_D_CONV) return ST_OK;
	if (!wsrc_may_share(w, s, role, layer, rank.size)) return wsrc_refuse_size(w, s, role, layer, rank.size, err);
	switch (how) {
	case SPEC_ROWS:
		if (role == SPEC_D_QKV)
			wsrc_keep_delta(w, &s->layers[layer], rank);
		else
			wsrc_keep(w, role, rank.rank * (wsrc_length(w, role) / rank.size), wsrc_length(w, role) / rank.size);
		break;
	case SPEC_KV:
		wsrc_keep_kv(w, role, s->layers[layer].kv_heads, rank);
		break;
	case SPEC_COLS:
		w->cols /= rank.size;
		w->col_first += (uint64_t)rank.rank * w->cols;
		wsrc_settle(w);
		break;
	case SPEC_VOCAB:
	case SPEC_WHOLE:
		break;
	}
	return ST_OK;
}

/* ---- of many ---- */

static bool wsrc_is_shared_out(enum spec_role role)
{
	return role == SPEC_K_B || role == SPEC_V_B || role == SPEC_D_CONV;
}

int wsrc_share(uint32_t *n, const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank, struct errbuf *err)
{
	*n = spec_role_shape(s, role, layer).n;
	if (!wsrc_is_shared_out(role) || rank.size == 1) return ST_OK;
	if (!wsrc_may_share(NULL, s, role, layer, rank.size)) return wsrc_refuse_size(NULL, s, role, layer, rank.size, err);
	*n /= rank.size;
	return ST_OK;
}

uint32_t wsrc_share_ix(const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank, uint32_t ix)
{
	uint32_t parts[3], at = 0;

	if (!wsrc_is_shared_out(role)) return ix;
	if (role != SPEC_D_CONV) return s->layers[layer].heads / rank.size * rank.rank + ix;
	wsrc_delta_parts(&s->layers[layer], parts);
	for (int i = 0; i < 3; i++) {
		uint32_t n = parts[i] / rank.size;

		if (ix < n) return at + rank.rank * n + ix;
		ix -= n;
		at += parts[i];
	}
	CHECK(false);
	return 0;
}
