/* admission.c - see admission.h. */
#include "frontend/admission.h"

#include "common/log.h"
#include "frontend/api.h"
#include "frontend/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BODY_WORTH_WAITING (64 * KIB) /* a smaller one is read before a refusal, which then leaves the connection open */
#define TIMEOUT_MAX_S (86400.0 * 7)
#define MEAN_OF 16                    /* a moving mean takes in so much of what is new */
#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 60000

void admission_open(struct api *a, struct governor *g, uint32_t slot)
{
	const struct config *c = a->config;
	uint64_t in_engine = (uint64_t)c->max_num_seqs + c->max_queued_requests;

	a->door = (struct admission_door){.hold_ns = NS_PER_S};
	a->door.governor = (struct governor_door){
		.g = g,
		.slot = slot,
		.limits = {
			.requests = c->max_queued_requests ? min_u64(c->max_requests, in_engine) : c->max_requests,
			.tokens = c->max_inflight_tokens,
			.tenant_requests = c->tenant_max_requests,
			.tenant_tokens = c->tenant_max_tokens,
			.max_tenants = c->max_tenants,
		},
	};
}

void admission_close(struct api *a)
{
	deadlines_release(&a->door.deadlines);
}

static void mean_add(uint64_t *mean, uint64_t value)
{
	*mean = *mean - *mean / MEAN_OF + value / MEAN_OF;
}

/* ---- refusals ---- */

/* After about as long as requests hold their places, all of those that are there now will have been freed; give or take a quarter, so that those
 * who were refused together do not come back together. */
static uint32_t retry_ms(struct api *a)
{
	uint64_t ms = a->door.hold_ns / NS_PER_MS, quarter = ms / 4;

	if (quarter) ms = ms - quarter + api_random(a) % (2 * quarter);
	return (uint32_t)max_u64(min_u64(ms, RETRY_MAX_MS), RETRY_MIN_MS);
}

static void refuse_requests(struct api *a, struct apierr *e)
{
	const struct config *c = a->config;
	uint64_t limit = a->door.governor.limits.requests;

	if (limit < c->max_requests) {
		page_count(a->slot, COUNTER_rejected_queue, 1);
		(void)apierr_set(e, 503, NULL, "The server is overloaded: %llu requests run or wait, which is its limit (--max-num-seqs %u, --max-queued-requests %u). "
				 "Please try again later.", (unsigned long long)limit, c->max_num_seqs, c->max_queued_requests);
	} else {
		page_count(a->slot, COUNTER_rejected_requests, 1);
		(void)apierr_set(e, 503, NULL, "The server is overloaded: it holds %u requests, which is its limit (--max-requests). Please try again later.", c->max_requests);
	}
}

static bool admission_refuse(struct api *a, enum governor_verdict v, struct apierr *e)
{
	const struct config *c = a->config;

	if (v == GOVERNOR_OK) return true;
	e->retry_ms = retry_ms(a);
	switch (v) {
	case GOVERNOR_FULL_REQUESTS:
		refuse_requests(a, e);
		return false;
	case GOVERNOR_FULL_TOKENS:
		page_count(a->slot, COUNTER_rejected_tokens, 1);
		return apierr_set(e, 503, NULL, "The server is overloaded: there is no room for the tokens of this request, prompt and answer (--max-inflight-tokens %u). "
				  "Please try again later, or ask for fewer.", c->max_inflight_tokens);
	case GOVERNOR_FULL_TENANT_REQUESTS:
		page_count(a->slot, COUNTER_rejected_tenant_requests, 1);
		return apierr_set(e, 429, NULL, "Rate limit reached: %u requests at a time are taken from you (--tenant-max-requests). Please try again later.",
				  c->tenant_max_requests);
	case GOVERNOR_FULL_TENANT_TOKENS:
		page_count(a->slot, COUNTER_rejected_tenant_tokens, 1);
		return apierr_set(e, 429, NULL, "Rate limit reached: the requests that are taken from you at a time may have %u tokens, prompts and answers (--tenant-max-tokens). "
				  "Please try again later, or ask for fewer.", c->tenant_max_tokens);
	default:
		return false;
	}
}

static bool admission_is_wide(struct apierr *e, uint64_t n_requests, uint64_t limit, const char *whose)
{
	return apierr_set(e, 400, NULL, "This request asks for %llu answers, each of which counts as a request; this server takes %llu at a time%s.",
			  (unsigned long long)n_requests, (unsigned long long)limit, whose);
}

