/* cpu_stream.c - the CPU device's stream: a list of recorded operations and the threads that walk it together.
 *
 * Owns the list, the pool and the barrier. Good path: kdev_sync() publishes the list (walk + 1), every thread goes
 * through all operations in order, takes items of each from a shared counter, and meets the others at a barrier before
 * the next one. When the last barrier is passed the list is empty again and the caller returns. A waiting thread spins
 * for spin_ns (a decode step's operations take 10 to 100 us, a sleep and its wake-up cost about 50 us), then sleeps on
 * a futex; that holds for barriers and between syncs, so an idle device burns nothing. Operations that are too small to
 * share (solo) run on thread 0; between two of them nobody waits for anybody. Ways to fail: only at start, when the
 * system has no thread for us. Invariant: outside cpu_stream_walk() nobody but the caller touches the list. */
#include "kernels/cpu.h"

#include "common/clock.h"
#include "common/mem.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CPU_STREAM_SPIN_US         50
#define CPU_STREAM_SPIN_CROWDED_US 2 /* more threads than cores: whoever spins keeps another one from working */
#define CPU_STREAM_OPS_MAX         (1u << 20)  /* a step of the largest model has about 10^4 */
#define CPU_STREAM_STACK           (512 * KIB) /* level functions keep a few KiB on it */

static void cpu_stream_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* Returns when *word is no longer `seen`. */
static void cpu_stream_wait(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleepers, uint64_t spin_ns)
{
	uint64_t until_ns;

	if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
	until_ns = clock_now_ns() + spin_ns;
	do {
		for (int i = 0; i < 32; i++) {
			if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
			cpu_stream_pause();
		}
	} while (clock_now_ns() < until_ns);

	/* Sequentially consistent with the waker, who changes the word first and looks for sleepers then. */
	atomic_fetch_add(sleepers, 1);
	while (atomic_load(word) == seen) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_fetch_sub(sleepers, 1);
}

