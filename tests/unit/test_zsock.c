/* test_zsock.c - sockets in a real loop: order, the MAC, the high-water mark and its end, long paths, floods, peers that go, come again, or
 * are none. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/zmtp.h"
#include "common/zsock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#define URGENT UINT32_MAX

static const uint8_t key_a[MAC_KEY_BYTES] = {1}, key_b[MAC_KEY_BYTES] = {2};

struct box {
	uv_loop_t loop;
	struct zctx *z;
	char dir[64], path[96];
	uint32_t n_received, next;
	bool wrong, ready_called;
	struct zsock *yields; /* after each message */
	bool skips;           /* messages may be missing, but not come again */
	struct zsock *closes; /* at message closes_at */
	uint32_t closes_at;
	uint32_t n_urgent;
	uint32_t next_seen; /* n_received, in the last pass */
};

static void on_message(void *ctx, const void *data, size_t len)
{
	struct box *b = ctx;
	uint32_t n;

	memcpy(&n, data, sizeof(n));
	if (n == URGENT) {
		b->n_urgent++;
		return;
	}
	if (b->closes && n == b->closes_at) zsock_close(b->closes);
	b->wrong = b->wrong || len < 4 || (b->skips ? n < b->next : n != b->next);
	b->next = n + 1;
	b->n_received++;
	if (b->yields) zsock_yield(b->yields);
}

static void on_ready(void *ctx)
{
	((struct box *)ctx)->ready_called = true;
}

static void box_init(struct box *b)
{
	memset(b, 0, sizeof(*b));
	snprintf(b->dir, sizeof(b->dir), "/tmp/sluice-test-XXXXXX");
	assert_non_null(mkdtemp(b->dir));
	snprintf(b->path, sizeof(b->path), "%s/s", b->dir);
	uv_loop_init(&b->loop);
	b->z = zctx_new(key_a, 1 << 20);
}

static void box_release(struct box *b)
{
	uv_run(&b->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&b->loop), 0);
	zctx_free(b->z);
	assert_int_not_equal(access(b->path, F_OK), 0); /* a bound path goes with its socket */
	rmdir(b->dir);
}

static struct zsock *pull(struct box *b)
{
	struct errbuf err = {{0}};
	struct zsock *s = NULL;

	if (zsock_open_pull(&s, b->z, &b->loop, b->path, on_message, b, &err) != ST_OK) fail_msg("%s", err.text);
	return s;
}

static struct zsock *push(struct box *b, struct zctx *z, uint32_t hwm)
{
	struct errbuf err = {{0}};
	struct zsock *s = NULL;

	if (zsock_open_push(&s, z, &b->loop, b->path, hwm, on_ready, b, &err) != ST_OK) fail_msg("%s", err.text);
	return s;
}

/* Runs the loop until `*flag` reaches `want`; a limit only against hanging for ever. */
static void run_until(struct box *b, const uint32_t *value, uint32_t want)
{
	uint64_t end = clock_now_ns() + 20 * NS_PER_S;

	while (*value < want) {
		uv_run(&b->loop, UV_RUN_NOWAIT);
		if (clock_now_ns() > end) fail_msg("%u of %u messages arrived", *value, want);
	}
}

static void messages_arrive_in_order(void **state)
{
	uint8_t buf[3000] = {0};
	struct zsock *in, *out;
	struct box b;

	box_init(&b);
	out = push(&b, b.z, 10000); /* before the other side exists */
	in = pull(&b);
	for (uint32_t i = 0; i < 3000; i++) {
		memcpy(buf, &i, sizeof(i));
		assert_int_equal(zsock_send(out, buf, 4 + i % 2900), ST_OK);
	}
	run_until(&b, &b.n_received, 3000);
	assert_false(b.wrong);
	assert_int_equal(zsock_send(out, buf, (1 << 20) + 1), ST_LIMIT);
	zsock_close(in);
	zsock_close(out);
	assert_int_equal(zsock_send(out, buf, 4), ST_CLOSED);
	box_release(&b);
}

