/* test_mesh.c - inboxes of frontends: what is in one when its frontend has gone for good comes to a sibling, and nothing comes after it. */
#include "sluice/mesh.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void begin(struct mesh *m, uint32_t n)
{
	struct errbuf err;

	memset(m, 0, sizeof(*m));
	snprintf(m->ipc.path, sizeof(m->ipc.path), "/tmp/sluice-test-XXXXXX");
	assert_non_null(mkdtemp(m->ipc.path));
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) m->inbox_fds[i] = -1;
	for (uint32_t i = 0; i < n; i++) assert_int_equal(mesh_open_inbox(m, i, &err), ST_OK);
}

static void end(struct mesh *m)
{
	for (uint32_t i = 0; i < LIMIT_FRONTENDS; i++) mesh_close_inbox(m, i);
	assert_int_equal(rmdir(m->ipc.path), 0); /* no file is left */
}

/* 0, or errno. A pipe's writing end goes along unless fd < 0. */
static int post(const struct mesh *m, uint32_t to, const char *text, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct iovec io = {(void *)(uintptr_t)text, strlen(text)};
	struct msghdr h = {.msg_name = &un, .msg_namelen = sizeof(un), .msg_iov = &io, .msg_iovlen = 1};
	int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), rc;

	boot_inbox_path(m->ipc.path, to, un.sun_path, sizeof(un.sun_path));
	if (fd >= 0) {
		h.msg_control = control;
		h.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&h) = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&h)), &fd, sizeof(fd));
	}
	rc = sendmsg(s, &h, 0) < 0 ? errno : 0;
	close(s);
	return rc;
}

/* The next packet's text; what came along gets an x written and is closed. */
static const char *fetch(const struct mesh *m, uint32_t slot)
{
	static char text[64];
	size_t len;
	int fd;

	if (child_receive_fd(m->inbox_fds[slot], text, sizeof(text) - 1, &len, &fd) != ST_OK) return "";
	text[len] = 0;
	if (fd >= 0) {
		assert_int_equal(write(fd, "x", 1), 1);
		close(fd);
	}
	return text;
}

static void connections_go_to_a_sibling_in_order(void **state)
{
	struct mesh m;
	int pipe_fds[2];
	char buf[8];

	begin(&m, 2);
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(post(&m, 0, "first", pipe_fds[1]), 0);
	assert_int_equal(post(&m, 0, "second", -1), 0);
	close(pipe_fds[1]);
	assert_int_equal(mesh_forward_inbox(&m, 0, 1), ST_OK);
	assert_int_equal(post(&m, 0, "late", -1), EPIPE); /* whoever sends learns that it was not taken */
	assert_int_equal(mesh_forward_inbox(&m, 0, 1), ST_OK);
	mesh_close_inbox(&m, 0);
	assert_string_equal(fetch(&m, 1), "first");
	assert_string_equal(fetch(&m, 1), "second");
	assert_string_equal(fetch(&m, 1), "");
	assert_int_equal(read(pipe_fds[0], buf, sizeof(buf)), 1);
	assert_int_equal(read(pipe_fds[0], buf, sizeof(buf)), 0); /* nobody has a copy */
	close(pipe_fds[0]);
	end(&m);
}

static void a_full_sibling_is_waited_for(void **state)
{
	struct mesh m;
	int n = 0, fetched = 0;

	begin(&m, 2);
	while (post(&m, 1, "hers", -1) == 0) n++;
	assert_true(n > 0);
	for (int i = 0; i < 3; i++) assert_int_equal(post(&m, 0, "his", -1), 0);
	assert_int_equal(mesh_forward_inbox(&m, 0, 1), ST_AGAIN);
	assert_string_equal(fetch(&m, 1), "hers");
	assert_int_equal(mesh_forward_inbox(&m, 0, 1), ST_AGAIN);
	while (fetch(&m, 1)[0]) fetched++;
	assert_int_equal(mesh_forward_inbox(&m, 0, 1), ST_OK);
	while (fetch(&m, 1)[0]) fetched++;
	assert_int_equal(fetched, n - 1 + 3);
	end(&m);
}

static void what_cannot_be_sent_is_dropped(void **state)
{
	char large[6000];
	struct mesh m;

	begin(&m, 3);
	memset(large, 'a', sizeof(large));
	large[sizeof(large) - 1] = 0;
	assert_int_equal(post(&m, 0, large, -1), 0);
	assert_int_equal(post(&m, 0, "small", -1), 0);
	assert_int_equal(mesh_forward_inbox(&m, 0, 1), ST_OK);
	assert_string_equal(fetch(&m, 1), "small");
	assert_string_equal(fetch(&m, 1), "");
	/* To nobody. */
	mesh_close_inbox(&m, 1);
	assert_int_equal(post(&m, 2, "small", -1), 0);
	assert_int_equal(mesh_forward_inbox(&m, 2, 1), ST_OK);
	assert_string_equal(fetch(&m, 2), "");
	assert_int_equal(mesh_forward_inbox(&m, 1, 2), ST_OK); /* there is none */
	end(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_go_to_a_sibling_in_order),
		cmocka_unit_test(a_full_sibling_is_waited_for),
		cmocka_unit_test(what_cannot_be_sent_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
