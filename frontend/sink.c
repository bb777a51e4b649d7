/* sink.c - see sink.h.
 *
 * Two buffers: lines of the loop go into `fresh`; sink_wake() joins them to `waiting`, which the thread takes whole. The lock is held
 * for copies only, never while something is written. */
#include "frontend/sink.h"

#include "common/mem.h"
#include "common/status.h"
#include "common/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct sink {
	int fd;                /* the thread's, once it runs */
	bool is_ours, is_pipe;
	struct strbuf fresh;   /* the loop's */
	size_t n_fresh;        /* lines in it */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. */
	struct strbuf waiting;
	uint64_t dropped;
	bool is_closing;
	int next_fd;           /* to be used from now on, the old one closed; -1: none */
};

static size_t count_lines(const char *s, size_t len)
{
	size_t n = 0;

	for (const char *at = s, *end = s + len; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++) n++;
	return n;
}

/* What goes out in one write(): whole lines; of a pipe, as many as stay in one piece. */
static size_t next_piece(const struct sink *s, const char *data, size_t len)
{
	size_t n = min_size(len, PIPE_BUF);
	const char *end;

	if (!s->is_pipe) return len;
	end = memrchr(data, '\n', n);
	if (!end) end = memchr(data, '\n', len); /* one long line */
	return end ? (size_t)(end + 1 - data) : len;
}

/* True when all was written. *is_torn: a line has begun and not ended. */
static bool write_all(struct sink *s, const char *data, size_t len, bool *is_torn)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = write(s->fd, data + at, len - at);

		if (n < 0 && errno == EINTR) continue;
		if (n < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){.fd = s->fd, .events = POLLOUT}, 1, -1);
			continue;
		}
		if (n <= 0) break;
		at += (size_t)n;
		*is_torn = data[at - 1] != '\n';
	}
	return at == len;
}

/* The number of lines that were lost. A line that was cut off by a full disk is ended before the next one. */
static size_t write_lines(struct sink *s, const char *data, size_t len, bool *is_torn)
{
	size_t at = 0, lost = 0, n;

	for (; at < len; at += n) {
		n = next_piece(s, data + at, len - at);
		if (*is_torn && !write_all(s, "\n", 1, is_torn)) lost += count_lines(data + at, n);
		else if (!write_all(s, data + at, n, is_torn)) lost += count_lines(data + at, n); /* about: the first ones may be there */
	}
	return lost;
}

static void sink_use(struct sink *s, int fd)
{
	struct stat st;

	s->fd = fd;
	s->is_pipe = fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

static void *sink_thread(void *arg)
{
	struct sink *s = arg;
	bool is_torn = false;
	struct strbuf mine;
	size_t lost;

	strbuf_init(&mine, SINK_BYTES_MAX);
	pthread_mutex_lock(&s->lock);
	while (!s->is_closing || s->waiting.len > 0) {
		struct strbuf full = s->waiting;

		if (s->next_fd >= 0) {
			close(s->fd);
			sink_use(s, s->next_fd);
			s->next_fd = -1;
			is_torn = false;
		}

		if (full.len == 0) {
			pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		s->waiting = mine;
		mine = full;
		pthread_mutex_unlock(&s->lock);
		lost = write_lines(s, mine.data, mine.len, &is_torn);
		strbuf_reset(&mine);
		pthread_mutex_lock(&s->lock);
		s->dropped += lost;
	}
	pthread_mutex_unlock(&s->lock);
	strbuf_release(&mine);
	return NULL;
}

struct sink *sink_on(int fd)
{
	struct sink *s = mem_new(struct sink);

	sink_use(s, fd);
	s->next_fd = -1;
	strbuf_init(&s->fresh, SINK_BYTES_MAX);
	strbuf_init(&s->waiting, SINK_BYTES_MAX);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	CHECK(pthread_create(&s->thread, NULL, sink_thread, s) == 0);
	return s;
}

static int open_path(int *fd, const char *path, struct errbuf *err)
{
	/* Not blocking: a pipe without a reader is an error instead of a wait. */
	*fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
	return *fd >= 0 ? ST_OK : err_set(err, ST_IO, "%s: %s", path, errno == ENXIO ? "nobody reads this pipe" : strerror(errno));
}

int sink_open(struct sink **out, const char *path, struct errbuf *err)
{
	int fd, rc = open_path(&fd, path, err);

	if (rc != ST_OK) return rc;
	*out = sink_on(fd);
	(*out)->is_ours = true;
	return ST_OK;
}

int sink_reopen(struct sink *s, const char *path, struct errbuf *err)
{
	int fd, rc = open_path(&fd, path, err);

	if (rc != ST_OK) return rc;
	pthread_mutex_lock(&s->lock);
	if (s->next_fd >= 0) close(s->next_fd);
	s->next_fd = fd;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return ST_OK;
}

void sink_put(struct sink *s, const void *line, size_t len)
{
	if (len > SINK_BYTES_MAX - s->fresh.len) {
		pthread_mutex_lock(&s->lock);
		s->dropped++;
		pthread_mutex_unlock(&s->lock);
		return;
	}
	strbuf_append(&s->fresh, line, len);
	s->n_fresh++;
}

void sink_wake(struct sink *s)
{
	if (s->fresh.len == 0) return;
	pthread_mutex_lock(&s->lock);
	if (s->fresh.len > SINK_BYTES_MAX - s->waiting.len) s->dropped += s->n_fresh;
	else strbuf_append(&s->waiting, s->fresh.data, s->fresh.len);
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	strbuf_reset(&s->fresh);
	s->n_fresh = 0;
}

uint64_t sink_dropped(struct sink *s)
{
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	n = s->dropped;
	pthread_mutex_unlock(&s->lock);
	return n;
}

void sink_close(struct sink *s)
{
	struct timespec until;

	if (!s) return;
	sink_wake(s);
	pthread_mutex_lock(&s->lock);
	s->is_closing = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	/* A thread that is stuck in a write is left behind with what it holds: the process ends soon. */
	if (pthread_timedjoin_np(s->thread, NULL, &until) != 0) return;
	if (s->is_ours) close(s->fd);
	if (s->next_fd >= 0) close(s->next_fd);
	strbuf_release(&s->fresh);
	strbuf_release(&s->waiting);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	free(s);
}