static void cpu_stream_change(_Atomic uint32_t *word, _Atomic uint32_t *sleepers)
{
	atomic_fetch_add(word, 1);
	if (atomic_load(sleepers)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void cpu_stream_barrier(struct cpu_stream *s)
{
	/* Nobody can pass before this thread has arrived, so the number read here is the one to wait on. */
	uint32_t seen = atomic_load_explicit(&s->passed, memory_order_relaxed);

	if (atomic_fetch_add(&s->arrived, 1) + 1 < s->n_threads) {
		cpu_stream_wait(&s->passed, seen, &s->barrier_sleepers, s->spin_ns);
		return;
	}
	atomic_store_explicit(&s->arrived, 0, memory_order_relaxed);
	cpu_stream_change(&s->passed, &s->barrier_sleepers);
}

/* Takes a share of what is left: large at first, single items at the end, so that threads finish together. */
static bool cpu_stream_take(struct cpu_op *op, uint32_t n_threads, uint32_t *begin, uint32_t *end)
{
	uint32_t at = atomic_load_explicit(&op->next, memory_order_relaxed);
	uint32_t n;

	do {
		if (at >= op->n_items) return false;
		n = max_u32(1, (op->n_items - at) / (2 * n_threads));
	} while (!atomic_compare_exchange_weak_explicit(&op->next, &at, at + n, memory_order_relaxed,
							memory_order_relaxed));
	*begin = at;
	*end = at + n;
	return true;
}

/* Runs a share, and shows that thread 0, which waits for all others at each barrier, gets on. */
static void cpu_stream_share(struct cpu_thread *t, struct cpu_op *op, uint32_t begin, uint32_t end)
{
	const struct kdev *d = &t->dev->base;

	op->run(t, op, begin, end);
	if (t->ix == 0 && d->beat) d->beat(d->beat_ctx);
}

static void cpu_stream_run(struct cpu_thread *t)
{
	struct cpu_stream *s = &t->dev->stream;
	uint32_t begin, end;

	for (size_t i = 0; i < s->n_ops; i++) {
		struct cpu_op *op = &s->ops[i];

		t->prepared = false;
		if (s->n_threads == 1) {
			cpu_stream_share(t, op, 0, op->n_items);
			continue;
		}
		if (i > 0 && !(op->solo && s->ops[i - 1].solo)) cpu_stream_barrier(s);
		if (op->solo) {
			if (t->ix == 0) cpu_stream_share(t, op, 0, op->n_items);
			continue;
		}
		while (cpu_stream_take(op, s->n_threads, &begin, &end)) cpu_stream_share(t, op, begin, end);
	}
	if (s->n_threads > 1) cpu_stream_barrier(s);
}

static void *cpu_stream_thread(void *arg)
{
	struct cpu_thread *t = arg;
	struct cpu_stream *s = &t->dev->stream;
	uint32_t seen = 0;

	for (;;) {
		cpu_stream_wait(&s->walk, seen, &s->walk_sleepers, s->spin_ns);
		seen++;
		if (atomic_load(&s->stop)) return NULL;
		cpu_stream_run(t);
	}
}

/* True when no operation has work for the other threads, so that they may sleep on. */
static bool cpu_stream_is_solo(const struct cpu_stream *s)
{
	for (size_t i = 0; i < s->n_ops; i++)
		if (!s->ops[i].solo) return false;
	return true;
}

void cpu_stream_walk(struct cpu_dev *d)
{
	struct cpu_stream *s = &d->stream;

	if (cpu_stream_is_solo(s)) {
		for (size_t i = 0; i < s->n_ops; i++) {
			s->threads[0].prepared = false;
			cpu_stream_share(&s->threads[0], &s->ops[i], 0, s->ops[i].n_items);
		}
	} else {
		if (s->n_threads > 1) cpu_stream_change(&s->walk, &s->walk_sleepers);
		cpu_stream_run(&s->threads[0]);
	}
	s->n_ops = 0;
}

struct cpu_op *cpu_stream_push(struct cpu_dev *d, void (*run)(struct cpu_thread *, struct cpu_op *, uint32_t, uint32_t),
			       uint64_t n_items, bool solo)
{
	struct cpu_stream *s = &d->stream;
	struct cpu_op *op;

	CHECK(n_items < UINT32_MAX / 2 && s->n_ops < CPU_STREAM_OPS_MAX);
	if (s->n_ops == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 256;
		struct cpu_op *ops = aligned_alloc(64, cap * sizeof(*ops));

		if (!ops) check_failed("memory for the list of operations", __FILE__, __LINE__);
		if (s->n_ops) memcpy(ops, s->ops, s->n_ops * sizeof(*ops));
		free(s->ops);
		s->ops = ops;
		s->cap = cap;
	}
	op = &s->ops[s->n_ops++];
	memset(op, 0, sizeof(*op));
	op->run = run;
	op->n_items = (uint32_t)n_items;
	op->solo = solo || n_items == 1 || s->n_threads == 1;
	return op;
}

static uint32_t cpu_stream_cores(cpu_set_t *set)
{
	/* More than 1024 processors do not fit this set; then the answer only makes us spin less. */
	if (sched_getaffinity(0, sizeof(*set), set) != 0) CPU_ZERO(set);
	return max_u32(1, (uint32_t)CPU_COUNT(set));
}

/* Thread ix on the ix-th processor that this process may use. A refusal costs speed only. */
static void cpu_stream_pin(pthread_t thread, uint32_t ix, const cpu_set_t *allowed, uint32_t n_cores)
{
	uint32_t left = ix % n_cores;
	cpu_set_t one;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, allowed) || left-- > 0) continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		pthread_setaffinity_np(thread, sizeof(one), &one);
		return;
	}
}

static int cpu_stream_start(struct cpu_dev *d, uint32_t ix, const pthread_attr_t *attr)
{
	struct cpu_stream *s = &d->stream;
	int rc = pthread_create(&s->threads[ix].handle, attr, cpu_stream_thread, &s->threads[ix]);

	if (rc == 0) s->n_started++;
	return rc;
}

