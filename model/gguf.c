/* gguf.c - a GGUF file from opening to closing: the map, the checks' order, and the index of names.
 *
 * Opening maps the file (filemap.h) and lets gguf_walk.c check the head; keys and tensors are then found through a hash index with
 * a random seed. What always holds afterwards: every view lies inside the map, tensors do not overlap, their bytes
 * follow from type and shape. */
#include "model/gguf.h"

#include "model/gguf_impl.h"
#include "common/mem.h"
#include "common/quote.h"

#include <fcntl.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "views of the map are read as little-endian numbers");

/* ---- the index ---- */

static const char *gguf_kv_name(const void *owner, size_t ix, size_t *len)
{
	const struct gguf *g = owner;

	*len = g->kvs[ix].key.len;
	return g->kvs[ix].key.s;
}

static const char *gguf_tensor_name(const void *owner, size_t ix, size_t *len)
{
	const struct gguf *g = owner;

	*len = g->tensors[ix].name.len;
	return g->tensors[ix].name.s;
}

size_t gguf_lookup_kv(const struct gguf *g, const char *key, size_t len)
{
	return nameindex_find(&g->kv_index, gguf_kv_name, g, key, len);
}

size_t gguf_lookup_tensor(const struct gguf *g, const char *name, size_t len)
{
	return nameindex_find(&g->tensor_index, gguf_tensor_name, g, name, len);
}

bool gguf_index_kv(struct gguf *g, size_t n)
{
	return nameindex_add(&g->kv_index, gguf_kv_name, g, n);
}

bool gguf_index_tensor(struct gguf *g, size_t n)
{
	return nameindex_add(&g->tensor_index, gguf_tensor_name, g, n);
}

/* ---- opening ---- */

static int gguf_read_map(struct gguf **out, struct gguf *g, struct errbuf *err)
{
	int rc = gguf_walk(g, err);

	if (rc != ST_OK) {
		err_prefix(err, rc, "%s", g->shown);
		gguf_close(g);
		return rc;
	}
	g->is_open = true;
	*out = g;
	return ST_OK;
}

static struct gguf *gguf_new(const char *path)
{
	struct gguf *g = mem_new(struct gguf);

	g->path = mem_strdup(path);
	g->shown = quote_path(path);
	nameindex_init(&g->kv_index);
	nameindex_init(&g->tensor_index);
	return g;
}

int gguf_open(struct gguf **out, const char *path, struct errbuf *err)
{
	struct gguf *g = gguf_new(path);
	int rc = filemap_open(&g->file, AT_FDCWD, path, "a GGUF file", err);

	if (rc == ST_OK) return gguf_read_map(out, g, err);
	err_prefix(err, rc, "%s", g->shown);
	gguf_close(g);
	return rc;
}

int gguf_open_map(struct gguf **out, const char *path, struct filemap file, struct errbuf *err)
{
	struct gguf *g = gguf_new(path);

	g->file = file;
	return gguf_read_map(out, g, err);
}

void gguf_close(struct gguf *g)
{
	if (!g) return;
	filemap_close(&g->file);
	free(g->kvs);
	free(g->tensors);
	nameindex_release(&g->kv_index);
	nameindex_release(&g->tensor_index);
	free(g->path);
	free(g->shown);
	free(g);
}
