/* api_models.c - GET /v1/models and /v1/models/{id}. */
#include "frontend/api.h"
#include "frontend/jsonout.h"

#include <string.h>

static void put_model(const struct api *a, const char *name, struct strbuf *out)
{
	strbuf_puts(out, "{\"id\":");
	jsonout_text(out, name);
	strbuf_puts(out, ",\"object\":\"model\",\"created\":");
	strbuf_put_u64(out, (uint64_t)a->created);
	strbuf_puts(out, ",\"owned_by\":\"sluice\",\"root\":");
	jsonout_text(out, a->config->model);
	strbuf_puts(out, ",\"parent\":null,\"max_model_len\":");
	if (api_model_len(a)) strbuf_put_u64(out, api_model_len(a));
	else strbuf_puts(out, "null"); /* while loading */
	strbuf_puts(out, ",\"permission\":[]}");
}

void api_models(struct api *a, struct http_request *r)
{
	size_t i;

	strbuf_puts(&a->scratch, "{\"object\":\"list\",\"data\":[");
	for (i = 0; i < a->n_names; i++) {
		if (i) strbuf_putc(&a->scratch, ',');
		put_model(a, a->names[i], &a->scratch);
	}
	strbuf_puts(&a->scratch, "]}");
	api_answer_json(a, r);
}

void api_model(struct api *a, struct http_request *r)
{
	const char *given = r->path + strlen("/v1/models/");
	struct apierr e = {0};
	struct strbuf name;
	size_t n;

	strbuf_init(&name, 64 * KIB);
	strbuf_puts(&name, given);
	n = name.data ? http_percent_decode(name.data, name.len) : 0;
	if (name.data) name.data[n] = 0;
	if (api_knows_model(a, name.data ? name.data : "", n, &e)) {
		put_model(a, name.data, &a->scratch);
		api_answer_json(a, r);
	} else {
		apierr_answer(&e, r);
	}
	strbuf_release(&name);
}