/* Enough for several packets, some of them of one long message. */
static void what_is_put_arrives_in_order_when_it_is_flushed(void **state)
{
	static uint8_t buf[300000];
	struct zsock_stats stats;
	struct zsock *in, *out;
	struct box b;

	box_init(&b);
	out = push(&b, b.z, 10000);
	in = pull(&b);
	for (uint32_t i = 0; i < 3000; i++) {
		memcpy(buf, &i, sizeof(i));
		assert_int_equal(zsock_put(out, buf, i % 500 == 7 ? sizeof(buf) : 4 + i % 400), ST_OK);
	}
	zsock_flush(out);
	zsock_flush(out); /* nothing more */
	run_until(&b, &b.n_received, 3000);
	assert_false(b.wrong);
	zsock_stats(out, &stats);
	assert_int_equal(stats.sent, 3000);
	assert_int_equal(zsock_put(out, buf, (1 << 20) + 1), ST_LIMIT);
	zsock_close(in);
	zsock_close(out);
	assert_int_equal(zsock_put(out, buf, 4), ST_CLOSED);
	box_release(&b);
}

static void what_was_put_before_the_high_water_mark_waits_and_goes_first(void **state)
{
	uint8_t buf[1000] = {0};
	struct zsock *in, *out;
	struct box b;
	uint32_t n = 0;

	box_init(&b);
	out = push(&b, b.z, 5);
	for (;; n++) {
		memcpy(buf, &n, sizeof(n));
		if (zsock_put(out, buf, sizeof(buf)) != ST_OK) break;
		if (n % 3 == 2) zsock_flush(out);
	}
	assert_int_equal(n, 18); /* five packets of three, and one that waits */
	assert_false(b.ready_called);
	in = pull(&b);
	run_until(&b, &b.n_received, n);
	assert_true(b.ready_called);
	memcpy(buf, &n, sizeof(n));
	assert_int_equal(zsock_put(out, buf, sizeof(buf)), ST_OK);
	zsock_flush(out);
	run_until(&b, &b.n_received, n + 1);
	assert_false(b.wrong);
	zsock_close(in);
	zsock_close(out);
	box_release(&b);
}

static void a_wrong_key_is_dropped_and_counted(void **state)
{
	struct zctx *other = zctx_new(key_b, 1 << 20);
	struct zsock *in, *bad, *good;
	struct zsock_stats stats;
	struct box b;
	uint32_t n = 0;

	box_init(&b);
	in = pull(&b);
	bad = push(&b, other, 100);
	good = push(&b, b.z, 100);
	assert_int_equal(zsock_send(bad, &n, sizeof(n)), ST_OK);
	do {
		uv_run(&b.loop, UV_RUN_NOWAIT);
		zsock_stats(in, &stats);
	} while (stats.dropped == 0);
	assert_int_equal(b.n_received, 0);
	assert_int_equal(zsock_send(good, &n, sizeof(n)), ST_OK);
	run_until(&b, &b.n_received, 1);
	zsock_close(in);
	zsock_close(bad);
	zsock_close(good);
	uv_run(&b.loop, UV_RUN_DEFAULT);
	zctx_free(other);
	box_release(&b);
}

/* Sends numbered messages of `len` bytes until one is refused; returns how many went. */
static uint32_t fill(struct zsock *out, uint8_t *buf, size_t len)
{
	for (uint32_t n = 0;; n++) {
		memcpy(buf, &n, sizeof(n));
		if (zsock_send(out, buf, len) != ST_OK) return n;
	}
}

static void at_the_high_water_mark_it_refuses_and_later_says_ready(void **state)
{
	uint8_t buf[1000] = {0};
	struct zsock *in, *out;
	struct box b;
	uint32_t n = 0;

	box_init(&b);
	out = push(&b, b.z, 50);
	n = fill(out, buf, sizeof(buf));
	assert_int_equal(n, 50); /* nobody is connected: the queue alone */
	assert_false(b.ready_called);
	in = pull(&b);
	run_until(&b, &b.n_received, n);
	for (uint64_t end = clock_now_ns() + 20 * NS_PER_S; !b.ready_called;) {
		uv_run(&b.loop, UV_RUN_NOWAIT);
		assert_true(clock_now_ns() < end);
	}
	assert_int_equal(zsock_send(out, buf, sizeof(buf)), ST_OK);
	zsock_close(in);
	zsock_close(out);
	box_release(&b);
}