/* What no waiting would change. */
static bool admission_can_fit(const struct api *a, uint64_t n_requests, uint64_t n_tokens, struct apierr *e)
{
	const struct governor_limits *l = &a->door.governor.limits;

	if (n_requests > l->requests)
		return admission_is_wide(e, n_requests, l->requests,
					 l->requests == a->config->max_requests ? " (--max-requests)" : " (--max-num-seqs and --max-queued-requests)");
	if (l->tenant_requests && n_requests > l->tenant_requests)
		return admission_is_wide(e, n_requests, l->tenant_requests, " from you (--tenant-max-requests)");
	if (l->tokens && n_tokens > l->tokens)
		return apierr_set(e, 400, NULL, "This request may have %llu tokens, prompt and answer; this server takes %llu at a time (--max-inflight-tokens). "
				  "Please ask for fewer.", (unsigned long long)n_tokens, (unsigned long long)l->tokens);
	if (l->tenant_tokens && n_tokens > l->tenant_tokens)
		return apierr_set(e, 400, NULL, "This request may have %llu tokens, prompt and answer; %llu at a time are taken from you (--tenant-max-tokens). "
				  "Please ask for fewer.", (unsigned long long)n_tokens, (unsigned long long)l->tenant_tokens);
	return true;
}

/* ---- deadlines ---- */

/* A header with a positive number, times unit nanoseconds; UINT64_MAX: it is not there. */
static bool read_duration(const struct http_request *r, const char *name, double unit, const char *what, uint64_t *out, struct apierr *e)
{
	uint32_t n;
	const char *value = http_header(r, name, &n);
	double v;
	char *end;

	*out = UINT64_MAX;
	if (!value) return true;
	v = strspn(value, "0123456789.") > 0 ? strtod(value, &end) : 0;
	/* The spelling first: strtod() takes hexadecimal, infinity and exponents. */
	if (n > 1 || value[strspn(value, "0123456789. \t")] || v <= 0 || !(v * unit <= TIMEOUT_MAX_S * 1e9) || end[strspn(end, " \t")])
		return apierr_set(e, 400, NULL, "The header %s must be one positive number of %s.", name, what);
	*out = max_u64((uint64_t)(v * unit), 1);
	return true;
}

static bool read_deadlines(struct api *a, struct http_request *r, struct apierr *e)
{
	struct admission *ad = &r->admission;
	uint64_t limit = a->config->request_timeout ? a->config->request_timeout : UINT64_MAX;

	if (!read_duration(r, "x-request-timeout", 1e9, "seconds", &ad->answer_in_ns, e)) return false;
	if (!read_duration(r, "x-slo-ttft-ms", 1e6, "milliseconds", &ad->token_in_ns, e)) return false;
	ad->answer_in_ns = min_u64(ad->answer_in_ns, limit);
	ad->answer_by_ns = ad->answer_in_ns == UINT64_MAX ? UINT64_MAX : a->now + ad->answer_in_ns;
	ad->token_by_ns = ad->token_in_ns == UINT64_MAX ? UINT64_MAX : a->now + ad->token_in_ns;
	return true;
}

static void set_deadline(struct api *a, struct admission *ad)
{
	deadline_set(&a->door.deadlines, &ad->deadline, min_u64(ad->answer_by_ns, ad->token_by_ns));
}

static bool refuse_token(struct api *a, const struct admission *ad, struct apierr *e)
{
	page_count(a->slot, COUNTER_rejected_ttft, 1);
	e->retry_ms = retry_ms(a);
	return apierr_set(e, 503, NULL, "The server is overloaded: a first token within %.15g ms (x-slo-ttft-ms) %s.", (double)ad->token_in_ns / 1e6,
			  ad->hold.requests ? "has not come" : "is not to be expected");
}

/* Whether a first token can be expected in time: while requests wait for the engine, one that comes now takes as long as the last ones did here.
 * When nothing waits any more, nobody is refused, so the mean cannot stay what it was. */
static bool token_in_time(const struct api *a, const struct admission *ad)
{
	return ad->token_in_ns >= a->door.token_ns || page_gauge_of(&a->page->executor, GAUGE_waiting) < 1;
}

