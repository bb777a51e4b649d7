/* sendbench.c - what the kernel alone takes for a stream's token: a bare loop of send() of as many bytes to as many sockets.
 *
 *   sendbench SOCKETS BYTES ROUNDS
 *
 * The sockets are loopback TCP connections with TCP_NODELAY, as clients have; a child drains them. Prints the sender's CPU
 * microseconds a send (user and system), nothing else. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SENDBENCH_SOCKETS_MAX 20000

static int fail(const char *what)
{
	fprintf(stderr, "sendbench: %s: %s\n", what, strerror(errno));
	return 1;
}

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* The other side of all sockets. */
static void drain(const int *fds, int n)
{
	int ep = epoll_create1(0), i, k;
	struct epoll_event events[256];
	static char sink[64 * 1024];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < n; i++) epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){.events = EPOLLIN, .data.fd = fds[i]});
	while ((k = epoll_wait(ep, events, 256, -1)) >= 0 || errno == EINTR)
		for (i = 0; i < k; i++)
			if (recv(events[i].data.fd, sink, sizeof(sink), MSG_DONTWAIT) == 0) _exit(0);
}

static bool connect_pairs(int *senders, int *readers, int n)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, i;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	if (bind(listener, (struct sockaddr *)&a, len) != 0 || listen(listener, 128) != 0 || getsockname(listener, (struct sockaddr *)&a, &len) != 0)
		return false;
	for (i = 0; i < n; i++) {
		readers[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (readers[i] < 0 || connect(readers[i], (struct sockaddr *)&a, len) != 0) return false;
		senders[i] = accept(listener, NULL, NULL);
		if (senders[i] < 0) return false;
		setsockopt(senders[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	close(listener);
	return true;
}

int main(int argc, char **argv)
{
	static int senders[SENDBENCH_SOCKETS_MAX], readers[SENDBENCH_SOCKETS_MAX];
	int n = argc == 4 ? atoi(argv[1]) : 0, rounds = argc == 4 ? atoi(argv[3]) : 0, i, k;
	size_t len = argc == 4 ? (size_t)atol(argv[2]) : 0;
	double began;
	char *data;
	pid_t child;

	if (n < 1 || n > SENDBENCH_SOCKETS_MAX || rounds < 1 || len < 1) {
		fprintf(stderr, "usage: sendbench SOCKETS BYTES ROUNDS\n");
		return 2;
	}
	if (!connect_pairs(senders, readers, n)) return fail("no connections (ulimit -n?)");
	child = fork();
	if (child == 0) drain(readers, n);
	data = calloc(1, len);
	began = cpu_s();
	for (k = 0; k < rounds; k++)
		for (i = 0; i < n; i++)
			if (send(senders[i], data, len, MSG_NOSIGNAL) < 0) return fail("send");
	printf("%.3f\n", (cpu_s() - began) * 1e6 / ((double)rounds * n));
	free(data);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
