/* weights.c - see weights.h.
 *
 * Three passes. The list: an item for each matrix, with its source and its place; what the device can use where it lies
 * needs no place (a view). The vectors, few and small, through the stream. Then the matrices: threads take pieces of
 * some hundred rows in the order of the files, so a cold file streams, a large matrix is the work of all threads and
 * thousands of small ones cost no more. A piece is looked at for scales that are not finite, put to its place, and its
 * pages are given back, all while it is in the cache. Views are looked at in the same way: their pages are needed later
 * anyway. The first error stops all threads. */
#include "worker/weights.h"

#include "common/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS_ALIGN       64
#define WEIGHTS_THREADS_MAX 32          /* beyond it the disk or the memory is the limit */
#define WEIGHTS_PIECE_BYTES (256 * KIB) /* of rows: with what becomes of them, they stay in a core's cache */
#define WEIGHTS_PIECE_ROWS  256         /* at least so many of those that lie column by column in their file */
#define WEIGHTS_AHEAD_BYTES (64 * MIB)  /* the kernel is asked to read so far ahead */

struct weights_item {
	struct wsrc src;
	struct kmat *mat;
	size_t at, bytes; /* in the arena; bytes 0: a view */
	uint64_t file_bytes;
	uint32_t piece_rows;
	uint32_t piece_end;    /* pieces of the items up to and with this one */
	_Atomic uint32_t left; /* pieces that are not done */
};

/* Vectors of one role of one layer. */
struct weights_vectors {
	enum spec_role role;
	uint32_t layer, n, len; /* of this rank; len floats each */
	float **vec;
	size_t at; /* in the arena */
};

struct weights_list {
	struct weights_item *items;
	size_t n, cap;
	struct weights_vectors *vectors;
	size_t n_vectors, vectors_cap;
	size_t vector_bytes; /* the vectors are the first in the arena, without gaps but for alignment */
	size_t bytes;        /* of the arena */
	uint64_t viewed_bytes;
};

struct weights_job {
	struct kdev *dev;
	const struct spec *spec;
	const struct ckpt *ckpt;
	struct wsrc_rank rank;
	struct weights *w;
	struct weights_list list;
	/* Loading. */
	uint32_t n_pieces;
	size_t buffer_bytes; /* of a thread */
	_Atomic uint32_t next;
	_Atomic size_t ahead;  /* items whose bytes have been asked for */
	_Atomic uint64_t done; /* file bytes */
	uint64_t total;
	pthread_mutex_t lock; /* of the two below */
	int rc;
	struct errbuf err;
	_Atomic bool failed;
};

/* An error about a tensor says in which file it is. */
static int weights_in_file(const struct weights_job *j, const struct wsrc *src, int rc, struct errbuf *err)
{
	return err_prefix(err, rc, "%s", ckpt_file_name(j->ckpt, src->t->file));
}

/* ---- the list ---- */

static int weights_source(const struct weights_job *j, struct wsrc *src, enum spec_role role, uint32_t layer,
			  uint32_t ix, struct errbuf *err)
{
	int rc = wsrc_find(src, j->spec, j->ckpt, role, layer, wsrc_share_ix(j->spec, role, layer, j->rank, ix), err);

	src->dequant = kdequant_row;
	return rc == ST_OK ? wsrc_shard(src, j->spec, role, layer, j->rank, err) : rc;
}

static int weights_add_matrix(struct weights_job *j, struct kmat *mat, enum spec_role role, uint32_t layer, uint32_t ix,
			      struct errbuf *err)
{
	struct weights_list *l = &j->list;
	const struct kops *ops = kdev_ops(j->dev);
	struct weights_item *it;
	struct wsrc *src;
	const void *direct;
	int rc;

