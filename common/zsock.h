/* zsock.h - messages between the processes of a mesh: ZeroMQ's PUSH and PULL over ipc://, with a MAC on each message, in a libuv loop.
 *
 * What travels is a packet of two frames (zmtp.h): its messages, each behind its length, and a keyed BLAKE2b-128 MAC over them (libsodium
 * crypto_generichash), checked before anything is unpacked; what fails is dropped and counted. Any ZeroMQ library can be the other side
 * (without ZMTP 3.1's heartbeats); a test has libzmq there. Here the sockets belong to the loop: libzmq's I/O thread is two more wake-ups of a processor on each way.
 * A path longer than sockaddr_un allows is refused with a clear text.
 *
 * It is an unreliable transport, as with libzmq: around the death of a peer messages may be lost or reach the successor. The request
 * protocol repairs that. */
#ifndef SLUICE_ZSOCK_H
#define SLUICE_ZSOCK_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/mac.h"

#include <uv.h>

struct zctx; /* the key, and the longest message; one a process */
struct zsock;

struct zctx *zctx_new(const uint8_t key[MAC_KEY_BYTES], size_t message_max);
void zctx_free(struct zctx *z); /* all sockets must be closed */

/* Called from the loop for each message with a good MAC; data is valid until it returns. */
typedef void (*zsock_on_message)(void *ctx, const void *data, size_t len);

/* PULL: binds `path` (removing a dead file there) and reads in the loop. */
int zsock_open_pull(struct zsock **out, struct zctx *z, uv_loop_t *loop, const char *path, zsock_on_message on_message, void *ctx,
		    struct errbuf *err) MUST_CHECK;
/* PUSH: connects to `path` (which may not exist yet). hwm: packets that may wait here for the other side, of
 * 64 MiB together. on_ready is called from the loop
 * when a full socket has room again; may be NULL. */
int zsock_open_push(struct zsock **out, struct zctx *z, uv_loop_t *loop, const char *path, uint32_t hwm,
		    void (*on_ready)(void *ctx), void *ctx, struct errbuf *err) MUST_CHECK;
void zsock_close(struct zsock *s); /* handles close in the loop later; the struct frees itself; also removes a bound path */

/* Sends a packet of this message. ST_OK: it goes, now or when the other side has room. ST_AGAIN: high-water mark. ST_LIMIT: too long.
 * A socket is used with this or with the next two, not both. */
int zsock_send(struct zsock *s, const void *data, size_t len) MUST_CHECK;

/* Puts a message into the packet that zsock_flush() sends. The results are those of zsock_send(); what was put before the
 * high-water mark was noticed waits in its packet, and goes when there is room. */
int zsock_put(struct zsock *s, const void *data, size_t len) MUST_CHECK;
void zsock_flush(struct zsock *s);

/* From on_message: what comes after this packet is read in the loop's next pass. */
void zsock_yield(struct zsock *s);

struct zsock_stats {
	uint64_t sent, received, refused_full;
	uint64_t dropped; /* packets whose MAC was wrong, or what was in them; connections that were no PUSH socket's */
};
void zsock_stats(const struct zsock *s, struct zsock_stats *out);

#endif
