/* test_handover.c - connections that go from one process's inbox to another's over real sockets, and what else may lie in an inbox. */
#include "common/child.h"
#include "common/mem.h"
#include "frontend/handover.h"
#include "proto/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static const uint8_t key[MAC_KEY_BYTES] = {1, 2, 3}, other_key[MAC_KEY_BYTES] = {9};

struct mesh {
	char dir[64];
	uv_loop_t loop;
	int inboxes[2];        /* the supervisor's copies */
	struct handover *ends[2];
	int got[4096], n_got;  /* what frontend 1 was handed; the test's */
	struct handover_note last;
};

static void on_connection(void *ctx, int fd, const struct handover_note *note)
{
	struct mesh *m = ctx;

	assert_true(m->n_got < 4096);
	m->got[m->n_got++] = fd;
	m->last = *note;
}

static void bind_inbox(struct mesh *m, uint32_t i)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	boot_inbox_path(m->dir, i, a.sun_path, sizeof(a.sun_path));
	m->inboxes[i] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(m->inboxes[i], (struct sockaddr *)&a, sizeof(a)), 0);
}

static void open_end(struct mesh *m, uint32_t i)
{
	struct handover_config c = {m->dir, i, key, fcntl(m->inboxes[i], F_DUPFD_CLOEXEC, 0)};
	struct errbuf err;

	assert_int_equal(handover_open(&m->ends[i], &m->loop, &c, on_connection, m, &err), ST_OK);
}

static void close_end(struct mesh *m, uint32_t i)
{
	handover_close(m->ends[i]);
	m->ends[i] = NULL;
	uv_run(&m->loop, UV_RUN_NOWAIT);
}

static struct mesh *mesh_new(void)
{
	struct mesh *m = mem_new(struct mesh);

