/* test_file.h - files that a test makes: in a temporary folder, or in memory with a path. */
#ifndef SLUICE_TEST_FILE_H
#define SLUICE_TEST_FILE_H

#include "common/base.h"

/* A fresh folder, removed with the files in it (not folders) when the program ends normally. */
const char *test_file_dir(void);

/* "DIR/name" in that folder; free() it. */
char *test_file_temp(const char *name);

/* Makes or replaces the file. */
void test_file_write(const char *path, const void *data, size_t len);

/* A file that has a path (valid until the release) but lies in memory: for thousands of small ones. */
struct test_file_mem {
	int fd;
	char path[32];
};

void test_file_mem_init(struct test_file_mem *m, const void *data, size_t len);
void test_file_mem_release(struct test_file_mem *m);

#endif
