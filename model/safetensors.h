/* safetensors.h - the header of a safetensors file: 8 bytes of its length, JSON, then the tensors' bytes.
 *
 * Takes what the `safetensors` package takes (its Rust reader: a header of at most 100 MB, each tensor's bytes
 * beginning where another's end, the whole file covered, in any order in the header; scalars and tensors without
 * elements; __metadata__ of texts alone), and refuses what it refuses. Stricter in this: doubled names, and more than
 * CKPT_DIMS_MAX dimensions. */
#ifndef SLUICE_SAFETENSORS_H
#define SLUICE_SAFETENSORS_H

#include "model/ckpt.h"
#include "model/jsonwalk.h"

struct safetensors {
	/* In the order of their bytes; names and data are views of the file or of `names`; owned. */
	struct ckpt_tensor *tensors;
	size_t n, cap;
	struct jsonwalk names; /* holds the names that the header spells with escapes; owned */
};

/* Reads the header in bytes[0..size). The caller releases *out also after an error. ST_CORRUPT, ST_UNSUPPORTED: the
 * text names tensor and field, or the place in the header. Memory is proportional to the number of tensors that are
 * really there. Names may be doubled: whoever indexes them sees it. */
int safetensors_read(struct safetensors *out, const uint8_t *bytes, uint64_t size, struct errbuf *err) MUST_CHECK;
void safetensors_release(struct safetensors *s);

/* "BF16"; NULL for a type that safetensors do not have. */
const char *safetensors_type_name(uint32_t type);

#endif
