/* hubweb.c - see hubweb.h. */
#include "sluice/hubweb.h"

#include "common/list.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/client_impl.h"
#include "sluice/hubname.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HOPS_MAX       8
#define URL_MAX        (16 * KIB)
#define HEAD_BYTES_MAX (64 * KIB) /* of one answer's header lines */
#define CONNECT_S      10L
#define SLOW_BYTES_S   1000L /* less than this for the whole of the timeout is no transfer */
#define RETRY_MAX_S    300
#define CALLS_MAX      32

struct hubweb_call {
	struct list_link link;
	struct hubweb *web;
	CURL *curl;
	struct curl_slist *headers;
	char *url; /* owned; of this hop */
	bool is_head;
	uint64_t from;
	uint32_t n_hops;
	size_t head_bytes;
	bool has_linked_etag, has_linked_size;
	struct hubweb_answer answer;
	struct hubweb_events ev;
	bool refused; /* by on_body, or a header that cannot be */
	char detail[CURL_ERROR_SIZE];
};

struct hubweb {
	const struct hubenv *env;
	CURLM *multi;
	struct list calls;
};

/* ---- addresses ---- */

/* "https://host:443": scheme, host and port, always with a port; NULL when it is no address. Free it. */
static char *origin_of(const char *url)
{
	CURLU *u = curl_url();
	char *scheme = NULL, *host = NULL, *port = NULL;
	struct strbuf s;

	strbuf_init(&s, URL_MAX);
	if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
	    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	    curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
	    curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK)
		strbuf_printf(&s, "%s://%s:%s", scheme, host, port);
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(u);
	for (size_t i = 0; i < s.len; i++)
		if (s.data[i] >= 'A' && s.data[i] <= 'Z') s.data[i] += 'a' - 'A';
	if (s.len > 0) return strbuf_take(&s);
	strbuf_release(&s);
	return NULL;
}

static bool same_origin(const char *a, const char *b)
{
	char *x = origin_of(a), *y = origin_of(b);
	bool same = x && y && strcmp(x, y) == 0;

	free(x);
	free(y);
	return same;
}

/* ---- headers ---- */

static bool value_u64(const char *v, uint64_t *out)
{
	char *end;
	size_t n = strspn(v, "0123456789");

	if (n == 0 || n > 18 || v[n]) return false;
	*out = strtoull(v, &end, 10);
	return true;
}

static void set_etag(struct hubweb_answer *a, const char *v)
{
	size_t n;

	if (strncmp(v, "W/", 2) == 0) v += 2;
	n = strlen(v);
	if (n >= 2 && v[0] == '"' && v[n - 1] == '"') {
		v++;
		n -= 2;
	}
	a->etag[0] = 0;
	if (n >= sizeof(a->etag)) return;
	memcpy(a->etag, v, n);
	a->etag[n] = 0;
	if (!hubname_is_safe_word(a->etag)) a->etag[0] = 0;
}

/* "bytes 100-199/200" */
static void set_range(struct hubweb_answer *a, const char *v)
{
	char from[20];
	size_t n;

	if (strncasecmp(v, "bytes ", 6) != 0) return;
	n = strspn(v + 6, "0123456789");
	if (n == 0 || n >= sizeof(from) || v[6 + n] != '-') return;
	snprintf(from, sizeof(from), "%.*s", (int)n, v + 6);
	a->has_range = value_u64(from, &a->range_from);
}

