/* filetext.c - see filetext.h. */
#include "common/filetext.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_fd(char *to, size_t len, int fd, struct errbuf *err)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, to + got, len - got);

		if (n < 0 && errno == EINTR) continue;
		if (n < 0) return err_set(err, ST_IO, "cannot be read: %s", strerror(errno));
		if (n == 0) return err_set(err, ST_IO, "cannot be read: it became shorter");
		got += (size_t)n;
	}
	return ST_OK;
}

/* Opens what is a plain file: anything else could hold the reader up. */
static int open_plain(int *fd, uint64_t *bytes, int dirfd, const char *name, struct errbuf *err)
{
	struct stat st;
	int rc = ST_OK;

	*fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0) {
		rc = errno == ENOENT ? ST_NOT_FOUND : errno == EACCES ? ST_DENIED : ST_IO;
		return err_set(err, rc, "%s", strerror(errno));
	}
	if (fstat(*fd, &st) != 0)
		rc = err_set(err, ST_IO, "cannot be read: %s", strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = err_set(err, ST_INVALID, "not a plain file");
	else
		*bytes = (uint64_t)st.st_size;
	if (rc != ST_OK) close(*fd);
	return rc;
}

int filetext_read_at(char **out, size_t *len, int dirfd, const char *name, size_t bytes_max, struct errbuf *err)
{
	uint64_t bytes = 0;
	char *text;
	int fd, rc = open_plain(&fd, &bytes, dirfd, name, err);

	*out = NULL;
	*len = 0;
	if (rc != ST_OK) return rc;
	if (bytes > bytes_max) {
		close(fd);
		return err_set(err, ST_LIMIT, "has %" PRIu64 " bytes; expected at most %zu", bytes, bytes_max);
	}
	text = mem_realloc(NULL, (size_t)bytes + 1, 1);
	text[bytes] = 0;
	rc = read_fd(text, (size_t)bytes, fd, err);
	close(fd);
	if (rc == ST_OK) {
		*out = text;
		*len = (size_t)bytes;
		return ST_OK;
	}
	explicit_bzero(text, (size_t)bytes); /* it may be a secret */
	free(text);
	return rc;
}

int filetext_check(const char *path, struct errbuf *err)
{
	uint64_t bytes = 0;
	int fd, rc = open_plain(&fd, &bytes, AT_FDCWD, path, err);

	if (rc == ST_OK) close(fd);
	return rc;
}

int filetext_read(char **out, size_t *len, const char *path, size_t bytes_max, struct errbuf *err)
{
	return filetext_read_at(out, len, AT_FDCWD, path, bytes_max, err);
}
