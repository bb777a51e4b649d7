/* gguf_writer.h - builds GGUF files for tests: good ones, and ones where any number in the file is wrong.
 *
 * Keys and tensors are kept in order and encoded by gguf_writer_build(). Every count, offset and length can be
 * overridden through the fields; a value's bytes can be given raw. Not for untrusted input: misuse CHECKs. */
#ifndef SLUICE_GGUF_WRITER_H
#define SLUICE_GGUF_WRITER_H

#include "model/gguf.h"

#define GGUF_WRITER_AUTO UINT64_MAX

struct gguf_writer_kv {
	char *key;
	size_t key_len;
	uint32_t kind;
	uint8_t *value; /* encoded */
	size_t value_len;
};

struct gguf_writer_tensor {
	char *name;
	size_t name_len;
	uint32_t type;
	uint32_t n_dims; /* number written; dims has at most GGUF_DIMS_MAX, more are written as 1 */
	uint64_t dims[GGUF_DIMS_MAX];
	uint8_t *data;
	size_t bytes;
	uint64_t offset; /* GGUF_WRITER_AUTO: where the data lies */
};

struct gguf_writer {
	char magic[4];
	uint32_t version;
	uint64_t n_kvs;     /* the count in the header; GGUF_WRITER_AUTO: the real one */
	uint64_t n_tensors; /* likewise */
	uint32_t alignment; /* of the data; does not write general.alignment */
	struct gguf_writer_kv *kvs;
	size_t kv_len, kv_cap;
	struct gguf_writer_tensor *tensors;
	size_t tensor_len, tensor_cap;
};

void gguf_writer_init(struct gguf_writer *w);
void gguf_writer_release(struct gguf_writer *w);

/* Append a key with its encoded value (also one that is there already). */
void gguf_writer_raw(struct gguf_writer *w, const void *key, size_t key_len, uint32_t kind, const void *value,
		     size_t value_len);

/* Replace the key's value in its place, or append it. */
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_f64(struct gguf_writer *w, const char *key, double value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, uint8_t value);
void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value);
void gguf_writer_strs(struct gguf_writer *w, const char *key, const char *const *values, size_t n);
/* elements: n encoded values of the kind, packed. */
void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_kind kind, const void *elements, size_t n);

/* Appends a tensor; data is copied, or zeroes of the right size when NULL (type and dims must then be sane). The
 * returned pointer, for overriding, is valid until the next one is added. */
struct gguf_writer_tensor *gguf_writer_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
					      const uint64_t *dims, const void *data, size_t bytes);
struct gguf_writer_tensor *gguf_writer_find_tensor(struct gguf_writer *w, const char *name);

/* Removes the key or tensor of that name; it must be there. */
void gguf_writer_drop(struct gguf_writer *w, const char *name);

/* The file's bytes; free() them. */
uint8_t *gguf_writer_build(const struct gguf_writer *w, size_t *len);

/* Writes the file to path (replacing it). */
void gguf_writer_save(const struct gguf_writer *w, const char *path);

#endif
