/* answer_responses.c - an answer as OpenAI's Responses API writes it: output items, or the events that build them.
 *
 * The pieces of the choice become items in order: reasoning, messages, function calls. What is finished is kept as JSON, because the last
 * event repeats all of it; the open item's text is kept escaped, because its closing events repeat that. A plain answer goes the same way
 * with the events left out.
 *
 * What is repeated is bounded, because the end of a stream is written whether the client reads or not: of an item with more than
 * RESPONSES_REPEAT_MAX bytes, which is millions of tokens, the closing events repeat no text, and of log-probabilities only as many as fit. */
#include "frontend/answer.h"

#include "common/mem.h"
#include "frontend/jsonout.h"
#include "frontend/respobject.h"

#include <stdlib.h>
#include <string.h>

#define RESPONSES_PART_MAX (48 * MIB)    /* of a plain answer; what is longer is no answer: responses_document() */
#define RESPONSES_REPEAT_MAX (6 * MIB)   /* of a stream: four times this, of text and of entries, stays below CONN_OUT_MAX */

enum item { ITEM_NONE, ITEM_TEXT, ITEM_REASONING, ITEM_CALL };

struct responses {
	uint64_t sequence;       /* number of the next event */
	uint32_t n_items;        /* begun so far */
	enum item open;          /* the item that is being written, number n_items - 1 */
	struct strbuf items;     /* the finished ones, joined by commas */
	struct strbuf said;      /* of the open item: text or arguments, escaped */
	struct strbuf call;      /* of an open call: its id and name as JSON members */
	struct strbuf logprobs;  /* of an open message: entries, joined by commas */
	struct strbuf unwritten; /* entries whose text has not come yet */
	struct strbuf echo;      /* what every response object repeats of the request */
	bool is_short;           /* an item's text did not fit */
};

static void responses_init(struct answer *a)
{
	size_t max = a->cfg.is_stream ? RESPONSES_REPEAT_MAX : RESPONSES_PART_MAX;
	struct responses *s = mem_new(struct responses);

	strbuf_init(&s->items, 2 * max);
	strbuf_init(&s->said, max);
	strbuf_init(&s->call, 64 * KIB);
	strbuf_init(&s->logprobs, max);
	strbuf_init(&s->unwritten, RESPONSES_PART_MAX);
	strbuf_init(&s->echo, RESPONSES_PART_MAX);
	respobject_echo(a->cfg.request, a->cfg.defaults, &s->echo);
	a->state = s;
}

static void responses_release(struct answer *a)
{
	struct responses *s = a->state;

	strbuf_release(&s->items);
	strbuf_release(&s->said);
	strbuf_release(&s->call);
	strbuf_release(&s->logprobs);
	strbuf_release(&s->unwritten);
	strbuf_release(&s->echo);
	free(s);
}

/* ---- events ---- */

static void event_open(struct responses *s, const char *type, struct strbuf *out)
{
	strbuf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":", type, type);
	strbuf_put_u64(out, s->sequence++);
}

static void event_close(struct strbuf *out)
{
	strbuf_puts(out, "}\n\n");
}

/* A name and a string whose inside is escaped already. */
static void put_escaped(struct strbuf *out, const char *name, const struct strbuf *inside)
{
	strbuf_printf(out, "\"%s\":\"", name);
	if (!inside->overflow) strbuf_append(out, inside->data, inside->len);
	strbuf_putc(out, '"');
}

static void put_item_id(const struct answer *a, const struct responses *s, struct strbuf *out)
{
	static const char *const prefixes[] = {"", "msg_", "rs_", "fc_"};

	/* The answer's own number is as unique as it gets; what follows tells its items apart. */
	strbuf_printf(out, "\"%s%s%02x\"", prefixes[s->open], a->id + strlen(a->cfg.shape->id_prefix), s->n_items - 1);
}

/* An event about the open item. */
static void item_event_open(const struct answer *a, struct responses *s, const char *type, struct strbuf *out)
{
	event_open(s, type, out);
	strbuf_puts(out, ",\"item_id\":");
	put_item_id(a, s, out);
	strbuf_printf(out, ",\"output_index\":%u", s->n_items - 1);
	if (s->open != ITEM_CALL) strbuf_puts(out, ",\"content_index\":0");
}

static void put_logprobs(const struct strbuf *entries, struct strbuf *out)
{
	strbuf_puts(out, "\"logprobs\":[");
	strbuf_append(out, entries->data, entries->len);
	strbuf_putc(out, ']');
}

