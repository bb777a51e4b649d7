/* answer_lp.c - see answer_lp.h.
 *
 * Of a token's entries the first is the token itself, the others are the best ones, in order. */
#include "frontend/answer_lp.h"

#include "common/utf8.h"
#include "frontend/jsonout.h"

#include <string.h>

static const char *token_bytes(const struct answer *a, uint32_t id, size_t *len)
{
	return a->cfg.token_bytes(a->cfg.ctx, id, len);
}

/* How a token is named: its text, or its number where the client wants to know exactly. */
static void put_name(const struct answer *a, uint32_t id, struct strbuf *out)
{
	size_t n;
	const char *s = token_bytes(a, id, &n);

	if (!a->cfg.ids_as_tokens) {
		jsonout_string(out, s, n);
		return;
	}
	strbuf_puts(out, "\"token_id:");
	strbuf_put_u64(out, id);
	strbuf_putc(out, '"');
}

static uint32_t n_listed(const struct live_token *t, int n)
{
	return n < 0 ? 0 : min_u32(t->n_top - 1, (uint32_t)n);
}

/* ---- entries ---- */

static void put_entry(const struct answer *a, uint32_t id, float logprob, struct strbuf *out)
{
	size_t n, i;
	const char *s = token_bytes(a, id, &n);

	strbuf_puts(out, "{\"token\":");
	put_name(a, id, out);
	strbuf_puts(out, ",\"logprob\":");
	jsonout_f32(out, logprob);
	strbuf_puts(out, ",\"bytes\":[");
	for (i = 0; i < n; i++) {
		if (i) strbuf_putc(out, ',');
		strbuf_put_u64(out, (unsigned char)s[i]);
	}
	strbuf_putc(out, ']');
}

static void push_entry(const struct answer *a, struct answer_choice *c, const struct live_token *t)
{
	struct strbuf *out = &c->lp[0];
	uint32_t i, n = n_listed(t, a->cfg.n_logprobs);

	if (out->len) strbuf_putc(out, ',');
	put_entry(a, t->id, col_f32(t->top_logprobs, 0), out);
	strbuf_puts(out, ",\"top_logprobs\":[");
	for (i = 1; i <= n; i++) {
		if (i > 1) strbuf_putc(out, ',');
		put_entry(a, col_u32(t->top_ids, i), col_f32(t->top_logprobs, i), out);
		strbuf_putc(out, '}');
	}
	strbuf_puts(out, "]}");
}

/* ---- columns ---- */

