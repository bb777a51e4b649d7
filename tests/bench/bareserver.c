/* bareserver.c - the least that can be a server, for frontbench.py: what of an answer's time is the client's, the kernel's and the
 * machine's.
 *
 *   bareserver PORT PROCESSES
 *
 * Each process has one epoll loop and answers each request with the same stream of one token: one recv(), one send(), nothing parsed.
 * A request is whole when its last byte is the `}` of its body, so it understands no other client than ours. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX 256

static const char body[] = "data: {\"id\":\"cmpl-0123456789abcdef0123456789abcdef\",\"object\":\"text_completion\",\"created\":1700000000,"
			   "\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\" word\",\"logprobs\":null,\"finish_reason\":\"length\","
			   "\"stop_reason\":null}]}\n\ndata: [DONE]\n\n";
static const int on = 1;

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static void watch(int ep, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	if (fd >= 0) epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
}

static void serve(int fd, const char *answer, size_t len)
{
	char request[16384];
	ssize_t n = recv(fd, request, sizeof(request), MSG_DONTWAIT);

	if (n == 0) close(fd);
	/* A small answer always has room: its client waits for it. */
	if (n > 0 && (request[n - 1] == '}' || memcmp(request, "GET", 3) == 0) && send(fd, answer, len, MSG_NOSIGNAL) < 0) close(fd);
}

int main(int argc, char **argv)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), ep, n_processes = argc == 3 ? atoi(argv[2]) : 0, n, fd;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct epoll_event events[EVENTS_MAX];
	char answer[1024];
	size_t len;

	if (n_processes < 1) {
		fprintf(stderr, "usage: bareserver PORT PROCESSES\n");
		return 2;
	}
	len = (size_t)snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %zu\r\n\r\n%s",
			       sizeof(body) - 1, body);
	at.sin_port = htons((uint16_t)atoi(argv[1]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 4096) != 0) return fail("bareserver: listen");
	while (--n_processes > 0)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			break;
		}
	ep = epoll_create1(0);
	watch(ep, listener);
	for (;;) {
		n = epoll_wait(ep, events, EVENTS_MAX, -1);
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd != listener) {
				serve(events[i].data.fd, answer, len);
				continue;
			}
			while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
				watch(ep, fd);
			}
		}
	}
}
