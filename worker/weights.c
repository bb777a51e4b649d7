/* weights.c - see weights.h.
 *
 * A list of items, one a tensor, is made first: where it comes from, where it goes. Threads then take items, largest
 * first, from a shared counter. Matrices go through the device's own loader; vectors are plain uploads. Nothing here
 * can fail once the arena is there: shapes and types were checked by modelshape_read() and by making the list. */
#include "worker/weights.h"

#include "model/gguf.h"
#include "common/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WEIGHTS_ALIGN       64
#define WEIGHTS_THREADS_MAX 32 /* beyond it the disk or the memory is the limit */

struct weights_item {
	const struct gguf_tensor *t;
	struct kmat *mat; /* NULL: a vector */
	float **vec;      /* NULL: a matrix */
	uint32_t rows, cols;
	size_t at, bytes; /* in the arena */
};

struct weights_list {
	struct weights_item *items;
	size_t n, cap;
	size_t bytes;
};

static int weights_add(struct weights_list *l, struct kdev *dev, const struct gguf_tensor *t, struct kmat *mat,
		       float **vec, uint32_t rows, struct errbuf *err)
{
	struct weights_item *it;

	mem_reserve(l->items, l->cap, l->n + 1);
	it = &l->items[l->n++];
	*it = (struct weights_item){.t = t, .mat = mat, .vec = vec, .rows = rows, .cols = (uint32_t)t->dims[0]};
	it->bytes = vec ? (size_t)t->bytes : kdev_ops(dev)->mat_bytes(dev, t->type, it->rows, it->cols);
	if (it->bytes == 0)
		return err_set(err, ST_UNSUPPORTED, "tensor %.*s: the device has no products for the type %s",
			       (int)t->name.len, t->name.s, ggtype_info(t->type)->name);
	it->at = l->bytes;
	l->bytes += align_up(it->bytes, WEIGHTS_ALIGN);
	return ST_OK;
}

