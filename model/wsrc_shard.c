/* wsrc_shard.c - see wsrc.h: a tensor-parallel rank's share of each weight.
 *
 * Shares are whole heads, and equal; where there are fewer KV heads (key heads of a delta net) than ranks, several
 * ranks have the same. What a unit of a role is, and how many there are, is said once (wsrc_units); the rest is cutting
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

static bool wsrc_is_delta(enum spec_role role)
{
	return role == SPEC_D_QKV || role == SPEC_D_Z || role == SPEC_D_B || role == SPEC_D_A || role == SPEC_D_CONV ||
	       role == SPEC_D_DT_BIAS || role == SPEC_D_NEG_A || role == SPEC_D_OUT;
}

static struct wsrc_units wsrc_units(const struct spec *s, enum spec_role role, uint32_t layer)
{
	const struct spec_layer *y = spec_role_scope(role) == SPEC_LAYER ? &s->layers[layer] : NULL;

	if (wsrc_is_delta(role)) return (struct wsrc_units){"value heads", y->dv_heads};
	switch ((int)role) {
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

/* Columns that a share must be a multiple of: blocks are not cut. Codes with scales beside them can be: they become F32
 * where they do not fit (wsrc_settle()). */
static uint32_t wsrc_col_unit(const struct wsrc *w)
{
	if (w->code == WSRC_MXFP4) return 32;
	return w->code == WSRC_PLAIN ? ggtype_info(w->t->type)->block_len : 1;
}

/* Heads that others read (KV of queries, keys of a delta net's values): shared out, or one for several ranks. */
static bool wsrc_may_repeat(uint32_t n, uint32_t size)
{
	return n % size == 0 || size % n == 0;
}

/* Which of n such heads a rank has: from, and how many. */
static uint32_t wsrc_repeated(uint32_t n, struct wsrc_rank r, uint32_t *from)
{
	uint32_t share = r.size <= n ? n / r.size : 1;

	*from = r.size <= n ? r.rank * share : r.rank / (r.size / n);
	return share;
}

/* w may be NULL: then a share is by matrices, not of one. */
static bool wsrc_may_share(const struct wsrc *w, const struct spec *s, enum spec_role role, uint32_t layer,
			   uint32_t size)
{
	const struct spec_layer *y = spec_role_scope(role) == SPEC_LAYER ? &s->layers[layer] : NULL;
	enum spec_shard how = spec_role_shard(role);

	if (how == SPEC_WHOLE || how == SPEC_VOCAB) return true;
	if (wsrc_units(s, role, layer).n % size != 0) return false;
	if (how == SPEC_KV) return wsrc_may_repeat(y->kv_heads, size);
	if (wsrc_is_delta(role) && !wsrc_may_repeat(y->dk_heads, size)) return false;
	/* Known gap: shares of tiled heads would be several pieces, of D_OUT's columns too. */
	if (wsrc_is_delta(role) && y->dv_tiled && y->dv_heads != y->dk_heads && size > 1) return false;
	return how == SPEC_ROWS || !w || w->cols / size % wsrc_col_unit(w) == 0;
}

static int wsrc_refuse_size(const struct wsrc *w, const struct spec *s, enum spec_role role, uint32_t layer,
			    uint32_t size, struct errbuf *err)
{
	struct wsrc_units u = wsrc_units(s, role, layer);
	struct strbuf sizes;
	int rc;

	strbuf_init(&sizes, 512);
	for (uint32_t n = 1; n <= WSRC_SIZES_SHOWN; n++)
		if (wsrc_may_share(w, s, role, layer, n)) strbuf_printf(&sizes, "%s%u", n > 1 ? ", " : "", n);
	if (w && spec_role_shard(role) == SPEC_COLS && u.n % size == 0)
		rc = err_set(err, ST_INVALID,
			     "tensor %.*s: %u columns of %s, in blocks of %u, cannot be shared by %u ranks; up to %d "
			     "these can: %s",
			     (int)w->t->name.len, w->t->name.s, w->cols, ckpt_type_name(w->t->type), wsrc_col_unit(w),
			     size, WSRC_SIZES_SHOWN, sizes.data);
	else
		rc = err_set(err, ST_INVALID,
			     "layer %u, %s: %u %s%s cannot be shared by %u ranks; up to %d these can: %s", layer,
			     spec_role_name(role), u.n, u.name,
			     spec_role_shard(role) == SPEC_KV ? " with their KV heads"
			     : wsrc_is_delta(role)            ? " with their key heads"
							      : "",
			     size, WSRC_SIZES_SHOWN, sizes.data);
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
			/* A share begins inside of a run only when it ends there too: runs are heads, or all there is.
			 */
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

/* A rank's parts of q, k and v of a delta net, as they lie one after the other. */
static void wsrc_delta_parts(const struct spec_layer *y, struct wsrc_rank r, uint32_t from[3], uint32_t n[3])
{
	uint32_t k_from, k_heads = wsrc_repeated(y->dk_heads, r, &k_from), v_heads = y->dv_heads / r.size,
			 all = y->dk_heads * y->dk_dim;

	n[0] = n[1] = k_heads * y->dk_dim;
	n[2] = v_heads * y->dv_dim;
	from[0] = k_from * y->dk_dim;
	from[1] = all + from[0];
	from[2] = 2 * all + r.rank * n[2];
}

static void wsrc_keep_delta(struct wsrc *w, const struct spec_layer *y, struct wsrc_rank r)
{
	struct wsrc old = *w;
	uint32_t from[3], n[3];

	wsrc_delta_parts(y, r, from, n);
	w->rows = w->n_pieces = 0;
	for (int i = 0; i < 3; i++) wsrc_take_rows(w, &old, from[i], n[i]);
}

static void wsrc_keep_kv(struct wsrc *w, enum spec_role role, uint32_t kv_heads, struct wsrc_rank r)
{
	uint32_t head = wsrc_length(w, role) / kv_heads, from, n = wsrc_repeated(kv_heads, r, &from);

	wsrc_keep(w, role, from * head, n * head);
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

int wsrc_shard(struct wsrc *w, const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank,
	       struct errbuf *err)
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
			wsrc_keep(w, role, rank.rank * (wsrc_length(w, role) / rank.size),
				  wsrc_length(w, role) / rank.size);
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

int wsrc_share(uint32_t *n, const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank,
	       struct errbuf *err)
{
	uint32_t from[3], parts[3];

	*n = spec_role_shape(s, role, layer).n;
	if (!wsrc_is_shared_out(role) || rank.size == 1) return ST_OK;
	if (!wsrc_may_share(NULL, s, role, layer, rank.size))
		return wsrc_refuse_size(NULL, s, role, layer, rank.size, err);
	if (role == SPEC_D_CONV) {
		wsrc_delta_parts(&s->layers[layer], rank, from, parts);
		*n = parts[0] + parts[1] + parts[2];
	} else {
		*n /= rank.size;
	}
	return ST_OK;
}

uint32_t wsrc_share_ix(const struct spec *s, enum spec_role role, uint32_t layer, struct wsrc_rank rank, uint32_t ix)
{
	uint32_t from[3], n[3];

	if (!wsrc_is_shared_out(role)) return ix;
	if (role != SPEC_D_CONV) return s->layers[layer].heads / rank.size * rank.rank + ix;
	wsrc_delta_parts(&s->layers[layer], rank, from, n);
	for (int i = 0; i < 3; i++) {
		if (ix < n[i]) return from[i] + ix;
		ix -= n[i];
	}
	CHECK(false);
	return 0;
}