static void take_header(struct hubweb_call *c, const char *name, const char *v)
{
	struct hubweb_answer *a = &c->answer;
	uint64_t n;

	if (strcasecmp(name, "x-linked-etag") == 0) {
		if (!c->has_linked_etag) set_etag(a, v);
		c->has_linked_etag = true;
	} else if (strcasecmp(name, "etag") == 0) {
		if (!c->has_linked_etag) set_etag(a, v);
	} else if (strcasecmp(name, "x-linked-size") == 0) {
		if (!c->has_linked_size && value_u64(v, &n)) {
			a->size = n;
			a->has_size = c->has_linked_size = true;
		}
	} else if (strcasecmp(name, "content-length") == 0) {
		if (!c->has_linked_size && value_u64(v, &n)) {
			a->size = n;
			a->has_size = true;
		}
	} else if (strcasecmp(name, "x-repo-commit") == 0) {
		if (!a->commit[0] && hubname_is_commit(v)) snprintf(a->commit, sizeof(a->commit), "%s", v);
	} else if (strcasecmp(name, "content-range") == 0) {
		set_range(a, v);
	} else if (strcasecmp(name, "retry-after") == 0) {
		if (value_u64(v, &n)) a->retry_s = (uint32_t)min_u64(n, RETRY_MAX_S);
	} else if (strcasecmp(name, "x-error-code") == 0) {
		snprintf(a->code, sizeof(a->code), "%s", v);
	} else if (strcasecmp(name, "x-error-message") == 0) {
		snprintf(a->message, sizeof(a->message), "%s", v);
	}
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
	struct hubweb_call *c = ctx;
	char line[1024];
	char *colon, *v, *end;

	n *= size;
	c->head_bytes += n;
	if (c->head_bytes > HEAD_BYTES_MAX) {
		c->refused = true;
		return 0;
	}
	if (n >= sizeof(line)) return n; /* none of ours is so long */
	memcpy(line, data, n);
	line[n] = 0;
	colon = strchr(line, ':');
	if (!colon) return n;
	*colon = 0;
	v = colon + 1 + strspn(colon + 1, " \t");
	end = v + strlen(v);
	while (end > v && strchr(" \t\r\n", end[-1])) end--;
	*end = 0;
	take_header(c, line, v);
	return n;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
	struct hubweb_call *c = ctx;

	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &c->answer.status);
	if (c->answer.status < 200 || c->answer.status > 299) return size * n; /* an error's text, or a redirect's */
	if (c->ev.on_body(c->ev.ctx, &c->answer, data, size * n)) return size * n;
	c->refused = true;
	return 0;
}

/* ---- a hop ---- */

static void set_headers(struct hubweb_call *c)
{
	const struct hubenv *env = c->web->env;
	struct strbuf line;

	curl_slist_free_all(c->headers);
	/* Lengths and sums are those of the file. */
	c->headers = curl_slist_append(NULL, "Accept-Encoding: identity");
	if (!env->token || !same_origin(c->url, env->endpoint)) return;
	strbuf_init(&line, 8 * KIB);
	strbuf_printf(&line, "Authorization: Bearer %s", env->token);
	c->headers = curl_slist_append(c->headers, line.data);
	strbuf_release(&line);
}

static void start_hop(struct hubweb_call *c)
{
	char range[32];

	c->head_bytes = 0;
	c->answer.has_range = false;
	c->answer.retry_s = 0;
	c->answer.code[0] = c->answer.message[0] = c->detail[0] = 0;
	if (!c->has_linked_size) c->answer.has_size = false;
	if (!c->has_linked_etag) c->answer.etag[0] = 0;
	curl_easy_reset(c->curl);
	set_headers(c);
	curl_easy_setopt(c->curl, CURLOPT_URL, c->url);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(c->curl, CURLOPT_USERAGENT, "sluice/" SLUICE_VERSION);
	curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
	/* A connection each: over one, transfers would share its window. */
	curl_easy_setopt(c->curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
	curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES_S);
	curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_TIME, c->web->env->timeout_s);
	curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->curl, CURLOPT_NOBODY, c->is_head ? 1L : 0L);
	if (!getenv("no_proxy") && !getenv("NO_PROXY"))
		curl_easy_setopt(c->curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
	if (c->web->env->cacert) curl_easy_setopt(c->curl, CURLOPT_CAINFO, c->web->env->cacert);
	curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->detail);
	curl_easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c->curl, CURLOPT_HEADERDATA, c);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->curl, CURLOPT_PRIVATE, c);
	if (c->from > 0) {
		snprintf(range, sizeof(range), "%llu-", (unsigned long long)c->from);
		curl_easy_setopt(c->curl, CURLOPT_RANGE, range);
	}
	curl_multi_add_handle(c->web->multi, c->curl);
}

static void call_free(struct hubweb_call *c)
{
	list_remove(&c->web->calls, &c->link);
	curl_easy_cleanup(c->curl);
	curl_slist_free_all(c->headers);
	free(c->url);
	free(c);
}

static struct hubweb_call *call_new(struct hubweb *w, const char *path, bool is_head, uint64_t from,
				    const struct hubweb_events *ev)
{
	struct hubweb_call *c = mem_new(struct hubweb_call);
	struct strbuf url;

	strbuf_init(&url, URL_MAX);
	strbuf_printf(&url, "%s%s", w->env->endpoint, path);
	c->url = strbuf_take(&url);
	c->web = w;
	c->is_head = is_head;
	c->from = from;
	c->ev = *ev;
	c->curl = curl_easy_init();
	CHECK(c->curl);
	list_push_back(&w->calls, &c->link);
	start_hop(c);
	return c;
}