	mem_reserve(l->items, l->cap, l->n + 1);
	it = &l->items[l->n];
	*it = (struct weights_item){.mat = mat};
	src = &it->src;
	rc = weights_source(j, src, role, layer, ix, err);
	if (rc != ST_OK) return rc;
	l->n++;
	it->file_bytes = wsrc_file_bytes(src);
	direct = wsrc_direct(src, 0, src->rows);
	if (direct && ops->mat_view(j->dev, mat, src->type, src->rows, src->cols, direct)) {
		l->viewed_bytes += it->file_bytes;
		return ST_OK;
	}
	it->bytes = ops->mat_bytes(j->dev, src->type, src->rows, src->cols);
	if (it->bytes == 0) {
		rc = err_set(err, ST_UNSUPPORTED, "tensor %.*s: the device has no products for the type %s",
			     (int)src->t->name.len, src->t->name.s, ggtype_info(src->type)->name);
		return weights_in_file(j, src, rc, err);
	}
	it->at = l->bytes;
	l->bytes += align_up(it->bytes, WEIGHTS_ALIGN);
	return ST_OK;
}

static int weights_add_vectors(struct weights_job *j, float **vec, enum spec_role role, uint32_t layer, uint32_t n,
			       struct errbuf *err)
{
	struct weights_list *l = &j->list;
	struct wsrc src;
	int rc = weights_source(j, &src, role, layer, 0, err);

	if (rc != ST_OK) return rc;
	mem_reserve(l->vectors, l->vectors_cap, l->n_vectors + 1);
	l->vectors[l->n_vectors++] = (struct weights_vectors){
		.role = role, .layer = layer, .n = n, .len = src.rows * src.cols, .vec = vec, .at = l->bytes};
	l->bytes += align_up((size_t)n * src.rows * src.cols * sizeof(float), WEIGHTS_ALIGN);
	return ST_OK;
}

static int weights_add_role(struct weights_job *j, enum spec_role role, uint32_t layer, bool vectors,
			    struct errbuf *err)
{
	struct weights_layer *y = &j->w->layers[layer];
	enum spec_form form = spec_role_form(role);
	bool is_vector = form == SPEC_VEC || form == SPEC_VECS;
	uint32_t n;
	int rc;

	if (is_vector != vectors || !spec_has(j->spec, role, layer)) return ST_OK;
	rc = wsrc_share(&n, j->spec, role, layer, j->rank, err);
	if (rc != ST_OK) return rc;
	if (is_vector) return weights_add_vectors(j, &y->vec[role], role, layer, n, err);
	if (form == SPEC_MAT) return weights_add_matrix(j, &y->mat[role], role, layer, 0, err);
	y->each[role] = mem_array(struct kmat, n);
	for (uint32_t i = 0; i < n && rc == ST_OK; i++)
		rc = weights_add_matrix(j, &y->each[role][i], role, layer, i, err);
	return rc;
}

/* Roles of the whole model are those of one more layer. Vectors first: they go to the device in one piece. */
static int weights_list(struct weights_job *j, struct errbuf *err)
{
	int rc = ST_OK;

	for (int vectors = 1; vectors >= 0; vectors--) {
		for (uint32_t layer = 0; layer <= j->spec->n_layers; layer++) {
			enum spec_scope scope = layer < j->spec->n_layers ? SPEC_LAYER : SPEC_MODEL;

			for (int role = 0; role < SPEC_ROLE_COUNT && rc == ST_OK; role++)
				if (spec_role_scope(role) == scope) rc = weights_add_role(j, role, layer, vectors, err);
		}
		if (vectors) j->list.vector_bytes = j->list.bytes;
	}
	return rc;
}

static void weights_job_init(struct weights_job *j, struct weights *w, struct kdev *dev, const struct spec *s,
			     const struct ckpt *c, struct wsrc_rank rank)
{
	*j = (struct weights_job){.dev = dev, .spec = s, .ckpt = c, .rank = rank, .w = w};
	*w = (struct weights){
		.dev = dev, .n_layers = s->n_layers, .layers = mem_array(struct weights_layer, s->n_layers + 1)};
}

static void weights_job_release(struct weights_job *j)
{
	free(j->list.items);
	free(j->list.vectors);
}

int weights_bytes(struct kdev *dev, const struct spec *s, const struct ckpt *c, struct wsrc_rank rank, size_t *copied,
		  uint64_t *viewed, struct errbuf *err)
{
	struct weights w;
	struct weights_job j;
	int rc;

	weights_job_init(&j, &w, dev, s, c, rank);
	rc = weights_list(&j, err);
	*copied = j.list.bytes;
	*viewed = j.list.viewed_bytes;
	weights_job_release(&j);
	weights_release(&w);
	return rc;
}

/* ---- vectors ---- */

