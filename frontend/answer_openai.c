/* answer_openai.c - see answer_openai.h. */
#include "frontend/answer_openai.h"

#include "frontend/jsonout.h"

#define ANSWER_PREFIX_BYTES 250 /* room that is made at once */

void answer_openai_init(struct answer *a, const char *object)
{
	struct strbuf *out = &a->prefix;

	strbuf_reserve(out, ANSWER_PREFIX_BYTES);
	if (a->cfg.is_stream) strbuf_puts(out, "data: ");
	strbuf_puts(out, "{\"id\":");
	jsonout_text(out, a->id);
	strbuf_puts(out, ",\"object\":");
	jsonout_text(out, object);
	strbuf_puts(out, ",\"created\":");
	strbuf_put_u64(out, (uint64_t)a->cfg.created);
	strbuf_puts(out, ",\"model\":");
	jsonout_text(out, a->model);
	strbuf_puts(out, ",\"choices\":[");
}

void answer_openai_open(const struct answer *a, struct strbuf *out)
{
	strbuf_append(out, a->prefix.data, a->prefix.len);
}

static void put_counts(uint64_t n_prompt, uint64_t n_output, struct strbuf *out)
{
	strbuf_puts(out, ",\"usage\":{\"prompt_tokens\":");
	strbuf_put_u64(out, n_prompt);
	strbuf_puts(out, ",\"completion_tokens\":");
	strbuf_put_u64(out, n_output);
	strbuf_puts(out, ",\"total_tokens\":");
	strbuf_put_u64(out, n_prompt + n_output);
}

void answer_openai_close(const struct answer *a, const struct answer_choice *c, struct strbuf *out)
{
	if (a->cfg.continuous_usage) {
		put_counts(c->n_prompt, c->n_output, out);
		strbuf_putc(out, '}');
	} else if (a->cfg.include_usage) {
		strbuf_puts(out, ",\"usage\":null");
	}
	strbuf_puts(out, "}\n\n");
}

void answer_openai_end(const struct answer_choice *c, struct strbuf *out)
{
	const struct answer_end *end = &c->end;

	strbuf_puts(out, ",\"finish_reason\":");
	jsonout_text(out, end->finish);
	strbuf_puts(out, ",\"stop_reason\":");
	if (end->stop_text) jsonout_string(out, end->stop_text, end->stop_text_len);
	else if (end->stop_id >= 0) strbuf_put_u64(out, (uint64_t)end->stop_id);
	else strbuf_puts(out, "null");
}

void answer_openai_list(struct strbuf *out, const char *name, struct strbuf *list)
{
	strbuf_puts(out, name);
	strbuf_append(out, list->data, list->len);
	strbuf_putc(out, ']');
	strbuf_reset(list);
}

void answer_openai_ids(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	if (a->cfg.return_ids) answer_openai_list(out, ",\"token_ids\":[", &c->ids);
}

void answer_openai_usage(const struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	put_counts(u->n_prompt, u->n_output, out);
	strbuf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
	strbuf_put_u64(out, u->n_cached);
	strbuf_putc(out, '}');
	if (a->cfg.has_reasoning) {
		strbuf_puts(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":");
		strbuf_put_u64(out, u->n_reasoning);
		strbuf_putc(out, '}');
	}
	strbuf_putc(out, '}');
}

void answer_openai_finish(struct answer *a, const struct answer_usage *u, struct strbuf *out)
{
	if (a->cfg.include_usage) {
		answer_openai_open(a, out);
		strbuf_putc(out, ']');
		answer_openai_usage(a, u, out);
		strbuf_puts(out, "}\n\n");
	}
	strbuf_puts(out, "data: [DONE]\n\n");
}

void answer_openai_error(struct answer *a, const struct apierr *e, struct strbuf *out)
{
	strbuf_puts(out, "data: ");
	apierr_render(e, out);
	strbuf_puts(out, "\n\ndata: [DONE]\n\n");
}