struct hubweb_call *hubweb_head(struct hubweb *w, const char *path, const struct hubweb_events *ev)
{
	return call_new(w, path, true, 0, ev);
}

struct hubweb_call *hubweb_get(struct hubweb *w, const char *path, uint64_t from, const struct hubweb_events *ev)
{
	return call_new(w, path, false, from, ev);
}

/* ---- the end of a hop ---- */

static bool is_redirect(long status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static void call_end(struct hubweb_call *c, int rc, const char *why)
{
	struct hubweb_events ev = c->ev;
	struct hubweb_answer a = c->answer;

	call_free(c);
	ev.on_end(ev.ctx, rc, &a, why);
}

/* Goes on at the address that the answer names. False: the call has ended. */
static void follow(struct hubweb_call *c)
{
	char why[256], *next = NULL;
	const char *location = NULL;
	bool leaves;

	curl_easy_getinfo(c->curl, CURLINFO_REDIRECT_URL, &location);
	if (!location || strlen(location) >= URL_MAX) {
		call_end(c, ST_INVALID, "it redirects to nowhere");
		return;
	}
	leaves = !same_origin(c->url, location);
	if (c->is_head && leaves) {
		c->answer.has_size &= c->has_linked_size; /* else it is the length of the redirect's own text */
		call_end(c, ST_OK, "");
		return;
	}
	if (++c->n_hops > HOPS_MAX) {
		call_end(c, ST_INVALID, "it redirects too often");
		return;
	}
	if (strncasecmp(c->url, "https:", 6) == 0 && strncasecmp(location, "https:", 6) != 0) {
		snprintf(why, sizeof(why), "it redirects from https to %s",
			 quote_short(location, strlen(location)).text);
		call_end(c, ST_INVALID, why);
		return;
	}
	next = mem_strdup(location);
	free(c->url);
	c->url = next;
	start_hop(c);
}

static void hop_ended(struct hubweb_call *c, CURLcode result)
{
	char why[CURL_ERROR_SIZE + 80];

	curl_multi_remove_handle(c->web->multi, c->curl);
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &c->answer.status);
	if (c->refused) {
		call_end(c, c->head_bytes > HEAD_BYTES_MAX ? ST_INVALID : ST_CLOSED, "its headers are too long");
	} else if (result != CURLE_OK) {
		snprintf(why, sizeof(why), "%s", c->detail[0] ? c->detail : curl_easy_strerror(result));
		call_end(c,
			 result == CURLE_OPERATION_TIMEDOUT ? ST_TIMEOUT
			 : result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_URL_MALFORMAT ||
					 result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CACERT_BADFILE
				 ? ST_INVALID
				 : ST_IO,
			 why);
	} else if (is_redirect(c->answer.status)) {
		follow(c);
	} else {
		call_end(c, ST_OK, "");
	}
}

/* ---- all of them ---- */

int hubweb_open(struct hubweb **out, const struct hubenv *env, struct errbuf *err)
{
	struct hubweb *w = mem_new(struct hubweb);

	*out = NULL;
	w->env = env;
	list_init(&w->calls);
	w->multi = curl_multi_init();
	if (!w->multi) {
		free(w);
		return err_set(err, ST_NO_MEMORY, "libcurl could not be started");
	}
	curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS, (long)CALLS_MAX);
	*out = w;
	return ST_OK;
}

void hubweb_stop(struct hubweb *w)
{
	while (list_first(&w->calls)) {
		struct hubweb_call *c = CONTAINER_OF(list_first(&w->calls), struct hubweb_call, link);

		curl_multi_remove_handle(w->multi, c->curl);
		call_free(c);
	}
}

void hubweb_close(struct hubweb *w)
{
	if (!w) return;
	hubweb_stop(w);
	curl_multi_cleanup(w->multi);
	free(w);
}

void hubweb_poll(struct hubweb *w, int timeout_ms)
{
	CURLMsg *m;
	int n;

	curl_multi_perform(w->multi, &n);
	curl_multi_poll(w->multi, NULL, 0, timeout_ms, NULL);
	curl_multi_perform(w->multi, &n);
	while ((m = curl_multi_info_read(w->multi, &n)) != NULL) {
		struct hubweb_call *c = NULL;

		if (m->msg != CURLMSG_DONE) continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c);
		hop_ended(c, m->data.result);
	}
}
