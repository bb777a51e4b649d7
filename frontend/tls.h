/* tls.h - TLS for a server, over memory: ciphertext goes in and out, plain text comes out and goes in. The only door to OpenSSL.
 *
 * No socket and no clock, like conn.h: tcp.c puts this between the two. TLS 1.2 and 1.3, HTTP/1 by ALPN, no renegotiation. */
#ifndef SLUICE_TLS_H
#define SLUICE_TLS_H

#include "common/base.h"
#include "common/errbuf.h"

#define TLS_RECORD_MAX (17 * KIB) /* of ciphertext: 16 KiB, header, padding and tag */

struct tls_context; /* a certificate chain and its key */
struct tls;         /* a connection */

/* Reads the PEM files. err names the file and what is wrong with it, or that the two do not belong together. */
int tls_context_new(struct tls_context **out, const char *certfile, const char *keyfile, struct errbuf *err) MUST_CHECK;
void tls_context_free(struct tls_context *c);

/* The connection keeps what it needs of the context. */
struct tls *tls_new(struct tls_context *c);
void tls_free(struct tls *t);

/* Ciphertext from the peer: give it, then call tls_read() until it wants more; at most one incomplete record is held in between. */
void tls_receive(struct tls *t, const void *data, size_t len);

enum tls_result {
	TLS_DATA,   /* *n bytes of plain text are in buf */
	TLS_MORE,   /* nothing without more ciphertext */
	TLS_END,    /* the peer has said that it sends nothing more */
	TLS_FAILED  /* over; tls_output() may hold an alert for the peer */
};
enum tls_result tls_read(struct tls *t, void *buf, size_t cap, size_t *n);
/* After TLS_FAILED: the peer speaks plain HTTP. */
bool tls_was_http(const struct tls *t);
/* After TLS_FAILED: for the log. */
const char *tls_why(const struct tls *t);

/* Seals all of it; false when the handshake is not over, or on failure. */
bool tls_write(struct tls *t, const void *data, size_t len) MUST_CHECK;
/* Says that nothing more comes; once. */
void tls_end(struct tls *t);

/* Ciphertext for the peer; it stays where it is until tls_sent() has counted it all. */
size_t tls_output(struct tls *t, const char **data);
void tls_sent(struct tls *t, size_t n);

#endif
