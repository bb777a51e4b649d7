/* client.h - the operator tools' HTTP client; the only door to libcurl. Blocking. */
#ifndef SLUICE_CLIENT_H
#define SLUICE_CLIENT_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/strbuf.h"

#include <jansson.h>

struct client;

/* url: "http://host:port", with or without a trailing slash or /v1, or "unix:PATH". api_key and cacert (PEM file) may be NULL. */
int client_open(struct client **out, const char *url, const char *api_key, const char *cacert, struct errbuf *err) MUST_CHECK;
void client_close(struct client *c);

/* GET; the parsed answer in *json (json_decref it). A status other than 200 is an error with the server's message. */
int client_get(struct client *c, const char *path, json_t **json, struct errbuf *err) MUST_CHECK;

/* POST; as client_get. */
int client_post(struct client *c, const char *path, json_t *body, json_t **json, struct errbuf *err) MUST_CHECK;

/* POST of a streaming request: on_event for each `data:` payload except [DONE]. It returns false to end early (ST_OK). */
int client_stream(struct client *c, const char *path, json_t *body, bool (*on_event)(void *ctx, json_t *event), void *ctx,
		  struct errbuf *err) MUST_CHECK;

/* Text of a server on stdout: control characters are replaced, so that it cannot drive the terminal. */
void client_show(const char *s);

#endif