static void request_end_late(struct http_request *r, const struct apierr *e)
{
	void *owner = r->owner;

	if (r->on_late) {
		r->on_late(owner, e);
		return;
	}
	if (r->on_gone) r->on_gone(owner);
	r->owner = NULL;
	r->on_gone = r->on_room = NULL;
	apierr_answer(e, r);
}

void admission_step(struct api *a, uint64_t now)
{
	struct deadline *d;

	a->now = now;
	while ((d = deadlines_due(&a->door.deadlines, now))) {
		struct admission *ad = CONTAINER_OF(d, struct admission, deadline);
		struct http_request *r = CONTAINER_OF(ad, struct http_request, admission);
		struct apierr e = {0};

		if (ad->answer_by_ns <= now) {
			page_count(a->slot, COUNTER_request_timeouts, 1);
			(void)apierr_set(&e, 504, NULL, "The request was not answered within %.15g s (X-Request-Timeout, --request-timeout).", (double)ad->answer_in_ns / 1e9);
		} else {
			(void)refuse_token(a, ad, &e);
		}
		request_end_late(r, &e);
	}
}

uint64_t admission_next(const struct api *a)
{
	return deadlines_next(&a->door.deadlines);
}

void admission_first_token(struct api *a, struct http_request *r)
{
	struct admission *ad = &r->admission;

	if (!ad->hold.requests) return;
	mean_add(&a->door.token_ns, a->now - ad->taken_ns);
	if (ad->token_by_ns == UINT64_MAX) return;
	ad->token_by_ns = UINT64_MAX;
	set_deadline(a, ad);
}

bool admission_waits_for_token(const struct http_request *r)
{
	return r->admission.deadline.place && r->admission.token_by_ns != UINT64_MAX;
}

/* ---- taking on and giving back ---- */

/* Bodies whose end is not near. */
static bool body_is_far(const struct http_request *r)
{
	const char *length = http_header(r, "content-length", NULL);

	return http_header(r, "expect", NULL) || http_header(r, "transfer-encoding", NULL) || (length && strtoull(length, NULL, 10) > BODY_WORTH_WAITING);
}

int admission_on_head(struct api *a, struct http_request *r, const char **text)
{
	static struct apierr said;
	enum governor_verdict v = a->door.governor.g ? governor_peek(&a->door.governor, r->admission.tenant) : GOVERNOR_OK;

	if (v == GOVERNOR_OK || !body_is_far(r)) return 0;
	memset(&said, 0, sizeof(said));
	(void)admission_refuse(a, v, &said);
	r->admission.retry_ms = said.retry_ms;
	*text = said.message;
	return said.status;
}

static void admission_note_shared(struct api *a)
{
	if (a->door.governor.n_shared == 1)
		log_warning("more than %u tenants at a time: further ones share one account (--max-tenants)", a->config->max_tenants);
	page_count(a->slot, COUNTER_tenants_shared, 1);
}

bool admission_begin(struct api *a, struct http_request *r, struct apierr *e)
{
	struct admission *ad = &r->admission;
	struct governor_door *g = &a->door.governor;
	uint64_t n_shared = g->n_shared;

	if (!g->g) return true;
	if (!read_deadlines(a, r, e)) return false;
	if (!token_in_time(a, ad)) return refuse_token(a, ad, e);
	if (!admission_refuse(a, governor_reserve(g, ad->tenant, 1, &ad->hold), e)) return false;
	if (g->n_shared > n_shared) admission_note_shared(a);
	ad->taken_ns = a->now;
	set_deadline(a, ad);
	return true;
}

bool admission_extend(struct api *a, struct http_request *r, uint64_t n_more, uint64_t n_tokens, struct apierr *e)
{
	struct admission *ad = &r->admission;

	if (!ad->hold.requests) return true;
	return admission_can_fit(a, 1 + n_more, n_tokens, e) && admission_refuse(a, governor_extend(&a->door.governor, &ad->hold, n_more, n_tokens), e);
}

void admission_over(struct api *a, struct http_request *r)
{
	struct admission *ad = &r->admission;

	if (!ad->hold.requests) return;
	deadline_set(&a->door.deadlines, &ad->deadline, UINT64_MAX);
	if (ad->hold.tokens && a->now > ad->taken_ns) mean_add(&a->door.hold_ns, a->now - ad->taken_ns); /* not of those refused later on */
	governor_give_back(&a->door.governor, &ad->hold);
}