/* True when the vectors of a role, of which these are the first and the last, are rows of one tensor: then each needs
 * no search. */
static bool weights_is_stack(const struct weights_job *j, const struct weights_vectors *v, const struct wsrc *first,
			     const struct wsrc *last)
{
	uint32_t from = wsrc_share_ix(j->spec, v->role, v->layer, j->rank, 0),
		 to = wsrc_share_ix(j->spec, v->role, v->layer, j->rank, v->n - 1);

	return first->t == last->t && first->tensor_rows == last->tensor_rows &&
	       last->at - first->at == (to - from) * first->tensor_rows && first->col_first == last->col_first &&
	       first->n_pieces == last->n_pieces &&
	       memcmp(first->pieces, last->pieces, first->n_pieces * sizeof(first->pieces[0])) == 0;
}

static int weights_vector(const struct weights_job *j, const struct wsrc *src, uint32_t len, float *out,
			  struct errbuf *err)
{
	int rc;

	CHECK(src->rows * src->cols == len);
	rc = wsrc_floats(src, out, err);
	return rc == ST_OK ? ST_OK : weights_in_file(j, src, rc, err);
}

static int weights_load_role(const struct weights_job *j, const struct weights_vectors *v, float *out,
			     struct errbuf *err)
{
	struct wsrc first, last, src;
	int rc = weights_source(j, &first, v->role, v->layer, 0, err);
	bool stack;

	if (rc == ST_OK) rc = weights_source(j, &last, v->role, v->layer, v->n - 1, err);
	stack = rc == ST_OK && weights_is_stack(j, v, &first, &last);
	for (uint32_t k = 0; k < v->n && rc == ST_OK; k++) {
		src = first;
		if (stack)
			src.at += (uint64_t)(wsrc_share_ix(j->spec, v->role, v->layer, j->rank, k) -
					     wsrc_share_ix(j->spec, v->role, v->layer, j->rank, 0)) *
				  first.tensor_rows;
		else
			rc = weights_source(j, &src, v->role, v->layer, k, err);
		if (rc == ST_OK) rc = weights_vector(j, &src, v->len, out + (size_t)k * v->len, err);
	}
	return rc;
}

static int weights_load_vectors(struct weights_job *j, struct errbuf *err)
{
	char *host = mem_array(char, j->list.vector_bytes + 1);
	int rc = ST_OK;

	for (size_t i = 0; i < j->list.n_vectors && rc == ST_OK; i++) {
		const struct weights_vectors *v = &j->list.vectors[i];

		rc = weights_load_role(j, v, (float *)(void *)(host + v->at), err);
		*v->vec = (float *)(void *)((char *)j->w->arena + v->at);
	}
	if (rc == ST_OK) {
		kdev_upload(j->dev, j->w->arena, host, j->list.vector_bytes);
		rc = kdev_sync(j->dev);
		if (rc != ST_OK) err_set(err, rc, "loading weights: %s", status_text(rc));
	}
	free(host);
	return rc;
}

/* ---- matrices ---- */

static int weights_by_place(const void *a, const void *b)
{
	const struct wsrc *x = &((const struct weights_item *)a)->src, *y = &((const struct weights_item *)b)->src;
	uint64_t x_from, y_from, bytes;

	if (x->t->file != y->t->file) return x->t->file < y->t->file ? -1 : 1;
	if (x->t->data != y->t->data) return x->t->data < y->t->data ? -1 : 1;
	wsrc_span(x, 0, 1, &x_from, &bytes);
	wsrc_span(y, 0, 1, &y_from, &bytes);
	return (x_from > y_from) - (x_from < y_from);
}

/* Rows of a piece: a multiple of KMAT_PUT_ROWS, or all. */
static uint32_t weights_piece_rows(const struct wsrc *src)
{
	size_t bytes = ggtype_row_bytes(src->type, src->cols);
	uint32_t rows;

	if (wsrc_wants_all(src)) return src->rows;
	rows = (uint32_t)max_size(WEIGHTS_PIECE_BYTES / bytes / KMAT_PUT_ROWS * KMAT_PUT_ROWS, KMAT_PUT_ROWS);
	if (src->transposed || src->code != WSRC_PLAIN) rows = max_u32(rows, WEIGHTS_PIECE_ROWS);
	return min_u32(rows, src->rows);
}

