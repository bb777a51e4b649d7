/* routes.c - one table: method, path, handler. HEAD goes with GET, OPTIONS with everything.
 *
 * What the head of a request decides is decided before its body is read: the key, the coding of the body. Paths may have
 * --root-path in front, because some proxies take it away and others do not. */
#include "frontend/routes.h"

#include "frontend/auth.h"
#include "frontend/conn.h"
#include "frontend/journal.h"
#include "frontend/tenant.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct route routes[] = {
	{METHOD_POST, "/v1/chat/completions", api_chat},
	{METHOD_POST, "/v1/completions", api_completions},
	{METHOD_POST, "/v1/responses", api_responses},
	{METHOD_POST, "/v1/responses/input_tokens", api_responses_count},
	{METHOD_GET, "/v1/responses/", api_responses_stored},
	{METHOD_DELETE, "/v1/responses/", api_responses_stored},
	{METHOD_POST, "/v1/responses/", api_responses_stored},
	{METHOD_POST, "/v1/messages", api_messages},
	{METHOD_POST, "/v1/messages/count_tokens", api_messages_count},
	{METHOD_POST, "/v1/chat/completions/render", api_render_chat},
	{METHOD_POST, "/v1/completions/render", api_render_completions},
	{METHOD_POST, "/v1/embeddings", api_embeddings},
	{METHOD_GET, "/v1/models", api_models},
	{METHOD_GET, "/v1/models/", api_model},
	{METHOD_POST, "/tokenize", api_tokenize},
	{METHOD_POST, "/detokenize", api_detokenize},
	{METHOD_GET, "/health", api_health},
	{METHOD_GET, "/ready", api_health},
	{METHOD_GET, "/live", api_live},
	{METHOD_GET, "/ping", api_ping},
	{METHOD_POST, "/ping", api_ping},
	{METHOD_GET, "/version", api_version},
	{METHOD_GET, "/load", api_load},
	{METHOD_GET, "/metrics", api_metrics},
	{METHOD_GET, "/openapi.json", api_openapi},
};

const struct route *routes_all(size_t *n)
{
	*n = ARRAY_LEN(routes);
	return routes;
}

static bool route_matches(const struct route *t, const char *path)
{
	size_t n = strlen(t->path);

	if (t->path[n - 1] != '/') return strcmp(t->path, path) == 0;
	return strncmp(t->path, path, n) == 0 && path[n] != 0;
}

/* What load balancers and orchestrators ask needs no key: they have none. */
bool routes_is_open(const char *path)
{
	static const char *const open[] = {"/health", "/ready", "/live", "/ping"};

	for (size_t i = 0; i < ARRAY_LEN(open); i++)
		if (strcmp(path, open[i]) == 0) return true;
	return false;
}

