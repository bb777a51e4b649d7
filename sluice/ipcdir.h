/* ipcdir.h - the private folder (0700) that holds the mesh's sockets, and what is left of dead meshes.
 *
 * A folder is named sluice-XXXXXX and holds a file `lock` on which its supervisor keeps a lock for its whole life: a folder
 * whose lock can be taken belongs to nobody. ipcdir_open() removes such folders (of the same user) first. A janitor process
 * removes the folder when the supervisor is killed, so nothing is left behind even then. */
#ifndef SLUICE_IPCDIR_H
#define SLUICE_IPCDIR_H

#include "common/base.h"
#include "common/errbuf.h"

#define IPCDIR_PREFIX "sluice-" /* of its name */
#define IPCDIR_BASES_MAX 3

struct ipcdir {
	char path[96];
	int lock_fd;
	int janitor_fd; /* write end: its end of file wakes the janitor */
	int janitor_pid;
};

/* base: --ipc-dir, or "" for $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp. */
int ipcdir_open(struct ipcdir *d, const char *base, struct errbuf *err) MUST_CHECK;
/* Where folders of this user's meshes may lie, whatever environment they were started with: the base alone when it is not "". The texts
 * are borrowed. */
size_t ipcdir_bases(const char *base, const char *out[IPCDIR_BASES_MAX]);
/* Calls visit with the path of everything in a base that has such a folder's name. */
void ipcdir_each(const char *base, void (*visit)(void *ctx, const char *path), void *ctx);
/* Removes the folder and ends the janitor. */
void ipcdir_close(struct ipcdir *d);

#endif
