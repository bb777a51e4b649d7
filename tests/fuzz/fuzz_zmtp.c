/* fuzz_zmtp.c - any bytes from a peer of a PULL socket, in pieces: what is read does not depend on how it was cut, and each part lies
 * within what has come.
 *
 * The first byte is the length of a piece; then what the peer sends. Seeds: corpus/zmtp. */
#include "common/mem.h"
#include "common/zmtp.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
	size_t n_parts, n_bytes, taken;
	uint32_t sum;
	int rc;
};

static void tell(struct told *t, const struct zmtp_message *m, const uint8_t *from, size_t len)
{
	for (uint32_t i = 0; i < m->n_parts; i++) {
		CHECK(m->parts[i].data >= from && m->parts[i].data + m->parts[i].len <= from + len);
		for (size_t k = 0; k < m->parts[i].len; k++) t->sum = t->sum * 31 + m->parts[i].data[k];
		t->n_bytes += m->parts[i].len;
	}
	t->n_parts += m->n_parts;
}

static struct told read_in_pieces(const uint8_t *data, size_t size, size_t piece)
{
	struct zmtp_message m;
	struct told t = {0};
	struct errbuf err;
	size_t here = 0, n;
	struct zmtp z;

	zmtp_init(&z, ZMTP_PULL, MESSAGE_MAX);
	do {
		uint8_t *seen;

		here = min_size(size, here + piece);
		seen = mem_dup(data + t.taken, here - t.taken, 1);
		for (size_t at = 0;; at += n) {
			t.rc = zmtp_read(&z, seen + at, here - t.taken, &m, &n, &err);
			if (t.rc != ST_OK) break;
			CHECK(n > 0 && n <= here - t.taken && (z.up || m.n_parts == 0));
			tell(&t, &m, seen + at, n);
			t.taken += n;
		}
		if (t.rc == ST_AGAIN) CHECK(n > here - t.taken);
		free(seen);
	} while (t.rc == ST_AGAIN && here < size);
	return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct told whole, cut;

	if (size < 2) return 0;
	whole = read_in_pieces(data + 1, size - 1, size);
	cut = read_in_pieces(data + 1, size - 1, 1 + data[0]);
	CHECK(whole.rc == cut.rc && whole.taken == cut.taken && whole.n_parts == cut.n_parts && whole.n_bytes == cut.n_bytes && whole.sum == cut.sum);
	return 0;
}
