/* test_auth.c - API keys: reading them from lists and files, and which requests bring one. */
#include "frontend/auth.h"

#include "common/mem.h"
#include "frontend/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static bool has(const struct apikeys *k, const char *key)
{
	return apikeys_has(k, key, strlen(key));
}

/* ---- reading ---- */

static void test_list(void **state)
{
	static const struct {
		const char *list, *error;
	} bad[] = {
		{"", "--api-key: key 1: empty"},
		{"a,,b", "--api-key: key 2: empty"},
		{"a,", "--api-key: key 2: empty"},
		{"a b", "key 1: a key is visible ASCII"},
		{"a\n", "visible ASCII"},
		{"k,\xc3\xa9", "key 2: a key is visible ASCII"},
	};
	struct apikeys k = {0};
	struct errbuf err;

	assert_int_equal(apikeys_add_list(&k, "one,two,sk-3", &err), ST_OK);
	assert_int_equal(k.n, 3);
	assert_true(has(&k, "one") && has(&k, "two") && has(&k, "sk-3"));
	assert_false(has(&k, "") || has(&k, "on") || has(&k, "one,two") || has(&k, "ONE") || has(&k, "one "));
	apikeys_release(&k);
	assert_false(has(&k, "one"));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		err.text[0] = 0;
		assert_int_equal(apikeys_add_list(&k, bad[i].list, &err), ST_INVALID);
		if (!strstr(err.text, bad[i].error)) fail_msg("%s: %s", bad[i].list, err.text);
		apikeys_release(&k);
	}
}

static void test_list_is_bounded(void **state)
{
	struct strbuf list;
	struct apikeys k = {0};
	struct errbuf err = {{0}};
	char *longest = mem_zalloc(1, APIKEY_LEN_MAX + 2);

	memset(longest, 'k', APIKEY_LEN_MAX);
	assert_int_equal(apikeys_add_list(&k, longest, &err), ST_OK);
	longest[APIKEY_LEN_MAX] = 'k';
	assert_int_equal(apikeys_add_list(&k, longest, &err), ST_INVALID);
	assert_null(strstr(err.text, "kkk")); /* no error repeats a key */
	free(longest);
	apikeys_release(&k);
	strbuf_init(&list, MIB);
	for (int i = 0; i < LIMIT_API_KEYS; i++) strbuf_printf(&list, "%skey%d", i ? "," : "", i);
	assert_int_equal(apikeys_add_list(&k, list.data, &err), ST_OK);
	assert_int_equal(apikeys_add_list(&k, "more", &err), ST_LIMIT);
	assert_true(has(&k, "key0") && has(&k, "key1023") && !has(&k, "more"));
	apikeys_release(&k);
	strbuf_release(&list);
}

static char path[64];

static void write_file(const char *text, size_t len)
{
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/test_auth.%d", (int)getpid());
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
}

static void test_file(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *keys[4], *error;
	} rows[] = {
		{"a\nb\n", ST_OK, {"a", "b"}, NULL},
		{"a\r\n\r\n  b\t\r\n# c\n\nd # whose\n", ST_OK, {"a", "b", "d"}, NULL},
		{"no-newline", ST_OK, {"no-newline"}, NULL},
		{"in#side\nwith,comma\n#\n", ST_OK, {"in#side", "with,comma"}, NULL},
		{"a #b # c\n", ST_OK, {"a"}, NULL},
		{"", ST_INVALID, {NULL}, "it holds no key"},
		{"# nothing\n \r\n\n", ST_INVALID, {NULL}, "it holds no key"},
		{"a\n\nb c\n", ST_INVALID, {NULL}, "line 3: a key is visible ASCII"},
		{"\xef\xbb\xbf" "a\n", ST_INVALID, {NULL}, "line 1: "},
	};
	struct apikeys k = {0};
	struct errbuf err;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint32_t n = 0;

		err.text[0] = 0;
		write_file(rows[i].text, strlen(rows[i].text));
		if (apikeys_add_file(&k, path, &err) != rows[i].rc) fail_msg("row %zu: %s", i, err.text);
		for (; rows[i].rc == ST_OK && n < 4 && rows[i].keys[n]; n++) assert_true(has(&k, rows[i].keys[n]));
		if (rows[i].rc == ST_OK) assert_int_equal(k.n, n);
		if (rows[i].error && (!strstr(err.text, rows[i].error) || !strstr(err.text, path))) fail_msg("row %zu: %s", i, err.text);
		apikeys_release(&k);
	}
	write_file("a\0b\n", 4); /* a zero byte is no part of a key */
	assert_int_equal(apikeys_add_file(&k, path, &err), ST_INVALID);
	apikeys_release(&k);
	unlink(path);
}

