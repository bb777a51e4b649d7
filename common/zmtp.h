/* zmtp.h - the bytes that ZeroMQ's PUSH and PULL sockets exchange over a stream: ZMTP 3.0 with the NULL mechanism
 * (https://rfc.zeromq.org/spec/23/ and /spec/30/).
 *
 * A connection begins with a hello in each direction: a greeting of 64 bytes and the command READY, which names the socket's type. Then
 * come messages of one or more frames: a byte of flags, a length of 1 or 8 bytes (big-endian), the body.
 *
 * Pure: makes and reads bytes, owns neither sockets nor buffers. The other side is not trusted: a length is checked before anybody makes
 * room for it. */
#ifndef SLUICE_ZMTP_H
#define SLUICE_ZMTP_H

#include "common/base.h"
#include "common/errbuf.h"

#include <stdint.h>

#define ZMTP_HELLO_BYTES 92
#define ZMTP_HEAD_BYTES 9 /* of a frame, at most */
#define ZMTP_PARTS_MAX 4  /* frames of a message; nobody here sends more than two */

enum zmtp_role { ZMTP_PUSH, ZMTP_PULL };

/* What is read from one connection. */
struct zmtp {
	enum zmtp_role role; /* our own */
	size_t message_max;  /* bytes, the heads of its frames included */
	bool greeted, up;    /* up: messages may be sent and come */
};

struct zmtp_bytes {
	const uint8_t *data; /* in the caller's buffer */
	size_t len;
};

struct zmtp_message {
	struct zmtp_bytes parts[ZMTP_PARTS_MAX];
	uint32_t n_parts; /* 0: something else was read */
};

void zmtp_init(struct zmtp *z, enum zmtp_role role, size_t message_max);

/* What we say first. */
void zmtp_hello(enum zmtp_role role, uint8_t out[ZMTP_HELLO_BYTES]);

/* The head of a frame of `len` bytes. more: another one of the message follows. Returns its size. */
size_t zmtp_head(uint8_t out[ZMTP_HEAD_BYTES], size_t len, bool more);

/* Reads the next whole thing from the `len` bytes at data. ST_OK: it took `*n` bytes (n_parts may be 0: a part of the hello, a command).
 * ST_AGAIN: it needs `*n` bytes in all, at least, and nothing was taken. ST_CORRUPT, ST_LIMIT: the connection is of no more use. */
int zmtp_read(struct zmtp *z, const uint8_t *data, size_t len, struct zmtp_message *m, size_t *n, struct errbuf *err) MUST_CHECK;

#endif