	snprintf(m->dir, sizeof(m->dir), "/tmp/handover-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	uv_loop_init(&m->loop);
	for (uint32_t i = 0; i < 2; i++) {
		bind_inbox(m, i);
		open_end(m, i);
	}
	return m;
}

static void mesh_free(struct mesh *m)
{
	char path[160];

	for (int i = 0; i < m->n_got; i++) close(m->got[i]);
	for (uint32_t i = 0; i < 2; i++) {
		close_end(m, i);
		close(m->inboxes[i]);
		boot_inbox_path(m->dir, i, path, sizeof(path));
		unlink(path);
	}
	assert_int_equal(uv_loop_close(&m->loop), 0);
	assert_int_equal(rmdir(m->dir), 0);
	free(m);
}

static int n_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void pair_of(int type, int fds[2])
{
	assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

/* A datagram of anybody's into the inbox of frontend 1, with a descriptor when fd >= 0. */
static void throw_in(struct mesh *m, const void *data, size_t len, int fd)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	boot_inbox_path(m->dir, 1, a.sun_path, sizeof(a.sun_path));
	assert_int_equal(connect(s, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(child_send_fd(s, data, len, fd), ST_OK);
	close(s);
}

/* ---- tests ---- */

static void a_connection_arrives_with_what_is_known_of_it(void **state)
{
	struct handover_note note = {.n_answered = 7, .answered = 3.5f, .seconds = 2.25f};
	struct mesh *m = mesh_new();
	char buf[16];
	int c[2];

	pair_of(SOCK_STREAM, c);
	assert_int_equal(write(c[1], "early", 5), 5);
	assert_int_equal(handover_send(m->ends[0], 1, c[0], &note), ST_OK);
	close(c[0]); /* without a word: the client sees nothing */
	assert_int_equal(write(c[1], "late", 4), 4);
	uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(m->n_got, 1);
	assert_memory_equal(&m->last, &note, sizeof(note));
	assert_int_equal(read(m->got[0], buf, sizeof(buf)), 9);
	assert_memory_equal(buf, "earlylate", 9);
	assert_int_not_equal(fcntl(m->got[0], F_GETFD) & FD_CLOEXEC, 0);
	close(c[1]);
	mesh_free(m);
}

static void a_full_inbox_leaves_the_rest_with_the_sender(void **state)
{
	struct handover_note note = {0};
	struct mesh *m = mesh_new();
	int c[2], n = 0;

	pair_of(SOCK_STREAM, c);
	while (n < 4000 && handover_send(m->ends[0], 1, c[0], &note) == ST_OK) n++;
	assert_in_range(n, 1, 3999);
	assert_int_equal(handover_send(m->ends[0], 1, c[0], &note), ST_AGAIN);
	while (m->n_got < n) uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(handover_send(m->ends[0], 1, c[0], &note), ST_OK);
	uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(m->n_got, n + 1);
	assert_int_equal(handover_dropped(m->ends[1]), 0);
	close(c[0]);
	close(c[1]);
	mesh_free(m);
}

static void what_waits_is_for_the_next_process(void **state)
{
	struct handover_note note = {.n_answered = 1};
	struct mesh *m = mesh_new();
	int c[2];
	char b;

	close_end(m, 1);
	pair_of(SOCK_STREAM, c);
	assert_int_equal(handover_send(m->ends[0], 1, c[0], &note), ST_OK);
	close(c[0]);
	assert_int_equal(read(c[1], &b, 1), -1);
	assert_int_equal(errno, EAGAIN); /* open */
	open_end(m, 1);
	uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(m->n_got, 1);
	close(c[1]);
	mesh_free(m);
}

static void after_the_end_nothing_goes_in_and_nothing_is_lost(void **state)
{
	struct handover_note note = {0};
	struct mesh *m = mesh_new();
	int c[2];

	pair_of(SOCK_STREAM, c);
	for (int i = 0; i < 3; i++) assert_int_equal(handover_send(m->ends[0], 1, c[0], &note), ST_OK);
	handover_shut(m->ends[1]);
	assert_int_equal(m->n_got, 3);
	assert_int_equal(handover_send(m->ends[0], 1, c[0], &note), ST_CLOSED);
	assert_int_equal(handover_send(m->ends[0], 77, c[0], &note), ST_CLOSED); /* nobody has ever been there */
	uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(m->n_got, 3);
	close(c[0]);
	close(c[1]);
	mesh_free(m);
}

/* The bytes of a real datagram, as the reader of the inbox gets them. */
static size_t real_datagram(struct mesh *m, uint8_t *buf, size_t cap)
{
	struct handover_note note = {.n_answered = 1};
	int c[2], passed;
	size_t len;

	pair_of(SOCK_STREAM, c);
	assert_int_equal(handover_send(m->ends[0], 1, c[0], &note), ST_OK);
	assert_int_equal(child_receive_fd(m->inboxes[1], buf, cap, &len, &passed), ST_OK);
	assert_true(passed >= 0);
	close(passed);
	close(c[0]);
	close(c[1]);
	return len;
}

static void junk_is_dropped_counted_and_closed(void **state)
{
	struct mesh *m = mesh_new();
	uint8_t real[256], bad[256];
	size_t len = real_datagram(m, real, sizeof(real));
	uint64_t want = 0;
	int c[2], before;

	pair_of(SOCK_STREAM, c);
	before = n_open();
	throw_in(m, "x", 1, c[0]);
	throw_in(m, "", 0, c[0]);
	throw_in(m, real, len - 1, c[0]);
	throw_in(m, real, len + 1, c[0]);
	throw_in(m, real, len, -1); /* without the connection */
	want += 5;
	for (size_t i = 0; i < len; i++) { /* each byte counts: header, note, MAC */
		memcpy(bad, real, len);
		bad[i] ^= 1;
		throw_in(m, bad, len, c[0]);
		want++;
		uv_run(&m->loop, UV_RUN_NOWAIT);
	}
	assert_int_equal(m->n_got, 0);
	assert_int_equal(handover_dropped(m->ends[1]), want);
	assert_int_equal(n_open(), before);
	throw_in(m, real, len, c[0]);
	uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(m->n_got, 1); /* the bytes were good */
	close(c[0]);
	close(c[1]);
	mesh_free(m);
}

static void datagrams_of_another_mesh_are_dropped(void **state)
{
	struct mesh *m = mesh_new();
	struct handover_config c = {m->dir, 0, other_key, fcntl(m->inboxes[0], F_DUPFD_CLOEXEC, 0)};
	struct handover_note note = {0};
	struct handover *stranger;
	struct errbuf err;
	int pair[2];

	assert_int_equal(handover_open(&stranger, &m->loop, &c, on_connection, m, &err), ST_OK);
	pair_of(SOCK_STREAM, pair);
	assert_int_equal(handover_send(stranger, 1, pair[0], &note), ST_OK);
	uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(m->n_got, 0);
	assert_int_equal(handover_dropped(m->ends[1]), 1);
	handover_close(stranger);
	close(pair[0]);
	close(pair[1]);
	mesh_free(m);
}

static void only_connected_streams_are_taken(void **state)
{
	struct handover_note note = {0};
	struct mesh *m = mesh_new();
	int dgram[2], pipes[2], fds[5], before;

	pair_of(SOCK_DGRAM, dgram);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	fds[0] = dgram[0];
	fds[1] = pipes[0];
	fds[2] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	fds[3] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* never connected */
	fds[4] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(listen(fds[4], 1), 0);
	before = n_open();
	for (int i = 0; i < 5; i++) assert_int_equal(handover_send(m->ends[0], 1, fds[i], &note), ST_OK);
	uv_run(&m->loop, UV_RUN_NOWAIT);
	assert_int_equal(m->n_got, 0);
	assert_int_equal(handover_dropped(m->ends[1]), 5);
	assert_int_equal(n_open(), before);
	for (int i = 0; i < 5; i++) close(fds[i]);
	close(dgram[1]);
	close(pipes[1]);
	mesh_free(m);
}

static void what_is_no_inbox_is_refused(void **state)
{
	struct mesh *m = mesh_new();
	struct handover_config c = {m->dir, 0, key, -1};
	struct handover *h;
	struct errbuf err;

	assert_int_equal(handover_open(&h, &m->loop, &c, on_connection, m, &err), ST_INVALID);
	mesh_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_arrives_with_what_is_known_of_it), cmocka_unit_test(a_full_inbox_leaves_the_rest_with_the_sender),
		cmocka_unit_test(what_waits_is_for_the_next_process), cmocka_unit_test(after_the_end_nothing_goes_in_and_nothing_is_lost),
		cmocka_unit_test(junk_is_dropped_counted_and_closed), cmocka_unit_test(datagrams_of_another_mesh_are_dropped),
		cmocka_unit_test(only_connected_streams_are_taken), cmocka_unit_test(what_is_no_inbox_is_refused),
	};

	return cmocka_run_group_tests_name("handover", tests, NULL, NULL);
}
