/* mesh.h - the shared objects of a mesh: what must survive a crash is held here, by the supervisor.
 *
 * Owns the socket folder, the listening sockets, the frontends' inboxes, the status page, the step ring, each rank's reply ring and eventfd, and the key.
 * All shared memory is memfd without a name: nothing to leak. Knows nothing of processes. */
#ifndef SLUICE_MESH_H
#define SLUICE_MESH_H

#include "common/ring.h"
#include "proto/boot.h"
#include "sluice/ipcdir.h"
#include "sluice/listen.h"

struct mesh {
	const struct config *config; /* borrowed */
	uint32_t n_frontends, n_workers;
	uint8_t key[BOOT_KEY_BYTES];
	struct apikeys keys; /* empty: none needed */
	struct ipcdir ipc;
	struct listen listen;
	struct page *page; /* mapped */
	int page_fd, step_fd;
	void *step_mem;
	struct ring *steps; /* to mark a dead worker's reader, before its successor exists */
	int *reply_fds, *event_fds; /* (n_workers), owned */
	int inbox_fds[LIMIT_FRONTENDS]; /* -1: no frontend has used the slot; see common/child.h */
	uint64_t epoch;    /* of the newest executor */
};

int mesh_open(struct mesh *m, const struct config *config, uint32_t n_frontends, uint32_t n_workers, struct errbuf *err) MUST_CHECK;
void mesh_close(struct mesh *m);

/* The inbox of a frontend's slot exists from before its first process on, until the slot is left for good: connections that were handed
 * to a process that died wait there for the next one. Opening what is open changes nothing. Closing ends the connections in it. */
int mesh_open_inbox(struct mesh *m, uint32_t frontend, struct errbuf *err) MUST_CHECK;
void mesh_close_inbox(struct mesh *m, uint32_t frontend);
/* Nothing comes into the inbox any more, and what is in it goes into the inbox of a sibling. ST_AGAIN: that one takes no more for now. */
int mesh_forward_inbox(struct mesh *m, uint32_t frontend, uint32_t sibling) MUST_CHECK;

#endif
