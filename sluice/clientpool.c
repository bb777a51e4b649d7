/* clientpool.c - see clientpool.h. A slot is a client whose handle is in the multi handle while it runs. */
#include "sluice/clientpool.h"

#include "common/mem.h"
#include "sluice/client_impl.h"

#include <stdlib.h>
#include <string.h>

struct clientslot {
	struct client *client;
	bool running;
	void (*on_end)(void *ctx, const char *error);
	void *ctx;
};

struct clientpool {
	CURLM *multi;
	struct clientslot *slots;
	uint32_t n, n_free;
};

int clientpool_open(struct clientpool **out, const struct cmdserver *server, uint32_t n_max, struct errbuf *err)
{
	struct clientpool *p = mem_new(struct clientpool);
	uint32_t i;
	int rc;

	*out = NULL;
	p->multi = curl_multi_init();
	p->slots = mem_array(struct clientslot, n_max);
	if (!p->multi) {
		clientpool_close(p);
		return err_set(err, ST_NO_MEMORY, "libcurl could not be started");
	}
	/* Connections are kept between requests, as a client library does. */
	curl_multi_setopt(p->multi, CURLMOPT_MAXCONNECTS, (long)n_max);
	for (i = 0; i < n_max; i++) {
		rc = client_open(&p->slots[i].client, server->url, server->api_key, server->cacert, err);
		if (rc != ST_OK) {
			clientpool_close(p);
			return rc;
		}
		curl_easy_setopt(p->slots[i].client->curl, CURLOPT_PRIVATE, &p->slots[i]);
		p->n = p->n_free = i + 1;
	}
	*out = p;
	return ST_OK;
}

void clientpool_close(struct clientpool *p)
{
	uint32_t i;

	if (!p) return;
	for (i = 0; i < p->n; i++) {
		if (p->slots[i].running) curl_multi_remove_handle(p->multi, p->slots[i].client->curl);
		client_close(p->slots[i].client);
	}
	if (p->multi) curl_multi_cleanup(p->multi);
	free(p->slots);
	free(p);
}

uint32_t clientpool_n_free(const struct clientpool *p)
{
	return p->n_free;
}

void clientpool_start(struct clientpool *p, const char *path, const char *body, bool (*on_event)(void *ctx, json_t *event),
		      void (*on_end)(void *ctx, const char *error), void *ctx)
{
	struct clientslot *s = p->slots;

	CHECK(p->n_free > 0);
	while (s->running) s++;
	client_setup(s->client, path);
	curl_easy_setopt(s->client->curl, CURLOPT_POST, 1L);
	curl_easy_setopt(s->client->curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(s->client->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
	s->client->streaming = true;
	s->client->on_event = on_event;
	s->client->ctx = s->ctx = ctx;
	s->on_end = on_end;
	s->running = true;
	p->n_free--;
	curl_multi_add_handle(p->multi, s->client->curl);
}

static void clientpool_ended(struct clientpool *p, CURL *curl, CURLcode result)
{
	struct clientslot *s = NULL;
	struct errbuf err = {{0}};
	int rc;

	curl_easy_getinfo(curl, CURLINFO_PRIVATE, &s);
	rc = client_result(s->client, result, &err);
	curl_multi_remove_handle(p->multi, curl);
	s->running = false;
	p->n_free++;
	s->on_end(s->ctx, rc == ST_OK ? NULL : err.text);
}

void clientpool_poll(struct clientpool *p, int timeout_ms)
{
	CURLMsg *m;
	int n;

	curl_multi_poll(p->multi, NULL, 0, timeout_ms, NULL);
	curl_multi_perform(p->multi, &n);
	while ((m = curl_multi_info_read(p->multi, &n)) != NULL)
		if (m->msg == CURLMSG_DONE) clientpool_ended(p, m->easy_handle, m->data.result);
}
