/* test_siblings.c - two frontends' edges in one loop: connections of real clients go from one to the other, whole. */
#include "common/clock.h"
#include "common/mem.h"
#include "frontend/siblings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_NS (10 * NS_PER_S) /* a test that waits longer has failed */
#define H " HTTP/1.1\r\nHost: x\r\n"

struct end {
	struct boot boot;
	struct conn_host host;
	struct tcp *tcp;
	struct siblings *siblings;
	int inbox; /* the supervisor's copy */
	uint16_t port;
	uint32_t ix;
	struct http_request *held; /* of /later */
};

struct mesh {
	uv_loop_t loop;
	struct page *page;
	char dir[64];
	struct end ends[2];
};

/* Who answers says his number; /later waits for answer_held(). */
static void on_request(void *ctx, struct http_request *r)
{
	struct end *e = ctx;
	char text[160];

	if (strcmp(r->path, "/later") == 0) {
		e->held = r;
		return;
	}
	snprintf(text, sizeof(text), "<%u %s %zu>", e->ix, r->path, r->body.len);
	page_count(&e->boot.page->frontends[e->ix], COUNTER_http_2xx, 1);
	http_answer(r, 200, "text/plain", NULL, text, strlen(text));
}

static void answer_held(struct end *e)
{
	struct http_request *r = e->held;
	char text[64];

	e->held = NULL;
	snprintf(text, sizeof(text), "<%u held>", e->ix);
	http_answer(r, 200, "text/plain", NULL, text, strlen(text));
}

static int listen_loopback(uint16_t *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

static void end_open(struct mesh *m, uint32_t ix, uint32_t connections_max)
{
	struct end *e = &m->ends[ix];
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct errbuf err;

	e->ix = e->boot.index = ix;
	e->boot.page = m->page;
	snprintf(e->boot.ipc_dir, sizeof(e->boot.ipc_dir), "%s", m->dir);
	e->boot.config.balance_connections = true;
	boot_inbox_path(m->dir, ix, a.sun_path, sizeof(a.sun_path));
	e->inbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(e->inbox, (struct sockaddr *)&a, sizeof(a)), 0);
	e->host = (struct conn_host){.head_max = 4096, .body_max = 1000000, .bodies_max = 4000000, .request_ns = 5 * NS_PER_S, .keep_alive_ns = 5 * NS_PER_S,
				     .write_ns = 5 * NS_PER_S, .allow_origin = "*", .ctx = e, .on_request = on_request};
	assert_int_equal(tcp_open(&e->tcp, &m->loop, listen_loopback(&e->port), &e->host, connections_max, 50, &err), ST_OK);
	assert_int_equal(siblings_open(&e->siblings, &e->boot, &m->loop, e->tcp, 4096, fcntl(e->inbox, F_DUPFD_CLOEXEC, 0), &err), ST_OK);
	page_state(&m->page->frontends[ix], PAGE_SERVING);
}

static struct mesh *mesh_new(uint32_t connections_max)
{
	struct mesh *m = mem_new(struct mesh);

	m->page = mem_new(struct page);
	page_format(m->page, 2, 1);
	snprintf(m->dir, sizeof(m->dir), "/tmp/siblings-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	uv_loop_init(&m->loop);
	end_open(m, 0, 100);
	end_open(m, 1, connections_max);
	return m;
}

static void mesh_step(struct mesh *m)
{
	uv_run(&m->loop, UV_RUN_NOWAIT);
	for (int i = 0; i < 2; i++) {
		atomic_store(&m->page->frontends[i].heartbeat_ns, clock_now_ns());
		tcp_flush(m->ends[i].tcp, clock_now_ns());
	}
}

static void mesh_free(struct mesh *m)
{
	char path[160];

	for (uint32_t i = 0; i < 2; i++) {
		siblings_close(m->ends[i].siblings);
		tcp_close(m->ends[i].tcp, NULL, NULL);
		close(m->ends[i].inbox);
		boot_inbox_path(m->dir, i, path, sizeof(path));
		unlink(path);
	}
	uv_run(&m->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&m->loop), 0);
	for (int i = 0; i < 2; i++) assert_int_equal(m->ends[i].host.bodies, 0);
	assert_int_equal(rmdir(m->dir), 0);
	free(m->page);
	free(m);
}

static uint64_t n_conns(const struct end *e)
{
	struct tcp_stats st;

	tcp_stats(e->tcp, &st);
	return st.n_open;
}

static void wait_conns(struct mesh *m, int ix, uint64_t n)
{
	uint64_t end = clock_now_ns() + WAIT_NS;

	while (n_conns(&m->ends[ix]) != n && clock_now_ns() < end) mesh_step(m);
	assert_int_equal(n_conns(&m->ends[ix]), n);
}

static void retire(struct mesh *m, int ix)
{
	page_state(&m->page->frontends[ix], PAGE_DRAINING);
	siblings_retire(m->ends[ix].siblings);
}

/* ---- a client ---- */

