/* answer.c - see answer.h. The id, model and time of a stream do not change, so they are written once, into `prefix`. */
#include "frontend/answer.h"

#include "common/utf8.h"
#include "frontend/jsonout.h"

#include <string.h>

#define ANSWER_PART_MAX (48 * MIB) /* log-probabilities of the longest answers stay below; see CONN_OUT_MAX */

enum { LP_TOKENS, LP_LOGPROBS, LP_TOP, LP_OFFSETS };

static const char *answer_object(const struct answer *a)
{
	if (!a->cfg.is_chat) return "text_completion";
	return a->cfg.is_stream ? "chat.completion.chunk" : "chat.completion";
}

void answer_init(struct answer *a, const struct answer_config *cfg)
{
	size_t i;

	memset(a, 0, sizeof(*a));
	a->cfg = *cfg;
	strbuf_init(&a->prefix, 64 * KIB);
	strbuf_init(&a->text, ANSWER_PART_MAX);
	strbuf_init(&a->ids, ANSWER_PART_MAX);
	strbuf_init(&a->prompt_ids, ANSWER_PART_MAX);
	for (i = 0; i < ARRAY_LEN(a->lp); i++) strbuf_init(&a->lp[i], ANSWER_PART_MAX);
	if (cfg->is_stream) strbuf_puts(&a->prefix, "data: ");
	strbuf_puts(&a->prefix, "{\"id\":");
	jsonout_text(&a->prefix, cfg->id);
	strbuf_puts(&a->prefix, ",\"object\":");
	jsonout_text(&a->prefix, answer_object(a));
	strbuf_puts(&a->prefix, ",\"created\":");
	jsonout_u64(&a->prefix, (uint64_t)cfg->created);
	strbuf_puts(&a->prefix, ",\"model\":");
	jsonout_text(&a->prefix, cfg->model);
	strbuf_puts(&a->prefix, ",\"choices\":[");
	a->cfg.id = a->cfg.model = NULL;
}

void answer_release(struct answer *a)
{
	size_t i;

	strbuf_release(&a->prefix);
	strbuf_release(&a->text);
	strbuf_release(&a->ids);
	strbuf_release(&a->prompt_ids);
	for (i = 0; i < ARRAY_LEN(a->lp); i++) strbuf_release(&a->lp[i]);
}

static void put_id(struct strbuf *out, uint32_t id)
{
	if (out->len) strbuf_putc(out, ',');
	jsonout_u64(out, id);
}

void answer_prompt(struct answer *a, const uint32_t *ids, size_t n)
{
	size_t i;

	if (!a->cfg.return_ids) return;
	for (i = 0; i < n; i++) put_id(&a->prompt_ids, ids[i]);
}

/* ---- log-probabilities ---- */

static void put_token_text(const struct answer *a, uint32_t id, struct strbuf *out)
{
	size_t n;
	const char *s = a->cfg.token_bytes(a->cfg.ctx, id, &n);

	jsonout_string(out, s, n);
}

static void put_chat_entry(const struct answer *a, uint32_t id, float logprob, struct strbuf *out)
{
	size_t n, i;
	const char *s = a->cfg.token_bytes(a->cfg.ctx, id, &n);

	strbuf_puts(out, "{\"token\":");
	jsonout_string(out, s, n);
	strbuf_puts(out, ",\"logprob\":");
	jsonout_f32(out, logprob);
	strbuf_puts(out, ",\"bytes\":[");
	for (i = 0; i < n; i++) {
		if (i) strbuf_putc(out, ',');
		jsonout_u64(out, (unsigned char)s[i]);
	}
	strbuf_putc(out, ']');
}

static void chat_logprobs(struct answer *a, const struct live_token *t)
{
	struct strbuf *out = &a->lp[0];
	uint32_t i;

	if (out->len) strbuf_putc(out, ',');
	put_chat_entry(a, t->id, col_f32(t->top_logprobs, 0), out);
	strbuf_puts(out, ",\"top_logprobs\":[");
	for (i = 1; i < t->n_top && i <= (uint32_t)a->cfg.n_logprobs; i++) {
		if (i > 1) strbuf_putc(out, ',');
		put_chat_entry(a, col_u32(t->top_ids, i), col_f32(t->top_logprobs, i), out);
		strbuf_putc(out, '}');
	}
	strbuf_puts(out, "]}");
}

