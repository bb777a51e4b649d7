/* answer_chat.c - the shape of /v1/chat/completions, with vLLM's additions: reasoning under both names that clients know it by
 * (`reasoning_content`, and `reasoning` since vLLM 0.11).
 *
 * In a stream each piece is a chunk of its own, because clients look for one thing in a delta: the first chunk of a tool call brings
 * id and name, the later ones more of its arguments. */
#include "frontend/answer_lp.h"
#include "frontend/answer_openai.h"
#include "frontend/jsonout.h"

static void chat_init(struct answer *a)
{
	answer_openai_init(a, a->cfg.is_stream ? "chat.completion.chunk" : "chat.completion");
}

static void put_index(const struct answer_choice *c, struct strbuf *out)
{
	strbuf_puts(out, "{\"index\":");
	strbuf_put_u64(out, c->index);
}

static void put_string(struct strbuf *out, const char *name, const struct strbuf *text)
{
	strbuf_puts(out, name);
	jsonout_string(out, text->data, text->len);
}

/* ---- stream ---- */

static void chat_begin(struct answer *a, struct strbuf *out)
{
	uint32_t i;

	for (i = 0; i < a->cfg.n_choices; i++) {
		struct answer_choice *c = &a->choices[i];

		answer_openai_open(a, out);
		put_index(c, out);
		strbuf_puts(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
		if (c->prompt_ids.len) answer_openai_list(out, ",\"prompt_token_ids\":[", &c->prompt_ids);
		answer_openai_close(a, c, out);
	}
}

static void put_call_start(const struct piece *p, struct strbuf *out)
{
	strbuf_puts(out, "\"tool_calls\":[{\"index\":");
	strbuf_put_u64(out, p->call);
	strbuf_puts(out, ",\"id\":");
	jsonout_text(out, p->id);
	put_string(out, ",\"type\":\"function\",\"function\":{\"name\":", &p->text);
	strbuf_puts(out, ",\"arguments\":\"\"}}]");
}

static void put_call_more(const struct piece *p, struct strbuf *out)
{
	strbuf_puts(out, "\"tool_calls\":[{\"index\":");
	strbuf_put_u64(out, p->call);
	put_string(out, ",\"function\":{\"arguments\":", &p->text);
	strbuf_puts(out, "}}]");
}

static void put_delta(const struct piece *p, struct strbuf *out)
{
	switch (p->kind) {
	case PIECE_TEXT: put_string(out, "\"content\":", &p->text); break;
	case PIECE_REASONING:
		put_string(out, "\"reasoning_content\":", &p->text);
		put_string(out, ",\"reasoning\":", &p->text);
		break;
	case PIECE_CALL: put_call_start(p, out); break;
	case PIECE_ARGS: put_call_more(p, out); break;
	}
}

/* Log-probabilities and ids of a choice go with the first of its chunks that are written together. p NULL: nothing was said. */
static void put_chunk(struct answer *a, struct answer_choice *c, const struct piece *p, struct strbuf *out)
{
	answer_openai_open(a, out);
	put_index(c, out);
	strbuf_puts(out, ",\"delta\":{");
	if (p) put_delta(p, out);
	else strbuf_puts(out, "\"content\":\"\"");
	strbuf_puts(out, "},\"logprobs\":");
	answer_lp_take(a, c, out);
	strbuf_puts(out, ",\"finish_reason\":null");
	answer_openai_ids(a, c, out);
	strbuf_puts(out, "}]");
	answer_openai_close(a, c, out);
}

static void chat_delta(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	size_t i;

	if (c->said.n == 0) put_chunk(a, c, NULL, out);
	for (i = 0; i < c->said.n; i++) put_chunk(a, c, &c->said.list[i], out);
	pieces_reset(&c->said);
}

static void chat_end(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	answer_openai_open(a, out);
	put_index(c, out);
	strbuf_puts(out, ",\"delta\":{},\"logprobs\":");
	answer_lp_take(a, c, out);
	answer_openai_end(c, out);
	answer_openai_ids(a, c, out);
	strbuf_puts(out, "}]");
	answer_openai_close(a, c, out);
}

/* ---- document ---- */

static bool has_piece(const struct answer_choice *c, enum piece_kind kind)
{
	size_t i;

	for (i = 0; i < c->said.n; i++)
		if (c->said.list[i].kind == kind) return true;
	return false;
}

/* All pieces of a kind as one string. */
static void put_joined(const struct answer_choice *c, enum piece_kind kind, const char *name, struct strbuf *out)
{
	size_t i;

	strbuf_puts(out, name);
	strbuf_putc(out, '"');
	for (i = 0; i < c->said.n; i++)
		if (c->said.list[i].kind == kind) jsonout_escape(out, c->said.list[i].text.data, c->said.list[i].text.len);
	strbuf_putc(out, '"');
}

static void put_call(const struct answer_choice *c, size_t at, struct strbuf *out)
{
	const struct piece *call = &c->said.list[at];
	size_t i;

	strbuf_puts(out, "{\"id\":");
	jsonout_text(out, call->id);
	put_string(out, ",\"type\":\"function\",\"function\":{\"name\":", &call->text);
	strbuf_puts(out, ",\"arguments\":\"");
	for (i = at + 1; i < c->said.n; i++) {
		const struct piece *p = &c->said.list[i];

		if (p->kind == PIECE_ARGS && p->call == call->call) jsonout_escape(out, p->text.data, p->text.len);
	}
	strbuf_puts(out, "\"}}");
}

static void put_calls(const struct answer_choice *c, struct strbuf *out)
{
	bool first = true;
	size_t i;

	strbuf_puts(out, ",\"tool_calls\":[");
	for (i = 0; i < c->said.n; i++) {
		if (c->said.list[i].kind != PIECE_CALL) continue;
		if (!first) strbuf_putc(out, ',');
		first = false;
		put_call(c, i, out);
	}
	strbuf_putc(out, ']');
}

/* content is null where the answer is something else than text. */
static void put_message(struct answer_choice *c, struct strbuf *out)
{
	bool calls = has_piece(c, PIECE_CALL), reasons = has_piece(c, PIECE_REASONING);

	strbuf_puts(out, ",\"message\":{\"role\":\"assistant\"");
	if ((calls || reasons) && !has_piece(c, PIECE_TEXT)) strbuf_puts(out, ",\"content\":null");
	else put_joined(c, PIECE_TEXT, ",\"content\":", out);
	strbuf_puts(out, ",\"refusal\":null");
	if (reasons) {
		put_joined(c, PIECE_REASONING, ",\"reasoning_content\":", out);
		put_joined(c, PIECE_REASONING, ",\"reasoning\":", out);
	}
	if (calls) put_calls(c, out);
	strbuf_putc(out, '}');
	pieces_reset(&c->said);
}

static void put_choice(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	put_index(c, out);
	put_message(c, out);
	strbuf_puts(out, ",\"logprobs\":");
	answer_lp_take(a, c, out);
	answer_openai_end(c, out);
	answer_openai_ids(a, c, out);
	strbuf_putc(out, '}');
}

/* There is one prompt, so what is said of it is the first choice's. */
static void chat_document(struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	struct answer_choice *c = &a->choices[0];
	uint32_t i;

	answer_openai_open(a, out);
	for (i = 0; i < a->cfg.n_choices; i++) {
		if (i) strbuf_putc(out, ',');
		put_choice(a, &a->choices[i], out);
	}
	strbuf_putc(out, ']');
	answer_openai_usage(a, u, out);
	if (c->prompt_lps.len) answer_openai_list(out, ",\"prompt_logprobs\":[", &c->prompt_lps);
	if (c->prompt_ids.len) answer_openai_list(out, ",\"prompt_token_ids\":[", &c->prompt_ids);
	strbuf_putc(out, '}');
}

const struct answer_shape ANSWER_CHAT = {
	.id_prefix = "chatcmpl-",
	.init = chat_init,
	.begin = chat_begin,
	.delta = chat_delta,
	.end = chat_end,
	.finish = answer_openai_finish,
	.error = answer_openai_error,
	.document = chat_document,
};
