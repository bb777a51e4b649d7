/* startbench.c - what loading a model's weights takes, beside reading the same bytes from the page cache.
 *
 *   build/bench/startbench MODEL [threads [rounds]]
 *
 * Each round, in turns: the weights loaded by the worker's own code into fresh memory; the file's map summed up, by as
 * many threads; and the bytes copied from the map into fresh memory and into memory that is there. Medians of wall
 * time, and of the processor time of all threads, which tells more on a busy machine. */
#include "common/clock.h"
#include "common/cpuset.h"
#include "common/mem.h"
#include "worker/weights.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ROUNDS_MAX  99
#define THREADS_MAX 64

enum what { OPEN, LIST, LOAD, SUM, COPY_FRESH, COPY, WHAT_COUNT };
static const char *const names[WHAT_COUNT] = {
	"open, read the description", "list of weights",    "load", "sum of the map",
	"copy to fresh memory",       "copy to used memory"};

/* Two clocks. */
struct span {
	uint64_t wall_ns, cpu_ns;
};

static struct span now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (struct span){clock_now_ns(), (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec};
}

static struct span since(struct span begin)
{
	struct span t = now();

	return (struct span){t.wall_ns - begin.wall_ns, t.cpu_ns - begin.cpu_ns};
}

struct part {
	const uint8_t *from;
	uint8_t *to; /* NULL: summed */
	size_t bytes;
	uint64_t sum;
};

static void *run_part(void *arg)
{
	struct part *p = arg;
	uint64_t word;

	if (p->to) {
		memcpy(p->to, p->from, p->bytes);
		return NULL;
	}
	for (size_t i = 0; i + 8 <= p->bytes; i += 8) {
		memcpy(&word, p->from + i, 8);
		p->sum += word;
	}
	return NULL;
}

/* The tensors' bytes of the first file, in equal parts. */
static struct span plain(const uint8_t *from, size_t bytes, uint8_t *to, uint32_t n)
{
	struct part parts[THREADS_MAX];
	pthread_t threads[THREADS_MAX];
	struct span begin = now(), took;

	for (uint32_t i = 0; i < n; i++) {
		size_t at = bytes / n * i, end = i + 1 == n ? bytes : bytes / n * (i + 1);

		parts[i] = (struct part){.from = from + at, .to = to ? to + at : NULL, .bytes = end - at};
		CHECK(pthread_create(&threads[i], NULL, run_part, &parts[i]) == 0);
	}
	for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
	took = since(begin);
	madvise((void *)((uintptr_t)from & ~4095ull), bytes & ~4095ull, MADV_DONTNEED); /* as the loader leaves it */
	return took;
}

static uint8_t *fresh(size_t bytes)
{
	uint8_t *p = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	madvise(p, bytes + 2 * MIB, MADV_HUGEPAGE);
	return p;
}

static void need(int rc, const struct errbuf *err)
{
	if (rc == ST_OK) return;
	fprintf(stderr, "%s\n", err->text);
	exit(1);
}

static void round_of(const char *path, uint32_t n_threads, struct span ns[WHAT_COUNT], uint64_t *bytes)
{
	struct kdev_opts opts = {.level_max = KLEVEL_AVX512, .act = KACT_Q8, .n_threads = 1, .scratch_bytes = MIB};
	struct spec_opts spec_opts = {0};
	struct wsrc_rank all = {0, 1};
	struct errbuf err = {0};
	struct weights w = {0};
	const uint8_t *first = NULL, *last = NULL;
	struct kdev *dev;
	struct ckpt *c;
	struct spec s;
	uint8_t *to;
	uint64_t viewed;
	size_t arena;
	struct span t = now();

	need(ckpt_open(&c, path, &err), &err);
	need(spec_read(&s, c, &spec_opts, &err), &err);
	ns[OPEN] = since(t);
	need(kdev_open_cpu(&dev, &opts, &err), &err);
	t = now();
	need(weights_bytes(dev, &s, c, all, &arena, &viewed, &err), &err);
	ns[LIST] = since(t);
	t = now();
	need(weights_load(&w, dev, &s, c, all, n_threads, NULL, NULL, &err), &err);
	ns[LOAD] = since(t);
	weights_release(&w);
	kdev_close(dev);
	for (size_t i = 0; i < ckpt_tensor_count(c); i++) {
		const struct ckpt_tensor *x = ckpt_tensor_at(c, i);

		if (x->file != 0) continue;
		if (!first || x->data < first) first = x->data;
		if (!last || x->data + x->bytes > last) last = x->data + x->bytes;
	}
	*bytes = (uint64_t)(last - first);
	ns[SUM] = plain(first, *bytes, NULL, n_threads);
	to = fresh(*bytes);
	ns[COPY_FRESH] = plain(first, *bytes, to, n_threads);
	ns[COPY] = plain(first, *bytes, to, n_threads);
	munmap(to, *bytes + 2 * MIB);
	spec_release(&s);
	ckpt_close(c);
}

static int by_wall(const void *a, const void *b)
{
	uint64_t x = ((const struct span *)a)->wall_ns, y = ((const struct span *)b)->wall_ns;

	return (x > y) - (x < y);
}

static int by_cpu(const void *a, const void *b)
{
	uint64_t x = ((const struct span *)a)->cpu_ns, y = ((const struct span *)b)->cpu_ns;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static struct span ns[WHAT_COUNT][ROUNDS_MAX], one[WHAT_COUNT];
	uint64_t bytes = 0;
	uint32_t n_threads = argc > 2 ? (uint32_t)atoi(argv[2]) : cpuset_available();
	uint32_t rounds = argc > 3 ? (uint32_t)atoi(argv[3]) : 9;

	if (argc < 2 || n_threads < 1 || n_threads > THREADS_MAX || rounds < 1 || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: startbench MODEL [threads [rounds]]\n");
		return 2;
	}
	for (uint32_t r = 0; r < rounds; r++) {
		round_of(argv[1], n_threads, one, &bytes);
		for (int i = 0; i < WHAT_COUNT; i++) ns[i][r] = one[i];
	}
	printf("%.1f MB of weights, %u threads, median of %u\n", (double)bytes / 1e6, n_threads, rounds);
	for (int i = 0; i < WHAT_COUNT; i++) {
		uint64_t wall, cpu;

		qsort(ns[i], rounds, sizeof(ns[i][0]), by_wall);
		wall = ns[i][rounds / 2].wall_ns;
		qsort(ns[i], rounds, sizeof(ns[i][0]), by_cpu);
		cpu = ns[i][rounds / 2].cpu_ns;
		printf("  %-28s %8.2f ms  CPU %8.2f ms", names[i], (double)wall / 1e6, (double)cpu / 1e6);
		if (i >= LOAD) printf(" %8.2f GB/s", (double)bytes / (double)wall);
		printf("\n");
	}
	return 0;
}