/* Far more than the kernel holds, in messages of several packets' size, and one packet a pass. */
static void a_reader_that_takes_one_packet_a_pass_gets_all(void **state)
{
	static uint8_t buf[300000];
	struct zsock *in, *out;
	struct box b;

	box_init(&b);
	in = b.yields = pull(&b);
	out = push(&b, b.z, 100);
	for (uint32_t i = 0; i < 100; i++) {
		memcpy(buf, &i, sizeof(i));
		assert_int_equal(zsock_send(out, buf, sizeof(buf) - i), ST_OK);
	}
	for (uint32_t seen = 0; b.n_received < 100; seen = b.n_received) {
		uv_run(&b.loop, UV_RUN_NOWAIT);
		assert_in_range(b.n_received - seen, 0, 1);
	}
	assert_false(b.wrong);
	zsock_close(in);
	zsock_close(out);
	box_release(&b);
}

/* A peer whose messages fill every portion, and one that has a single one to send. */
static void a_flood_of_one_peer_does_not_stop_another(void **state)
{
	uint32_t n, urgent = URGENT;
	struct zsock *in, *out, *other;
	struct box b;

	box_init(&b);
	in = pull(&b);
	out = push(&b, b.z, 100000);
	other = push(&b, b.z, 10);
	for (n = 0; n < 100000; n++) assert_int_equal(zsock_put(out, &n, sizeof(n)), ST_OK);
	zsock_flush(out);
	run_until(&b, &b.n_received, 1000);
	assert_int_equal(zsock_send(other, &urgent, sizeof(urgent)), ST_OK);
	run_until(&b, &b.n_urgent, 1);
	assert_in_range(b.n_received, 1000, 50000);
	run_until(&b, &b.n_received, 100000);
	assert_false(b.wrong);
	zsock_close(in);
	zsock_close(out);
	zsock_close(other);
	box_release(&b);
}

/* In the middle of a packet, as it is read and as it is taken in a later pass. */
static void a_socket_may_be_closed_from_its_message(void **state)
{
	static const uint32_t at[] = {0, 5, 600, 1999};

	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		struct zsock *out;
		struct box b;

		box_init(&b);
		b.closes = pull(&b);
		b.closes_at = at[i];
		out = push(&b, b.z, 100);
		for (uint32_t n = 0; n < 2000; n++) {
			assert_int_equal(zsock_put(out, &n, sizeof(n)), ST_OK);
			if (n % 100 == 99) zsock_flush(out);
		}
		run_until(&b, &b.n_received, at[i] + 1);
		for (int k = 0; k < 20; k++) uv_run(&b.loop, UV_RUN_NOWAIT);
		assert_int_equal(b.n_received, at[i] + 1);
		assert_false(b.wrong);
		zsock_close(out);
		box_release(&b);
	}
}

static void on_prepare(uv_prepare_t *p)
{
	struct box *b = p->data;

	b->next_seen = b->n_received;
}

/* What a process does once a pass, before its loop sleeps, comes after what was read in an earlier pass. */
static void nothing_is_taken_between_the_pass_and_the_sleep(void **state)
{
	struct zsock *in, *out;
	uv_prepare_t pass;
	struct box b;

	box_init(&b);
	uv_prepare_init(&b.loop, &pass);
	pass.data = &b;
	uv_prepare_start(&pass, on_prepare);
	in = pull(&b);
	out = push(&b, b.z, 100);
	for (uint32_t n = 0; n < 700; n++) {
		assert_int_equal(zsock_put(out, &n, sizeof(n)), ST_OK);
		if (n == 599) zsock_flush(out);
	}
	zsock_flush(out);
	for (uint64_t end = clock_now_ns() + 20 * NS_PER_S; b.next_seen < 700; assert_true(clock_now_ns() < end)) uv_run(&b.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&pass, NULL);
	zsock_close(in);
	zsock_close(out);
	box_release(&b);
}