static int weights_cut(struct weights_job *j, struct errbuf *err)
{
	uint64_t n_pieces = 0;

	qsort(j->list.items, j->list.n, sizeof(*j->list.items), weights_by_place);
	for (size_t i = 0; i < j->list.n; i++) {
		struct weights_item *it = &j->list.items[i];
		uint32_t n;

		it->piece_rows = weights_piece_rows(&it->src);
		n = (uint32_t)div_up(it->src.rows, it->piece_rows);
		n_pieces += n;
		if (n_pieces > UINT32_MAX / 2) return err_set(err, ST_LIMIT, "the model has too many matrices");
		it->piece_end = (uint32_t)n_pieces;
		atomic_init(&it->left, n);
		j->total += it->file_bytes;
		if (!wsrc_direct(&it->src, 0, it->src.rows))
			j->buffer_bytes = max_size(j->buffer_bytes,
						   it->piece_rows * ggtype_row_bytes(it->src.type, it->src.cols));
	}
	j->n_pieces = (uint32_t)n_pieces;
	return ST_OK;
}

static void weights_fail(struct weights_job *j, int rc, const struct errbuf *err)
{
	pthread_mutex_lock(&j->lock);
	if (j->rc == ST_OK) {
		j->rc = rc;
		j->err = *err;
	}
	pthread_mutex_unlock(&j->lock);
	atomic_store(&j->failed, true);
}

/* Asks for the bytes of the items that come next. Several threads may: each item is asked for once. */
static void weights_read_ahead(struct weights_job *j, size_t ix)
{
	uint64_t ahead = 0;

	for (size_t i = ix; i < j->list.n && ahead < WEIGHTS_AHEAD_BYTES; i++) {
		const struct ckpt_tensor *t = j->list.items[i].src.t;
		size_t have = i;

		ahead += j->list.items[i].file_bytes;
		/* A tensor with a stack of matrices is asked for with its first one. */
		if (atomic_compare_exchange_strong(&j->ahead, &have, i + 1) &&
		    (i == 0 || j->list.items[i - 1].src.t != t))
			ckpt_will_need(t);
	}
}

static void weights_drop(struct weights_item *it, uint32_t row, uint32_t n)
{
	uint64_t from, bytes;
	bool last = atomic_fetch_sub(&it->left, 1) == 1;

	if (it->bytes == 0) return; /* a view stays */
	/* Codes lie column by column: the last piece gives all back. So it does for pages that two pieces share. */
	wsrc_span(&it->src, last ? 0 : row, last ? it->src.rows : n, &from, &bytes);
	if (last || wsrc_direct(&it->src, row, n)) ckpt_drop(it->src.t, from, bytes);
}

static int weights_load_piece(struct weights_job *j, struct weights_item *it, uint32_t row, uint32_t n, void *buffer,
			      struct errbuf *err)
{
	const void *rows = wsrc_direct(&it->src, row, n);
	int rc;

	if (rows) {
		rc = wsrc_check(&it->src, row, n, rows, err);
	} else {
		rc = wsrc_rows(&it->src, row, n, buffer, err);
		rows = buffer;
	}
	if (rc != ST_OK) return weights_in_file(j, &it->src, rc, err);
	if (it->bytes) kdev_ops(j->dev)->mat_put(j->dev, it->mat, row, n, rows);
	weights_drop(it, row, n);
	return ST_OK;
}

