/* test_tls.c - TLS over memory: handshakes in any pieces, data both ways, ends, what is no TLS, and files that are no certificate. */
#include "frontend/tls.h"

#include "common/strbuf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <cmocka.h>

/* ---- certificates ---- */

static char cert_path[2][64], key_path[2][64], locked_path[64], text_path[64];

static void write_pair(int i)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();
	FILE *f;

	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
	X509_gmtime_adj(X509_getm_notBefore(cert), -60);
	X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(cert));
	X509_set_pubkey(cert, key);
	assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
	snprintf(cert_path[i], sizeof(cert_path[i]), "/tmp/test_tls.%d.%d.crt", (int)getpid(), i);
	snprintf(key_path[i], sizeof(key_path[i]), "/tmp/test_tls.%d.%d.key", (int)getpid(), i);
	f = fopen(cert_path[i], "w");
	PEM_write_X509(f, cert);
	fclose(f);
	f = fopen(key_path[i], "w");
	PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
	fclose(f);
	if (i == 0) {
		snprintf(locked_path, sizeof(locked_path), "/tmp/test_tls.%d.locked", (int)getpid());
		f = fopen(locked_path, "w");
		PEM_write_PrivateKey(f, key, EVP_aes_128_cbc(), (const unsigned char *)"secret", 6, NULL, NULL);
		fclose(f);
	}
	X509_free(cert);
	EVP_PKEY_free(key);
}

static int setup(void **state)
{
	FILE *f;

	write_pair(0);
	write_pair(1);
	snprintf(text_path, sizeof(text_path), "/tmp/test_tls.%d.txt", (int)getpid());
	f = fopen(text_path, "w");
	fputs("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n", f);
	fclose(f);
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < 2; i++) {
		unlink(cert_path[i]);
		unlink(key_path[i]);
	}
	unlink(locked_path);
	unlink(text_path);
	return 0;
}

/* ---- a client over memory ---- */

struct pair {
	struct tls_context *ctx;
	struct tls *server;
	SSL_CTX *client_ctx;
	SSL *client;
	BIO *in, *out;
	struct strbuf got; /* plain text that the server has read */
	enum tls_result last;
};

static void pair_open(struct pair *p, int max_version)
{
	struct errbuf err;

	memset(p, 0, sizeof(*p));
	assert_int_equal(tls_context_new(&p->ctx, cert_path[0], key_path[0], &err), ST_OK);
	p->server = tls_new(p->ctx);
	p->client_ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_security_level(p->client_ctx, 0); /* or it would not even try old versions */
	SSL_CTX_set_min_proto_version(p->client_ctx, TLS1_VERSION);
	SSL_CTX_set_max_proto_version(p->client_ctx, max_version);
	p->client = SSL_new(p->client_ctx);
	p->in = BIO_new(BIO_s_mem());
	p->out = BIO_new(BIO_s_mem());
	BIO_set_mem_eof_return(p->in, -1);
	SSL_set_bio(p->client, p->in, p->out);
	SSL_set_connect_state(p->client);
	strbuf_init(&p->got, 64 * MIB);
}

static void pair_close(struct pair *p)
{
	SSL_free(p->client);
	SSL_CTX_free(p->client_ctx);
	tls_free(p->server);
	tls_context_free(p->ctx);
	strbuf_release(&p->got);
}

static void server_reads(struct pair *p)
{
	char buf[TLS_RECORD_MAX];
	size_t n;

	while ((p->last = tls_read(p->server, buf, sizeof(buf), &n)) == TLS_DATA) strbuf_append(&p->got, buf, n);
}

/* Moves what the client has written, piece bytes at a time; then what the server answers, likewise. */
static void turn(struct pair *p, size_t piece)
{
	char buf[65536];
	const char *out;
	size_t n;
	int len;

	while ((len = BIO_read(p->out, buf, (int)min_size(piece, sizeof(buf)))) > 0) {
		tls_receive(p->server, buf, (size_t)len);
		server_reads(p);
	}
	while ((n = tls_output(p->server, &out)) > 0) {
		n = min_size(n, piece);
		BIO_write(p->in, out, (int)n);
		tls_sent(p->server, n);
	}
}

