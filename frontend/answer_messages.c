/* answer_messages.c - an answer as Anthropic's Messages API writes it: content blocks, or the events that build them.
 *
 * The pieces of the choice become blocks in order: thinking, text, tool_use. A stream says each byte once and keeps nothing; a plain
 * answer keeps the blocks until the message is written. */
#include "frontend/answer.h"

#include "common/mem.h"
#include "frontend/jsonout.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGES_PART_MAX (48 * MIB) /* of a plain answer; what is longer is no answer: messages_document() */

enum block { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_TOOL };

struct messages {
	uint32_t n_blocks;    /* begun so far */
	enum block open;      /* the block that is being written, number n_blocks - 1 */
	bool has_calls;
	struct strbuf blocks; /* plain: all so far, the open one without its end */
	struct strbuf input;  /* plain: of an open tool_use: what the model wrote as its arguments */
};

static void messages_init(struct answer *a)
{
	struct messages *s = mem_new(struct messages);

	strbuf_init(&s->blocks, MESSAGES_PART_MAX);
	strbuf_init(&s->input, MESSAGES_PART_MAX);
	a->state = s;
}

static void messages_release(struct answer *a)
{
	struct messages *s = a->state;

	strbuf_release(&s->blocks);
	strbuf_release(&s->input);
	free(s);
}