/* Whether two tokens are written alike: the same bytes, or different ill-formed ones that are repaired to the same text. */
static bool names_are_alike(const struct answer *a, uint32_t x, uint32_t y)
{
	size_t n_x, n_y;
	const char *s_x = token_bytes(a, x, &n_x), *s_y = token_bytes(a, y, &n_y);
	struct strbuf t_x, t_y;
	bool alike;

	if (x == y) return true;
	if (a->cfg.ids_as_tokens) return false;
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
static bool name_is_repeated(const struct answer *a, const struct live_token *t, const uint32_t *order, uint32_t ix)
{
	uint32_t i;

	for (i = 0; i < ix; i++)
		if (names_are_alike(a, col_u32(t->top_ids, order[i]), col_u32(t->top_ids, order[ix]))) return true;
	return false;
}

/* The best ones, then the chosen token when it is none of them. */
static void put_top(const struct answer *a, const struct live_token *t, struct strbuf *out)
{
	uint32_t order[LIMIT_TOP_LOGPROBS + 1], n_best = min_u32(n_listed(t, a->cfg.n_logprobs), LIMIT_TOP_LOGPROBS), n = 0, i;
	bool first = true;

	for (i = 1; i <= n_best; i++) order[n++] = i;
	order[n++] = 0;
	strbuf_putc(out, '{');
	for (i = 0; i < n; i++) {
		if (name_is_repeated(a, t, order, i)) continue;
		if (!first) strbuf_putc(out, ',');
		first = false;
		put_name(a, col_u32(t->top_ids, order[i]), out);
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

/* t NULL: nothing predicts this token. */
static void push_columns(const struct answer *a, struct answer_choice *c, uint32_t id, const struct live_token *t)
{
	size_t i, len;
	const char *s = token_bytes(a, id, &len);

	for (i = 0; i < ARRAY_LEN(c->lp); i++)
		if (c->lp[i].len) strbuf_putc(&c->lp[i], ',');
	put_name(a, id, &c->lp[ANSWER_LP_TOKENS]);
	if (t) {
		jsonout_f32(&c->lp[ANSWER_LP_LOGPROBS], col_f32(t->top_logprobs, 0));
		put_top(a, t, &c->lp[ANSWER_LP_TOP]);
	} else {
		strbuf_puts(&c->lp[ANSWER_LP_LOGPROBS], "null");
		strbuf_puts(&c->lp[ANSWER_LP_TOP], "null");
	}
	strbuf_put_u64(&c->lp[ANSWER_LP_OFFSETS], c->offset);
	c->offset += count_chars(s, len);
}

/* ---- a prompt's, in vLLM's form: {"id": {"logprob", "rank", "decoded_token"}, ...} for each token ---- */

static void put_ranked(const struct answer *a, uint32_t id, float logprob, uint32_t rank, struct strbuf *out)
{
	size_t n;
	const char *s = token_bytes(a, id, &n);

	strbuf_putc(out, '"');
	strbuf_put_u64(out, id);
	strbuf_puts(out, "\":{\"logprob\":");
	jsonout_f32(out, logprob);
	strbuf_puts(out, ",\"rank\":");
	strbuf_put_u64(out, rank);
	strbuf_puts(out, ",\"decoded_token\":");
	jsonout_string(out, s, n);
	strbuf_putc(out, '}');
}

static void push_prompt_row(const struct answer *a, struct answer_choice *c, const struct live_token *t)
{
	struct strbuf *out = &c->prompt_lps;
	uint32_t i, n = n_listed(t, a->cfg.n_prompt_logprobs);

	strbuf_puts(out, ",{");
	put_ranked(a, t->id, col_f32(t->top_logprobs, 0), t->rank, out);
	for (i = 1; i <= n; i++) {
		if (col_u32(t->top_ids, i) == t->id) continue;
		strbuf_putc(out, ',');
		put_ranked(a, col_u32(t->top_ids, i), col_f32(t->top_logprobs, i), i, out);
	}
	strbuf_putc(out, '}');
}

/* ---- in and out ---- */

static bool echoes(const struct answer *a)
{
	return a->cfg.echo && a->cfg.n_logprobs >= 0 && a->cfg.shape->lp_columns;
}

void answer_lp_first(struct answer *a, struct answer_choice *c, uint32_t id)
{
	if (a->cfg.n_prompt_logprobs >= 0) strbuf_puts(&c->prompt_lps, "null");
	if (echoes(a)) push_columns(a, c, id, NULL);
}

void answer_lp_prompt(struct answer *a, struct answer_choice *c, const struct live_token *t)
{
	if (a->cfg.n_prompt_logprobs >= 0) push_prompt_row(a, c, t);
	if (echoes(a)) push_columns(a, c, t->id, t);
}

void answer_lp_output(struct answer *a, struct answer_choice *c, const struct live_token *t)
{
	if (a->cfg.n_logprobs < 0) return;
	if (a->cfg.shape->lp_columns) push_columns(a, c, t->id, t);
	else push_entry(a, c, t);
}

static void take_list(struct strbuf *out, const char *name, struct strbuf *list)
{
	strbuf_puts(out, name);
	strbuf_append(out, list->data, list->len);
	strbuf_putc(out, ']');
	strbuf_reset(list);
}

void answer_lp_take(struct answer *a, struct answer_choice *c, struct strbuf *out)
{
	if (c->lp[0].len == 0) {
		strbuf_puts(out, "null");
	} else if (a->cfg.shape->lp_columns) {
		take_list(out, "{\"tokens\":[", &c->lp[ANSWER_LP_TOKENS]);
		take_list(out, ",\"token_logprobs\":[", &c->lp[ANSWER_LP_LOGPROBS]);
		take_list(out, ",\"top_logprobs\":[", &c->lp[ANSWER_LP_TOP]);
		take_list(out, ",\"text_offset\":[", &c->lp[ANSWER_LP_OFFSETS]);
		strbuf_putc(out, '}');
	} else {
		take_list(out, "{\"content\":[", &c->lp[0]);
		strbuf_putc(out, '}');
	}
}
