/* answer_text.c - the shape of /v1/completions, with vLLM's additions. Whatever is said is text here. */
#include "frontend/answer_lp.h"
#include "frontend/answer_openai.h"
#include "frontend/jsonout.h"

static void text_init(struct answer *a)
{
	answer_openai_init(a, "text_completion");
}

static void text_begin(struct answer *a, struct strbuf *out)
{
}

static void put_choice(struct answer *a, struct answer_choice *c, bool at_end, struct strbuf *out)
{
	size_t i;

	strbuf_puts(out, "{\"index\":");
	strbuf_put_u64(out, c->index);
	strbuf_puts(out, ",\"text\":\"");
	for (i = 0; i < c->said.n; i++) jsonout_escape(out, c->said.list[i].text.data, c->said.list[i].text.len);
	pieces_reset(&c->said);
	strbuf_puts(out, "\",\"logprobs\":");
	answer_lp_take(a, c, out);
	if (at_end) answer_openai_end(c, out);
	else strbuf_puts(out, ",\"finish_reason\":null");
	if (c->prompt_ids.len) answer_openai_list(out, ",\"prompt_token_ids\":[", &c->prompt_ids);
	answer_openai_ids(a, c, out);
	if (at_end && c->prompt_lps.len) answer_openai_list(out, ",\"prompt_logprobs\":[", &c->prompt_lps);
	strbuf_putc(out, '}');
}

static void text_delta(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	answer_openai_open(a, out);
	put_choice(a, c, false, out);
	strbuf_putc(out, ']');
	answer_openai_close(a, c, out);
}

static void text_end(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	answer_openai_open(a, out);
	put_choice(a, c, true, out);
	strbuf_putc(out, ']');
	answer_openai_close(a, c, out);
}

static void text_document(struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	uint32_t i;

	answer_openai_open(a, out);
	for (i = 0; i < a->cfg.n_choices; i++) {
		if (i) strbuf_putc(out, ',');
		put_choice(a, &a->choices[i], true, out);
	}
	strbuf_putc(out, ']');
	answer_openai_usage(a, u, out);
	strbuf_putc(out, '}');
}

const struct answer_shape ANSWER_TEXT = {
	.id_prefix = "cmpl-",
	.init = text_init,
	.begin = text_begin,
	.delta = text_delta,
	.end = text_end,
	.finish = answer_openai_finish,
	.error = answer_openai_error,
	.document = text_document,
	.lp_columns = true,
};
