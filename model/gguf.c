/* gguf.c - a GGUF file from opening to closing: the map, the checks' order, and the index of names.
 *
 * Opening maps the file and lets gguf_walk.c check the head; keys and tensors are then found through a hash index with
 * a random seed. What always holds afterwards: every view lies inside the map, tensors do not overlap, their bytes
 * follow from type and shape. A file that another program shortens while it is mapped still kills the reader (SIGBUS):
 * nothing closes that gap but reading the file instead. */
#include "model/gguf.h"

#include "model/gguf_impl.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "views of the map are read as little-endian numbers");

#define GGUF_SHOWN_MAX 160 /* bytes of a path in an error text, which holds 768 in all */

/* ---- the index ---- */

static struct gguf_str gguf_kv_name(const struct gguf *g, size_t ix)
{
	return g->kvs[ix].key;
}

static struct gguf_str gguf_tensor_name(const struct gguf *g, size_t ix)
{
	return g->tensors[ix].name;
}

typedef struct gguf_str gguf_name_fn(const struct gguf *g, size_t ix);

/* The slot that holds the name, or the free slot where it would go. */
static size_t gguf_slot(const struct gguf *g, const struct gguf_index *x, gguf_name_fn *name_of, const char *s,
			size_t len)
{
	size_t i = (size_t)XXH3_64bits_withSeed(s, len, g->hash_seed) & (x->cap - 1);

	for (; x->slots[i]; i = (i + 1) & (x->cap - 1)) {
		struct gguf_str name = name_of(g, x->slots[i] - 1);

		if (name.len == len && memcmp(name.s, s, len) == 0) break;
	}
	return i;
}

static void gguf_index_grow(const struct gguf *g, struct gguf_index *x, gguf_name_fn *name_of, size_t n)
{
	size_t i;

	free(x->slots);
	x->cap = x->cap ? x->cap * 2 : 64;
	x->slots = mem_array(uint32_t, x->cap);
	for (i = 0; i < n; i++) {
		struct gguf_str name = name_of(g, i);

		x->slots[gguf_slot(g, x, name_of, name.s, name.len)] = (uint32_t)i + 1;
	}
}

/* Enters element n, the newest. False: the name is there already. */
static bool gguf_index_add(const struct gguf *g, struct gguf_index *x, gguf_name_fn *name_of, size_t n)
{
	struct gguf_str name = name_of(g, n);
	size_t slot;

	if ((n + 1) * 2 > x->cap) gguf_index_grow(g, x, name_of, n);
	slot = gguf_slot(g, x, name_of, name.s, name.len);
	if (x->slots[slot]) return false;
	x->slots[slot] = (uint32_t)n + 1;
	return true;
}

static size_t gguf_index_find(const struct gguf *g, const struct gguf_index *x, gguf_name_fn *name_of, const char *s,
			      size_t len)
{
	return x->cap ? (size_t)x->slots[gguf_slot(g, x, name_of, s, len)] - 1 : SIZE_MAX;
}

size_t gguf_lookup_kv(const struct gguf *g, const char *key, size_t len)
{
	return gguf_index_find(g, &g->kv_index, gguf_kv_name, key, len);
}

size_t gguf_lookup_tensor(const struct gguf *g, const char *name, size_t len)
{
	return gguf_index_find(g, &g->tensor_index, gguf_tensor_name, name, len);
}

bool gguf_index_kv(struct gguf *g, size_t n)
{
	return gguf_index_add(g, &g->kv_index, gguf_kv_name, n);
}

bool gguf_index_tensor(struct gguf *g, size_t n)
{
	return gguf_index_add(g, &g->tensor_index, gguf_tensor_name, n);
}

/* ---- opening ---- */

const char *gguf_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int gguf_map(struct gguf *g, struct errbuf *err)
{
	struct stat st;
	void *map;
	int fd, rc = ST_OK;

	/* O_NONBLOCK: a pipe must be refused, not waited for. */
	fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_set(err,
			       errno == ENOENT   ? ST_NOT_FOUND
			       : errno == EACCES ? ST_DENIED
						 : ST_IO,
			       "cannot open the file: %s", strerror(errno));
	if (fstat(fd, &st) != 0) {
		rc = err_set(err, ST_IO, "cannot read the file: %s", strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		rc = err_set(err, ST_INVALID,
			     S_ISDIR(st.st_mode) ? "is a folder; a GGUF file is needed" : "is not a regular file");
	} else if (st.st_size == 0) {
		rc = err_set(err, ST_CORRUPT, "the file is empty");
	} else {
		map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map == MAP_FAILED) {
			rc = err_set(err, ST_IO, "cannot map the file: %s", strerror(errno));
		} else {
			g->map = map;
			g->size = (uint64_t)st.st_size;
		}
	}
	close(fd);
	return rc;
}

static char *gguf_make_shown(const char *path)
{
	size_t len = strlen(path);
	struct quote q;
	char *out;

	if (len > GGUF_SHOWN_MAX) {
		path = gguf_base_name(path);
		len = strlen(path);
	}
	if (len <= GGUF_SHOWN_MAX && utf8_valid_len(path, len) == len && !memchr(path, '\n', len))
		return mem_strdup(path);
	q = quote_short(path, len);
	out = mem_strdup(q.text);
	return out;
}

int gguf_open(struct gguf **out, const char *path, struct errbuf *err)
{
	struct gguf *g = mem_new(struct gguf);
	int rc;

	g->path = mem_strdup(path);
	g->shown = gguf_make_shown(path);
	if (getrandom(&g->hash_seed, sizeof(g->hash_seed), GRND_NONBLOCK) < 0) g->hash_seed = (uintptr_t)g;
	rc = gguf_map(g, err);
	if (rc == ST_OK) rc = gguf_walk(g, err);
	if (rc != ST_OK) {
		err_prefix(err, rc, "%s", g->shown);
		gguf_close(g);
		return rc;
	}
	g->is_open = true;
	*out = g;
	return ST_OK;
}

void gguf_close(struct gguf *g)
{
	if (!g) return;
	if (g->map) munmap((void *)(uintptr_t)g->map, (size_t)g->size);
	free(g->kvs);
	free(g->kv_index.slots);
	free(g->tensors);
	free(g->tensor_index.slots);
	free(g->path);
	free(g->shown);
	free(g);
}
