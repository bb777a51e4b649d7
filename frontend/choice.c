/* choice.c - see choice.h. */
#include "frontend/choice.h"

#define CHOICE_TEXT_MAX (1 * MIB) /* of one token, with what the stop strings held back */

void choice_rules_release(struct choice_rules *r)
{
	stopstr_set_release(&r->stops);
}

void choice_init(struct choice *c, const struct choice_rules *rules, const struct outparse_config *parse, struct pieces *said)
{
	*c = (struct choice){.rules = rules, .said = said, .stop_ix = -1, .stop_id = -1};
	detok_init(&c->detok);
	stopstr_init(&c->stop, &rules->stops);
	strbuf_init(&c->raw, CHOICE_TEXT_MAX);
	strbuf_init(&c->text, CHOICE_TEXT_MAX);
	if (!parse) return;
	c->parser = outparse_new(parse);
	c->in_reasoning = parse->in_reasoning;
}

void choice_release(struct choice *c)
{
	stopstr_release(&c->stop);
	outparse_free(c->parser);
	strbuf_release(&c->raw);
	strbuf_release(&c->text);
}

/* Text that is certain goes on. */
static void pass_text(struct choice *c)
{
	if (c->parser) outparse_push(c->parser, c->text.data, c->text.len, c->said);
	else pieces_text(c->said, c->text.data, c->text.len);
	strbuf_reset(&c->text);
}

/* What is in c->raw goes on. True when a stop string was found in it. */
static bool push_raw(struct choice *c)
{
	bool armed = c->n_output > c->rules->output_min || c->rules->output_min == 0;

	if (c->raw.len == 0) return false;
	c->stop_ix = stopstr_push(&c->stop, c->raw.data, c->raw.len, armed, &c->text);
	strbuf_reset(&c->raw);
	pass_text(c);
	return c->stop_ix >= 0;
}

static bool push_token(struct choice *c, uint32_t id)
{
	detok_push(&c->detok, c->rules->tokenizer, id, c->rules->skip_special, &c->raw);
	return push_raw(c);
}

/* What is still held back is all that comes before something else, or before the end. True when a stop string was found in it. */
static bool flush(struct choice *c)
{
	detok_finish(&c->detok, &c->raw);
	if (push_raw(c)) return true;
	stopstr_flush(&c->stop, &c->text);
	pass_text(c);
	return false;
}

/* A control token that the client does not see may still be a marker of a call or of reasoning. */
static bool push_special(struct choice *c, uint32_t id)
{
	size_t len;
	const char *name = tokenizer_bytes(c->rules->tokenizer, id, &len);

	if (flush(c)) return true;
	(void)outparse_special(c->parser, name, len, c->said);
	return false;
}

/* Whether this token ends the choice at the executor; then it stands for the end and not for text. */
static bool is_stop_id(struct choice *c, uint32_t id)
{
	const struct choice_rules *r = c->rules;
	uint32_t i;

	if (c->n_output <= r->output_min) return false;
	for (i = 0; i < r->n_stop_ids; i++) {
		if (r->stop_ids[i] != id) continue;
		if (i >= r->n_model_stop) c->stop_id = id;
		return true;
	}
	return false;
}

/* What the last piece is tells where in the output we are: the parser appends as soon as it is certain. */
static void count_reasoning(struct choice *c)
{
	if (!c->parser) return;
	if (c->said->n > 0) c->in_reasoning = c->said->list[c->said->n - 1].kind == PIECE_REASONING;
	c->n_reasoning += c->in_reasoning;
	if (c->rules->hide_reasoning) pieces_drop(c->said, PIECE_REASONING);
}

bool choice_push(struct choice *c, uint32_t id)
{
	const struct choice_rules *r = c->rules;
	bool found = false;

	c->n_output++;
	if (is_stop_id(c, id)) {
		if (r->stops.keep) (void)push_token(c, id);
		return false; /* the executor's word ends it */
	}
	if (c->parser && r->skip_special && tokenizer_is_special(r->tokenizer, id)) found = push_special(c, id);
	else found = push_token(c, id);
	if (found) {
		c->finish = FINISH_STOP;
		if (c->parser) outparse_finish(c->parser, c->said);
	}
	count_reasoning(c);
	return found;
}

void choice_finish(struct choice *c, enum finish finish)
{
	c->finish = finish;
	if (flush(c)) c->finish = FINISH_STOP;
	if (c->parser) outparse_finish(c->parser, c->said);
	if (c->rules->hide_reasoning) pieces_drop(c->said, PIECE_REASONING);
}

struct answer_end choice_end(const struct choice *c)
{
	struct answer_end end = {.finish = "stop", .stop_id = -1};

	if (c->finish == FINISH_LENGTH) end.finish = "length";
	else if (c->said->n_calls > 0 && !c->rules->calls_end_as_stop) end.finish = "tool_calls";
	if (c->stop_ix >= 0) {
		end.stop_text = c->rules->stops.list[c->stop_ix].text;
		end.stop_text_len = c->rules->stops.list[c->stop_ix].len;
	} else if (c->finish == FINISH_STOP) {
		end.stop_id = c->stop_id;
	}
	return end;
}
