/* test_ring.c - records of any length arrive whole and in order for every reader; a full ring refuses; dead readers do not hold it
 * back; nonsense in the shared memory is noticed. */
#include "common/mem.h"
#include "common/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define DATA_BYTES 1024

struct box {
	void *mem;
	size_t bytes;
	struct ring *writer, *readers[2];
};

static void box_init(struct box *b, size_t data_bytes, uint32_t n_readers)
{
	struct errbuf err;

	b->bytes = ring_mem_bytes(data_bytes);
	assert_int_equal(posix_memalign(&b->mem, 4096, b->bytes), 0);
	memset(b->mem, 0xAA, b->bytes);
	ring_format(b->mem, data_bytes, n_readers);
	assert_int_equal(ring_attach(&b->writer, b->mem, b->bytes, -1, &err), ST_OK);
	for (uint32_t i = 0; i < n_readers; i++) assert_int_equal(ring_attach(&b->readers[i], b->mem, b->bytes, (int)i, &err), ST_OK);
}

static void box_release(struct box *b, uint32_t n_readers)
{
	ring_free(b->writer);
	for (uint32_t i = 0; i < n_readers; i++) ring_free(b->readers[i]);
	free(b->mem);
}

static void expect_record(struct ring *r, const void *want, size_t want_len)
{
	const void *data;
	size_t len;

	assert_int_equal(ring_peek(r, &data, &len), ST_OK);
	assert_int_equal(len, want_len);
	assert_memory_equal(data, want, want_len);
	ring_pop(r);
}

static void expect_empty(struct ring *r)
{
	const void *data;
	size_t len;

	assert_int_equal(ring_peek(r, &data, &len), ST_AGAIN);
}

static void records_of_every_length_pass_the_end_of_the_ring(void **state)
{
	uint8_t record[DATA_BYTES / 2];
	struct box b;

	box_init(&b, DATA_BYTES, 2);
	for (int round = 0; round < 5; round++) {
		for (size_t len = 0; len <= DATA_BYTES / 2 - 8; len++) {
			memset(record, (int)(len + (size_t)round), sizeof(record));
			assert_int_equal(ring_push(b.writer, record, len), ST_OK);
			expect_record(b.readers[0], record, len);
			expect_record(b.readers[1], record, len);
			expect_empty(b.readers[0]);
		}
	}
	box_release(&b, 2);
}

static void too_long_a_record_is_refused_for_good(void **state)
{
	static uint8_t record[DATA_BYTES];
	struct box b;

	box_init(&b, DATA_BYTES, 1);
	assert_int_equal(ring_push(b.writer, record, DATA_BYTES / 2 - 4), ST_OK);
	assert_int_equal(ring_push(b.writer, record, DATA_BYTES / 2 - 3), ST_LIMIT);
	box_release(&b, 1);
}

static void a_full_ring_waits_for_its_slowest_reader(void **state)
{
	uint8_t record[120] = {7};
	struct box b;
	int n = 0;

	box_init(&b, DATA_BYTES, 2);
	while (ring_push(b.writer, record, sizeof(record)) == ST_OK) n++;
	assert_int_equal(n, DATA_BYTES / 128);
	for (int i = 0; i < n; i++) expect_record(b.readers[0], record, sizeof(record));
	assert_int_equal(ring_push(b.writer, record, sizeof(record)), ST_AGAIN);
	expect_record(b.readers[1], record, sizeof(record));
	assert_int_equal(ring_push(b.writer, record, sizeof(record)), ST_OK);
	assert_int_equal(ring_push(b.writer, record, sizeof(record)), ST_AGAIN);
	ring_set_reader_active(b.writer, 1, false); /* it died */
	assert_int_equal(ring_push(b.writer, record, sizeof(record)), ST_OK);
	box_release(&b, 2);
}

static void a_reader_that_attaches_sees_only_what_comes_later(void **state)
{
	struct errbuf err;
	struct ring *again;
	struct box b;

	box_init(&b, DATA_BYTES, 1);
	assert_int_equal(ring_push(b.writer, "old", 3), ST_OK);
	assert_int_equal(ring_attach(&again, b.mem, b.bytes, 0, &err), ST_OK);
	expect_empty(again);
	assert_int_equal(ring_push(b.writer, "new", 3), ST_OK);
	expect_record(again, "new", 3);
	ring_free(again);
	box_release(&b, 1);
}

static void small_records_touch_only_the_beginning_of_a_large_ring(void **state)
{
	static uint8_t big[MIB];
	const size_t soft = MIB, data_bytes = 4 * MIB;
	uint8_t record[1000] = {0};
	const uint8_t *data;
	struct box b;

	box_init(&b, data_bytes, 1);
	data = (uint8_t *)b.mem + b.bytes - data_bytes;
	for (int i = 0; i < 10000; i++) {
		assert_int_equal(ring_push(b.writer, record, sizeof(record)), ST_OK);
		expect_record(b.readers[0], record, sizeof(record));
	}
	for (size_t i = soft + 2 * 1008; i < data_bytes; i++)
		if (data[i] != 0xAA) fail_msg("byte %zu was touched", i);
	assert_int_equal(ring_push(b.writer, big, sizeof(big)), ST_OK); /* a large one still passes, and small ones beside it */
	assert_int_equal(ring_push(b.writer, record, sizeof(record)), ST_OK);
	expect_record(b.readers[0], big, sizeof(big));
	expect_record(b.readers[0], record, sizeof(record));
	box_release(&b, 1);
}