static void test_what_is_no_file(void **state)
{
	struct apikeys k = {0};
	struct errbuf err = {{0}};

	assert_int_equal(apikeys_add_file(&k, "/nosuch/keys", &err), ST_NOT_FOUND);
	assert_non_null(strstr(err.text, "--api-key-file /nosuch/keys: No such file"));
	assert_int_equal(apikeys_add_file(&k, "/tmp", &err), ST_INVALID);
	snprintf(path, sizeof(path), "/tmp/test_auth.%d", (int)getpid());
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(apikeys_add_file(&k, path, &err), ST_INVALID); /* and does not wait for a writer */
	unlink(path);
	write_file("a\n", 2);
	assert_int_equal(truncate(path, APIKEYS_FILE_BYTES_MAX + 1), 0);
	assert_int_equal(apikeys_add_file(&k, path, &err), ST_LIMIT);
	unlink(path);
	assert_int_equal(k.n, 0);
}

static void test_digests_travel(void **state)
{
	struct apikeys a = {0}, b = {0};
	struct errbuf err;

	assert_int_equal(apikeys_add_list(&a, "one,two", &err), ST_OK);
	assert_int_equal(apikeys_set(&b, a.digests, a.n * APIKEY_DIGEST_BYTES), ST_OK);
	assert_true(has(&b, "one") && has(&b, "two") && b.n == 2);
	assert_int_equal(apikeys_set(&b, a.digests, APIKEY_DIGEST_BYTES + 1), ST_CORRUPT);
	assert_true(has(&b, "two")); /* what was there stays */
	assert_int_equal(apikeys_set(&b, a.digests, APIKEY_DIGEST_BYTES), ST_OK);
	assert_true(has(&b, "one") && !has(&b, "two"));
	assert_int_equal(apikeys_set(&b, NULL, 0), ST_OK);
	assert_int_equal(b.n, 0);
	apikeys_release(&a);
	apikeys_release(&b);
}

/* ---- requests ---- */

static struct apikeys keys;
static int allowed; /* of the last request: 1, 0; -1: there was none */

static void on_request(void *ctx, struct http_request *r)
{
	allowed = auth_allows(&keys, r, &(uint64_t){0});
	http_answer(r, 200, NULL, NULL, NULL, 0);
}

static void on_dirty(void *edge)
{
	(void)edge;
}

static int ask(const char *headers)
{
	struct conn_host host = {.head_max = 4096, .body_max = 4096, .bodies_max = 4096, .request_ns = NS_PER_S, .keep_alive_ns = NS_PER_S,
				 .write_ns = NS_PER_S, .allow_origin = "*", .on_request = on_request, .on_dirty = on_dirty};
	struct conn *c = conn_new(&host, NULL, 1);
	char text[1024];

	allowed = -1;
	snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", headers);
	conn_input(c, text, strlen(text), 1);
	conn_free(c);
	return allowed;
}

static void test_requests(void **state)
{
	static const struct {
		const char *headers;
		int allowed;
	} rows[] = {
		{"", 0},
		{"Authorization: Bearer one\r\n", 1},
		{"Authorization: Bearer two\r\n", 1},
		{"authorization: bEARER   two  \r\n", 1},
		{"x-api-key: one\r\n", 1},
		{"X-API-Key:two\t\r\n", 1},
		{"Authorization: Bearer wrong\r\nx-api-key: one\r\n", 1}, /* clients that send both mean either */
		{"Authorization: Bearer one\r\nx-api-key: wrong\r\n", 1},
		{"Authorization: one\r\n", 0},
		{"Authorization: Basic one\r\n", 0},
		{"Authorization: Bearerone\r\n", 0},
		{"Authorization: Bearer\r\n", 0},
		{"Authorization: Bearer \r\n", 0},
		{"Authorization: Bearer one two\r\n", 0},
		{"Authorization: Bearer onetwo\r\n", 0},
		{"Authorization: Bearer on\r\n", 0},
		{"Authorization: Bearer ONE\r\n", 0},
		{"Authorization: Bearer one\r\nAuthorization: Bearer one\r\n", 0},
		{"x-api-key: one\r\nx-api-key: wrong\r\n", 0},
		{"api-key: one\r\n", 0},
		{"x-api-key: Bearer one\r\n", 0},
		{"Cookie: one\r\n", 0},
	};
	struct errbuf err;

	assert_int_equal(ask(""), 1); /* no keys: everybody */
	assert_int_equal(apikeys_add_list(&keys, "one,two", &err), ST_OK);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (ask(rows[i].headers) != rows[i].allowed) fail_msg("%s: %d", rows[i].headers, allowed);
	apikeys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_list_is_bounded),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_what_is_no_file),
		cmocka_unit_test(test_digests_travel),
		cmocka_unit_test(test_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
