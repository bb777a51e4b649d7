/* st_writer.h - builds safetensors files for tests: good ones from tensors, bad ones from any header. */
#ifndef SLUICE_ST_WRITER_H
#define SLUICE_ST_WRITER_H

#include "common/strbuf.h"

#include <stdint.h>

struct st_writer {
	struct strbuf header; /* the members of the object */
	struct strbuf data;
};

void st_writer_init(struct st_writer *w);
void st_writer_release(struct st_writer *w);

/* A member as it stands in the header, e.g. "\"__metadata__\": {}". */
void st_writer_raw(struct st_writer *w, const char *member);
/* data NULL: zeroes. dtype as files spell it. */
void st_writer_tensor(struct st_writer *w, const char *name, const char *dtype, uint32_t n_dims, const uint64_t *dims,
		      const void *data, size_t bytes);

/* The file's bytes; free() them. */
uint8_t *st_writer_build(const struct st_writer *w, size_t *len);
/* A file of this header and n zero bytes. */
uint8_t *st_writer_file(const char *header, size_t header_len, size_t n, size_t *len);

#endif