static void event_open(const char *type, struct strbuf *out)
{
	strbuf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void event_close(struct strbuf *out)
{
	strbuf_puts(out, "}\n\n");
}

/* ---- blocks ---- */

/* A call's id under the prefix that Anthropic's have. */
static void put_call_head(const struct piece *p, struct strbuf *out)
{
	strbuf_puts(out, "{\"type\":\"tool_use\",\"id\":\"toolu_");
	jsonout_escape(out, p->id + strlen("call_"), strlen(p->id) - strlen("call_"));
	strbuf_puts(out, "\",\"name\":");
	jsonout_string(out, p->text.data, p->text.len);
	strbuf_puts(out, ",\"input\":");
}

/* The input of a plain tool_use is an object: what the model wrote, unless max_tokens cut it. */
static void put_input(struct messages *s)
{
	json_t *j = json_loadb(s->input.data ? s->input.data : "", s->input.len, JSON_ALLOW_NUL, NULL);

	if (json_is_object(j)) strbuf_append(&s->blocks, s->input.data, s->input.len);
	else strbuf_puts(&s->blocks, "{}");
	json_decref(j);
	strbuf_reset(&s->input);
}

static void close_block(const struct answer *a, struct messages *s, struct strbuf *out)
{
	if (s->open == BLOCK_NONE) return;
	if (a->cfg.is_stream) {
		event_open("content_block_stop", out);
		strbuf_printf(out, ",\"index\":%u", s->n_blocks - 1);
		event_close(out);
	} else {
		if (s->open == BLOCK_TOOL) put_input(s);
		strbuf_puts(&s->blocks, s->open == BLOCK_TEXT ? "\"}" : s->open == BLOCK_THINKING ? "\",\"signature\":\"\"}" : "}");
	}
	s->open = BLOCK_NONE;
}

/* p: of a call; else NULL. */
static void open_block(const struct answer *a, struct messages *s, enum block block, const struct piece *p, struct strbuf *out)
{
	struct strbuf *to = a->cfg.is_stream ? out : &s->blocks;

	close_block(a, s, out);
	s->open = block;
	if (a->cfg.is_stream) {
		event_open("content_block_start", out);
		strbuf_printf(out, ",\"index\":%u,\"content_block\":", s->n_blocks);
	} else if (s->n_blocks) {
		strbuf_putc(to, ',');
	}
	s->n_blocks++;
	if (block == BLOCK_TOOL) put_call_head(p, to);
	else strbuf_puts(to, block == BLOCK_TEXT ? "{\"type\":\"text\",\"text\":\"" : "{\"type\":\"thinking\",\"thinking\":\"");
	if (!a->cfg.is_stream) return;
	strbuf_puts(out, block == BLOCK_TOOL ? "{}}" : block == BLOCK_TEXT ? "\"}" : "\",\"signature\":\"\"}");
	event_close(out);
}

/* More of the open block. */
static void say(const struct answer *a, struct messages *s, const struct piece *p, struct strbuf *out)
{
	static const char *const deltas[] = {
		"",
		"{\"type\":\"text_delta\",\"text\":",
		"{\"type\":\"thinking_delta\",\"thinking\":",
		"{\"type\":\"input_json_delta\",\"partial_json\":",
	};

	if (a->cfg.is_stream) {
		event_open("content_block_delta", out);
		strbuf_printf(out, ",\"index\":%u,\"delta\":%s", s->n_blocks - 1, deltas[s->open]);
		jsonout_string(out, p->text.data, p->text.len);
		strbuf_putc(out, '}');
		event_close(out);
	} else if (s->open == BLOCK_TOOL) {
		strbuf_append(&s->input, p->text.data, p->text.len);
	} else {
		jsonout_escape(&s->blocks, p->text.data, p->text.len);
	}
}

static void put_piece(const struct answer *a, struct messages *s, const struct piece *p, struct strbuf *out)
{
	enum block block = p->kind == PIECE_TEXT ? BLOCK_TEXT : BLOCK_THINKING;

	if (p->kind == PIECE_CALL) {
		s->has_calls = true;
		open_block(a, s, BLOCK_TOOL, p, out);
		return;
	}
	if (p->kind == PIECE_ARGS) block = BLOCK_TOOL; /* is open: nothing comes between a call and its arguments */
	else if (s->open != block) open_block(a, s, block, NULL, out);
	if (p->text.len && s->open == block) say(a, s, p, out);
}

/* ---- the message ---- */

static void put_head(const struct answer *a, struct strbuf *out)
{
	strbuf_puts(out, "{\"id\":");
	jsonout_text(out, a->id);
	strbuf_puts(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
	jsonout_text(out, a->model);
	strbuf_puts(out, ",\"content\":[");
}

/* A call is waited for even when it was demanded, which OpenAI calls a plain stop; not when something cut it off. */
static const char *stop_reason(const struct messages *s, const struct answer_end *end)
{
	if (strcmp(end->finish, "length") == 0) return "max_tokens";
	if (end->stop_text) return "stop_sequence";
	return s->has_calls ? "tool_use" : "end_turn";
}

static void put_stop(const struct answer *a, struct strbuf *out)
{
	const struct answer_end *end = &a->choices[0].end;

	strbuf_puts(out, "\"stop_reason\":");
	jsonout_text(out, stop_reason(a->state, end));
	strbuf_puts(out, ",\"stop_sequence\":");
	if (end->stop_text) jsonout_string(out, end->stop_text, end->stop_text_len);
	else strbuf_puts(out, "null");
}

static void put_number(const char *name, uint64_t n, struct strbuf *out)
{
	strbuf_puts(out, name);
	strbuf_put_u64(out, n);
}

/* input_tokens are those that were read anew: Anthropic counts cached ones apart. */
static void put_usage(const struct answer_usage *u, struct strbuf *out)
{
	put_number(",\"usage\":{\"input_tokens\":", u->n_prompt - u->n_cached, out);
	put_number(",\"cache_creation_input_tokens\":", 0, out);
	put_number(",\"cache_read_input_tokens\":", u->n_cached, out);
	put_number(",\"output_tokens\":", u->n_output, out);
	put_number(",\"output_tokens_details\":{\"thinking_tokens\":", u->n_reasoning, out);
	strbuf_puts(out, "}}");
}

/* ---- the shape ---- */

static void messages_begin(struct answer *a, struct strbuf *out)
{
	struct answer_usage usage = {.n_prompt = a->choices[0].n_prompt};

	event_open("message_start", out);
	strbuf_puts(out, ",\"message\":");
	put_head(a, out);
	strbuf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null");
	put_usage(&usage, out); /* what was cached is known, and said, at the end */
	strbuf_putc(out, '}');
	event_close(out);
}

static void messages_delta(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	struct messages *s = a->state;
	size_t i;

	for (i = 0; i < c->said.n; i++) put_piece(a, s, &c->said.list[i], out);
	pieces_reset(&c->said);
	strbuf_reset(&c->ids);
	strbuf_reset(&c->lp[0]);
}

static void messages_end(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	struct messages *s = a->state;

	messages_delta(a, c, out);
	/* Clients look into the first block without asking whether there is one. */
	if (s->n_blocks == 0) open_block(a, s, BLOCK_TEXT, NULL, out);
	close_block(a, s, out);
}

static void messages_finish(struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	event_open("message_delta", out);
	strbuf_puts(out, ",\"delta\":{");
	put_stop(a, out);
	strbuf_putc(out, '}');
	put_usage(u, out);
	event_close(out);
	event_open("message_stop", out);
	event_close(out);
}

static void messages_error(struct answer *a, const struct apierr *e, struct strbuf *out)
{
	strbuf_puts(out, "event: error\ndata: ");
	apierr_render_anthropic(e, out);
	strbuf_puts(out, "\n\n");
}

static void messages_document(struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	struct messages *s = a->state;

	messages_end(a, &a->choices[0], out);
	put_head(a, out);
	strbuf_append(out, s->blocks.data, s->blocks.len);
	strbuf_puts(out, "],");
	put_stop(a, out);
	put_usage(u, out);
	strbuf_putc(out, '}');
	out->overflow |= s->blocks.overflow || s->input.overflow;
}

const struct answer_shape ANSWER_MESSAGES = {
	.id_prefix = "msg_",
	.init = messages_init,
	.release = messages_release,
	.begin = messages_begin,
	.delta = messages_delta,
	.end = messages_end,
	.finish = messages_finish,
	.error = messages_error,
	.document = messages_document,
};
