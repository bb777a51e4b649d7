/* test_zmqpeer.c - zsock with libzmq at the other end of the socket: each understands the other. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/zsock.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>
#include <cmocka.h>

#define MESSAGE_MAX (1u << 20)
#define N_MESSAGES 2000

static const uint8_t key[MAC_KEY_BYTES] = {1};

struct box {
	uv_loop_t loop;
	struct zctx *z;
	void *zmq;
	char dir[64], path[96], address[120];
	uint32_t n_received;
	bool wrong;
};

static uint32_t length_of(uint32_t i)
{
	return 4 + (i % 500 == 499 ? MESSAGE_MAX - 4 : i * 37 % 700);
}

static void on_message(void *ctx, const void *data, size_t len)
{
	struct box *b = ctx;
	uint32_t n;

	memcpy(&n, data, sizeof(n));
	b->wrong = b->wrong || n != b->n_received || len != length_of(n);
	b->n_received++;
}

static void box_init(struct box *b)
{
	memset(b, 0, sizeof(*b));
	snprintf(b->dir, sizeof(b->dir), "/tmp/sluice-test-XXXXXX");
	assert_non_null(mkdtemp(b->dir));
	snprintf(b->path, sizeof(b->path), "%s/s", b->dir);
	snprintf(b->address, sizeof(b->address), "ipc://%s", b->path);
	uv_loop_init(&b->loop);
	b->z = zctx_new(key, MESSAGE_MAX);
	b->zmq = zmq_ctx_new();
}

static void box_release(struct box *b, struct zsock *s, void *peer)
{
	zsock_close(s);
	uv_run(&b->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&b->loop), 0);
	zctx_free(b->z);
	zmq_close(peer);
	zmq_ctx_term(b->zmq);
	unlink(b->path);
	rmdir(b->dir);
}

static void *peer_open(struct box *b, int type, bool bind)
{
	void *peer = zmq_socket(b->zmq, type);
	int none = 0, soon = 10;

	assert_non_null(peer);
	zmq_setsockopt(peer, ZMQ_LINGER, &none, sizeof(none));
	zmq_setsockopt(peer, ZMQ_RECONNECT_IVL, &soon, sizeof(soon));
	zmq_setsockopt(peer, ZMQ_SNDHWM, &none, sizeof(none));
	assert_int_equal(bind ? zmq_bind(peer, b->address) : zmq_connect(peer, b->address), 0);
	return peer;
}

static void peer_send(void *peer, uint32_t i, uint32_t n_parts)
{
	uint32_t len = length_of(i);
	uint8_t *packet = mem_array(uint8_t, 4 + len), mac[16];

	memcpy(packet, &len, 4);
	memcpy(packet + 4, &i, 4);
	crypto_generichash(mac, sizeof(mac), packet, 4 + len, key, sizeof(key));
	assert_int_equal(zmq_send(peer, packet, 4 + len, n_parts > 1 ? ZMQ_SNDMORE : 0), 4 + len);
	for (uint32_t k = 1; k < n_parts; k++) assert_int_equal(zmq_send(peer, mac, sizeof(mac), k + 1 < n_parts ? ZMQ_SNDMORE : 0), sizeof(mac));
	free(packet);
}

/* Also messages of one, three and five frames, which nobody of ours sends; the last costs the connection, which libzmq makes again. */
static void what_libzmq_pushes_is_read(void **state)
{
	struct zsock_stats stats = {0};
	struct errbuf err = {{0}};
	struct zsock *in;
	struct box b;
	void *peer;

	box_init(&b);
	peer = peer_open(&b, ZMQ_PUSH, false);
	assert_int_equal(zsock_open_pull(&in, b.z, &b.loop, b.path, on_message, &b, &err), ST_OK);
	for (uint32_t i = 0; i < N_MESSAGES; i++) peer_send(peer, i, 2);
	for (uint64_t end = clock_now_ns() + 20 * NS_PER_S; b.n_received < N_MESSAGES && clock_now_ns() < end;) uv_run(&b.loop, UV_RUN_NOWAIT);
	assert_int_equal(b.n_received, N_MESSAGES);
	assert_false(b.wrong);
	for (uint32_t n_parts = 1; n_parts <= 5; n_parts += 2) peer_send(peer, N_MESSAGES, n_parts);
	for (uint64_t end = clock_now_ns() + 20 * NS_PER_S; stats.dropped < 3 && clock_now_ns() < end; zsock_stats(in, &stats))
		uv_run(&b.loop, UV_RUN_NOWAIT);
	assert_int_equal(stats.dropped, 3);
	/* What libzmq sends before it sees the end is lost. */
	for (uint64_t end = clock_now_ns() + 20 * NS_PER_S; b.n_received == N_MESSAGES && clock_now_ns() < end;) {
		peer_send(peer, N_MESSAGES, 2);
		uv_run(&b.loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	assert_true(b.n_received > N_MESSAGES);
	box_release(&b, in, peer);
}

static void what_we_push_libzmq_reads(void **state)
{
	uint8_t *message = mem_array(uint8_t, MESSAGE_MAX), *packet = mem_array(uint8_t, MESSAGE_MAX + 4), got[32], mac[16];
	struct errbuf err = {{0}};
	uint32_t i, n_read = 0, n;
	struct zsock *out;
	struct box b;
	void *peer;

	box_init(&b);
	assert_int_equal(zsock_open_push(&out, b.z, &b.loop, b.path, N_MESSAGES, NULL, NULL, &err), ST_OK);
	peer = peer_open(&b, ZMQ_PULL, true);
	for (i = 0; i < N_MESSAGES; i++) {
		memcpy(message, &i, 4);
		assert_int_equal(zsock_send(out, message, length_of(i)), ST_OK);
	}
	for (uint64_t end = clock_now_ns() + 20 * NS_PER_S; n_read < N_MESSAGES && clock_now_ns() < end;) {
		int len;

		uv_run(&b.loop, UV_RUN_NOWAIT);
		len = zmq_recv(peer, packet, MESSAGE_MAX + 4, ZMQ_DONTWAIT);
		if (len < 0) continue;
		assert_int_equal(len, 4 + length_of(n_read));
		memcpy(&n, packet + 4, 4);
		assert_int_equal(n, n_read);
		assert_int_equal(zmq_recv(peer, got, sizeof(got), 0), sizeof(mac));
		crypto_generichash(mac, sizeof(mac), packet, (size_t)len, key, sizeof(key));
		assert_memory_equal(mac, got, sizeof(mac));
		n_read++;
	}
	assert_int_equal(n_read, N_MESSAGES);
	free(message);
	free(packet);
	box_release(&b, out, peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_libzmq_pushes_is_read),
		cmocka_unit_test(what_we_push_libzmq_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
