/* shapetest.c - see shapetest.h. */
#include "tests/support/shapetest.h"

#include "common/mem.h"
#include "tests/support/translation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *const token_texts[] = {"Hi", " you", "!"};

static const char *token_bytes(void *ctx, uint32_t id, size_t *len)
{
	*len = strlen(token_texts[id]);
	return token_texts[id];
}

void shapetest_init(struct shapetest *t, const struct answer_shape *shape, bool is_stream, int n_logprobs, const char *request)
{
	json_t *body = request ? translation_json(request) : json_object();
	struct answer_config cfg = {
		.shape = shape,
		.is_stream = is_stream,
		.n_logprobs = n_logprobs,
		.n_prompt_logprobs = -1,
		.id = "x",
		.model = "m",
		.created = 17,
		.n_choices = 1,
		.request = body,
		.token_bytes = token_bytes,
	};
	char id[64] = "";

	strcat(strcat(id, shape->id_prefix), "abc");
	cfg.id = id;
	strbuf_init(&t->out, MIB);
	answer_init(&t->answer, &cfg);
	json_decref(body);
	t->answer.choices[0].n_prompt = 10;
	if (is_stream) shape->begin(&t->answer, &t->out);
}

void shapetest_release(struct shapetest *t)
{
	answer_release(&t->answer);
	strbuf_release(&t->out);
}

void shapetest_say(struct shapetest *t, char kind, const char *text)
{
	struct answer_choice *c = &t->answer.choices[0];
	size_t len = strlen(text);

	if (kind == 'T') pieces_text(&c->said, text, len);
	if (kind == 'R') pieces_reasoning(&c->said, text, len);
	if (kind == 'C') assert_true(pieces_call(&c->said, text, len, 7));
	if (kind == 'A') pieces_args(&c->said, text, len);
	if (t->answer.cfg.is_stream && answer_has_delta(&t->answer, c)) t->answer.cfg.shape->delta(&t->answer, c, &t->out);
}

void shapetest_token(struct shapetest *t, uint32_t id)
{
	static const float lps[] = {-0.5f, -0.25f};
	uint32_t ids[] = {id, 0};
	struct live_token token = {.id = id, .n_top = 2, .top_ids = view_of(ids, 2), .top_logprobs = view_of(lps, 2)};

	answer_token(&t->answer, &t->answer.choices[0], &token);
}

void shapetest_end(struct shapetest *t, const char *finish)
{
	static const struct answer_usage usage = {.n_prompt = 10, .n_output = 3, .n_cached = 4, .n_reasoning = 2};
	struct answer_choice *c = &t->answer.choices[0];
	bool by_text = strcmp(finish, "stop!") == 0;

	c->ended = true;
	c->end = (struct answer_end){.finish = by_text ? "stop" : finish, .stop_text = by_text ? "E\"D" : NULL, .stop_text_len = by_text ? 3 : 0, .stop_id = -1};
	if (!t->answer.cfg.is_stream) {
		t->answer.cfg.shape->document(&t->answer, &usage, &t->out);
		return;
	}
	t->answer.cfg.shape->end(&t->answer, c, &t->out);
	t->answer.cfg.shape->finish(&t->answer, &usage, &t->out);
}

/* Makes what is random in calls' ids known. */
static char *normalized(const struct strbuf *out)
{
	static const char *const prefixes[] = {":\"call_", ":\"toolu_"};
	char *s = mem_strdup(out->data ? out->data : ""), *p;
	size_t i;

	for (i = 0; i < ARRAY_LEN(prefixes); i++) {
		for (p = s; (p = strstr(p, prefixes[i]));) {
			p += strlen(prefixes[i]);
			if (strlen(p) < 24 || p[24] != '"') fail_msg("a call's id: %s", p);
			memcpy(p, "ID", 2);
			memmove(p + 2, p + 24, strlen(p + 24) + 1);
		}
	}
	return s;
}

void shapetest_expect(struct shapetest *t, const char *want)
{
	char *got = normalized(&t->out), *p, *s = mem_strdup(want);

	for (p = s; *p; p++)
		if (*p == '\'') *p = '"';
	assert_string_equal(got, s);
	strbuf_reset(&t->out);
	free(got);
	free(s);
}

json_t *shapetest_document(struct shapetest *t)
{
	json_error_t err;
	json_t *j = json_loadb(t->out.data, t->out.len, JSON_REJECT_DUPLICATES, &err);

	if (!j) fail_msg("not JSON (%s): %s", err.text, t->out.data);
	strbuf_reset(&t->out);
	return j;
}
