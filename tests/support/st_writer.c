/* st_writer.c - see st_writer.h. */
#include "tests/support/st_writer.h"

#include "common/base.h"
#include "common/mem.h"

#include <inttypes.h>
#include <string.h>

void st_writer_init(struct st_writer *w)
{
	strbuf_init(&w->header, 256 * MIB);
	strbuf_init(&w->data, 256 * MIB);
}

void st_writer_release(struct st_writer *w)
{
	strbuf_release(&w->header);
	strbuf_release(&w->data);
}

void st_writer_raw(struct st_writer *w, const char *member)
{
	if (w->header.len) strbuf_putc(&w->header, ',');
	strbuf_puts(&w->header, member);
}

void st_writer_tensor(struct st_writer *w, const char *name, const char *dtype, uint32_t n_dims, const uint64_t *dims,
		      const void *data, size_t bytes)
{
	struct strbuf *h = &w->header;
	size_t from = w->data.len;
	void *zeroes = data ? NULL : mem_zalloc(bytes + 1, 1);

	strbuf_printf(h, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", h->len ? "," : "", name, dtype);
	for (uint32_t i = 0; i < n_dims; i++) strbuf_printf(h, "%s%" PRIu64, i ? "," : "", dims[i]);
	strbuf_append(&w->data, data ? data : zeroes, bytes);
	strbuf_printf(h, "],\"data_offsets\":[%zu,%zu]}", from, w->data.len);
	free(zeroes);
}

static uint8_t *put(const char *header, size_t header_len, const char *data, size_t data_len, size_t *len)
{
	uint64_t n = header_len;
	uint8_t *out = mem_zalloc(sizeof(n) + header_len + data_len, 1);

	memcpy(out, &n, sizeof(n));
	memcpy(out + sizeof(n), header, header_len);
	if (data) memcpy(out + sizeof(n) + header_len, data, data_len);
	*len = sizeof(n) + header_len + data_len;
	return out;
}

uint8_t *st_writer_build(const struct st_writer *w, size_t *len)
{
	struct strbuf header;
	uint8_t *out;

	CHECK(!w->header.overflow && !w->data.overflow);
	strbuf_init(&header, 512 * MIB);
	strbuf_putc(&header, '{');
	if (w->header.len) strbuf_append(&header, w->header.data, w->header.len);
	strbuf_putc(&header, '}');
	while (header.len % 8) strbuf_putc(&header, ' ');
	out = put(header.data, header.len, w->data.data, w->data.len, len);
	strbuf_release(&header);
	return out;
}

uint8_t *st_writer_file(const char *header, size_t header_len, size_t n, size_t *len)
{
	return put(header, header_len, NULL, n, len);
}
