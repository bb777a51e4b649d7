/* box.c - see box.h. */
#include "tests/support/box.h"

#include "common/mem.h"
#include "frontend/chat.h"
#include "frontend/embed.h"
#include "frontend/gen.h"
#include "frontend/owner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct tokenizer *box_tokenizer;

static void keep(uint32_t *to, size_t max, struct view v)
{
	uint32_t i;

	assert_true(v.n <= max);
	for (i = 0; i < v.n; i++) to[i] = col_u32(v, i);
}

static int on_send(void *ctx, const struct msg *m)
{
	struct box *b = ctx;
	struct box_order *o;
	uint32_t i;

	if (m->type == MSG_cancel) b->n_cancels++;
	if (m->type != MSG_submit) return ST_OK;
	b->n_submits++;
	assert_true(b->n_orders < BOX_REQUESTS);
	o = &b->orders[b->n_orders++];
	*o = (struct box_order){.m = m->submit, .n_prompt_known = m->submit.n_prompt_known};
	keep(o->tokens, BOX_LEN_MAX, m->submit.tokens);
	keep(o->stop_ids, LIMIT_STOP_IDS, m->submit.stop_ids);
	keep(o->bias_ids, BOX_BIAS, m->submit.bias_ids);
	keep(o->allowed_ids, BOX_BIAS, m->submit.allowed_ids);
	for (i = 0; i < m->submit.bias_values.n; i++) o->bias_values[i] = col_f32(m->submit.bias_values, i);
	b->order = *o;
	return ST_OK;
}

void box_pass(struct box *b)
{
	const char *out;
	size_t n;

	lives_step(b->lives, b->now);
	admission_step(&b->api, b->now);
	gens_step(&b->api, b->now);
	embeds_step(&b->api, b->now);
	conn_pump(b->conn, b->now);
	lives_step(b->lives, b->now);
	while (b->reads && (n = conn_output(b->conn, &out)) > 0) {
		strbuf_append(&b->in, out, n);
		conn_sent(b->conn, n, b->now);
	}
	gens_step(&b->api, b->now);
	embeds_step(&b->api, b->now);
}

void box_welcome(struct box *b)
{
	struct msg m = {.type = MSG_welcome, .welcome = {PROTO_VERSION, BOX_EPOCH, BOX_LEN_MAX, 100}};

	b->api.now = b->now;
	lives_on_message(b->lives, &m, b->now);
}

/* Columns of log-probabilities of some tokens. */
struct columns {
	uint32_t n, n_top[BOX_LEN_MAX], ranks[BOX_LEN_MAX], ids[BOX_LEN_MAX * 21];
	float logprobs[BOX_LEN_MAX * 21];
	size_t n_entries;
};

static void push(struct columns *c, uint32_t token, float logprob, uint32_t n_top)
{
	uint32_t i;

	c->n_top[c->n] = n_top;
	c->ranks[c->n++] = 1;
	for (i = 0; i < n_top; i++) {
		c->ids[c->n_entries] = i ? 9 + i : token;
		c->logprobs[c->n_entries++] = i ? -(float)i : logprob;
	}
}

static void put_tokens(struct msg_results *r, const struct columns *c, const uint32_t *token)
{
	r->tokens = view_of(token, c->n);
	r->n_top = view_of(c->n_top, c->n);
	r->ranks = view_of(c->ranks, c->n);
	r->top_ids = view_of(c->ids, c->n_entries);
	r->top_logprobs = view_of(c->logprobs, c->n_entries);
}

static void put_prompt(struct msg_results *r, const struct columns *c, const uint32_t *start)
{
	r->prompt_starts = view_of(start, 1);
	r->n_prompt_tokens = view_of(&c->n, 1);
	r->prompt_n_top = view_of(c->n_top, c->n);
	r->prompt_ranks = view_of(c->ranks, c->n);
	r->prompt_top_ids = view_of(c->ids, c->n_entries);
	r->prompt_top_logprobs = view_of(c->logprobs, c->n_entries);
}

void box_give_to(struct box *b, int ix, uint32_t token, enum finish finish)
{
	static struct columns output, prompt;
	struct box_order *o = &b->orders[ix];
	uint32_t end = (uint32_t)finish, cached = 2, start = o->n_prompt_known, i;
	struct msg m = {.type = MSG_results};
	struct msg_results *r = &m.results;

	assert_true(ix < b->n_orders);
	output.n = prompt.n = 0;
	output.n_entries = prompt.n_entries = 0;
	if (token != TOKEN_NONE) push(&output, token, b->logprob, o->m.n_logprobs);
	for (i = start; o->m.n_prompt_logprobs && i < o->m.n_prompt; i++) push(&prompt, o->tokens[i], b->logprob, o->m.n_prompt_logprobs);
	r->epoch = BOX_EPOCH;
	r->client_ids = view_of(&o->m.client_id, 1);
	r->attempts = view_of(&o->m.attempt, 1);
	r->positions = view_of(&o->position, 1);
	r->n_tokens = view_of(&output.n, 1);
	r->finishes = view_of(&end, 1);
	r->n_cached = view_of(&cached, 1);
	put_tokens(r, &output, &token);
	if (prompt.n) put_prompt(r, &prompt, &start);
	b->now += NS_PER_MS;
	b->api.now = b->now;
	lives_on_message(b->lives, &m, b->now);
	o->position += output.n;
	o->n_prompt_known += prompt.n;
	box_pass(b);
}

