/* filemap.c - see filemap.h. */
#include "model/filemap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_fd(struct filemap *m, int fd, const char *kind, struct errbuf *err)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) != 0) return err_set(err, ST_IO, "cannot read the file: %s", strerror(errno));
	if (S_ISDIR(st.st_mode)) return err_set(err, ST_INVALID, "is a folder; %s is needed", kind);
	if (!S_ISREG(st.st_mode)) return err_set(err, ST_INVALID, "is not a regular file");
	if (st.st_size == 0) return err_set(err, ST_CORRUPT, "the file is empty");
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED) return err_set(err, ST_IO, "cannot map the file: %s", strerror(errno));
	*m = (struct filemap){map, (uint64_t)st.st_size, map, (size_t)st.st_size};
	return ST_OK;
}

int filemap_open(struct filemap *m, int dirfd, const char *name, const char *kind, struct errbuf *err)
{
	/* O_NONBLOCK: a pipe must be refused, not waited for. */
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

	*m = (struct filemap){0};
	if (fd < 0) {
		rc = errno == ENOENT ? ST_NOT_FOUND : errno == EACCES ? ST_DENIED : ST_IO;
		return err_set(err, rc, "cannot open the file: %s", strerror(errno));
	}
	rc = map_fd(m, fd, kind, err);
	close(fd);
	return rc;
}

/* A file in memory, so that MADV_DONTNEED loses nothing; its bytes stand at the end of their last page, and a page that
 * nobody may read follows. */
void filemap_from(struct filemap *m, const void *data, size_t bytes, size_t zeroes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = bytes + zeroes, room = align_up(len, page);
	uint8_t *map = mmap(NULL, room + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("bytes", MFD_CLOEXEC);

	CHECK(map != MAP_FAILED && fd >= 0 && ftruncate(fd, (off_t)room) == 0);
	CHECK(pwrite(fd, data, bytes, (off_t)(room - len)) == (ssize_t)bytes);
	if (room) CHECK(mmap(map, room, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == map);
	close(fd);
	*m = (struct filemap){map + room - len, len, map, room + page};
}

void filemap_close(struct filemap *m)
{
	if (m->whole) munmap(m->whole, m->whole_bytes);
	*m = (struct filemap){0};
}
