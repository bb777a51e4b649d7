/* tls.c - see tls.h.
 *
 * Each connection has two memory BIOs, which OpenSSL reads and fills. What is being sent is taken out of the second one first: it
 * must not move while the kernel has it, and reading may add to the BIO (alerts, tickets) at any time. */
#include "frontend/tls.h"

#include "common/filetext.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/strbuf.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <string.h>

/* Between two tls_sent() a connection produces at most a piece of the answer, a few tickets and alerts. */
#define TLS_FLIGHT_MAX (1 * MIB)

struct tls_context {
	SSL_CTX *ctx;
};

struct tls {
	SSL *ssl;
	BIO *in, *out;        /* owned by ssl */
	struct strbuf flight; /* being sent, from flight_pos on */
	size_t flight_pos;
	unsigned long why;    /* OpenSSL's code of the failure */
	bool failed, ended;
};

/* ---- certificate and key ---- */

/* Without this, OpenSSL would ask for a password on the terminal. */
static int no_password(char *buf, int size, int rwflag, void *ctx)
{
	return -1;
}

/* HTTP/1: a client that offers only others would not understand us. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in, unsigned in_len, void *ctx)
{
	static const unsigned char ours[] = "\x08http/1.1\x08http/1.0";

	if (SSL_select_next_proto((unsigned char **)out, out_len, ours, sizeof(ours) - 1, in, in_len) == OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_OK;
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Why OpenSSL could not use a file, in its own words; those that it has for a file of another kind are hard to understand. */
static int bad_file(const char *flag, const char *path, const char *holds, struct errbuf *err)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = ERR_reason_error_string(code);

	return err_set(err, ST_INVALID, "--%s %s: holds no %s that can be used: %s", flag, path, holds,
		       reason ? reason : "unknown reason");
}

static int check_readable(const char *flag, const char *path, struct errbuf *err)
{
	int rc = filetext_check(path, err);

	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "--%s %s", flag, path);
}

static int load_files(SSL_CTX *ctx, const char *certfile, const char *keyfile, struct errbuf *err)
{
	int rc = check_readable("ssl-certfile", certfile, err);
	bool loaded;

	if (rc == ST_OK) rc = check_readable("ssl-keyfile", keyfile, err);
	if (rc != ST_OK) return rc;
	ERR_clear_error();
	if (SSL_CTX_use_certificate_chain_file(ctx, certfile) != 1) return bad_file("ssl-certfile", certfile, "PEM certificate", err);
	/* A key of the certificate's kind is compared while it is loaded, one of another kind only by the check. */
	loaded = SSL_CTX_use_PrivateKey_file(ctx, keyfile, SSL_FILETYPE_PEM) == 1;
	if (loaded && SSL_CTX_check_private_key(ctx) == 1) return ST_OK;
	if (loaded || ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
		return err_set(err, ST_INVALID, "--ssl-keyfile %s: the key does not belong to the certificate %s", keyfile, certfile);
	return bad_file("ssl-keyfile", keyfile, "PEM key without a password", err);
}

static void warn_of_age(SSL_CTX *ctx, const char *certfile)
{
	const X509 *cert = SSL_CTX_get0_certificate(ctx);

	if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) log_warning("--ssl-certfile %s: the certificate has expired", certfile);
	if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) log_warning("--ssl-certfile %s: the certificate is not valid yet", certfile);
}

int tls_context_new(struct tls_context **out, const char *certfile, const char *keyfile, struct errbuf *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	int rc;

	CHECK(ctx);
	SSL_CTX_set_default_passwd_cb(ctx, no_password);
	rc = load_files(ctx, certfile, keyfile[0] ? keyfile : certfile, err);
	ERR_clear_error();
	if (rc != ST_OK) {
		SSL_CTX_free(ctx);
		return rc;
	}
	CHECK(SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS); /* an idle connection holds no record buffers */
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets are kept by the clients */
	SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
	warn_of_age(ctx, certfile);
	*out = mem_new(struct tls_context);
	(*out)->ctx = ctx;
	return ST_OK;
}