/* ---- items ---- */

static void put_part(const struct responses *s, struct strbuf *out)
{
	if (s->open == ITEM_TEXT) {
		strbuf_puts(out, "{\"type\":\"output_text\",\"annotations\":[],");
		put_logprobs(&s->logprobs, out);
		strbuf_putc(out, ',');
	} else {
		strbuf_puts(out, "{\"type\":\"reasoning_text\",");
	}
	put_escaped(out, "text", &s->said);
	strbuf_putc(out, '}');
}

/* status NULL: it begins, with nothing in it. */
static void put_item(const struct answer *a, const struct responses *s, const char *status, struct strbuf *out)
{
	static const char *const types[] = {"", "message", "reasoning", "function_call"};

	strbuf_puts(out, "{\"id\":");
	put_item_id(a, s, out);
	strbuf_printf(out, ",\"type\":\"%s\",\"status\":\"%s\"", types[s->open], status ? status : "in_progress");
	if (s->open == ITEM_CALL) {
		strbuf_append(out, s->call.data, s->call.len);
		strbuf_putc(out, ',');
		put_escaped(out, "arguments", &s->said);
	} else {
		strbuf_puts(out, s->open == ITEM_TEXT ? ",\"role\":\"assistant\",\"content\":[" : ",\"summary\":[],\"content\":[");
		if (status) put_part(s, out);
		strbuf_putc(out, ']');
	}
	strbuf_putc(out, '}');
}

static void put_item_event(const struct answer *a, struct responses *s, const char *type, const char *status, struct strbuf *out)
{
	event_open(s, type, out);
	strbuf_printf(out, ",\"output_index\":%u,\"item\":", s->n_items - 1);
	put_item(a, s, status, out);
	event_close(out);
}

static void put_part_event(const struct answer *a, struct responses *s, const char *type, struct strbuf *out)
{
	if (s->open == ITEM_CALL) return;
	item_event_open(a, s, type, out);
	strbuf_puts(out, ",\"part\":");
	put_part(s, out);
	event_close(out);
}

/* The event that says the whole text, or all arguments, of the open item. */
static void put_said_event(const struct answer *a, struct responses *s, struct strbuf *out)
{
	static const char *const types[] = {"", "response.output_text.done", "response.reasoning_text.done", "response.function_call_arguments.done"};

	item_event_open(a, s, types[s->open], out);
	if (s->open == ITEM_CALL) strbuf_append(out, s->call.data, s->call.len);
	strbuf_putc(out, ',');
	put_escaped(out, s->open == ITEM_CALL ? "arguments" : "text", &s->said);
	if (s->open == ITEM_TEXT) {
		strbuf_putc(out, ',');
		put_logprobs(&s->logprobs, out);
	}
	event_close(out);
}

/* Entries of all tokens, as in a chat's answer: those of thoughts and calls stand with the next text. */
static void take_logprobs(struct responses *s)
{
	if (s->open != ITEM_TEXT || s->unwritten.len == 0) return;
	if (s->unwritten.len < s->logprobs.len_max - s->logprobs.len) {
		if (s->logprobs.len) strbuf_putc(&s->logprobs, ',');
		strbuf_append(&s->logprobs, s->unwritten.data, s->unwritten.len);
	}
	strbuf_reset(&s->unwritten);
}

static void close_item(const struct answer *a, struct responses *s, const char *status, struct strbuf *out)
{
	if (s->open == ITEM_NONE) return;
	take_logprobs(s);
	if (a->cfg.is_stream) {
		put_said_event(a, s, out);
		put_part_event(a, s, "response.content_part.done", out);
		put_item_event(a, s, "response.output_item.done", status, out);
	}
	if (s->items.len) strbuf_putc(&s->items, ',');
	put_item(a, s, status, &s->items);
	s->is_short |= s->said.overflow || s->items.overflow;
	s->open = ITEM_NONE;
}

static void open_item(const struct answer *a, struct responses *s, enum item item, struct strbuf *out)
{
	close_item(a, s, "completed", out);
	s->open = item;
	s->n_items++;
	strbuf_reset(&s->said);
	strbuf_reset(&s->logprobs);
	if (!a->cfg.is_stream) return;
	put_item_event(a, s, "response.output_item.added", NULL, out);
	put_part_event(a, s, "response.content_part.added", out);
}

