/* test_offload.c - work on threads: each job ends once, in the right thread, whatever its client does meanwhile. */
#include "frontend/offload.h"

#include "common/mem.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

static struct {
	uv_loop_t loop;
	struct offload pool;
	pthread_t here;
	sem_t gate;              /* jobs that block wait for it */
	atomic_int runs, drops, running;
	int dones;
} box;

struct work {
	struct offload_job job;
	struct http_request request;
	bool blocks, ran;
};

static void run(struct offload_job *j)
{
	struct work *w = CONTAINER_OF(j, struct work, job);

	CHECK(!box.pool.loop || !pthread_equal(pthread_self(), box.here));
	atomic_fetch_add(&box.running, 1);
	if (w->blocks) sem_wait(&box.gate);
	w->ran = true;
	atomic_fetch_add(&box.runs, 1);
}

static void drop(struct offload_job *j)
{
	atomic_fetch_add(&box.drops, 1);
	free(CONTAINER_OF(j, struct work, job));
}

static void done(struct offload_job *j)
{
	struct work *w = CONTAINER_OF(j, struct work, job);

	assert_true(pthread_equal(pthread_self(), box.here));
	assert_true(w->ran && j->request == &w->request && !w->request.owner && !w->request.on_gone);
	box.dones++;
	offload_drop(j->pool, j);
}

static struct work *start(bool blocks, size_t bytes, bool taken)
{
	struct work *w = mem_new(struct work);

	w->blocks = blocks;
	w->job = (struct offload_job){.run = run, .done = done, .drop = drop, .bytes = bytes};
	assert_true(offload_start(&box.pool, &w->request, &w->job) == taken);
	if (taken) return w;
	free(w);
	return NULL;
}

static void gone(struct work *w)
{
	w->request.on_gone(w->request.owner);
}

static void open_box(bool with_loop)
{
	memset(&box, 0, sizeof(box));
	sem_init(&box.gate, 0, 0);
	box.here = pthread_self();
	uv_loop_init(&box.loop);
	offload_init(&box.pool, with_loop ? &box.loop : NULL);
}

static void close_box(void)
{
	uv_run(&box.loop, UV_RUN_DEFAULT);
	assert_int_equal(box.pool.n_jobs, 0);
	assert_int_equal(box.pool.bytes, 0);
	assert_int_equal(box.pool.jobs.len, 0);
	offload_release(&box.pool);
	assert_int_equal(uv_loop_close(&box.loop), 0);
	sem_destroy(&box.gate);
}

static void test_good_path(void **state)
{
	int i;

	open_box(true);
	for (i = 0; i < 100; i++) start(false, 10, true);
	assert_int_equal(box.dones, 0); /* never within the call */
	close_box();
	assert_true(box.dones == 100 && box.runs == 100 && box.drops == 100);
}

static void test_without_a_loop(void **state)
{
	struct work *w = mem_new(struct work);

	open_box(false);
	w->job = (struct offload_job){.run = run, .done = done, .drop = drop};
	assert_true(offload_start(&box.pool, &w->request, &w->job));
	assert_true(box.dones == 1 && box.runs == 1 && box.drops == 1);
	close_box();
}

/* While it waits for a thread: it never runs. While it runs: its end is dropped. */
static void test_gone(void **state)
{
	struct work *w[40];
	int i, n_running;

	open_box(true);
	for (i = 0; i < 40; i++) w[i] = start(true, 10, true);
	while (atomic_load(&box.running) == 0) uv_sleep(1);
	for (i = 0; i < 40; i++) gone(w[i]);
	n_running = atomic_load(&box.running); /* a thread may still begin one that could not be cancelled */
	for (i = 0; i < 40; i++) sem_post(&box.gate);
	close_box();
	assert_true(n_running >= 1 && box.runs < 40);
	assert_true(box.dones == 0 && box.drops == 40);
}

static void test_bounds(void **state)
{
	struct work *w[OFFLOAD_JOBS_MAX];
	int i;

	open_box(true);
	for (i = 0; i < OFFLOAD_JOBS_MAX; i++) w[i] = start(true, 1, true);
	start(true, 1, false);
	for (i = 0; i < OFFLOAD_JOBS_MAX; i++) gone(w[i]);
	for (i = 0; i < OFFLOAD_JOBS_MAX; i++) sem_post(&box.gate);
	close_box();

	open_box(true);
	start(true, OFFLOAD_BYTES_MAX - 5, true);
	start(true, 6, false);
	start(true, 5, true);
	start(true, 1, false);
	sem_post(&box.gate);
	sem_post(&box.gate);
	close_box();
	assert_int_equal(box.dones, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_path),
		cmocka_unit_test(test_without_a_loop),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
