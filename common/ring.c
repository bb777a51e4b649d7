/* ring.c - see ring.h.
 *
 * Layout: one page of header, then data_bytes of records. Positions are byte counts that only grow; the offset in
 * the data is position & (data_bytes - 1). A record is a u32 length, then the bytes, padded to 8; a length of RING_WRAP
 * fills the rest of the data up to its end. Readers sleep on `wake`, which counts pushes; the writer makes the futex call only
 * when `sleepers` says that somebody sleeps. (A reader killed in its sleep leaves the count too high: a system call too many a
 * push, nothing worse.) */
#include "common/ring.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RING_MAGIC 0x736c756963653152ull
#define RING_LAYOUT 1
#define RING_HEADER_BYTES 8192
#define RING_WRAP UINT32_MAX

/* The writer goes back to the beginning as soon as it may, so that a ring made for a rare huge record does not slowly touch, and keep,
 * all of its memory. What it skips counts as used until the readers are past it: this share of the ring stays free for the
 * records behind. */
#define RING_KEPT_FREE 4

struct ring_reader {
	_Atomic uint64_t tail;
	_Atomic uint32_t active;
} __attribute__((aligned(64))); /* each on its own cache line: readers never disturb each other */

struct ring_header {
	uint64_t magic;
	uint32_t layout, n_readers;
	uint64_t data_bytes;
	_Atomic uint64_t generation;
	_Atomic uint64_t head __attribute__((aligned(64)));
	_Atomic uint32_t wake;
	_Atomic uint32_t sleepers;
	struct ring_reader readers[RING_READERS_MAX];
};

_Static_assert(sizeof(struct ring_header) <= RING_HEADER_BYTES, "the header has its own pages");

struct ring {
	struct ring_header *h;
	uint8_t *data;
	uint64_t data_bytes; /* checked copy: the shared one is not trusted later */
	uint32_t n_readers;
	int reader;          /* -1: the writer */
	uint64_t pop_to;     /* position after the peeked record */
	uint64_t waited_ns;  /* how long the last wait for a record took */
};

size_t ring_mem_bytes(size_t data_bytes)
{
	return RING_HEADER_BYTES + data_bytes;
}

void ring_format(void *mem, size_t data_bytes, uint32_t n_readers)
{
	struct ring_header *h = mem;

	CHECK(data_bytes >= 64 && (data_bytes & (data_bytes - 1)) == 0);
	CHECK(n_readers >= 1 && n_readers <= RING_READERS_MAX);
	memset(h, 0, sizeof(*h));
	h->layout = RING_LAYOUT;
	h->n_readers = n_readers;
	h->data_bytes = data_bytes;
	h->magic = RING_MAGIC;
}

int ring_attach(struct ring **out, void *mem, size_t mem_bytes, int reader, struct errbuf *err)
{
	struct ring_header *h = mem;
	struct ring *r;

	if (mem_bytes < RING_HEADER_BYTES + 64 || h->magic != RING_MAGIC || h->layout != RING_LAYOUT)
		return err_set(err, ST_CORRUPT, "shared memory holds no ring of layout %d", RING_LAYOUT);
	if (h->data_bytes != mem_bytes - RING_HEADER_BYTES || (h->data_bytes & (h->data_bytes - 1)) != 0)
		return err_set(err, ST_CORRUPT, "ring claims %llu bytes of data in %zu bytes of memory",
			       (unsigned long long)h->data_bytes, mem_bytes);
	if (h->n_readers < 1 || h->n_readers > RING_READERS_MAX || reader >= (int)h->n_readers)
		return err_set(err, ST_CORRUPT, "ring has %u readers, wanted number %d", h->n_readers, reader);
	r = mem_new(struct ring);
	r->h = h;
	r->data = (uint8_t *)mem + RING_HEADER_BYTES;
	r->data_bytes = h->data_bytes;
	r->n_readers = h->n_readers;
	r->reader = reader;
	if (reader >= 0) {
		struct ring_reader *me = &h->readers[reader];

		/* Inactive first: the writer must not take an old tail for a slow reader's. */
		atomic_store(&me->active, 0);
		atomic_store(&me->tail, atomic_load(&h->head));
		atomic_store(&me->active, 1);
	}
	*out = r;
	return ST_OK;
}

void ring_free(struct ring *r)
{
	free(r);
}

void ring_set_reader_active(struct ring *r, uint32_t reader, bool active)
{
	CHECK(reader < r->n_readers);
	atomic_store(&r->h->readers[reader].active, active);
}

void ring_set_generation(struct ring *r, uint64_t generation)
{
	atomic_store(&r->h->generation, generation);
}

uint64_t ring_generation(const struct ring *r)
{
	return atomic_load(&r->h->generation);
}