void tls_context_free(struct tls_context *c)
{
	if (!c) return;
	SSL_CTX_free(c->ctx);
	free(c);
}

/* ---- connections ---- */

struct tls *tls_new(struct tls_context *c)
{
	struct tls *t = mem_new(struct tls);

	t->ssl = SSL_new(c->ctx);
	t->in = BIO_new(BIO_s_mem());
	t->out = BIO_new(BIO_s_mem());
	CHECK(t->ssl && t->in && t->out);
	BIO_set_mem_eof_return(t->in, -1); /* empty means "later", not "ended" */
	SSL_set_bio(t->ssl, t->in, t->out);
	SSL_set_accept_state(t->ssl);
	strbuf_init(&t->flight, TLS_FLIGHT_MAX);
	return t;
}

void tls_free(struct tls *t)
{
	if (!t) return;
	SSL_free(t->ssl);
	strbuf_release(&t->flight);
	free(t);
}

void tls_receive(struct tls *t, const void *data, size_t len)
{
	CHECK(BIO_write(t->in, data, (int)len) == (int)len);
}

static enum tls_result tls_fail(struct tls *t)
{
	t->failed = true;
	t->why = ERR_peek_error();
	ERR_clear_error();
	return TLS_FAILED;
}

enum tls_result tls_read(struct tls *t, void *buf, size_t cap, size_t *n)
{
	int rc;

	*n = 0;
	if (t->failed) return TLS_FAILED;
	ERR_clear_error();
	rc = SSL_read_ex(t->ssl, buf, cap, n);
	if (rc == 1) return TLS_DATA;
	switch (SSL_get_error(t->ssl, rc)) {
	case SSL_ERROR_WANT_READ: return TLS_MORE;
	case SSL_ERROR_ZERO_RETURN: return TLS_END;
	default: return tls_fail(t);
	}
}

bool tls_was_http(const struct tls *t)
{
	return ERR_GET_LIB(t->why) == ERR_LIB_SSL && ERR_GET_REASON(t->why) == SSL_R_HTTP_REQUEST;
}

const char *tls_why(const struct tls *t)
{
	const char *reason = ERR_reason_error_string(t->why);

	return reason ? reason : "unknown reason";
}

bool tls_write(struct tls *t, const void *data, size_t len)
{
	size_t n = 0;

	if (t->failed || t->ended || !SSL_is_init_finished(t->ssl)) return false;
	ERR_clear_error();
	if (SSL_write_ex(t->ssl, data, len, &n) == 1 && n == len) return true;
	tls_fail(t);
	return false;
}

void tls_end(struct tls *t)
{
	if (t->failed || t->ended || !SSL_is_init_finished(t->ssl)) return;
	t->ended = true;
	ERR_clear_error();
	SSL_shutdown(t->ssl);
}

size_t tls_output(struct tls *t, const char **data)
{
	size_t waiting = BIO_ctrl_pending(t->out);
	char *bytes;

	if (t->flight_pos == t->flight.len && waiting > 0) {
		BIO_get_mem_data(t->out, &bytes);
		strbuf_reset(&t->flight);
		t->flight_pos = 0;
		strbuf_append(&t->flight, bytes, waiting);
		CHECK(!t->flight.overflow);
		CHECK(BIO_reset(t->out) == 1);
	}
	if (t->flight_pos == t->flight.len) return 0;
	*data = t->flight.data + t->flight_pos;
	return t->flight.len - t->flight_pos;
}

void tls_sent(struct tls *t, size_t n)
{
	CHECK(n <= t->flight.len - t->flight_pos);
	t->flight_pos += n;
	if (t->flight_pos < t->flight.len) return;
	t->flight_pos = 0;
	strbuf_release(&t->flight);
}