int cpu_stream_init(struct cpu_dev *d, struct errbuf *err)
{
	struct cpu_stream *s = &d->stream;
	pthread_attr_t attr;
	cpu_set_t allowed;
	uint32_t n_cores = cpu_stream_cores(&allowed);
	uint32_t spin_us = d->opts.spin_us ? d->opts.spin_us : CPU_STREAM_SPIN_US;
	int rc = 0;

	s->n_threads = d->opts.n_threads;
	if (s->n_threads > n_cores) spin_us = min_u32(spin_us, CPU_STREAM_SPIN_CROWDED_US);
	s->spin_ns = spin_us * NS_PER_US;
	s->threads = mem_array(struct cpu_thread, s->n_threads);
	for (uint32_t i = 0; i < s->n_threads; i++) {
		s->threads[i].dev = d;
		s->threads[i].ix = i;
	}
	if (d->opts.pin_threads) cpu_stream_pin(pthread_self(), 0, &allowed, n_cores);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, CPU_STREAM_STACK);
	for (uint32_t i = 1; i < s->n_threads && rc == 0; i++) {
		rc = cpu_stream_start(d, i, &attr);
		if (rc == 0 && d->opts.pin_threads) cpu_stream_pin(s->threads[i].handle, i, &allowed, n_cores);
	}
	pthread_attr_destroy(&attr);
	if (rc != 0)
		return err_set(err, ST_LIMIT, "thread %u of %u could not be started: %s", s->n_started + 1,
			       s->n_threads, strerror(rc));
	return ST_OK;
}

void cpu_stream_release(struct cpu_dev *d)
{
	struct cpu_stream *s = &d->stream;

	atomic_store(&s->stop, true);
	if (s->n_started) cpu_stream_change(&s->walk, &s->walk_sleepers);
	for (uint32_t i = 1; i <= s->n_started; i++) pthread_join(s->threads[i].handle, NULL);
	for (uint32_t i = 0; i < s->n_threads; i++) cpu_pages_free(s->threads[i].scratch, d->thread_scratch);
	free(s->threads);
	free(s->ops);
}

void cpu_dev_need(struct cpu_dev *d, size_t bytes)
{
	struct cpu_stream *s = &d->stream;

	if (bytes <= d->thread_scratch) return;
	bytes = align_up(bytes, 64 * KIB);
	for (uint32_t i = 0; i < s->n_threads; i++) {
		cpu_pages_free(s->threads[i].scratch, d->thread_scratch);
		s->threads[i].scratch = cpu_pages_alloc(bytes, true);
		CHECK(s->threads[i].scratch != NULL);
	}
	d->thread_scratch = bytes;
}

#define CPU_HUGE_PAGE (2 * MIB)

void *cpu_pages_alloc(size_t bytes, bool large_pages)
{
	size_t len, extra;
	char *p, *at;

	if (bytes == 0) bytes = 1;
	if (bytes > SIZE_MAX / 2) return NULL;
	len = align_up(bytes, 4096);
	/* Weights and KV are streamed: with 4 KiB pages the walks of the page table cost more than a tenth. */
	extra = len >= 2 * CPU_HUGE_PAGE ? CPU_HUGE_PAGE : 0;
	p = mmap(NULL, len + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return NULL;
	if (!extra) return p;
	at = (char *)align_up((size_t)p, CPU_HUGE_PAGE);
	if (at > p) munmap(p, (size_t)(at - p));
	if (p + extra > at) munmap(at + len, (size_t)(p + extra - at));
	madvise(at, len, large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return at;
}

void cpu_pages_large(void *ptr, size_t bytes)
{
	if (bytes >= 2 * CPU_HUGE_PAGE) madvise(ptr, align_up(bytes, 4096), MADV_HUGEPAGE);
}

void cpu_pages_free(void *ptr, size_t bytes)
{
	if (!ptr) return;
	munmap(ptr, align_up(bytes ? bytes : 1, 4096));
}
