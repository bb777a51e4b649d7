/* submit.c - see submit.h. Values were checked when they were read (params.c, prep.c). */
#include "frontend/submit.h"

#include "common/mem.h"

#include <string.h>

#define SUBMIT_GREEDY_BELOW 1e-5 /* vLLM's _SAMPLING_EPS: colder is greedy */

/* ---- rules ---- */

static void rules_stop_strings(struct stopstr_set *s, const struct params *p)
{
	const json_t *j;
	size_t i;

	stopstr_set_init(s, p->keep_stop);
	for (i = 0; i < json_array_size(p->stop); i++) {
		j = json_array_get(p->stop, i);
		stopstr_set_add(s, json_string_value(j), json_string_length(j));
	}
	if (json_is_string(p->stop)) stopstr_set_add(s, json_string_value(p->stop), json_string_length(p->stop));
}

static void rules_stop_ids(struct choice_rules *r, const struct prep *p)
{
	const struct params *q = &p->params;
	const uint32_t *ids;
	size_t i, n;

	ids = tokenizer_stop_ids(r->tokenizer, &n);
	/* Where a grammar allows nothing more, there must be something to draw that ends it. */
	if (q->ignore_eos && p->grammar.len == 0) n = 0;
	for (i = 0; i < n && r->n_stop_ids < LIMIT_STOP_IDS - PARAMS_STOP_IDS_MAX; i++) r->stop_ids[r->n_stop_ids++] = ids[i];
	r->n_model_stop = r->n_stop_ids;
	for (i = 0; i < q->n_stop_ids; i++) r->stop_ids[r->n_stop_ids++] = q->stop_ids[i];
}

void submit_rules(struct choice_rules *r, const struct prep *p)
{
	const struct params *q = &p->params;

	*r = (struct choice_rules){
		.tokenizer = p->api->tokenizer,
		.output_min = (uint32_t)min_u64((uint64_t)q->output_min, UINT32_MAX),
		.skip_special = q->skip_special,
		.hide_reasoning = q->endpoint == PARAMS_CHAT && !q->include_reasoning,
		.calls_end_as_stop = q->tools.choice == TOOL_CHOICE_NAMED,
	};
	rules_stop_strings(&r->stops, q);
	rules_stop_ids(r, p);
}

/* ---- the message ---- */

static void submit_sampling(struct msg_submit *m, const struct params *p)
{
	m->temperature = p->temperature < SUBMIT_GREEDY_BELOW ? 0 : (float)p->temperature;
	m->top_p = (float)p->top_p;
	m->top_k = (uint32_t)min_u64((uint64_t)p->top_k, UINT32_MAX);
	m->min_p = (float)p->min_p;
	m->repetition_penalty = (float)p->repetition_penalty;
	m->presence_penalty = (float)p->presence_penalty;
	m->frequency_penalty = (float)p->frequency_penalty;
}

static void submit_bias(struct submit *s, const json_t *bias)
{
	size_t n = json_object_size(bias), i = 0;
	const char *key;
	json_t *value;

	if (n == 0) return;
	CHECK(n <= LIMIT_BIAS);
	s->bias_ids = mem_array(uint32_t, n);
	s->bias_values = mem_array(float, n);
	json_object_foreach((json_t *)bias, key, value) {
		s->bias_ids[i] = (uint32_t)strtoul(key, NULL, 10);
		s->bias_values[i++] = (float)json_number_value(value);
	}
	s->m.bias_ids = view_of(s->bias_ids, n);
	s->m.bias_values = view_of(s->bias_values, n);
}

static void submit_allowed(struct submit *s, const json_t *list)
{
	size_t n = json_array_size(list), i;
	int64_t v;

	if (n == 0) return;
	CHECK(n <= LIMIT_ALLOWED);
	s->allowed_ids = mem_array(uint32_t, n);
	for (i = 0; i < n; i++) {
		CHECK(params_whole(json_array_get(list, i), &v));
		s->allowed_ids[i] = (uint32_t)v;
	}
	s->m.allowed_ids = view_of(s->allowed_ids, n);
}

static uint32_t n_entries(int64_t n_best)
{
	return n_best < 0 ? 0 : 1 + (uint32_t)n_best;
}

static void submit_logprobs(struct msg_submit *m, const struct params *p)
{
	m->n_logprobs = n_entries(p->n_logprobs);
	if (p->best_of > p->n) m->n_logprobs = max_u32(m->n_logprobs, 1); /* to find the best ones */
	m->n_prompt_logprobs = n_entries(p->n_prompt_logprobs);
	if (p->echo && p->endpoint == PARAMS_TEXT) m->n_prompt_logprobs = max_u32(m->n_prompt_logprobs, n_entries(p->n_logprobs));
}

void submit_init(struct submit *s, const struct prep *p, const struct choice_rules *rules)
{
	const struct params *q = &p->params;
	struct msg_submit *m = &s->m;

	memset(s, 0, sizeof(*s));
	s->wanted = q->echo_only ? 1 : q->output_max > 0 ? (uint64_t)q->output_max : q->endpoint == PARAMS_CHAT ? 0 : PARAMS_TEXT_OUTPUT;
	s->output_min = (uint64_t)q->output_min;
	submit_sampling(m, q);
	submit_bias(s, q->logit_bias);
	submit_allowed(s, q->allowed_ids);
	submit_logprobs(m, q);
	m->stop_ids = view_of(rules->stop_ids, rules->n_stop_ids);
	m->priority = (uint32_t)((int64_t)(1u << 31) + q->priority);
	m->cache_salt = view_of(q->cache_salt, q->cache_salt_len);
	m->grammar = view_of(p->grammar.data, p->grammar.len);
}

void submit_release(struct submit *s)
{
	free(s->bias_ids);
	free(s->bias_values);
	free(s->allowed_ids);
}

void submit_prompt(struct submit *s, const struct prep *p, const struct prep_prompt *prompt)
{
	uint64_t room = p->len_max - prompt->ids.len;

	if (p->params.output_bound) room = min_u64(room, (uint64_t)p->params.output_bound);

	s->m.tokens = view_of(prompt->ids.ids, prompt->ids.len);
	s->m.n_prompt = (uint32_t)prompt->ids.len;
	/* A huge limit is cut down to what fits: many clients send one. */
	s->m.n_output_max = (uint32_t)(s->wanted ? min_u64(s->wanted, room) : room);
	s->m.n_output_min = (uint32_t)min_u64(s->output_min, s->m.n_output_max);
}