/* Whether two tokens are written alike: the same bytes, or different ill-formed ones that are repaired to the same text. */
static bool texts_are_alike(const struct answer *a, uint32_t x, uint32_t y)
{
	size_t n_x, n_y;
	const char *s_x = a->cfg.token_bytes(a->cfg.ctx, x, &n_x), *s_y = a->cfg.token_bytes(a->cfg.ctx, y, &n_y);
	struct strbuf t_x, t_y;
	bool alike;

	if (n_x == n_y && (n_x == 0 || memcmp(s_x, s_y, n_x) == 0)) return true;
	if (utf8_valid_len(s_x, n_x) == n_x || utf8_valid_len(s_y, n_y) == n_y) return false;
	strbuf_init(&t_x, 16 * KIB);
	strbuf_init(&t_y, 16 * KIB);
	jsonout_escape(&t_x, s_x, n_x);
	jsonout_escape(&t_y, s_y, n_y);
	alike = t_x.len == t_y.len && memcmp(t_x.data, t_y.data, t_x.len) == 0;
	strbuf_release(&t_x);
	strbuf_release(&t_y);
	return alike;
}

/* A key may be there only once: the earlier one, which is the better one, stays. */
static bool text_is_repeated(const struct answer *a, const struct live_token *t, const uint32_t *order, uint32_t ix)
{
	uint32_t i;

	for (i = 0; i < ix; i++)
		if (texts_are_alike(a, col_u32(t->top_ids, order[i]), col_u32(t->top_ids, order[ix]))) return true;
	return false;
}

static void text_top(struct answer *a, const struct live_token *t)
{
	uint32_t order[LIMIT_TOP_LOGPROBS + 1], n = 0, i;
	struct strbuf *out = &a->lp[LP_TOP];
	bool first = true;

	/* The best ones, then the chosen token when it is none of them (a repeated key otherwise). */
	for (i = 1; i < t->n_top && i <= (uint32_t)a->cfg.n_logprobs; i++) order[n++] = i;
	order[n++] = 0;
	strbuf_putc(out, '{');
	for (i = 0; i < n; i++) {
		if (text_is_repeated(a, t, order, i)) continue;
		if (!first) strbuf_putc(out, ',');
		first = false;
		put_token_text(a, col_u32(t->top_ids, order[i]), out);
		strbuf_putc(out, ':');
		jsonout_f32(out, col_f32(t->top_logprobs, order[i]));
	}
	strbuf_putc(out, '}');
}

static uint64_t count_chars(const char *s, size_t len)
{
	uint64_t n = 0;
	size_t i = 0;
	bool cut;

	for (; i < len; n++) {
		int step = utf8_next(s + i, len - i, &cut);

		i += (size_t)(step < 0 ? -step : step);
	}
	return n;
}

static void text_logprobs(struct answer *a, const struct live_token *t)
{
	size_t i, len;
	const char *s = a->cfg.token_bytes(a->cfg.ctx, t->id, &len);

	for (i = 0; i < ARRAY_LEN(a->lp); i++)
		if (a->lp[i].len) strbuf_putc(&a->lp[i], ',');
	jsonout_string(&a->lp[LP_TOKENS], s, len);
	jsonout_f32(&a->lp[LP_LOGPROBS], col_f32(t->top_logprobs, 0));
	text_top(a, t);
	jsonout_u64(&a->lp[LP_OFFSETS], a->offset);
	a->offset += count_chars(s, len);
}

void answer_token(struct answer *a, const struct live_token *t)
{
	if (a->cfg.return_ids) put_id(&a->ids, t->id);
	if (a->cfg.n_logprobs < 0 || t->n_top == 0 || t->top_ids.n < t->n_top || t->top_logprobs.n < t->n_top) return;
	if (a->cfg.is_chat) chat_logprobs(a, t);
	else text_logprobs(a, t);
}

bool answer_has_delta(const struct answer *a)
{
	return a->text.len > 0 || (a->ids.len > 0 && a->cfg.return_ids) || a->lp[0].len > 0;
}

static void put_part(struct strbuf *out, const char *name, struct strbuf *part)
{
	strbuf_puts(out, name);
	strbuf_append(out, part->data, part->len);
	strbuf_putc(out, ']');
	strbuf_reset(part);
}

static void put_logprobs(struct answer *a, struct strbuf *out)
{
	strbuf_puts(out, ",\"logprobs\":");
	if (a->cfg.n_logprobs < 0 || a->lp[0].len == 0) {
		strbuf_puts(out, "null");
	} else if (a->cfg.is_chat) {
		put_part(out, "{\"content\":[", &a->lp[0]);
		strbuf_putc(out, '}');
	} else {
		put_part(out, "{\"tokens\":[", &a->lp[LP_TOKENS]);
		put_part(out, ",\"token_logprobs\":[", &a->lp[LP_LOGPROBS]);
		put_part(out, ",\"top_logprobs\":[", &a->lp[LP_TOP]);
		put_part(out, ",\"text_offset\":[", &a->lp[LP_OFFSETS]);
		strbuf_putc(out, '}');
	}
}

