/* filetext.h - the bytes of an operator's small file: configuration, keys, templates, certificates, never weights.
 *
 * Only regular files (what is at the end of links counts), so no pipe or device can hold up or flood the reader. The
 * bound is checked before memory is taken. */
#ifndef SLUICE_FILETEXT_H
#define SLUICE_FILETEXT_H

#include "common/base.h"
#include "common/errbuf.h"

/* *out: the bytes and a zero byte behind them; free() it. name: a path, or one below the folder dirfd. ST_NOT_FOUND,
 * ST_DENIED, ST_IO (cannot be read), ST_INVALID (no regular file), ST_LIMIT (more than bytes_max): the text says what
 * is wrong, not with which file. */
int filetext_read(char **out, size_t *len, const char *path, size_t bytes_max, struct errbuf *err) MUST_CHECK;
int filetext_read_at(char **out, size_t *len, int dirfd, const char *name, size_t bytes_max,
		     struct errbuf *err) MUST_CHECK;

/* Whether it could be read, for a file that a library opens by its path: errors as above. */
int filetext_check(const char *path, struct errbuf *err) MUST_CHECK;

#endif
