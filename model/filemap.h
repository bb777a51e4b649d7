/* filemap.h - a regular file, mapped for reading.
 *
 * The size is the file's when it was opened; whoever reads the map checks everything against it. When another program
 * shortens the file afterwards, pages behind its new end are gone and reading them ends the process with SIGBUS: that
 * is how maps work, and nothing but reading (instead of mapping) the file would change it. A model that is replaced by
 * renaming a new file over it, as downloads do, is safe: the map keeps the old file. */
#ifndef SLUICE_FILEMAP_H
#define SLUICE_FILEMAP_H

#include "common/base.h"
#include "common/errbuf.h"

struct filemap {
	const uint8_t *data;
	uint64_t bytes;
	void *whole; /* what munmap() gets; may be longer */
	size_t whole_bytes;
};

/* The file `name` of the folder dirfd (or AT_FDCWD). ST_NOT_FOUND, ST_DENIED, ST_IO, ST_INVALID (no regular file),
 * ST_CORRUPT (empty): the text says what is wrong, not with which file. `kind`: "a GGUF file", for a folder's message.
 */
int filemap_open(struct filemap *m, int dirfd, const char *name, const char *kind, struct errbuf *err) MUST_CHECK;

/* The same from a copy of these bytes and `zeroes` behind them, as if they had been a file: for tests and fuzz targets.
 * The map ends where no page follows, so reading behind it crashes, as it should. */
void filemap_from(struct filemap *m, const void *data, size_t bytes, size_t zeroes);

void filemap_close(struct filemap *m); /* accepts a zeroed one */

#endif
