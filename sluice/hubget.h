/* hubget.h - the files of a repository, several at a time, into the cache. */
#ifndef SLUICE_HUBGET_H
#define SLUICE_HUBGET_H

#include "sluice/hubfile.h"

/* names: n safe names, of which the first n_small are fetched before the others begin, so that weights that are there
 * mean that all is. Before a byte is fetched every file's length is known and compared with the room on the disk. */
int hubget_run(const struct hubfile_env *env, const char *const *names, size_t n, size_t n_small,
	       struct errbuf *err) MUST_CHECK;

#endif