/* ---- choices ---- */

static void put_end(struct strbuf *out, const struct answer_end *end)
{
	strbuf_puts(out, ",\"finish_reason\":");
	jsonout_text(out, end->finish);
	strbuf_puts(out, ",\"stop_reason\":");
	if (end->stop_text) jsonout_string(out, end->stop_text, end->stop_text_len);
	else if (end->stop_id >= 0) jsonout_u64(out, (uint64_t)end->stop_id);
	else strbuf_puts(out, "null");
}

/* The delta's text, as the value of a string that is already open. */
static void put_text(struct answer *a, struct strbuf *out)
{
	jsonout_escape(out, a->text.data, a->text.len);
	strbuf_reset(&a->text);
}

static void put_ids(struct answer *a, struct strbuf *out)
{
	if (!a->cfg.return_ids) return;
	if (!a->cfg.is_chat && a->prompt_ids.len) put_part(out, ",\"prompt_token_ids\":[", &a->prompt_ids);
	put_part(out, ",\"token_ids\":[", &a->ids);
}

static void chunk_open(struct answer *a, struct strbuf *out)
{
	strbuf_append(out, a->prefix.data, a->prefix.len);
}

static void chunk_close(struct answer *a, struct strbuf *out)
{
	strbuf_puts(out, a->cfg.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static void put_usage(struct strbuf *out, const struct answer_usage *u)
{
	strbuf_puts(out, ",\"usage\":{\"prompt_tokens\":");
	jsonout_u64(out, u->n_prompt);
	strbuf_puts(out, ",\"completion_tokens\":");
	jsonout_u64(out, u->n_output);
	strbuf_puts(out, ",\"total_tokens\":");
	jsonout_u64(out, u->n_prompt + u->n_output);
	strbuf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
	jsonout_u64(out, u->n_cached);
	strbuf_puts(out, "}}");
}

void answer_begin(struct answer *a, struct strbuf *out)
{
	if (!a->cfg.is_chat) return;
	chunk_open(a, out);
	strbuf_puts(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
	if (a->prompt_ids.len) {
		put_part(out, "],\"prompt_token_ids\":[", &a->prompt_ids);
		strbuf_puts(out, a->cfg.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
	} else {
		chunk_close(a, out);
	}
}

void answer_delta(struct answer *a, struct strbuf *out)
{
	chunk_open(a, out);
	strbuf_puts(out, a->cfg.is_chat ? "{\"index\":0,\"delta\":{\"content\":\"" : "{\"index\":0,\"text\":\"");
	put_text(a, out);
	strbuf_puts(out, a->cfg.is_chat ? "\"}" : "\"");
	put_logprobs(a, out);
	strbuf_puts(out, ",\"finish_reason\":null");
	put_ids(a, out);
	strbuf_putc(out, '}');
	chunk_close(a, out);
}

void answer_finish(struct answer *a, const struct answer_end *end, const struct answer_usage *usage, struct strbuf *out)
{
	if (a->text.len > 0) answer_delta(a, out);
	chunk_open(a, out);
	strbuf_puts(out, a->cfg.is_chat ? "{\"index\":0,\"delta\":{}" : "{\"index\":0,\"text\":\"\"");
	put_logprobs(a, out);
	put_end(out, end);
	put_ids(a, out);
	strbuf_putc(out, '}');
	chunk_close(a, out);
	if (a->cfg.include_usage) {
		chunk_open(a, out);
		strbuf_putc(out, ']');
		put_usage(out, usage);
		strbuf_puts(out, "}\n\n");
	}
	strbuf_puts(out, "data: [DONE]\n\n");
}

void answer_error(const struct apierr *e, struct strbuf *out)
{
	strbuf_puts(out, "data: ");
	apierr_render(e, out);
	strbuf_puts(out, "\n\ndata: [DONE]\n\n");
}

void answer_document(struct answer *a, const struct answer_end *end, const struct answer_usage *usage, struct strbuf *out)
{
	chunk_open(a, out);
	strbuf_puts(out, a->cfg.is_chat ? "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"" : "{\"index\":0,\"text\":\"");
	put_text(a, out);
	strbuf_puts(out, a->cfg.is_chat ? "\"}" : "\"");
	put_logprobs(a, out);
	put_end(out, end);
	put_ids(a, out);
	strbuf_puts(out, "}]");
	put_usage(out, usage);
	if (a->prompt_ids.len) put_part(out, ",\"prompt_token_ids\":[", &a->prompt_ids);
	strbuf_putc(out, '}');
}