/* Every tensor of the model. Which member of which struct a role fills is said here and nowhere else. */
static int weights_list(struct weights_list *l, struct weights *w, struct kdev *dev, const struct modelshape *s,
			const struct gguf *g, struct errbuf *err)
{
	int rc = ST_OK;

#define VEC(role, layer, member) \
	if (rc == ST_OK)         \
	rc = weights_add(l, dev, modelshape_tensor(s, g, MODELSHAPE_##role, layer), NULL, member, 1, err)
#define MAT(role, layer, member, n_rows) \
	if (rc == ST_OK)                 \
	rc = weights_add(l, dev, modelshape_tensor(s, g, MODELSHAPE_##role, layer), member, NULL, n_rows, err)

	MAT(EMBED, 0, &w->embed, s->n_tokens);
	VEC(OUTPUT_NORM, 0, &w->output_norm);
	if (!s->tied) MAT(OUTPUT, 0, &w->output, s->n_tokens);
	for (uint32_t i = 0; i < s->n_layers; i++) {
		struct weights_layer *y = &w->layers[i];

		VEC(ATTN_NORM, i, &y->attn_norm);
		MAT(ATTN_Q, i, &y->q, s->heads * s->head_dim);
		MAT(ATTN_K, i, &y->k, s->kv_heads * s->head_dim);
		MAT(ATTN_V, i, &y->v, s->kv_heads * s->head_dim);
		MAT(ATTN_O, i, &y->o, s->dim);
		VEC(FFN_NORM, i, &y->ffn_norm);
		MAT(FFN_GATE, i, &y->gate, s->ffn);
		MAT(FFN_UP, i, &y->up, s->ffn);
		MAT(FFN_DOWN, i, &y->down, s->dim);
	}
#undef VEC
#undef MAT
	return rc;
}

int weights_bytes(struct kdev *dev, const struct modelshape *shape, const struct gguf *g, size_t *out,
		  struct errbuf *err)
{
	struct weights w = {.layers = mem_array(struct weights_layer, shape->n_layers)};
	struct weights_list l = {0};
	int rc = weights_list(&l, &w, dev, shape, g, err);

	*out = l.bytes;
	free(l.items);
	free(w.layers);
	return rc;
}

struct weights_loading {
	struct kdev *dev;
	char *arena;
	struct weights_list list;
	_Atomic size_t next;
	_Atomic uint64_t done; /* file bytes */
};

/* Gives back the file's pages that belong to this tensor alone; a neighbour's first or last page stays. */
static void weights_drop(const struct gguf_tensor *t)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)t->data + page - 1) & ~(page - 1);
	uintptr_t to = ((uintptr_t)t->data + t->bytes) & ~(page - 1);

	if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

/* Loads the next item; false when there is none left. */
static bool weights_load_next(struct weights_loading *l)
{
	size_t ix = atomic_fetch_add(&l->next, 1);
	const struct weights_item *it;

	if (ix >= l->list.n) return false;
	it = &l->list.items[ix];
	if (it->mat) {
		kdev_ops(l->dev)->mat_init(l->dev, it->mat, l->arena + it->at, it->t->type, it->rows, it->cols);
		kdev_ops(l->dev)->mat_put(l->dev, it->mat, 0, it->rows, it->t->data);
		weights_drop(it->t);
	}
	atomic_fetch_add(&l->done, it->t->bytes);
	return true;
}

static void *weights_thread(void *arg)
{
	while (weights_load_next(arg))
		;
	return NULL;
}

static int weights_by_size(const void *a, const void *b)
{
	const struct weights_item *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void weights_load_all(struct weights_loading *l, uint32_t n_threads, weights_progress *progress, void *ctx)
{
	pthread_t threads[WEIGHTS_THREADS_MAX];
	uint32_t n = 0;
	uint64_t total = 0;

	for (size_t i = 0; i < l->list.n; i++) total += l->list.items[i].t->bytes;
	/* A thread that cannot be started costs time only: this one takes what nobody else takes. */
	while (n + 1 < min_u32(n_threads, WEIGHTS_THREADS_MAX) &&
	       pthread_create(&threads[n], NULL, weights_thread, l) == 0)
		n++;
	while (weights_load_next(l))
		if (progress) progress(ctx, atomic_load(&l->done), total);
	for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
	if (progress) progress(ctx, total, total);
}

/* Vectors are few and small; they go through the stream, which is not for several threads. */
static int weights_load_vectors(struct weights_loading *l)
{
	for (size_t i = 0; i < l->list.n; i++) {
		const struct weights_item *it = &l->list.items[i];

		if (!it->vec) continue;
		*it->vec = (float *)(l->arena + it->at);
		kdev_upload(l->dev, *it->vec, it->t->data, it->bytes);
	}
	return kdev_sync(l->dev);
}

int weights_load(struct weights *w, struct kdev *dev, const struct modelshape *shape, const struct gguf *g,
		 uint32_t n_threads, weights_progress *progress, void *ctx, struct errbuf *err)
{
	struct weights_loading l = {.dev = dev};
	int rc;

	w->dev = dev;
	w->n_layers = shape->n_layers;
	w->layers = mem_array(struct weights_layer, shape->n_layers);
	rc = weights_list(&l.list, w, dev, shape, g, err);
	if (rc != ST_OK) goto end;
	w->arena = kdev_alloc(dev, l.list.bytes);
	if (!w->arena) {
		rc = err_set(err, ST_NO_MEMORY, "the device has no memory for %zu bytes of weights", l.list.bytes);
		goto end;
	}
	w->arena_bytes = l.list.bytes;
	l.arena = w->arena;
	rc = weights_load_vectors(&l);
	if (rc != ST_OK) {
		err_set(err, rc, "loading weights: %s", status_text(rc));
		goto end;
	}
	qsort(l.list.items, l.list.n, sizeof(*l.list.items), weights_by_size);
	weights_load_all(&l, n_threads, progress, ctx);
	if (shape->tied) w->output = w->embed;
end:
	free(l.list.items);
	return rc;
}

void weights_release(struct weights *w)
{
	if (w->arena) kdev_release(w->dev, w->arena, w->arena_bytes);
	free(w->layers);
	*w = (struct weights){0};
}
