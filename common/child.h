/* child.h - what a process of the mesh inherits from its supervisor, by fixed descriptor numbers.
 *
 * fd 3  control: a SOCK_SEQPACKET pair; packets are packed messages (proto). First comes `boot`; end of file means that the
 *       supervisor is gone and the child must end at once. PR_SET_PDEATHSIG is set as well, because a busy child may not look.
 * fd 4  status page (memfd)
 * fd 5  step ring (memfd): executor, workers
 * fd 6  listening socket: a frontend accepts from it until it retires. Others may come and go by `listener` packets; those never name
 *       this one, whatever its number: their ids are the supervisor's, and not related to the frontend's own
 * fd 7  inbox: a frontend's datagram socket, bound by the supervisor at boot_inbox_path(), on which siblings hand connections over. The
 *       supervisor keeps it open, so what was handed to a frontend that died waits for the next one of its slot
 * fd 8.. reply rings (memfd) of all ranks, executor; a worker has only its own at 8
 * fd 8 + LIMIT_WORKERS.. eventfds of the reply rings, likewise
 * Unused numbers are closed. */
#ifndef SLUICE_CHILD_H
#define SLUICE_CHILD_H

#include "common/base.h"
#include "common/errbuf.h"

#define CHILD_FD_CONTROL 3
#define CHILD_FD_PAGE 4
#define CHILD_FD_STEP_RING 5
#define CHILD_FD_LISTEN 6
#define CHILD_FD_INBOX 7
#define CHILD_FD_REPLY_RING 8
#define CHILD_FD_REPLY_EVENT (CHILD_FD_REPLY_RING + 64)

/* Exit codes of the children and of `sluice serve`. */
enum child_exit {
	EXIT_OK = 0,          /* asked to stop */
	EXIT_FAILED = 1,      /* could not start or serve; the reason was said */
	EXIT_USAGE = 2,       /* bad options */
	EXIT_DEVICE = 3,      /* worker: the device failed; a restart may help */
	EXIT_ORPHAN = 4       /* the supervisor is gone */
};

/* Maps a whole memfd for reading and writing. NULL on failure, err set. */
void *child_map(int fd, size_t *bytes, struct errbuf *err);

/* Asks the kernel to kill this process when its parent dies, and checks that the parent is still `parent_pid`'s process. */
void child_die_with_parent(void);

/* Receives one packet into buf, waiting up to timeout_ms (-1: for ever). ST_CLOSED at end of file. */
int child_receive(int fd, void *buf, size_t cap, size_t *len, int timeout_ms) MUST_CHECK;
/* Likewise, not waiting; a descriptor that came with the packet is given to the caller in *passed (close-on-exec), else -1. Further
 * ones are closed. */
int child_receive_fd(int fd, void *buf, size_t cap, size_t *len, int *passed) MUST_CHECK;
/* The same, waiting as long as the socket does (SO_RCVTIMEO): ST_AGAIN when nothing came. */
int child_await_fd(int fd, void *buf, size_t cap, size_t *len, int *passed) MUST_CHECK;
/* Sends one packet, not blocking. */
int child_send(int fd, const void *data, size_t len) MUST_CHECK;
/* Likewise, with a copy of a descriptor; passed < 0: without. */
int child_send_fd(int fd, const void *data, size_t len, int passed) MUST_CHECK;

#endif
