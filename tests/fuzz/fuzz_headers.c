/* fuzz_headers.c - any bytes as the header fields that say whose a request is, how long it may take and to which trace it belongs.
 *
 * Whatever comes: ids are hexadecimal and not zero, durations within bounds, and a request that was taken on or refused holds nothing
 * when it is over. Each line of the input is a field, named by its first byte; lines may come twice. Seeds: corpus/headers. */
#include "common/utf8.h"
#include "frontend/admission.h"
#include "frontend/api.h"
#include "frontend/http.h"
#include "frontend/tenant.h"
#include "frontend/tracectx.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD_MAX 65536
#define NOW 1000
#define WEEK_NS (UINT64_C(7) * 86400 * NS_PER_S)

static struct api *door(void)
{
	static struct config config;
	static struct page page;
	static struct api api;
	struct errbuf err;

	if (api.config) return &api;
	config_init(&config);
	CHECK(config_set(&config, "tenant-max-requests", "3", &err) == ST_OK);
	api.config = &config;
	api.page = &page;
	api.slot = &page.frontends[0];
	api.now = NOW;
	admission_open(&api, &page.governor, 0);
	return &api;
}

/* conn.c lets no zero byte through, nor blanks before a value. */
static void add_field(struct http_request *r, const char *line, size_t len)
{
	static const char *const names[] = {"traceparent", "x-request-timeout", "x-slo-ttft-ms", "x-gateway-inference-fairness-id", "x-request-id"};
	const char *name = names[(uint8_t)line[0] % ARRAY_LEN(names)];
	size_t from;

	if (memchr(line, 0, len)) return;
	for (line++, len--; len > 0 && (*line == ' ' || *line == '\t'); len--) line++;
	from = r->head.len;
	strbuf_append(&r->head, name, strlen(name) + 1);
	http_name_ends(r, from);
	strbuf_append(&r->head, line, len);
	strbuf_putc(&r->head, 0);
	r->n_fields += 2;
	CHECK(r->head.overflow || http_header(r, name, NULL)); /* what is there is found */
}

static bool is_id(const char *s, size_t n)
{
	return strlen(s) == n && strspn(s, "0123456789abcdef") == n && strspn(s, "0") < n;
}

static void check_trace(const struct http_request *r)
{
	const uint64_t random[3] = {0, 0, 0};
	struct tracectx t;

	tracectx_read(&t, http_header(r, "traceparent", NULL), random);
	CHECK(is_id(t.trace_id, 32) && is_id(t.span_id, 16) && (t.parent_id[0] == 0 || is_id(t.parent_id, 16)));
	CHECK(t.parent_id[0] || t.is_sampled);
}

static bool is_duration(uint64_t ns)
{
	return ns == UINT64_MAX || (ns > 0 && ns <= WEEK_NS);
}

static void check_door(struct api *a, struct http_request *r)
{
	const struct governor *g = &a->page->governor;
	struct admission *ad = &r->admission;
	struct apierr e = {0};

	ad->tenant = tenant_of(r, r->n_fields & 4 ? UINT64_C(0x123456789abcdef0) : 0);
	CHECK(ad->tenant == GOVERNOR_TENANT_NOBODY || ad->tenant > GOVERNOR_TENANT_GONE);
	CHECK(ad->tenant >> 32 == (r->n_fields & 4 ? 0x12345678 : 0));
	if (admission_begin(a, r, &e)) {
		CHECK(is_duration(ad->answer_in_ns) && is_duration(ad->token_in_ns) && governor_count(g, GOVERNOR_MESH, GOVERNOR_REQUESTS) == 1);
		CHECK(admission_next(a) == (ad->answer_by_ns < ad->token_by_ns ? ad->answer_by_ns : ad->token_by_ns) && admission_next(a) > NOW);
		CHECK(admission_extend(a, r, 1, 7, &e) && !admission_extend(a, r, 2, 7, &e));
	} else {
		CHECK(e.status == 400 && utf8_valid_len(e.message, strlen(e.message)) == strlen(e.message));
	}
	admission_over(a, r);
	CHECK(governor_count(g, GOVERNOR_MESH, GOVERNOR_REQUESTS) == 0 && governor_count(g, GOVERNOR_MESH, GOVERNOR_TOKENS) == 0);
	CHECK(a->door.deadlines.n == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data, *end = p + size, *next;
	struct http_request r;

	http_request_init(&r, NULL, 2 * HEAD_MAX, 0);
	for (; p < end && r.head.len + (size_t)(end - p) < HEAD_MAX; p = next + 1) {
		next = memchr(p, '\n', (size_t)(end - p));
		if (!next) next = end;
		if (next > p) add_field(&r, p, (size_t)(next - p));
	}
	check_trace(&r);
	check_door(door(), &r);
	http_request_identify(&r, 1, 2);
	CHECK(r.id[0] && utf8_valid_len(r.id, strlen(r.id)) == strlen(r.id) && strlen(r.id) <= HTTP_REQUEST_ID_MAX);
	http_request_release(&r);
	return 0;
}