/* Bytes in use by the slowest active reader; more than data_bytes when the shared memory is nonsense. */
static uint64_t ring_used(const struct ring *r, uint64_t head)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < r->n_readers; i++) {
		const struct ring_reader *rd = &r->h->readers[i];

		if (!atomic_load_explicit(&rd->active, memory_order_acquire)) continue;
		used = max_u64(used, head - atomic_load_explicit(&rd->tail, memory_order_acquire));
	}
	return used;
}

int ring_push(struct ring *r, const void *data, size_t len)
{
	struct ring_header *h = r->h;
	uint64_t head = atomic_load_explicit(&h->head, memory_order_relaxed);
	uint64_t need = align_up(4 + len, 8), at = head & (r->data_bytes - 1);
	uint64_t rest = r->data_bytes - at, fill = need > rest ? rest : 0, used;
	uint32_t n = (uint32_t)len;

	CHECK(r->reader < 0);
	if (need > r->data_bytes / 2) return ST_LIMIT; /* with the fill up to the end it could never fit for sure */
	used = ring_used(r, head);
	if (used <= r->data_bytes && at >= used + need + r->data_bytes / RING_KEPT_FREE) fill = rest;
	if (used > r->data_bytes || need + fill > r->data_bytes - used) return ST_AGAIN;
	if (fill) {
		uint32_t wrap = RING_WRAP;

		memcpy(r->data + at, &wrap, sizeof(wrap));
		at = 0;
	}
	memcpy(r->data + at, &n, sizeof(n));
	memcpy(r->data + at + 4, data, len);
	atomic_store_explicit(&h->head, head + fill + need, memory_order_release);
	atomic_fetch_add(&h->wake, 1);
	if (atomic_load(&h->sleepers)) syscall(SYS_futex, &h->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return ST_OK;
}

int ring_peek(struct ring *r, const void **data, size_t *len)
{
	struct ring_reader *me = &r->h->readers[r->reader];
	uint64_t head = atomic_load_explicit(&r->h->head, memory_order_acquire);
	uint64_t tail = atomic_load_explicit(&me->tail, memory_order_relaxed);
	uint32_t n;

	CHECK(r->reader >= 0);
	if (tail == head) return ST_AGAIN;
	if (head - tail > r->data_bytes || tail % 8 != 0) return ST_CORRUPT;
	memcpy(&n, r->data + (tail & (r->data_bytes - 1)), sizeof(n));
	if (n == RING_WRAP) {
		tail += r->data_bytes - (tail & (r->data_bytes - 1));
		if (tail >= head) return ST_CORRUPT;
		memcpy(&n, r->data, sizeof(n));
	}
	if (align_up(4 + (uint64_t)n, 8) > head - tail ||
	    (tail & (r->data_bytes - 1)) + 4 + (uint64_t)n > r->data_bytes)
		return ST_CORRUPT;
	*data = r->data + (tail & (r->data_bytes - 1)) + 4;
	*len = n;
	r->pop_to = tail + align_up(4 + (uint64_t)n, 8);
	return ST_OK;
}

void ring_pop(struct ring *r)
{
	CHECK(r->reader >= 0 && r->pop_to);
	atomic_store_explicit(&r->h->readers[r->reader].tail, r->pop_to, memory_order_release);
	r->pop_to = 0;
}

static bool ring_is_empty(const struct ring *r)
{
	return atomic_load_explicit(&r->h->head, memory_order_acquire) ==
	       atomic_load_explicit(&r->h->readers[r->reader].tail, memory_order_relaxed);
}

static void ring_sleep(struct ring *r, uint32_t seen, uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	atomic_fetch_add(&r->h->sleepers, 1);
	if (ring_is_empty(r)) syscall(SYS_futex, &r->h->wake, FUTEX_WAIT, seen, &ts, NULL, 0);
	atomic_fetch_sub(&r->h->sleepers, 1);
}

int ring_wait(struct ring *r, uint64_t spin_ns, uint64_t timeout_ns)
{
	uint64_t start = clock_now_ns(), passed = 0;

	/* Whoever had to sleep the last time will have to again: spinning before it would only cost. */
	if (r->waited_ns > 2 * spin_ns) spin_ns = 0;
	while (passed <= spin_ns && ring_is_empty(r)) {
		for (int i = 0; i < 32; i++) cpu_relax();
		passed = clock_now_ns() - start;
	}
	while (passed < timeout_ns && ring_is_empty(r)) {
		/* `wake` is read before the emptiness check inside ring_sleep: a push in between changes it, and the futex
		 * call returns at once. */
		uint32_t seen = atomic_load(&r->h->wake);

		ring_sleep(r, seen, timeout_ns - passed);
		passed = clock_now_ns() - start;
	}
	r->waited_ns = passed;
	return ring_is_empty(r) ? ST_TIMEOUT : ST_OK;
}