void box_give(struct box *b, uint32_t token, enum finish finish)
{
	box_give_to(b, b->n_orders - 1, token, finish);
}

void box_give_text_to(struct box *b, int ix, const char *text)
{
	struct token_vec ids;
	size_t i;

	token_vec_init(&ids, BOX_LEN_MAX);
	tokenizer_encode(box_tokenizer, text, strlen(text), false, &ids);
	for (i = 0; i < ids.len; i++) box_give_to(b, ix, ids.ids[i], FINISH_NONE);
	token_vec_release(&ids);
}

void box_give_text(struct box *b, const char *text)
{
	box_give_text_to(b, b->n_orders - 1, text);
}

void box_refuse(struct box *b, enum refusal reason, const char *text)
{
	struct msg m = {.type = MSG_refused,
			.refused = {BOX_EPOCH, b->order.m.client_id, b->order.m.attempt, (uint32_t)reason, view_text(text)}};

	lives_on_message(b->lives, &m, b->now);
	box_pass(b);
}

static void on_dirty(void *edge)
{
	(void)edge;
}

void box_open(struct box *b, bool is_welcome)
{
	static const char template[] = "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
				       "{% if messages|length > 3 %}{{ raise_exception('Too many turns.') }}{% endif %}"
				       "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
	struct lives_config cfg = {.silence_ns = 3600 * NS_PER_S, .hello_ns = NS_PER_S, .requests_max = BOX_REQUESTS};
	struct lives_out out = {.ctx = b, .send = on_send, .on_token = owner_on_token, .on_accepted = owner_on_accepted, .on_end = owner_on_end,
				.on_prompt_token = owner_on_prompt_token, .on_embedding = owner_on_embedding};
	struct errbuf err;

	memset(b, 0, sizeof(*b));
	b->now = NS_PER_S;
	b->reads = true;
	b->logprob = -0.5f;
	config_init(&b->config);
	assert_int_equal(config_set(&b->config, "served-model-name", "m,second", &err), ST_OK);
	b->page = mem_new(struct page);
	page_format(b->page, 1, 1);
	b->lives = lives_new(&cfg, &out);
	b->api = (struct api){.config = &b->config, .page = b->page, .slot = &b->page->frontends[0], .tokenizer = box_tokenizer,
			      .lives = b->lives, .heartbeat_max_ns = NS_PER_S};
	assert_int_equal(chat_new(&b->api.chat, template, sizeof(template) - 1, NULL, &err), ST_OK);
	api_init(&b->api, b->now);
	admission_open(&b->api, &b->page->governor, 0);
	b->host = (struct conn_host){.head_max = 4096, .body_max = MIB, .bodies_max = MIB, .request_ns = 3600 * NS_PER_S,
				     .keep_alive_ns = 3600 * NS_PER_S, .write_ns = 3600 * NS_PER_S, .allow_origin = "*", .ctx = &b->api,
				     .on_head = api_on_head, .on_request = api_on_request, .on_answered = api_on_answered,
				     .on_ended = api_on_ended, .on_dirty = on_dirty};
	b->conn = conn_new(&b->host, b, b->now);
	strbuf_init(&b->in, 16 * MIB);
	lives_on_epoch(b->lives, BOX_EPOCH, b->now);
	lives_step(b->lives, b->now); /* hello */
	if (is_welcome) box_welcome(b);
}

void box_close(struct box *b)
{
	conn_free(b->conn);
	assert_int_equal(b->api.gens.len, 0);
	lives_check(b->lives);
	api_release(&b->api);
	lives_free(b->lives);
	chat_free(b->api.chat);
	config_release(&b->config);
	strbuf_release(&b->in);
	free(b->page);
}

void box_post(struct box *b, const char *path, const char *body)
{
	box_post_with(b, path, "", body);
}

void box_post_with(struct box *b, const char *path, const char *headers, const char *body)
{
	char *text = mem_zalloc(1, strlen(body) + strlen(headers) + 512);

	strbuf_reset(&b->in);
	b->n_orders = 0;
	sprintf(text, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n%s", path, headers, strlen(body), body);
	conn_input(b->conn, text, strlen(text), b->now);
	box_pass(b);
	free(text);
}

int box_status(const struct box *b)
{
	return b->in.len > 12 ? atoi(b->in.data + 9) : 0;
}

const char *box_body(const struct box *b)
{
	const char *p = b->in.data ? strstr(b->in.data, "\r\n\r\n") : NULL;

	return p ? p + 4 : "";
}

json_t *box_json(const struct box *b)
{
	json_t *j = json_loads(box_body(b), 0, NULL);

	if (!j) fail_msg("no JSON: %s", b->in.data);
	return j;
}
