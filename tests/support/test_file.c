/* test_file.c - see test_file.h. */
#include "tests/support/test_file.h"

#include "common/mem.h"
#include "common/strbuf.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char test_file_folder[256];

static void test_file_clean(void)
{
	DIR *d = opendir(test_file_folder);
	struct dirent *e;

	if (!d) return;
	while ((e = readdir(d))) unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(test_file_folder);
}

const char *test_file_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	if (test_file_folder[0]) return test_file_folder;
	snprintf(test_file_folder, sizeof(test_file_folder), "%s/sluice-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	CHECK(mkdtemp(test_file_folder));
	atexit(test_file_clean);
	return test_file_folder;
}

char *test_file_temp(const char *name)
{
	struct strbuf b;

	strbuf_init(&b, 4096);
	strbuf_printf(&b, "%s/%s", test_file_dir(), name);
	return strbuf_take(&b);
}

void test_file_write(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");

	CHECK(f);
	CHECK(len == 0 || fwrite(data, 1, len, f) == len);
	CHECK(fclose(f) == 0);
}

void test_file_mem_init(struct test_file_mem *m, const void *data, size_t len)
{
	m->fd = memfd_create("test", MFD_CLOEXEC);
	CHECK(m->fd >= 0);
	CHECK(len == 0 || write(m->fd, data, len) == (ssize_t)len);
	snprintf(m->path, sizeof(m->path), "/proc/self/fd/%d", m->fd);
}

void test_file_mem_release(struct test_file_mem *m)
{
	close(m->fd);
	m->fd = -1;
}
