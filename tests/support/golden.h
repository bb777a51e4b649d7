/* golden.h - finds and reads golden data: recorded results that the code must reproduce.
 *
 * A golden file is looked for, in this order: $SLUICE_SHARED/golden/PATH, ../shared/golden/PATH (both also as PATH.gz),
 * and the copies that the project carries: tests/data/golden/PATH.gz, or PATH's folder as tests/data/golden/FOLDER.tar.xz. Such a
 * folder is unpacked once, into build/golden. Programs run in the project's root, as `make unit` does. */
#ifndef SLUICE_GOLDEN_H
#define SLUICE_GOLDEN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A readable stream of the (unpacked) file, closed with fclose(); NULL when it is nowhere. */
FILE *golden_open(const char *relpath);

/* The path of a folder of golden data ("tiny/llama"), for those who open files by path; false when it is nowhere. */
bool golden_folder(const char *relpath, char *path, size_t cap);

/* True when the shared folder with all golden data is there, so that a test can do more than the project's copies
 * allow. */
bool golden_has_shared(void);

/* The next line as JSON (new reference), or NULL at the end. A line that is not JSON fails the test. */
json_t *golden_next(FILE *f);

/* All of a file as one JSON value, or as bytes (terminated, free() it); NULL when the file is nowhere. */
json_t *golden_json(const char *relpath);
char *golden_text(const char *relpath, size_t *len);

/* An array of whole numbers; free() it. Fails the test on anything else. */
uint32_t *golden_u32s(const json_t *array, size_t *n);

#endif
