/* fuzz_messages.c - any bytes as a message: refused, or one that prints, is equal to its copy, and packs to bytes that unpack to
 * the same again. The second packing must give the first one's bytes: there is one form of each message.
 *
 * Seeds: corpus/messages, one file a message type. */
#include "common/mem.h"
#include "common/strbuf.h"
#include "proto/messages.h"

#include <stdlib.h>
#include <string.h>

#define PRINT_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void pack(const struct msg *m, struct strbuf *out)
{
	strbuf_init(out, LIMIT_MESSAGE_BYTES);
	CHECK(msg_pack(m, out) == ST_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct strbuf first, second, text;
	struct msg m, again, *copy;
	uint8_t *moved;

	if (msg_unpack(&m, data, size) != ST_OK) return 0;
	strbuf_init(&text, PRINT_MAX);
	msg_print(&m, &text);
	CHECK(text.len > 0 && text.len <= PRINT_MAX);
	strbuf_release(&text);

	pack(&m, &first);
	CHECK(msg_unpack(&again, first.data, first.len) == ST_OK);
	CHECK(again.type == m.type);
	pack(&again, &second);
	CHECK(second.len == first.len && memcmp(second.data, first.data, first.len) == 0);
	strbuf_release(&second);

	/* A copy owes nothing to the bytes it came from. */
	moved = mem_dup(first.data, first.len, 1);
	CHECK(msg_unpack(&again, moved, first.len) == ST_OK);
	copy = msg_dup(&again);
	memset(moved, 0xA5, first.len);
	free(moved);
	pack(copy, &second);
	CHECK(second.len == first.len && memcmp(second.data, first.data, first.len) == 0);
	free(copy);
	strbuf_release(&first);
	strbuf_release(&second);
	return 0;
}