static bool handshake(struct pair *p, size_t piece)
{
	for (int i = 0; i < 10 && SSL_do_handshake(p->client) != 1; i++) turn(p, piece);
	if (SSL_is_init_finished(p->client)) turn(p, piece);
	return SSL_is_init_finished(p->client) && p->last != TLS_FAILED;
}

static void test_handshake_and_data(void **state)
{
	static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
	static const size_t pieces[] = {1, 7, 65536};
	char sent[40000], back[40000];
	struct pair p;

	RAND_bytes((unsigned char *)sent, sizeof(sent));
	for (size_t v = 0; v < ARRAY_LEN(versions); v++)
		for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
			size_t n = 0;

			pair_open(&p, versions[v]);
			assert_false(tls_write(p.server, "early", 5)); /* nothing before the handshake */
			assert_true(handshake(&p, pieces[i]));
			assert_int_equal(SSL_version(p.client), versions[v]);
			assert_int_equal(SSL_write(p.client, sent, sizeof(sent)), sizeof(sent));
			turn(&p, pieces[i]);
			assert_int_equal(p.got.len, sizeof(sent));
			assert_memory_equal(p.got.data, sent, sizeof(sent));
			assert_int_equal(p.last, TLS_MORE);
			assert_true(tls_write(p.server, sent, sizeof(sent)));
			turn(&p, pieces[i]);
			for (int k; n < sizeof(back) && (k = SSL_read(p.client, back + n, (int)(sizeof(back) - n))) > 0;) n += (size_t)k;
			assert_int_equal(n, sizeof(sent));
			assert_memory_equal(back, sent, n);
			pair_close(&p);
		}
}

static void test_ends(void **state)
{
	struct pair p;
	char buf[8];

	/* The client's end: what came before it is read, and the server may still answer. */
	pair_open(&p, TLS1_3_VERSION);
	assert_true(handshake(&p, 65536));
	SSL_write(p.client, "bye", 3);
	SSL_shutdown(p.client);
	turn(&p, 65536);
	assert_int_equal(p.got.len, 3);
	assert_int_equal(p.last, TLS_END);
	assert_true(tls_write(p.server, "answer", 6));
	turn(&p, 65536);
	assert_int_equal(SSL_read(p.client, buf, sizeof(buf)), 6);
	pair_close(&p);
	/* Ours: once, and nothing after it. */
	pair_open(&p, TLS1_3_VERSION);
	assert_true(handshake(&p, 65536));
	tls_end(p.server);
	tls_end(p.server);
	assert_false(tls_write(p.server, "more", 4));
	turn(&p, 65536);
	assert_int_equal(SSL_read(p.client, buf, sizeof(buf)), 0);
	assert_int_equal(SSL_get_error(p.client, 0), SSL_ERROR_ZERO_RETURN);
	pair_close(&p);
	/* In the middle of a handshake there is nothing to say. */
	pair_open(&p, TLS1_3_VERSION);
	SSL_do_handshake(p.client);
	tls_end(p.server);
	turn(&p, 20);
	pair_close(&p);
}

static void test_old_versions_are_refused(void **state)
{
	struct pair p;

	for (int v = TLS1_VERSION; v <= TLS1_1_VERSION; v++) {
		pair_open(&p, v);
		assert_false(handshake(&p, 65536));
		pair_close(&p);
	}
}

static void test_protocols(void **state)
{
	static const struct {
		const char *offer;
		size_t len;
		const char *chosen; /* NULL: no handshake */
	} rows[] = {
		{"\x08http/1.1", 9, "http/1.1"},
		{"\x02h2\x08http/1.1", 12, "http/1.1"},
		{"\x02h2", 3, NULL},
		{"\x02h2\x08http/1.0", 12, "http/1.0"},
		{"\x06spdy/3\x02h2", 10, NULL},
		{NULL, 0, ""},
	};
	const unsigned char *chosen;
	struct pair p;
	unsigned n;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		pair_open(&p, TLS1_3_VERSION);
		if (rows[i].offer) SSL_set_alpn_protos(p.client, (const unsigned char *)rows[i].offer, (unsigned)rows[i].len);
		assert_int_equal(handshake(&p, 65536), rows[i].chosen != NULL);
		if (rows[i].chosen) {
			SSL_get0_alpn_selected(p.client, &chosen, &n);
			assert_int_equal(n, strlen(rows[i].chosen));
			if (n) assert_memory_equal(chosen, rows[i].chosen, n);
		}
		pair_close(&p);
	}
}

