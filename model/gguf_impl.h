/* gguf_impl.h - the inside of struct gguf, shared by the gguf*.c files only. */
#ifndef SLUICE_GGUF_IMPL_H
#define SLUICE_GGUF_IMPL_H

#include "common/nameindex.h"
#include "model/gguf.h"

struct gguf {
	char *path;
	char *shown;  /* the path as errors show it: escaped, its end when it is long */
	bool is_open; /* errors of the accessors name the file; while it is being opened, gguf_open() does */
	struct filemap file;
	struct gguf_split split;
	uint32_t version;

	struct gguf_kv *kvs;
	size_t n_kvs, cap_kvs;
	struct nameindex kv_index;

	struct gguf_tensor *tensors;
	size_t n_tensors, cap_tensors;
	struct nameindex tensor_index;

	uint64_t alignment;
	uint64_t data_start; /* offset of the tensor data in the map, <= size */
};

/* Bytes of one element; 0 for GGUF_STR and GGUF_ARR. */
size_t gguf_kind_bytes(enum gguf_kind kind);

/* Position of a name in the array that the index covers, or SIZE_MAX. */
size_t gguf_lookup_kv(const struct gguf *g, const char *key, size_t len);
size_t gguf_lookup_tensor(const struct gguf *g, const char *name, size_t len);

/* Enter element n, the newest of its array. False: the name is there already. */
bool gguf_index_kv(struct gguf *g, size_t n);
bool gguf_index_tensor(struct gguf *g, size_t n);

/* Fills everything but path and file from the mapped bytes, or refuses. */
int gguf_walk(struct gguf *g, struct errbuf *err) MUST_CHECK;

#endif
