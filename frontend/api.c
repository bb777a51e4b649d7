/* api.c - see api.h: what several handlers need. */
#include "frontend/api.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/splitmix.h"
#include "common/utf8.h"
#include "frontend/conn.h"
#include "frontend/gen.h"
#include "frontend/jsonread.h"
#include "frontend/params.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define API_SCRATCH_MAX CONN_OUT_MAX
#define API_SCRATCH_KEEP (64 * KIB)

/* Label values of the exposition format: backslash, quote and newline are escaped. */
static char *metric_labels(const char *model)
{
	struct strbuf s;

	strbuf_init(&s, 64 * KIB);
	strbuf_puts(&s, "model_name=\"");
	for (; *model; model++) {
		if (*model == '\\' || *model == '"') strbuf_putc(&s, '\\');
		if (*model == '\n') strbuf_puts(&s, "\\n");
		else strbuf_putc(&s, *model);
	}
	strbuf_puts(&s, "\",engine=\"0\"");
	return strbuf_take(&s);
}

static bool has_name(const struct api *a, const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < a->n_names; i++)
		if (strlen(a->names[i]) == len && memcmp(a->names[i], name, len) == 0) return true;
	return false;
}

/* As answers show it: what is ill-formed is U+FFFD, because a path may be any bytes, and answers are UTF-8. */
static char *shown_name(const char *name, size_t len)
{
	struct strbuf s;
	size_t i;
	bool cut;
	int n;

	strbuf_init(&s, 64 * KIB);
	for (i = 0; i < len; i += (size_t)(n > 0 ? n : -n)) {
		n = utf8_next(name + i, len - i, &cut);
		if (n > 0) strbuf_append(&s, name + i, (size_t)n);
		else strbuf_puts(&s, UTF8_REPLACEMENT);
	}
	return strbuf_take(&s);
}

/* Blanks around a name are no part of it; a name that comes twice is shown once. */
static void add_name(struct api *a, const char *name, size_t len)
{
	char *shown;

	while (len > 0 && name[0] == ' ') name++, len--;
	while (len > 0 && name[len - 1] == ' ') len--;
	if (len == 0) return;
	if (len == 1 && name[0] == '*') {
		a->any_name = true;
		return;
	}
	shown = shown_name(name, len);
	if (has_name(a, shown, strlen(shown))) {
		free(shown);
		return;
	}
	a->names = mem_realloc(a->names, a->n_names + 1, sizeof(*a->names));
	a->names[a->n_names++] = shown;
}

static void api_init_names(struct api *a)
{
	const char *p = a->config->served_model_name;
	size_t n;

	for (; *p; p += n + (p[n] == ',')) {
		n = strcspn(p, ",");
		add_name(a, p, n);
	}
	if (a->n_names == 0) add_name(a, a->config->model, strlen(a->config->model));
}

static size_t longest_token(const struct tokenizer *t)
{
	uint32_t id, n = tokenizer_vocab_size(t);
	size_t len, longest = 1;

	for (id = 0; id < n; id++) {
		tokenizer_bytes(t, id, &len);
		longest = max_size(longest, len);
	}
	return longest;
}

void api_init(struct api *a, uint64_t now)
{
	uint64_t random[2] = {now, now};

	if (getrandom(random, sizeof(random), 0) < 0) random[0] ^= clock_now_ns(); /* ids only; nothing secret */
	a->run_id = random[0];
	/* With --seed, what a frontend draws depends on nothing else. */
	a->random = a->config->seed ? a->config->seed : random[1];
	a->now = now;
	a->created = clock_wall_s();
	a->token_bytes_max = longest_token(a->tokenizer);
	api_init_names(a);
	a->metric_labels = metric_labels(a->names[0]);
	list_init(&a->gens);
	list_init(&a->gens_due);
	list_init(&a->gens_unsaid);
	list_init(&a->embeds);
	list_init(&a->embeds_due);
	offload_init(&a->offload, a->loop);
	strbuf_init(&a->scratch, API_SCRATCH_MAX);
	if (a->tokenizer) a->work = tokenizer_work_new(a->tokenizer);
}

void api_release(struct api *a)
{
	size_t i;

	offload_release(&a->offload);
	admission_close(a);
	gens_release(a);
	for (i = 0; i < a->n_names; i++) free(a->names[i]);
	free(a->names);
	free(a->metric_labels);
	strbuf_release(&a->scratch);
	tokenizer_work_free(a->work);
}