static void open_call(const struct answer *a, struct responses *s, const struct piece *p, struct strbuf *out)
{
	close_item(a, s, "completed", out);
	strbuf_reset(&s->call);
	strbuf_puts(&s->call, ",\"call_id\":");
	jsonout_text(&s->call, p->id);
	strbuf_puts(&s->call, ",\"name\":");
	jsonout_string(&s->call, p->text.data, p->text.len);
	open_item(a, s, ITEM_CALL, out);
}

/* More of the open item. */
static void say(const struct answer *a, struct responses *s, const struct piece *p, struct strbuf *out)
{
	static const char *const types[] = {"", "response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta"};
	size_t at;

	if (!a->cfg.is_stream) {
		jsonout_escape(&s->said, p->text.data, p->text.len);
	} else {
		item_event_open(a, s, types[s->open], out);
		strbuf_puts(out, ",\"delta\":\"");
		at = out->len;
		jsonout_escape(out, p->text.data, p->text.len);
		strbuf_append(&s->said, out->data + at, out->len - at);
		strbuf_putc(out, '"');
		if (s->open == ITEM_TEXT) {
			strbuf_putc(out, ',');
			put_logprobs(&s->unwritten, out);
		}
		event_close(out);
	}
	take_logprobs(s);
}

static void put_piece(const struct answer *a, struct responses *s, const struct piece *p, struct strbuf *out)
{
	enum item item = p->kind == PIECE_TEXT ? ITEM_TEXT : ITEM_REASONING;

	if (p->kind == PIECE_CALL) {
		open_call(a, s, p, out);
		return;
	}
	if (p->kind == PIECE_ARGS) item = ITEM_CALL; /* is open: nothing comes between a call and its arguments */
	else if (s->open != item) open_item(a, s, item, out);
	if (p->text.len && s->open == item) say(a, s, p, out);
}

/* ---- the shape ---- */

static void put_object(const struct answer *a, const struct respobject *o, struct strbuf *out)
{
	const struct responses *s = a->state;

	respobject_put(a, o, &s->items, &s->echo, out);
}

static void put_object_event(const struct answer *a, const char *type, const struct respobject *o, struct strbuf *out)
{
	event_open(a->state, type, out);
	strbuf_puts(out, ",\"response\":");
	put_object(a, o, out);
	event_close(out);
}

static void responses_begin(struct answer *a, struct strbuf *out)
{
	static const struct respobject begun = {.status = "in_progress"};

	put_object_event(a, "response.created", &begun, out);
	put_object_event(a, "response.in_progress", &begun, out);
}

static void responses_delta(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	struct responses *s = a->state;
	struct strbuf *lp = &c->lp[0];
	size_t i;

	if (lp->len && s->unwritten.len) strbuf_putc(&s->unwritten, ',');
	strbuf_append(&s->unwritten, lp->data, lp->len);
	strbuf_reset(lp);
	strbuf_reset(&c->ids);
	for (i = 0; i < c->said.n; i++) put_piece(a, s, &c->said.list[i], out);
	pieces_reset(&c->said);
}

/* The last item, and how the response ended. Clients look into the first item without asking whether there is one. */
static struct respobject last_item(struct answer *a, struct strbuf *out)
{
	struct answer_choice *c = &a->choices[0];
	bool is_cut = strcmp(c->end.finish, "length") == 0;
	struct responses *s = a->state;

	responses_delta(a, c, out);
	if (s->n_items == 0) open_item(a, s, ITEM_TEXT, out);
	close_item(a, s, is_cut ? "incomplete" : "completed", out);
	return (struct respobject){.status = is_cut ? "incomplete" : "completed", .is_cut = is_cut};
}

static void responses_end(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	responses_delta(a, c, out); /* the rest waits for finish(), which knows the usage */
}

static void responses_finish(struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	struct respobject o = last_item(a, out);

	o.usage = u;
	put_object_event(a, o.is_cut ? "response.incomplete" : "response.completed", &o, out);
}

static void responses_error(struct answer *a, const struct apierr *e, struct strbuf *out)
{
	struct respobject failed = {.status = "failed", .error = e};

	put_object_event(a, "response.failed", &failed, out);
}

static void responses_document(struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	struct respobject o = last_item(a, out);
	struct responses *s = a->state;

	o.usage = u;
	put_object(a, &o, out);
	out->overflow |= s->is_short;
}

const struct answer_shape ANSWER_RESPONSES = {
	.id_prefix = "resp_",
	.init = responses_init,
	.release = responses_release,
	.begin = responses_begin,
	.delta = responses_delta,
	.end = responses_end,
	.finish = responses_finish,
	.error = responses_error,
	.document = responses_document,
};
