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

int filetext_read_at(char **out, size_t *len, int dirfd, const char *name, size_t bytes_max, struct errbuf *err)
{
	/* O_NONBLOCK: a pipe must be refused, not waited for. */
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
	struct stat st;

	*out = NULL;
	*len = 0;
	if (fd < 0) {
		rc = errno == ENOENT ? ST_NOT_FOUND : errno == EACCES ? ST_DENIED : ST_IO;
		return err_set(err, rc, "cannot be opened: %s", strerror(errno));
	}
	if (fstat(fd, &st) != 0) {
		rc = err_set(err, ST_IO, "cannot be read: %s", strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		rc = err_set(err, ST_INVALID, "is no regular file");
	} else if ((uint64_t)st.st_size > bytes_max) {
		rc = err_set(err, ST_LIMIT, "has %" PRIu64 " bytes; expected at most %zu", (uint64_t)st.st_size,
			     bytes_max);
	} else {
		*out = mem_realloc(NULL, (size_t)st.st_size + 1, 1);
		*len = (size_t)st.st_size;
		(*out)[*len] = 0;
		rc = read_fd(*out, *len, fd, err);
	}
	close(fd);
	if (rc == ST_OK) return ST_OK;
	free(*out);
	*out = NULL;
	*len = 0;
	return rc;
}

int filetext_read(char **out, size_t *len, const char *path, size_t bytes_max, struct errbuf *err)
{
	return filetext_read_at(out, len, AT_FDCWD, path, bytes_max, err);
}