uint64_t api_random(struct api *a)
{
	return splitmix_next(&a->random);
}

bool api_body(struct http_request *r, json_t **out)
{
	struct apierr e = {0};
	struct errbuf err;
	int rc = jsonread(out, r->body.data, r->body.len, &err);

	conn_free_body(r->conn);
	if (rc == ST_OK) return true;
	(void)apierr_set(&e, 400, NULL, "%s", err.text);
	apierr_answer(&e, r);
	return false;
}

bool api_engine_failed(const struct api *a, struct apierr *e)
{
	if (!atomic_load(&a->page->engine_failed)) return false;
	e->retry_ms = 5000;
	(void)apierr_set(e, 503, NULL, "%s", a->page->engine_failed_text);
	return true;
}

void api_refuse_preparing(struct api *a, struct apierr *e)
{
	page_count(a->slot, COUNTER_rejected_preparing, 1);
	(void)apierr_set(e, 503, NULL, "The server has as many requests to prepare as it can. Please try again.");
}

static bool api_takes_requests(const struct api *a, struct apierr *e)
{
	struct page_health h;

	if (a->draining) {
		e->retry_ms = 5000;
		return apierr_set(e, 503, NULL, "The server is shutting down.");
	}
	if (api_engine_failed(a, e)) return false;
	/* Since the engine was ready for the first time. When it is not welcome now, it is being started again, or its word to this
	 * frontend is under way: the request waits for that, as those do that were there before. */
	if (api_model_len(a) > 0) return true;
	page_health(a->page, a->now, a->heartbeat_max_ns, &h);
	return apierr_set(e, 503, NULL, "The model is not ready yet: %s, %.0f%%%s%s%s.", h.phase, h.progress * 100, h.detail[0] ? " (" : "",
			  h.detail, h.detail[0] ? ")" : "");
}

bool api_is_ready(struct api *a, struct apierr *e)
{
	if (api_takes_requests(a, e)) return true;
	page_count(a->slot, COUNTER_rejected_not_ready, 1);
	return false;
}

bool api_knows_model(const struct api *a, const char *name, size_t len, struct apierr *e)
{
	char shown[257];
	size_t i, n = min_size(len, sizeof(shown) - 1);

	if (!name || a->any_name || has_name(a, name, len)) return true;
	for (i = 0; i < n; i++) shown[i] = name[i] ? name[i] : '?'; /* a zero byte would end the message */
	shown[n] = 0;
	return apierr_set(e, 404, "model", "The model `%s` does not exist.", shown);
}

bool api_takes_priority(const struct api *a, int64_t priority, struct apierr *e)
{
	if (priority == 0 || a->config->scheduling_policy == SCHEDULING_PRIORITY) return true;
	return apierr_set(e, 400, "priority", "Got priority %lld but Priority scheduling is not enabled.", (long long)priority);
}

uint32_t api_model_len(const struct api *a)
{
	uint32_t len = lives_model_len_max(a->lives);

	return len ? len : atomic_load_explicit(&a->page->model_len_max, memory_order_relaxed);
}

void api_answer_json(struct api *a, struct http_request *r)
{
	if (a->scratch.overflow) {
		apierr_send(r, 500, NULL, "The answer is too large.");
	} else {
		http_answer(r, 200, "application/json", NULL, a->scratch.data, a->scratch.len);
	}
	if (a->scratch.cap > API_SCRATCH_KEEP) strbuf_release(&a->scratch);
	else strbuf_reset(&a->scratch);
}

bool api_token_list(const struct api *a, const char *name, const json_t *list, struct token_vec *out, struct apierr *e)
{
	uint32_t vocab = tokenizer_n_ids(a->tokenizer);
	size_t i, n = json_array_size(list);
	int64_t v;

	for (i = 0; i < n && !out->overflow; i++) {
		if (!params_whole(json_array_get(list, i), &v)) return params_wrong(e, name, "a list of token ids");
		if (v < 0 || v >= vocab)
			return apierr_set(e, 400, name, "Token id %lld is out of vocabulary (%u tokens).", (long long)v, vocab);
		token_vec_push(out, (uint32_t)v);
	}
	return true;
}
