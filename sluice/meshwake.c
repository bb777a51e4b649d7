/* meshwake.c - see meshwake.h.
 *
 * Two children share memory with this process: one reads the ring as a worker's rank does (the same spin, then the futex inside), one
 * waits on a plain futex. Each writes down how old a push is when it sees it. The pushes of the two alternate, and both readers have the
 * same core, another one than the pushes come from, so both see the same machine, whatever else runs on it; 0 as a time of push ends a
 * child. */
#include "sluice/meshwake.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESHWAKE_SPIN_NS (30 * NS_PER_US) /* a rank's */
#define MESHWAKE_RING_BYTES 65536
#define MESHWAKE_SAMPLES_MAX 20000 /* the first ones, where there are more */

struct meshwake_log {
	_Atomic uint32_t n;
	uint64_t cpu_ns;
	uint32_t late_ns[MESHWAKE_SAMPLES_MAX];
};

struct meshwake_shared {
	_Atomic uint32_t futex;
	_Atomic uint64_t pushed_ns;
	struct meshwake_log ring_log, futex_log;
	uint8_t ring[] __attribute__((aligned(4096)));
};

/* False: this was the last one. */
static bool meshwake_note(struct meshwake_log *log, uint64_t pushed_ns)
{
	uint32_t n = atomic_load(&log->n);

	if (!pushed_ns) return false;
	if (n < MESHWAKE_SAMPLES_MAX) log->late_ns[n] = (uint32_t)min_u64(clock_now_ns() - pushed_ns, UINT32_MAX);
	atomic_store(&log->n, n + 1);
	return true;
}

static void meshwake_read_ring(struct meshwake_shared *s, struct ring *r)
{
	const void *data;
	uint64_t pushed = 1;
	size_t len;

	while (pushed) {
		if (ring_wait(r, MESHWAKE_SPIN_NS, NS_PER_S) != ST_OK || ring_peek(r, &data, &len) != ST_OK) continue;
		memcpy(&pushed, data, sizeof(pushed));
		meshwake_note(&s->ring_log, pushed);
		ring_pop(r);
	}
	s->ring_log.cpu_ns = clock_thread_ns();
}

static void meshwake_read_futex(struct meshwake_shared *s)
{
	uint32_t seen = 0, now;

	do {
		while ((now = atomic_load(&s->futex)) == seen) syscall(SYS_futex, &s->futex, FUTEX_WAIT, seen, NULL, NULL, 0);
		seen = now;
	} while (meshwake_note(&s->futex_log, atomic_load(&s->pushed_ns)));
	s->futex_log.cpu_ns = clock_thread_ns();
}

static void meshwake_push_futex(struct meshwake_shared *s, bool last)
{
	atomic_store(&s->pushed_ns, last ? 0 : clock_now_ns());
	atomic_fetch_add(&s->futex, 1);
	syscall(SYS_futex, &s->futex, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static int meshwake_push_ring(struct ring *r, bool last)
{
	uint64_t now = last ? 0 : clock_now_ns();

	return ring_push(r, &now, sizeof(now));
}

static int meshwake_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void meshwake_sum_up(struct meshwake_log *log, uint64_t wall_ns, struct meshwake_side *out)
{
	uint32_t n = min_u32(atomic_load(&log->n), MESHWAKE_SAMPLES_MAX);

	qsort(log->late_ns, n, sizeof(*log->late_ns), meshwake_compare);
	*out = (struct meshwake_side){.cpu = (double)log->cpu_ns / (double)wall_ns};
	if (!n) return;
	out->p50_us = log->late_ns[n / 2] / 1e3;
	out->p99_us = log->late_ns[min_u32(n - 1, n * 99 / 100)] / 1e3;
}

/* Moves this thread to the first core that it may use, or to the last one. Where that fails it runs where it is, as before. */
static void meshwake_pin(const cpu_set_t *may, bool last)
{
	int cpu = last ? CPU_SETSIZE - 1 : 0;
	cpu_set_t one;

	if (CPU_COUNT(may) < 2) return;
	while (!CPU_ISSET(cpu, may)) cpu += last ? -1 : 1;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* The child's process id; it runs one of the readers. */
static pid_t meshwake_fork(struct meshwake_shared *s, struct ring *r, const cpu_set_t *may)
{
	pid_t pid = fork();

	if (pid) return pid;
	meshwake_pin(may, true);
	if (r) meshwake_read_ring(s, r);
	else meshwake_read_futex(s);
	_exit(0);
}

static int meshwake_measure(struct meshwake_shared *s, struct ring *writer, struct ring *reader, const cpu_set_t *may, uint32_t rate,
			    uint32_t n, struct meshwake_result *out)
{
	pid_t pids[2] = {meshwake_fork(s, reader, may), meshwake_fork(s, NULL, may)};
	uint64_t from = clock_now_ns(), half = NS_PER_S / rate / 2;
	int rc = pids[0] > 0 && pids[1] > 0 ? ST_OK : ST_IO;

	for (uint32_t i = 0; i < n && rc == ST_OK; i++) {
		clock_sleep_until(from + (2 * (uint64_t)i + 1) * half);
		rc = meshwake_push_ring(writer, false);
		clock_sleep_until(from + (2 * (uint64_t)i + 2) * half);
		meshwake_push_futex(s, false);
	}
	clock_sleep_until(from + (2 * (uint64_t)n + 1) * half);
	meshwake_push_futex(s, true);
	if (meshwake_push_ring(writer, true) != ST_OK) rc = ST_IO;
	for (int i = 0; i < 2; i++)
		if (pids[i] > 0) waitpid(pids[i], NULL, 0);
	out->rate = rate;
	meshwake_sum_up(&s->ring_log, clock_now_ns() - from, &out->ring);
	meshwake_sum_up(&s->futex_log, clock_now_ns() - from, &out->futex);
	return rc;
}

int meshwake_run(uint32_t rate, uint32_t n, struct meshwake_result *out, struct errbuf *err)
{
	size_t ring_bytes = ring_mem_bytes(MESHWAKE_RING_BYTES), bytes = sizeof(struct meshwake_shared) + ring_bytes;
	struct meshwake_shared *s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct ring *writer = NULL, *reader = NULL;
	cpu_set_t may;
	int rc;

	if (s == MAP_FAILED) return err_set(err, ST_IO, "cannot map memory: %s", strerror(errno));
	ring_format(s->ring, MESHWAKE_RING_BYTES, 1);
	rc = ring_attach(&writer, s->ring, ring_bytes, -1, err);
	if (rc == ST_OK) rc = ring_attach(&reader, s->ring, ring_bytes, 0, err);
	CPU_ZERO(&may);
	sched_getaffinity(0, sizeof(may), &may);
	if (rc == ST_OK) {
		meshwake_pin(&may, false);
		rc = meshwake_measure(s, writer, reader, &may, rate, n, out);
		if (CPU_COUNT(&may) > 1) sched_setaffinity(0, sizeof(may), &may);
		if (rc != ST_OK) err_set(err, rc, "the readers of the ring could not be started or did not read");
	}
	ring_free(writer);
	ring_free(reader);
	munmap(s, bytes);
	return rc;
}