/* The item that piece `ix` belongs to: the first whose pieces end behind it. */
static size_t weights_item_of(const struct weights_list *l, uint32_t ix)
{
	size_t low = 0, high = l->n - 1;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (l->items[mid].piece_end > ix)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* Loads the next piece; false when there is none left, or something failed. */
static bool weights_load_next(struct weights_job *j, void *buffer)
{
	uint32_t ix = atomic_fetch_add(&j->next, 1), row, n;
	struct weights_item *it;
	struct errbuf err = {0};
	size_t item_ix;
	int rc;

	if (ix >= j->n_pieces || atomic_load(&j->failed)) return false;
	item_ix = weights_item_of(&j->list, ix);
	it = &j->list.items[item_ix];
	row = (ix - (item_ix ? it[-1].piece_end : 0)) * it->piece_rows;
	n = min_u32(it->piece_rows, it->src.rows - row);
	if (row == 0) weights_read_ahead(j, item_ix);
	rc = weights_load_piece(j, it, row, n, buffer, &err);
	if (rc != ST_OK) weights_fail(j, rc, &err);
	/* Parts of the item's bytes that add up to all of them. */
	atomic_fetch_add(&j->done, it->file_bytes * (row + n) / it->src.rows - it->file_bytes * row / it->src.rows);
	return rc == ST_OK;
}

static void *weights_thread(void *arg)
{
	struct weights_job *j = arg;
	void *buffer = mem_array(char, j->buffer_bytes + 1);

	while (weights_load_next(j, buffer))
		;
	free(buffer);
	return NULL;
}

static int weights_load_matrices(struct weights_job *j, uint32_t n_threads, weights_progress *progress, void *ctx,
				 struct errbuf *err)
{
	pthread_t threads[WEIGHTS_THREADS_MAX];
	void *buffer = mem_array(char, j->buffer_bytes + 1);
	uint32_t n = 0;

	n_threads = min_u32(min_u32(n_threads, WEIGHTS_THREADS_MAX), j->n_pieces);
	pthread_mutex_init(&j->lock, NULL);
	/* A thread that cannot be started costs time only: this one takes what nobody else takes. */
	while (n + 1 < n_threads && pthread_create(&threads[n], NULL, weights_thread, j) == 0) n++;
	while (weights_load_next(j, buffer))
		if (progress) progress(ctx, atomic_load(&j->done), j->total);
	for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&j->lock);
	free(buffer);
	if (j->rc != ST_OK) {
		if (err) *err = j->err;
		return j->rc;
	}
	if (progress) progress(ctx, j->total, j->total);
	return ST_OK;
}

/* Reading a page brings its neighbours into the map, also those that had been given back; and the scales of codes are
 * still there. */
static void weights_drop_all(const struct weights_job *j)
{
	for (size_t i = 0; i < j->list.n; i++) {
		const struct weights_item *it = &j->list.items[i];
		const struct ckpt_tensor *beside[] = {it->src.scales, it->src.zeros, it->src.order};
		uint64_t from, bytes;

		if (it->bytes == 0) continue;
		wsrc_span(&it->src, 0, it->src.rows, &from, &bytes);
		ckpt_drop(it->src.t, from, bytes);
		for (size_t k = 0; k < ARRAY_LEN(beside); k++)
			if (beside[k]) ckpt_drop(beside[k], 0, beside[k]->bytes);
	}
}

int weights_load(struct weights *w, struct kdev *dev, const struct spec *s, const struct ckpt *c, struct wsrc_rank rank,
		 uint32_t n_threads, weights_progress *progress, void *ctx, struct errbuf *err)
{
	struct weights_job j;
	struct weights_list *l = &j.list;
	int rc;

	weights_job_init(&j, w, dev, s, c, rank);
	rc = weights_list(&j, err);
	if (rc != ST_OK) goto end;
	w->arena = kdev_alloc(dev, l->bytes);
	if (!w->arena) {
		rc = err_set(err, ST_NO_MEMORY, "the device has no memory for %zu bytes of weights", l->bytes);
		goto end;
	}
	w->arena_bytes = l->bytes;
	w->viewed_bytes = l->viewed_bytes;
	for (size_t i = 0; i < l->n; i++) {
		const struct weights_item *it = &l->items[i];

		if (it->bytes)
			kdev_ops(dev)->mat_init(dev, it->mat, (char *)w->arena + it->at, it->src.type, it->src.rows,
						it->src.cols);
	}
	rc = weights_load_vectors(&j, err);
	if (rc == ST_OK) rc = weights_cut(&j, err);
	if (rc == ST_OK) rc = weights_load_matrices(&j, n_threads, progress, ctx, err);
	if (rc == ST_OK) weights_drop_all(&j);
end:
	weights_job_release(&j);
	return rc;
}

void weights_release(struct weights *w)
{
	if (w->arena) kdev_release(w->dev, w->arena, w->arena_bytes);
	for (uint32_t i = 0; w->layers && i <= w->n_layers; i++)
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) free(w->layers[i].each[role]);
	free(w->layers);
	*w = (struct weights){0};
}
