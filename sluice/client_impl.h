/* client_impl.h - inside of client.c and clientpool.c: one connection's libcurl handle and what it is receiving. */
#ifndef SLUICE_CLIENT_IMPL_H
#define SLUICE_CLIENT_IMPL_H

#include "sluice/client.h"

#include <curl/curl.h>

struct client {
	CURL *curl;
	struct curl_slist *headers;
	char *base;   /* without trailing slash and /v1 */
	char *socket; /* path of a UNIX socket, or NULL */
	char *cacert;
	struct strbuf buf;
	bool streaming, stopped;
	bool (*on_event)(void *ctx, json_t *event);
	void *ctx;
	char detail[CURL_ERROR_SIZE];
};

/* Everything of a transfer but method and body. */
void client_setup(struct client *c, const char *path);
/* What a transfer that has ended with rc means. */
int client_result(struct client *c, CURLcode rc, struct errbuf *err) MUST_CHECK;

#endif