static int client(struct mesh *m, int ix)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(m->ends[ix].port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static void put(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Runs until the answers end with the text; "" : the connection is closed. What has come before is thrown away, but none may say close. */
static void expect(struct mesh *m, int fd, const char *text)
{
	uint64_t end = clock_now_ns() + WAIT_NS;
	char buf[8192];
	size_t len = 0, n = strlen(text);

	while (clock_now_ns() < end) {
		ssize_t got = recv(fd, buf + len, sizeof(buf) - 1 - len, 0);

		if (got == 0) {
			if (n > 0) fail_msg("closed before %s came", text);
			return;
		}
		if (got > 0) len += (size_t)got;
		buf[len] = 0;
		assert_null(strstr(buf, "Connection: close"));
		if (n > 0 && len >= n && memcmp(buf + len - n, text, n) == 0) return;
		mesh_step(m);
	}
	fail_msg("%s did not come, but %s", text, buf);
}

static int served_client(struct mesh *m, int ix)
{
	int fd = client(m, ix);

	put(fd, "GET /first" H "\r\n");
	expect(m, fd, ix ? "<1 /first 0>" : "<0 /first 0>");
	return fd;
}

/* ---- retiring ---- */

static void idle_ones_go_at_once_and_stay_open(void **state)
{
	struct mesh *m = mesh_new(100);
	int fds[40];

	for (int i = 0; i < 40; i++) fds[i] = i % 2 ? served_client(m, 0) : client(m, 0); /* some have not asked yet */
	wait_conns(m, 0, 40);
	retire(m, 0);
	wait_conns(m, 0, 0); /* more than an inbox holds */
	assert_int_equal(n_conns(&m->ends[1]), 40);
	for (int i = 0; i < 40; i++) put(fds[i], "GET /next" H "\r\n");
	for (int i = 0; i < 40; i++) expect(m, fds[i], "<1 /next 0>");
	for (int i = 0; i < 40; i++) close(fds[i]);
	wait_conns(m, 1, 0);
	mesh_free(m);
}

static void busy_ones_go_after_their_answer(void **state)
{
	struct mesh *m = mesh_new(100);
	int fd = client(m, 0);

	put(fd, "GET /later" H "\r\n");
	while (!m->ends[0].held) mesh_step(m);
	retire(m, 0);
	for (int i = 0; i < 20; i++) mesh_step(m);
	assert_int_equal(n_conns(&m->ends[0]), 1);
	answer_held(&m->ends[0]);
	expect(m, fd, "<0 held>");
	wait_conns(m, 0, 0);
	put(fd, "GET /next" H "\r\n");
	expect(m, fd, "<1 /next 0>");
	close(fd);
	mesh_free(m);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
	struct mesh *m = mesh_new(100);
	int fd = client(m, 0);

	put(fd, "GET /later" H "\r\nGET /b" H "\r\nPOST /c" H "Content-Length: 3\r\n\r\nabcGET /d" H "\r\n");
	while (!m->ends[0].held) mesh_step(m);
	for (int i = 0; i < 5; i++) mesh_step(m);
	retire(m, 0);
	answer_held(&m->ends[0]);
	expect(m, fd, "<0 /d 0>"); /* they had been read: they are answered here */
	wait_conns(m, 0, 0);
	put(fd, "GET /e" H "\r\n");
	expect(m, fd, "<1 /e 0>");
	close(fd);
	mesh_free(m);
}

static void half_a_request_is_read_to_its_end_first(void **state)
{
	static char body[300001];
	struct mesh *m = mesh_new(100);
	int fd = served_client(m, 0);
	size_t sent = 0;

	put(fd, "POST /slow" H "Content-Length: 300000\r\n\r\n12345");
	for (int i = 0; i < 20; i++) mesh_step(m);
	retire(m, 0);
	for (int i = 0; i < 20; i++) mesh_step(m);
	assert_int_equal(n_conns(&m->ends[0]), 1);
	memset(body, 'x', 300000);
	while (sent < 299995) {
		ssize_t n = send(fd, body, min_size(10007, 299995 - sent), MSG_NOSIGNAL);

		if (n > 0) sent += (size_t)n;
		mesh_step(m);
	}
	expect(m, fd, "<0 /slow 300000>");
	wait_conns(m, 0, 0);
	put(fd, "POST /after" H "Content-Length: 4\r\n\r\nab");
	for (int i = 0; i < 20; i++) mesh_step(m);
	put(fd, "cd");
	expect(m, fd, "<1 /after 4>");
	close(fd);
	mesh_free(m);
}

static void without_a_sibling_that_serves_all_goes_on(void **state)
{
	struct mesh *m = mesh_new(100);
	int fd = served_client(m, 0);

	page_state(&m->page->frontends[1], PAGE_LOADING);
	assert_true(siblings_exist(m->ends[0].siblings)); /* it is about to */
	retire(m, 0);
	for (int i = 0; i < 20; i++) mesh_step(m);
	put(fd, "GET /still" H "\r\n");
	expect(m, fd, "<0 /still 0>");
	page_state(&m->page->frontends[1], PAGE_SERVING);
	wait_conns(m, 1, 1);
	put(fd, "GET /next" H "\r\n");
	expect(m, fd, "<1 /next 0>");
	page_state(&m->page->frontends[0], PAGE_EMPTY);
	assert_false(siblings_exist(m->ends[1].siblings));
	close(fd);
	mesh_free(m);
}

static void full_siblings_make_answers_the_last(void **state)
{
	struct mesh *m = mesh_new(100);
	int fd = served_client(m, 0), other = served_client(m, 0);
	char buf[4096];
	ssize_t n = -1;

	page_gauge(&m->page->frontends[1], GAUGE_connections, 4090);
	retire(m, 0);
	for (int i = 0; i < 20; i++) mesh_step(m);
	assert_int_equal(n_conns(&m->ends[0]), 2);
	put(fd, "GET /last" H "\r\n");
	for (int i = 0; i < 10000 && n <= 0; i++) {
		mesh_step(m);
		n = recv(fd, buf, sizeof(buf) - 1, 0);
	}
	assert_true(n > 0);
	buf[n] = 0;
	assert_non_null(strstr(buf, "Connection: close"));
	assert_non_null(strstr(buf, "<0 /last 0>"));
	page_gauge(&m->page->frontends[1], GAUGE_connections, 10); /* room again */
	wait_conns(m, 0, 0);
	put(other, "GET /next" H "\r\n");
	expect(m, other, "<1 /next 0>");
	close(fd);
	close(other);
	mesh_free(m);
}

static void nothing_new_is_accepted(void **state)
{
	struct mesh *m = mesh_new(100);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(m->ends[0].port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	retire(m, 0);
	mesh_step(m);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), -1);
	assert_int_equal(errno, ECONNREFUSED); /* there was no other copy of this one */
	close(fd);
	mesh_free(m);
}

static void above_the_limit_it_is_closed_and_counted(void **state)
{
	struct mesh *m = mesh_new(1);
	struct tcp_stats st;
	int a = served_client(m, 1), b = served_client(m, 0);

	retire(m, 0);
	expect(m, b, "");
	tcp_stats(m->ends[1].tcp, &st);
	assert_int_equal(st.refused, 1);
	assert_int_equal(st.n_open, 1);
	close(a);
	close(b);
	mesh_free(m);
}

/* ---- balance ---- */

/* Clients that ask again as soon as they have their answer. */
static void closed_loops_are_spread(void **state)
{
	struct mesh *m = mesh_new(100);
	uint64_t end = clock_now_ns() + WAIT_NS, ticked = 0;
	struct siblings_stats st;
	int fds[16];
	char buf[2048];

	for (int i = 0; i < 16; i++) fds[i] = served_client(m, 0);
	for (int i = 0; i < 16; i++) put(fds[i], "GET /x" H "\r\n");
	while ((n_conns(&m->ends[1]) != 8 || n_conns(&m->ends[0]) != 8) && clock_now_ns() < end) {
		mesh_step(m);
		for (int i = 0; i < 16; i++)
			if (recv(fds[i], buf, sizeof(buf), 0) > 0) put(fds[i], "GET /x" H "\r\n");
		if (clock_now_ns() - ticked < 50 * NS_PER_MS) continue;
		ticked = clock_now_ns();
		for (int i = 0; i < 2; i++) siblings_tick(m->ends[i].siblings, ticked);
	}
	assert_int_equal(n_conns(&m->ends[0]), 8);
	assert_int_equal(n_conns(&m->ends[1]), 8);
	siblings_stats(m->ends[0].siblings, &st);
	assert_in_range(st.given, 8, 16);
	for (int i = 0; i < 16; i++) close(fds[i]);
	mesh_free(m);
}

static void silent_ones_stay(void **state)
{
	struct mesh *m = mesh_new(100);
	int fds[16];

	for (int i = 0; i < 16; i++) fds[i] = client(m, 0);
	wait_conns(m, 0, 16);
	for (int t = 1; t < 20; t++) {
		siblings_tick(m->ends[0].siblings, clock_now_ns() + (uint64_t)t * 100 * NS_PER_MS);
		mesh_step(m);
	}
	assert_int_equal(n_conns(&m->ends[0]), 16);
	for (int i = 0; i < 16; i++) close(fds[i]);
	mesh_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(idle_ones_go_at_once_and_stay_open), cmocka_unit_test(busy_ones_go_after_their_answer),
		cmocka_unit_test(pipelined_requests_are_answered_in_order), cmocka_unit_test(half_a_request_is_read_to_its_end_first),
		cmocka_unit_test(without_a_sibling_that_serves_all_goes_on),
		cmocka_unit_test(full_siblings_make_answers_the_last), cmocka_unit_test(nothing_new_is_accepted),
		cmocka_unit_test(above_the_limit_it_is_closed_and_counted), cmocka_unit_test(closed_loops_are_spread),
		cmocka_unit_test(silent_ones_stay),
	};

	return cmocka_run_group_tests_name("siblings", tests, NULL, NULL);
}
