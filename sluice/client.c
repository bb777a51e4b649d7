/* client.c - see client.h. */
#include "sluice/client_impl.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_ANSWER_MAX (16u << 20)
#define CLIENT_CONNECT_S 10L

static void client_address(struct client *c, const char *url)
{
	size_t len = strlen(url);

	if (strncmp(url, "unix:", 5) == 0) {
		c->socket = mem_strdup(url + 5);
		c->base = mem_strdup("http://localhost");
		return;
	}
	while (len && url[len - 1] == '/') len--;
	if (len > 3 && strncmp(url + len - 3, "/v1", 3) == 0) len -= 3;
	c->base = mem_strndup(url, len);
}

int client_open(struct client **out, const char *url, const char *api_key, const char *cacert, struct errbuf *err)
{
	struct client *c = mem_new(struct client);
	struct strbuf auth;

	client_address(c, url);
	if (cacert) c->cacert = mem_strdup(cacert);
	strbuf_init(&c->buf, CLIENT_ANSWER_MAX);
	c->curl = curl_easy_init();
	if (!c->curl) {
		client_close(c);
		return err_set(err, ST_NO_MEMORY, "libcurl could not be started");
	}
	c->headers = curl_slist_append(c->headers, "Content-Type: application/json");
	if (api_key && api_key[0]) {
		strbuf_init(&auth, 8192);
		strbuf_printf(&auth, "Authorization: Bearer %s", api_key);
		c->headers = curl_slist_append(c->headers, auth.data ? auth.data : "");
		strbuf_release(&auth);
	}
	*out = c;
	return ST_OK;
}

void client_close(struct client *c)
{
	if (!c) return;
	if (c->curl) curl_easy_cleanup(c->curl);
	curl_slist_free_all(c->headers);
	strbuf_release(&c->buf);
	free(c->base);
	free(c->socket);
	free(c->cacert);
	free(c);
}

/* Hands out whole lines of the event stream and removes them from the buffer. */
static void client_take_lines(struct client *c)
{
	size_t at = 0;

	while (!c->stopped) {
		char *line = c->buf.data + at, *end = memchr(line, '\n', c->buf.len - at);
		json_t *event;

		if (!end) break;
		at += (size_t)(end - line) + 1;
		if (strncmp(line, "data: ", 6) != 0 || strncmp(line + 6, "[DONE]", 6) == 0) continue;
		event = json_loadb(line + 6, (size_t)(end - line) - 6, 0, NULL);
		if (event && !c->on_event(c->ctx, event)) c->stopped = true;
		json_decref(event);
	}
	memmove(c->buf.data, c->buf.data + at, c->buf.len - at);
	c->buf.len -= at;
}

static size_t on_client_data(char *data, size_t size, size_t n, void *ctx)
{
	struct client *c = ctx;
	long status = 0;

	strbuf_append(&c->buf, data, size * n);
	if (c->buf.overflow) return 0;
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	if (c->streaming && status == 200) client_take_lines(c);
	return c->stopped ? 0 : size * n;
}

/* The server's own words, or the status. */
static int client_refused(struct client *c, long status, struct errbuf *err)
{
	json_t *json = c->buf.data ? json_loadb(c->buf.data, c->buf.len, 0, NULL) : NULL;
	const char *text = json_string_value(json_object_get(json_object_get(json, "error"), "message"));
	int rc = err_set(err, ST_INVALID, "the server answers %ld%s%s", status, text ? ": " : "", text ? text : "");

	json_decref(json);
	return rc;
}

void client_setup(struct client *c, const char *path)
{
	struct strbuf url;

	strbuf_init(&url, 8192);
	strbuf_printf(&url, "%s%s", c->base, path);
	strbuf_reset(&c->buf);
	c->stopped = false;
	c->detail[0] = 0;
	curl_easy_setopt(c->curl, CURLOPT_URL, url.data);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT, CLIENT_CONNECT_S);
	curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	if (c->socket) curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, c->socket);
	if (c->cacert) curl_easy_setopt(c->curl, CURLOPT_CAINFO, c->cacert);
	/* http_proxy is seldom meant for this machine. Who sets no_proxy says it himself. */
	if (!getenv("no_proxy") && !getenv("NO_PROXY")) curl_easy_setopt(c->curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
	curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->detail);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_client_data);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
	strbuf_release(&url);
}

int client_result(struct client *c, CURLcode rc, struct errbuf *err)
{
	long status = 0;

	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
	if (c->stopped) return ST_OK;
	if (rc != CURLE_OK)
		return err_set(err, ST_IO, "%s: %s; is the server running there? (--url)", c->socket ? c->socket : c->base,
			       c->detail[0] ? c->detail : curl_easy_strerror(rc));
	return status == 200 ? ST_OK : client_refused(c, status, err);
}

static int client_perform(struct client *c, const char *path, struct errbuf *err)
{
	client_setup(c, path);
	return client_result(c, curl_easy_perform(c->curl), err);
}

static int client_answer(struct client *c, const char *path, json_t **json, struct errbuf *err)
{
	int rc = client_perform(c, path, err);

	if (rc != ST_OK) return rc;
	*json = json_loadb(c->buf.data ? c->buf.data : "", c->buf.len, 0, NULL);
	return *json ? ST_OK : err_set(err, ST_CORRUPT, "%s%s answers something that is not JSON", c->base, path);
}

int client_get(struct client *c, const char *path, json_t **json, struct errbuf *err)
{
	c->streaming = false;
	curl_easy_setopt(c->curl, CURLOPT_HTTPGET, 1L);
	return client_answer(c, path, json, err);
}

static char *client_body(struct client *c, const json_t *body)
{
	char *text = json_dumps(body, JSON_COMPACT);

	curl_easy_setopt(c->curl, CURLOPT_POST, 1L);
	curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, text);
	curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(text));
	return text;
}

int client_post(struct client *c, const char *path, json_t *body, json_t **json, struct errbuf *err)
{
	char *text = client_body(c, body);
	int rc;

	c->streaming = false;
	rc = client_answer(c, path, json, err);
	free(text);
	return rc;
}

int client_stream(struct client *c, const char *path, json_t *body, bool (*on_event)(void *ctx, json_t *event), void *ctx,
		  struct errbuf *err)
{
	char *text = client_body(c, body);
	int rc;

	c->streaming = true;
	c->on_event = on_event;
	c->ctx = ctx;
	rc = client_perform(c, path, err);
	free(text);
	return rc;
}

void client_show(const char *s)
{
	for (; *s; s++) putchar((unsigned char)*s < ' ' && *s != '\n' && *s != '\t' ? '?' : *s);
	fflush(stdout);
}
