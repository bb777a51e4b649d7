/* test_acceptor.c - listening sockets come and go while clients connect. */
#include "common/clock.h"
#include "common/mem.h"
#include "frontend/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_NS (10 * NS_PER_S)

struct fixture {
	uv_loop_t loop;
	struct acceptor *acceptor;
	int n_accepted, n_no_room;
	bool closed;
};

static void on_accepted(void *ctx, int fd)
{
	((struct fixture *)ctx)->n_accepted++;
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK && fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
}

static void on_no_room(void *ctx, int fd)
{
	((struct fixture *)ctx)->n_no_room++;
	close(fd);
}

static void on_closed(void *ctx)
{
	((struct fixture *)ctx)->closed = true;
}

static void fixture_open(struct fixture *f)
{
	struct acceptor_events events = {f, on_accepted, on_no_room};

	memset(f, 0, sizeof(*f));
	uv_loop_init(&f->loop);
	f->acceptor = acceptor_open(&f->loop, &events);
}

static void fixture_close(struct fixture *f)
{
	acceptor_close(f->acceptor, on_closed, f);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_true(f->closed);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

/* Bound, not listening yet. */
static int bound(struct sockaddr_in *a)
{
	socklen_t len = sizeof(*a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(bind(fd, (struct sockaddr *)a, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)a, &len), 0);
	return fd;
}

static int client(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (const struct sockaddr *)a, sizeof(*a)), 0);
	return fd;
}

static void wait_until(struct fixture *f, const int *value, int n)
{
	uint64_t end = clock_now_ns() + WAIT_NS;

	while (*value < n && clock_now_ns() < end) uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(*value, n);
}

static void all_sockets_are_accepted_from(void **state)
{
	struct sockaddr_in a, b;
	struct errbuf err;
	struct fixture f;
	int c[3];

	fixture_open(&f);
	assert_int_equal(acceptor_add(f.acceptor, ACCEPTOR_INHERITED, bound(&a), &err), ST_OK);
	c[0] = client(&a);
	wait_until(&f, &f.n_accepted, 1);
	assert_int_equal(acceptor_add(f.acceptor, 3, bound(&b), &err), ST_OK);
	c[1] = client(&b);
	c[2] = client(&a);
	wait_until(&f, &f.n_accepted, 3);
	for (int i = 0; i < 3; i++) close(c[i]);
	fixture_close(&f);
}

/* The supervisor's copy keeps the queue: who has been given the socket accepts what had come before. */
static void what_waits_in_a_socket_is_the_next_ones(void **state)
{
	struct fixture f, g;
	struct sockaddr_in a;
	struct errbuf err;
	int kept = bound(&a), c[2];

	fixture_open(&f);
	fixture_open(&g);
	assert_int_equal(acceptor_add(f.acceptor, 1, fcntl(kept, F_DUPFD_CLOEXEC, 0), &err), ST_OK);
	c[0] = client(&a);
	assert_int_equal(acceptor_remove(f.acceptor, 1), ST_OK);
	assert_int_equal(acceptor_remove(f.acceptor, 1), ST_NOT_FOUND);
	c[1] = client(&a);
	for (int i = 0; i < 10; i++) uv_run(&f.loop, UV_RUN_NOWAIT);
	assert_int_equal(f.n_accepted, 0);
	assert_int_equal(acceptor_add(g.acceptor, 1, fcntl(kept, F_DUPFD_CLOEXEC, 0), &err), ST_OK);
	wait_until(&g, &g.n_accepted, 2);
	/* And back, with the same number. */
	acceptor_remove_all(g.acceptor);
	assert_int_equal(acceptor_add(f.acceptor, 1, kept, &err), ST_OK);
	close(c[0]);
	c[0] = client(&a);
	wait_until(&f, &f.n_accepted, 1);
	close(c[0]);
	close(c[1]);
	fixture_close(&f);
	fixture_close(&g);
}

static void what_cannot_be_used_is_closed(void **state)
{
	struct sockaddr_in a;
	struct errbuf err;
	struct fixture f;
	int fds[2], twice = bound(&a);

	fixture_open(&f);
	assert_int_equal(acceptor_add(f.acceptor, 1, bound(&a), &err), ST_OK);
	assert_int_equal(acceptor_add(f.acceptor, 1, twice, &err), ST_EXISTS);
	assert_int_equal(fcntl(twice, F_GETFD), -1);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(acceptor_add(f.acceptor, 2, fds[0], &err), ST_IO);
	assert_int_equal(fcntl(fds[0], F_GETFD), -1);
	close(fds[1]);
	for (uint32_t i = 2; i <= ACCEPTOR_LISTENERS_MAX; i++) assert_int_equal(acceptor_add(f.acceptor, i, bound(&a), &err), ST_OK);
	assert_int_equal(acceptor_add(f.acceptor, 1000, bound(&a), &err), ST_LIMIT);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_sockets_are_accepted_from),
		cmocka_unit_test(what_waits_in_a_socket_is_the_next_ones),
		cmocka_unit_test(what_cannot_be_used_is_closed),
	};

	return cmocka_run_group_tests_name("acceptor", tests, NULL, NULL);
}
