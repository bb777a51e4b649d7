/* frontload.c - a client for frontbench.py: one request, over and over, on many kept connections.
 *
 *   frontload PORT CONNECTIONS REQUESTS RATE FILE      RATE 0: each connection asks again as soon as it is answered;
 *                                                      else so many requests a second on a schedule; latency counts from it
 *
 * FILE holds the request as it is sent. An answer ends where its Content-Length or its last chunk does; one that is no 200, or ends
 * otherwise, is a failure. Prints one line: requests/s, p50, p99 (ms), failures, bytes received, reads, its own CPU seconds. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRONTLOAD_READ (64 * 1024)
#define FRONTLOAD_HEAD 2048 /* of an answer: more than servers send */

struct client {
	int fd;
	uint64_t due_ns;      /* when this request should have been sent */
	char head[FRONTLOAD_HEAD];
	size_t n_head;
	int64_t left;         /* bytes of the body; -1: chunked, to be ended by its last chunk; -2: the head is not whole */
	char tail[5];         /* of a chunked body */
	bool busy;
};

struct load {
	struct client *clients, **idle;
	int n, n_idle, ep;
	uint64_t n_sent, n_done, n_failed, n_wanted, bytes, reads, began_ns;
	double rate;
	char request[64 * 1024];
	size_t request_len;
	uint64_t *took_ns;
	struct sockaddr_in to;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static bool open_client(struct load *l, struct client *c)
{
	int one = 1;

	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&l->to, sizeof(l->to)) != 0) return false;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return epoll_ctl(l->ep, EPOLL_CTL_ADD, c->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = c}) == 0;
}

static void ask(struct load *l, uint64_t now)
{
	while (l->n_idle > 0 && l->n_sent < l->n_wanted) {
		uint64_t due = l->rate > 0 ? l->began_ns + (uint64_t)((double)l->n_sent * 1e9 / l->rate) : now;
		struct client *c;

		if (due > now) return;
		c = l->idle[--l->n_idle];
		c->due_ns = due;
		c->n_head = 0;
		c->left = -2;
		c->busy = true;
		memset(c->tail, 0, sizeof(c->tail));
		l->n_sent++;
		if (send(c->fd, l->request, l->request_len, MSG_NOSIGNAL) != (ssize_t)l->request_len) shutdown(c->fd, SHUT_RDWR);
	}
}

static void answered(struct load *l, struct client *c, bool good, uint64_t now)
{
	l->took_ns[l->n_done++] = now - c->due_ns;
	l->n_failed += !good;
	c->busy = false;
	l->idle[l->n_idle++] = c;
}

/* Bytes of the body; true at its end. */
static bool body(struct client *c, const char *data, size_t n)
{
	if (c->left >= 0) return (c->left -= (int64_t)n) <= 0;
	if (n < sizeof(c->tail)) memmove(c->tail, c->tail + n, sizeof(c->tail) - n);
	memcpy(c->tail + sizeof(c->tail) - (n < sizeof(c->tail) ? n : sizeof(c->tail)), data + n - (n < sizeof(c->tail) ? n : sizeof(c->tail)),
	       n < sizeof(c->tail) ? n : sizeof(c->tail));
	return memcmp(c->tail, "0\r\n\r\n", 5) == 0;
}

/* True when the answer is whole. */
static bool take(struct client *c, const char *data, size_t n)
{
	size_t room = sizeof(c->head) - 1 - c->n_head, used = n < room ? n : room;
	char *end, *length;

	if (c->left != -2) return body(c, data, n);
	memcpy(c->head + c->n_head, data, used);
	c->head[c->n_head + used] = 0;
	end = strstr(c->head, "\r\n\r\n");
	if (!end) {
		c->n_head += used;
		return false;
	}
	used = (size_t)(end + 4 - c->head) - c->n_head;
	length = strcasestr(c->head, "\r\ncontent-length:");
	c->left = length && length < end ? atoll(length + 17) : -1;
	return body(c, data + used, n - used);
}

static bool reopen(struct load *l, struct client *c, uint64_t now)
{
	close(c->fd);
	if (c->busy) answered(l, c, false, now);
	return open_client(l, c);
}

static bool on_readable(struct load *l, struct client *c)
{
	static char buf[FRONTLOAD_READ];
	ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN) return true;
	if (n <= 0 || !c->busy) return reopen(l, c, now_ns());
	l->bytes += (uint64_t)n;
	l->reads++;
	if (take(c, buf, (size_t)n)) answered(l, c, memcmp(c->head, "HTTP/1.1 200", 12) == 0, now_ns());
	return true;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static bool run(struct load *l)
{
	struct epoll_event events[256];
	int i, n;

	l->began_ns = now_ns();
	while (l->n_done < l->n_wanted) {
		struct timespec wait = {.tv_nsec = l->rate > 0 ? 50000 : 500000000};

		ask(l, now_ns());
		n = epoll_pwait2(l->ep, events, 256, &wait, NULL);
		for (i = 0; i < n; i++)
			if (!on_readable(l, events[i].data.ptr)) return false;
	}
	return true;
}

static void print(const struct load *l)
{
	double wall = (double)(now_ns() - l->began_ns) / 1e9;
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	qsort(l->took_ns, l->n_done, sizeof(*l->took_ns), by_size);
	printf("%.1f %.3f %.3f %llu %llu %llu %.3f\n", (double)l->n_done / wall, (double)l->took_ns[l->n_done / 2] / 1e6,
	       (double)l->took_ns[l->n_done * 99 / 100] / 1e6, (unsigned long long)l->n_failed, (unsigned long long)l->bytes,
	       (unsigned long long)l->reads,
	       (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
}

static bool read_request(struct load *l, const char *path)
{
	FILE *f = fopen(path, "rb");

	if (!f) return false;
	l->request_len = fread(l->request, 1, sizeof(l->request), f);
	fclose(f);
	return l->request_len > 0 && l->request_len < sizeof(l->request);
}

int main(int argc, char **argv)
{
	static struct load l;
	int i;

	if (argc != 6 || (l.n = atoi(argv[2])) < 1 || (l.n_wanted = strtoull(argv[3], NULL, 10)) < 1 || !read_request(&l, argv[5])) {
		fprintf(stderr, "usage: frontload PORT CONNECTIONS REQUESTS RATE FILE\n");
		return 2;
	}
	l.to = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)atoi(argv[1]))};
	l.rate = atof(argv[4]);
	l.ep = epoll_create1(0);
	l.clients = calloc((size_t)l.n, sizeof(*l.clients));
	l.idle = calloc((size_t)l.n, sizeof(*l.idle));
	l.took_ns = calloc(l.n_wanted, sizeof(*l.took_ns));
	for (i = 0; i < l.n; i++) {
		if (!open_client(&l, &l.clients[i])) break;
		l.idle[l.n_idle++] = &l.clients[i];
	}
	if (i < l.n || !run(&l)) {
		fprintf(stderr, "frontload: %s (ulimit -n?)\n", strerror(errno));
		return 1;
	}
	print(&l);
	return 0;
}
