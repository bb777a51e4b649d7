/* api_chat.c - POST /v1/chat/completions: messages, rendered by the model's own template.
 *
 * Messages are checked here, so that what a template cannot know gets a 400 that names the place. Control tokens are recognised in
 * the template's own text only (chat_encode()). */
#include "frontend/api.h"

#include "common/clock.h"
#include "frontend/chat.h"
#include "frontend/gen.h"
#include "frontend/params.h"

#include <stdio.h>
#include <string.h>

#define CHAT_MESSAGES_MAX 16384

/* One part of a content list. Only text for now; where names it in errors. */
static bool check_part(const json_t *part, const char *where, struct apierr *e)
{
	static const char *const later[] = {"image_url", "input_image", "image", "input_audio", "audio_url", "video_url", "file", "refusal"};
	const char *type = json_string_value(json_object_get(part, "type"));
	size_t i;

	if (!json_is_object(part) || !type) return apierr_set(e, 400, where, "`%s` must be an object with a `type`.", where);
	if (strcmp(type, "text") == 0) {
		if (json_is_string(json_object_get(part, "text"))) return true;
		return apierr_set(e, 400, where, "`%s.text` must be a string.", where);
	}
	for (i = 0; i < ARRAY_LEN(later); i++)
		if (strcmp(type, later[i]) == 0) return apierr_set(e, 400, where, "`%s` of type `%s` is not supported yet.", where, type);
	return apierr_set(e, 400, where, "`%s.type` must be `text`.", where);
}

/* null and nothing at all are allowed where the assistant called tools instead of speaking, or said nothing. */
static bool check_content(json_t *m, const char *role, size_t ix, struct apierr *e)
{
	json_t *content = json_object_get(m, "content");
	bool is_assistant = strcmp(role, "assistant") == 0;
	char where[48];
	size_t i;

	if (json_is_string(content)) return true;
	if (is_assistant && (json_is_null(content) || (!content && json_is_array(json_object_get(m, "tool_calls")))))
		return json_object_set_new(m, "content", json_string("")) == 0;
	if (!json_is_array(content) || json_array_size(content) == 0) {
		snprintf(where, sizeof(where), "messages[%zu].content", ix);
		return apierr_set(e, 400, where, "`%s` must be a string or a list of parts, not empty.", where);
	}
	for (i = 0; i < json_array_size(content); i++) {
		snprintf(where, sizeof(where), "messages[%zu].content[%zu]", ix, i);
		if (!check_part(json_array_get(content, i), where, e)) return false;
	}
	return true;
}

static bool check_message(json_t *m, size_t ix, struct apierr *e)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool"};
	char where[48];
	const char *role;
	size_t i;

	snprintf(where, sizeof(where), "messages[%zu]", ix);
	if (!json_is_object(m)) return apierr_set(e, 400, where, "`%s` must be an object.", where);
	snprintf(where, sizeof(where), "messages[%zu].role", ix);
	role = json_string_value(json_object_get(m, "role"));
	if (role && strcmp(role, "developer") == 0) {
		role = "system"; /* OpenAI's newer name for it; templates know the older one */
		if (json_object_set_new(m, "role", json_string(role)) != 0) role = NULL;
	}
	for (i = 0; role && i < ARRAY_LEN(roles); i++)
		if (strcmp(role, roles[i]) == 0) return check_content(m, role, ix, e);
	return apierr_set(e, 400, where, "`%s` must be `system`, `developer`, `user`, `assistant` or `tool`.", where);
}

/* A checked copy; the copy is shallow, changed messages are new objects. NULL: e is set. */
static json_t *checked_messages(const json_t *messages, struct apierr *e)
{
	size_t i, n = json_array_size(messages);
	json_t *copy;

	if (!json_is_array(messages) || n == 0) {
		(void)apierr_set(e, 400, "messages", "`messages` must be a list of messages, not empty.");
		return NULL;
	}
	if (n > CHAT_MESSAGES_MAX) {
		(void)apierr_set(e, 400, "messages", "`messages` holds more than %d messages.", CHAT_MESSAGES_MAX);
		return NULL;
	}
	copy = json_array();
	for (i = 0; i < n; i++) {
		json_t *given = json_array_get(messages, i);
		json_t *m = json_is_object(given) ? json_copy(given) : json_incref(given);

		if (json_array_append_new(copy, m) == 0 && check_message(m, i, e)) continue;
		json_decref(copy);
		return NULL;
	}
	return copy;
}

bool api_chat_prompt(struct api *a, const json_t *body, bool add_generation_prompt, size_t text_max, struct token_vec *out,
		     struct apierr *e)
{
	struct chat_request rq = {.add_generation_prompt = add_generation_prompt, .now_s = clock_wall_s()};
	struct jinja_out rendered;
	struct errbuf err = {{0}};
	bool raised;
	int rc;

	rq.messages = checked_messages(json_object_get(body, "messages"), e);
	if (!rq.messages) return false;
	jinja_out_init(&rendered);
	rc = chat_render(a->chat, &rq, &rendered, &raised, &err);
	if (rc == ST_OK && rendered.text.len > text_max)
		rc = err_set(&err, ST_LIMIT, "`messages` become a text of %zu bytes; at most %zu are allowed here.", rendered.text.len, text_max);
	if (rc == ST_OK && api_text_may_fit(a, rendered.text.len, out)) chat_encode(a->tokenizer, &rendered, out);
	if (rc != ST_OK) (void)apierr_set(e, 400, "messages", "%s", err.text);
	jinja_out_release(&rendered);
	json_decref(rq.messages);
	return rc == ST_OK;
}

static bool read_prompt(struct api *a, const json_t *body, const struct params *p, struct token_vec *out, struct apierr *e)
{
	return api_chat_prompt(a, body, p->add_generation_prompt, SIZE_MAX, out, e);
}

void api_chat(struct api *a, struct http_request *r)
{
	gen_serve(a, r, PARAMS_CHAT, read_prompt);
}