/* What waits for a peer that is gone reaches its successor; what it had read of a packet does not make the next ones unreadable. */
static void a_successor_at_the_path_gets_what_waits(void **state)
{
	static uint8_t buf[300000];
	struct zsock *in, *out;
	struct box b;

	box_init(&b);
	in = b.yields = pull(&b);
	out = push(&b, b.z, 100);
	for (uint32_t i = 0; i < 20; i++) {
		memcpy(buf, &i, sizeof(i));
		assert_int_equal(zsock_send(out, buf, sizeof(buf)), ST_OK);
	}
	run_until(&b, &b.n_received, 5);
	zsock_close(in);
	b.yields = NULL;
	uv_run(&b.loop, UV_RUN_NOWAIT);
	in = pull(&b);
	b.skips = true;
	run_until(&b, &b.next, 20);
	assert_false(b.wrong);
	assert_in_range(b.n_received, 10, 19);
	zsock_close(in);
	zsock_close(out);
	box_release(&b);
}

/* Connects to the box's socket, says `bytes`, and waits until the other side has closed. */
static void stranger(struct box *b, const void *bytes, size_t len)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	uint8_t got[ZMTP_HELLO_BYTES];
	uint64_t end = clock_now_ns() + 20 * NS_PER_S;
	ssize_t n;

	memcpy(at.sun_path, b->path, strlen(b->path));
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(send(fd, bytes, len, 0), len);
	do {
		uv_run(&b->loop, UV_RUN_NOWAIT);
		n = recv(fd, got, sizeof(got), 0);
		assert_true(clock_now_ns() < end);
	} while (n > 0 || (n < 0 && errno == EAGAIN));
	close(fd);
}

static void a_peer_that_is_no_push_socket_costs_nobody_else_anything(void **state)
{
	uint8_t hello[ZMTP_HELLO_BYTES];
	struct zsock *in, *out;
	struct zsock_stats stats;
	struct box b;
	uint32_t n = 0;

	box_init(&b);
	in = pull(&b);
	out = push(&b, b.z, 100);
	stranger(&b, "GET / HTTP/1.1\r\n\r\n", 18);
	zmtp_hello(ZMTP_PULL, hello);
	stranger(&b, hello, sizeof(hello));
	zsock_stats(in, &stats);
	assert_int_equal(stats.dropped, 2);
	assert_int_equal(zsock_send(out, &n, sizeof(n)), ST_OK);
	run_until(&b, &b.n_received, 1);
	assert_false(b.wrong);
	zsock_close(in);
	zsock_close(out);
	box_release(&b);
}

static void the_queue_is_bounded_in_bytes_too(void **state)
{
	static uint8_t buf[1 << 20];
	struct zsock *in, *out;
	struct box b;
	uint32_t n = 0;

	box_init(&b);
	out = push(&b, b.z, 100000);
	n = fill(out, buf, sizeof(buf));
	assert_int_equal(n, 64);
	in = pull(&b);
	run_until(&b, &b.n_received, n);
	assert_true(b.ready_called);
	assert_false(b.wrong);
	zsock_close(in);
	zsock_close(out);
	box_release(&b);
}

static void a_path_that_is_too_long_is_refused_clearly(void **state)
{
	struct errbuf err;
	struct zsock *s;
	char path[200];
	struct box b;

	box_init(&b);
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = 0;
	assert_int_equal(zsock_open_pull(&s, b.z, &b.loop, path, on_message, &b, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "is 199 bytes long, 107 are allowed; choose a shorter --ipc-dir"));
	assert_int_equal(zsock_open_pull(&s, b.z, &b.loop, "/nonexistent-folder/s", on_message, &b, &err), ST_IO);
	box_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive_in_order),
		cmocka_unit_test(what_is_put_arrives_in_order_when_it_is_flushed),
		cmocka_unit_test(what_was_put_before_the_high_water_mark_waits_and_goes_first),
		cmocka_unit_test(a_wrong_key_is_dropped_and_counted),
		cmocka_unit_test(at_the_high_water_mark_it_refuses_and_later_says_ready),
		cmocka_unit_test(a_reader_that_takes_one_packet_a_pass_gets_all),
		cmocka_unit_test(a_flood_of_one_peer_does_not_stop_another),
		cmocka_unit_test(a_socket_may_be_closed_from_its_message),
		cmocka_unit_test(nothing_is_taken_between_the_pass_and_the_sleep),
		cmocka_unit_test(a_successor_at_the_path_gets_what_waits),
		cmocka_unit_test(a_peer_that_is_no_push_socket_costs_nobody_else_anything),
		cmocka_unit_test(the_queue_is_bounded_in_bytes_too),
		cmocka_unit_test(a_path_that_is_too_long_is_refused_clearly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