static void test_what_is_no_tls(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		bool is_http;
	} rows[] = {
		{"GET / HTTP/1.1\r\n\r\n", 18, true},
		{"POST /v1/completions HTTP/1.1\r\n\r\n", 33, true},
		{"HEAD / HTTP/1.1\r\n\r\n", 19, true},
		{"SSH-2.0-OpenSSH_9.2\r\n", 21, false},
		{"\0\0\0\0\0\0\0\0\0\0\0\0", 12, false},
		{"\x16\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, false},
		{"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10, false},
		{"\x15\x03\x01\x00\x02\x02\x28", 7, false},
		{"\x17\x03\x03\x00\x05hello", 10, false},
	};
	struct pair p;
	char buf[16];
	const char *out;
	size_t n;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		pair_open(&p, TLS1_3_VERSION);
		tls_receive(p.server, rows[i].bytes, rows[i].len);
		server_reads(&p);
		if (p.last != TLS_FAILED) fail_msg("row %zu", i);
		assert_int_equal(tls_was_http(p.server), rows[i].is_http);
		assert_true(tls_why(p.server)[0]);
		assert_int_equal(tls_read(p.server, buf, sizeof(buf), &n), TLS_FAILED); /* and stays so */
		assert_false(tls_write(p.server, "x", 1));
		tls_end(p.server);
		assert_true(tls_output(p.server, &out) <= 64); /* an alert at most */
		pair_close(&p);
	}
}

/* A flipped bit anywhere ends it, and never gives other data. */
static void test_damage(void **state)
{
	char buf[4096];
	struct pair p;
	int len;

	for (int at = 0; at < 120; at += 3) {
		pair_open(&p, TLS1_3_VERSION);
		assert_true(handshake(&p, 65536));
		SSL_write(p.client, "0123456789012345678901234567890123456789012345678901234567890123456789", 70);
		len = BIO_read(p.out, buf, sizeof(buf));
		if (at < len) {
			buf[at] ^= 4;
			tls_receive(p.server, buf, (size_t)len);
			server_reads(&p);
			assert_int_equal(p.got.len, 0);
			assert_true(p.last == TLS_FAILED || (p.last == TLS_MORE && (at == 3 || at == 4))); /* a longer record is waited for */
		}
		pair_close(&p);
	}
}

static void test_files(void **state)
{
	const struct {
		const char *cert, *key, *says;
	} rows[] = {
		{"/nosuch.crt", key_path[0], "--ssl-certfile /nosuch.crt: No such file"},
		{cert_path[0], "/nosuch.key", "--ssl-keyfile /nosuch.key: No such file"},
		{"/tmp", key_path[0], "--ssl-certfile /tmp: not a plain file"},
		{key_path[0], key_path[0], "holds no PEM certificate that can be used"},
		{text_path, key_path[0], "holds no PEM certificate that can be used"},
		{cert_path[0], cert_path[0], "holds no PEM key without a password that can be used"},
		{cert_path[0], text_path, "holds no PEM key without a password that can be used"},
		{cert_path[0], locked_path, "holds no PEM key without a password that can be used"},
		{cert_path[0], "", "holds no PEM key without a password that can be used"}, /* both in one file */
		{cert_path[0], key_path[1], "the key does not belong to the certificate"},
	};
	struct tls_context *c = NULL;
	struct errbuf err;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		err.text[0] = 0;
		assert_true(tls_context_new(&c, rows[i].cert, rows[i].key, &err) != ST_OK);
		if (!strstr(err.text, rows[i].says)) fail_msg("row %zu: %s", i, err.text);
		if (!strstr(err.text, rows[i].cert) && !strstr(err.text, rows[i].key)) fail_msg("row %zu names no file: %s", i, err.text);
	}
	assert_null(c);
	tls_context_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handshake_and_data),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_old_versions_are_refused),
		cmocka_unit_test(test_protocols),
		cmocka_unit_test(test_what_is_no_tls),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
