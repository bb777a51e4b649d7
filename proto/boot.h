/* boot.h - a child's first seconds: the boot message from the supervisor, the configuration and the status page.
 *
 * The children's mains call boot_receive() first. It also arranges that the child dies with the supervisor, and ignores
 * SIGINT and SIGTERM: the terminal sends them to the whole group, but only the supervisor decides (it sends `drain`). */
#ifndef SLUICE_BOOT_H
#define SLUICE_BOOT_H

#include "common/child.h"
#include "proto/apikeys.h"
#include "proto/config.h"
#include "proto/messages.h"
#include "proto/page.h"

#define BOOT_KEY_BYTES 32

struct boot {
	struct config config; /* owned */
	uint32_t index;       /* frontend id or worker rank */
	uint32_t incarnation;
	uint64_t epoch;
	uint8_t key[BOOT_KEY_BYTES];
	char ipc_dir[109];
	struct apikeys keys;  /* frontend; owned */
	struct page *page;    /* mapped */
};

/* What must be equal for programs to work together, in one line: "protocol 2, status page 3 of 123456 bytes". */
#define BOOT_FIT_MAX 128
#define BOOT_FIT_FLAG "--fit"
void boot_fit(char out[BOOT_FIT_MAX]);
/* The first thing of a main: true when it was started as `PROGRAM --fit`, and has printed that line; it ends with exit code 0 then. A
 * supervisor asks so whether new programs on disk fit, before it ends old ones. */
bool boot_was_asked(int argc, char **argv);

/* kind: "frontend", "executor", "worker": for the log name and for the text when somebody starts the program by hand. */
int boot_receive(struct boot *b, const char *kind, struct errbuf *err) MUST_CHECK;
void boot_release(struct boot *b);

/* To the supervisor: serving; or: cannot start, a restart will not help, the text is for the user. */
void boot_send_ready(void);
void boot_send_failed(int exit_code, const char *text);

/* Paths of the sockets in the mesh's folder. */
void boot_requests_path(const char *ipc_dir, uint64_t epoch, char *out, size_t cap);
void boot_frontend_path(const char *ipc_dir, uint32_t frontend, uint32_t incarnation, char *out, size_t cap);

/* Of a frontend's inbox (common/child.h). */
void boot_inbox_path(const char *ipc_dir, uint32_t frontend, char *out, size_t cap);

/* One packet of the control socket, not blocking. ST_AGAIN: none; ST_CLOSED: the supervisor is gone. Packets that are no message are
 * skipped. m's views point into buf. */
int boot_poll(struct msg *m, void *buf, size_t cap) MUST_CHECK;
/* Likewise; *passed: the descriptor that came with it, the caller's, or -1. (boot_poll() closes it.) */
int boot_poll_fd(struct msg *m, void *buf, size_t cap, int *passed) MUST_CHECK;

/* Largest control packet. */
#define BOOT_PACKET_MAX (128 * 1024)

#endif