/* Whether it takes room in the engine, so that the door's limits apply (admission.h). */
static bool routes_counts(const struct http_request *r)
{
	static const char *const counted[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"};

	for (size_t i = 0; i < ARRAY_LEN(counted); i++)
		if (strcmp(r->path, counted[i]) == 0) return r->method == METHOD_POST;
	return false;
}

/* ---- at the end of the head ---- */

static void strip_root(const char *root, struct http_request *r)
{
	size_t n = strlen(root);

	while (n > 0 && root[n - 1] == '/') n--;
	if (n > 0 && strncmp(r->path, root, n) == 0 && r->path[n] == '/') r->path += n;
}

/* 415 by name for a body that would have to be unpacked; *text stays until the next call. */
static int check_coding(const struct http_request *r, const char **text)
{
	static char said[160];
	const char *coding = http_header(r, "content-encoding", NULL);

	if (!coding || !coding[0] || strcasecmp(coding, "identity") == 0) return 0;
	snprintf(said, sizeof(said), "Content-Encoding `%.64s` is not supported: send the body as it is.", coding);
	*text = said;
	return 415;
}

int api_on_head(void *ctx, struct http_request *r, const char **text)
{
	struct api *a = ctx;
	uint64_t key_name = 0;
	int status;

	strip_root(a->config->root_path, r);
	if (r->method == METHOD_OPTIONS) return 0;
	if (a->keys && !routes_is_open(r->path) && !auth_allows(a->keys, r, &key_name)) {
		*text = "This server needs an API key: send `Authorization: Bearer KEY` with one of its keys.";
		return 401;
	}
	r->admission.tenant = tenant_of(r, key_name);
	status = check_coding(r, text);
	return status || !routes_counts(r) ? status : admission_on_head(a, r, text);
}

/* ---- whole requests ---- */

/* Browsers ask before they send; without credentials, so this never needs a key. */
static void answer_options(struct http_request *r)
{
	const char *wanted = http_header(r, "access-control-request-headers", NULL);
	char extra[1024];
	size_t i;

	/* Echoed, because `*` does not cover Authorization; only when it is a plain list of names. */
	for (i = 0; wanted && wanted[i]; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ", wanted[i]) || i > 512) wanted = NULL;
	snprintf(extra, sizeof(extra),
		 "Access-Control-Allow-Methods: GET, HEAD, POST, OPTIONS\r\nAccess-Control-Allow-Headers: %s\r\n"
		 "Access-Control-Max-Age: 86400\r\nAllow: GET, HEAD, POST, OPTIONS\r\n",
		 wanted && wanted[0] ? wanted : "Authorization, Content-Type, X-Request-Id");
	http_answer(r, 204, NULL, extra, NULL, 0);
}

static void answer_405(struct http_request *r, int allowed)
{
	char extra[96];

	snprintf(extra, sizeof(extra), "Allow: %s%s%sOPTIONS\r\n", allowed & METHOD_GET ? "GET, HEAD, " : "", allowed & METHOD_POST ? "POST, " : "",
		 allowed & METHOD_DELETE ? "DELETE, " : "");
	apierr_send(r, 405, extra, "This method is not allowed for this path.");
}

void api_on_request(void *ctx, struct http_request *r)
{
	enum http_method method = r->method == METHOD_HEAD ? METHOD_GET : r->method;
	struct api *a = ctx;
	struct apierr e = {0};
	int allowed = 0;
	size_t i;

	a->now = conn_now(r->conn);
	journal_begin(a->journal, r, a->now);
	if (r->method == METHOD_OPTIONS) {
		answer_options(r);
		return;
	}
	for (i = 0; i < ARRAY_LEN(routes); i++) {
		if (!route_matches(&routes[i], r->path)) continue;
		if (routes[i].method == method) {
			if (!routes_counts(r) || admission_begin(a, r, &e)) routes[i].handler(a, r);
			else apierr_answer(&e, r);
			return;
		}
		allowed |= (int)routes[i].method;
	}
	if (allowed) {
		answer_405(r, allowed);
		return;
	}
	(void)apierr_set(&e, 404, NULL, "There is nothing at %.*s.", 200, r->path);
	apierr_answer(&e, r);
}

void api_on_answered(void *ctx, int status)
{
	struct api *a = ctx;

	if (status >= 500) page_count(a->slot, COUNTER_http_5xx, 1);
	else if (status >= 400) page_count(a->slot, COUNTER_http_4xx, 1);
	else page_count(a->slot, COUNTER_http_2xx, 1);
}

void api_on_ended(void *ctx, struct http_request *r, bool is_gone)
{
	struct api *a = ctx;

	/* The later of the two: an answer may end long after the connection's last event, and a client may leave before the next pass. */
	a->now = max_u64(a->now, conn_now(r->conn));
	admission_over(a, r);
	journal_end(a->journal, r, is_gone, a->now);
}

void api_on_waited(void *ctx, uint64_t ns)
{
	const struct api *a = ctx;

	page_observe(a->slot, HISTOGRAM_write, (double)ns / 1e9);
}
