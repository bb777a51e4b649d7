/* ring.h - a ring of variable-length records in shared memory: one writer, up to RING_READERS_MAX readers.
 *
 * The memory is a memfd that the supervisor made; its header carries a magic, a layout number, a generation and each
 * reader's position, so a process that starts later (or again) can attach. A record is visible to readers when head moves past
 * it, which is the last thing a push does: a writer that dies inside a push leaves nothing.
 *
 * Readers wait by a short bounded spin where that has a chance, then on a shared futex. A reader may have an eventfd beside the ring (result rings,
 * for an event loop); the writer signals it after a push.
 * Nothing in the shared memory is trusted to be sane: lengths and positions are checked, ST_CORRUPT otherwise.
 *
 * generation: set by the writer's owner (executor epoch); readers compare and may skip. */
#ifndef SLUICE_RING_H
#define SLUICE_RING_H

#include "common/base.h"
#include "common/errbuf.h"

#define RING_READERS_MAX 64

struct ring; /* a process-local handle */

/* Bytes of a memfd for a ring that holds data_bytes (a power of two). */
size_t ring_mem_bytes(size_t data_bytes);
/* Formats fresh memory (supervisor, once). */
void ring_format(void *mem, size_t data_bytes, uint32_t n_readers);
/* Attaches to mapped memory. The mapping stays the caller's. reader: index, or -1 for the writer. A reader that attaches starts at
 * the head: it sees only what is pushed later. */
int ring_attach(struct ring **out, void *mem, size_t mem_bytes, int reader, struct errbuf *err) MUST_CHECK;
void ring_free(struct ring *r);

/* Writer. ST_AGAIN: the slowest active reader has not made room. ST_LIMIT: longer than half of the ring can never fit. */
int ring_push(struct ring *r, const void *data, size_t len) MUST_CHECK;
/* Readers that are not active do not hold back the writer (a dead worker). Attaching makes a reader active. */
void ring_set_reader_active(struct ring *r, uint32_t reader, bool active);
void ring_set_generation(struct ring *r, uint64_t generation);
uint64_t ring_generation(const struct ring *r);

/* Reader. The record stays valid until ring_pop(). ST_AGAIN: empty. */
int ring_peek(struct ring *r, const void **data, size_t *len) MUST_CHECK;
void ring_pop(struct ring *r);
/* Waits until there is a record: spin_ns of spinning (unless the last wait was much longer), then sleeping. ST_TIMEOUT after timeout_ns. */
int ring_wait(struct ring *r, uint64_t spin_ns, uint64_t timeout_ns) MUST_CHECK;

#endif
