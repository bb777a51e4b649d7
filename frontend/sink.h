/* sink.h - lines that go to a file without ever holding the loop: a thread of its own writes them.
 *
 * A file may be on a full or a stuck disk, a pipe may have a reader that sleeps. Then lines wait, up to SINK_BYTES_MAX, and what
 * comes on top is dropped and counted. Lines stay whole: each goes out in one write(), with its neighbours where that is
 * allowed, so that processes can share a file (O_APPEND) or a pipe (PIPE_BUF at a time). */
#ifndef SLUICE_SINK_H
#define SLUICE_SINK_H

#include "common/base.h"
#include "common/errbuf.h"

#define SINK_BYTES_MAX (4 * MIB) /* about ten thousand spans */

struct sink;

/* Appends to the file, which is made if need be. */
int sink_open(struct sink **out, const char *path, struct errbuf *err) MUST_CHECK;
/* The file has been moved away (a log's rotation): lines go to a new one of that name. When it cannot be opened, all stays as it is. */
int sink_reopen(struct sink *s, const char *path, struct errbuf *err) MUST_CHECK;
/* Writes to a descriptor that stays the caller's. */
struct sink *sink_on(int fd);
/* What waits gets a second. */
void sink_close(struct sink *s);

/* A line with its line feed, in the loop's thread. It is seen by the thread after sink_wake(). */
void sink_put(struct sink *s, const void *line, size_t len);
/* Once a pass, when there was something. */
void sink_wake(struct sink *s);
/* Lines that were dropped so far. */
uint64_t sink_dropped(struct sink *s);

#endif