/* Two steps are in flight: the second of some size must fit wherever the first one went. */
static void a_record_fits_behind_an_unread_one_wherever_that_lies(void **state)
{
	static uint8_t next[512 * KIB];
	uint8_t record[1000] = {0};
	struct box b;

	box_init(&b, 4 * MIB, 1);
	for (int i = 0; i < 5000; i++) {
		size_t len = (size_t)(i * 37 % 512) * KIB + 8;

		assert_int_equal(ring_push(b.writer, record, sizeof(record)), ST_OK);
		if (ring_push(b.writer, next, len) != ST_OK) fail_msg("round %d: the second does not fit", i);
		expect_record(b.readers[0], record, sizeof(record));
		expect_record(b.readers[0], next, len);
	}
	box_release(&b, 1);
}

static void the_generation_is_shared(void **state)
{
	struct box b;

	box_init(&b, DATA_BYTES, 1);
	assert_int_equal(ring_generation(b.readers[0]), 0);
	ring_set_generation(b.writer, 0x123456789abcull);
	assert_int_equal(ring_generation(b.readers[0]), 0x123456789abcull);
	box_release(&b, 1);
}

static void foreign_memory_is_refused(void **state)
{
	struct errbuf err;
	struct ring *r;
	struct box b;

	box_init(&b, DATA_BYTES, 1);
	assert_int_equal(ring_attach(&r, b.mem, b.bytes - 512, -1, &err), ST_CORRUPT);
	assert_int_equal(ring_attach(&r, b.mem, b.bytes, 1, &err), ST_CORRUPT);
	assert_string_equal(err.text, "ring has 1 readers, wanted number 1");
	((uint8_t *)b.mem)[0] ^= 1;
	assert_int_equal(ring_attach(&r, b.mem, b.bytes, -1, &err), ST_CORRUPT);
	assert_string_equal(err.text, "shared memory holds no ring of layout 1");
	box_release(&b, 1);
}

static void a_damaged_length_is_noticed(void **state)
{
	static const uint32_t lengths[] = {4, 100, DATA_BYTES, 0x7fffffff, UINT32_MAX};

	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		const void *data;
		struct box b;
		size_t len;

		box_init(&b, DATA_BYTES, 1);
		assert_int_equal(ring_push(b.writer, "abc", 3), ST_OK); /* takes 8 bytes: 4 fit, not more */
		memcpy((uint8_t *)b.mem + b.bytes - DATA_BYTES, &lengths[i], 4);
		assert_int_equal(ring_peek(b.readers[0], &data, &len), i == 0 ? ST_OK : ST_CORRUPT);
		box_release(&b, 1);
	}
}

static void waiting_times_out_and_ends_with_a_record(void **state)
{
	struct box b;

	box_init(&b, DATA_BYTES, 1);
	assert_int_equal(ring_wait(b.readers[0], 0, 2 * NS_PER_MS), ST_TIMEOUT);
	assert_int_equal(ring_wait(b.readers[0], NS_PER_MS, 2 * NS_PER_MS), ST_TIMEOUT);
	assert_int_equal(ring_push(b.writer, "x", 1), ST_OK);
	assert_int_equal(ring_wait(b.readers[0], 0, NS_PER_S), ST_OK);
	box_release(&b, 1);
}

/* ---- one writer and two readers at once; under TSan this is the proof of the ring's order ---- */

#define N_RECORDS 20000

static void *reader_main(void *arg)
{
	struct ring *r = arg;

	for (uint32_t i = 0; i < N_RECORDS;) {
		const void *data;
		size_t len;
		uint32_t first;

		if (ring_wait(r, i % 3 ? 1000 : 0, 10 * NS_PER_S) != ST_OK) return (void *)"timed out";
		while (ring_peek(r, &data, &len) == ST_OK) {
			memcpy(&first, data, sizeof(first));
			if (first != i || len != 4 + i % 61) return (void *)"wrong record";
			ring_pop(r);
			i++;
		}
	}
	return NULL;
}

static void readers_in_other_threads_get_everything(void **state)
{
	pthread_t threads[2];
	uint8_t record[80] = {0};
	struct box b;

	box_init(&b, 4096, 2);
	for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, reader_main, b.readers[i]), 0);
	for (uint32_t i = 0; i < N_RECORDS;) {
		memcpy(record, &i, sizeof(i));
		if (ring_push(b.writer, record, 4 + i % 61) == ST_OK) i++;
		else sched_yield();
	}
	for (int i = 0; i < 2; i++) {
		void *why;

		pthread_join(threads[i], &why);
		if (why) fail_msg("reader %d: %s", i, (const char *)why);
	}
	box_release(&b, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_of_every_length_pass_the_end_of_the_ring),
		cmocka_unit_test(too_long_a_record_is_refused_for_good),
		cmocka_unit_test(a_full_ring_waits_for_its_slowest_reader),
		cmocka_unit_test(a_reader_that_attaches_sees_only_what_comes_later),
		cmocka_unit_test(small_records_touch_only_the_beginning_of_a_large_ring),
		cmocka_unit_test(a_record_fits_behind_an_unread_one_wherever_that_lies),
		cmocka_unit_test(the_generation_is_shared),
		cmocka_unit_test(foreign_memory_is_refused),
		cmocka_unit_test(a_damaged_length_is_noticed),
		cmocka_unit_test(waiting_times_out_and_ends_with_a_record),
		cmocka_unit_test(readers_in_other_threads_get_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
