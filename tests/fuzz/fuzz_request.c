/* fuzz_request.c - any bytes as the body of a request: jsonread.c and params.c, for both endpoints.
 *
 * What is taken lies within the bounds that gen.c relies on; what is refused has a text. Seeds: corpus/request. */
#include "frontend/jsonread.h"
#include "frontend/params.h"
#include "frontend/stopstr.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct params *p)
{
	CHECK(p->temperature >= 0 && p->temperature <= 100 && p->top_p > 0 && p->top_p <= 1 && p->min_p >= 0 && p->min_p <= 1);
	CHECK((float)p->top_p > 0 && p->top_k >= 0 && p->output_max >= 0 && p->output_min >= 0);
	CHECK(p->n_logprobs >= PARAMS_NO_LOGPROBS && p->n_logprobs <= LIMIT_TOP_LOGPROBS);
	CHECK(p->n_stop_ids <= PARAMS_STOP_IDS_MAX && p->cache_salt_len <= LIMIT_SALT);
	CHECK(!p->stop || json_is_string(p->stop) || json_array_size(p->stop) <= STOPSTR_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct errbuf err = {{0}};
	json_t *body;
	int where;

	if (jsonread(&body, (const char *)data, size, &err) != ST_OK) {
		CHECK(err.text[0] && !body);
		return 0;
	}
	for (where = PARAMS_CHAT; where <= PARAMS_TEXT; where++) {
		struct apierr e = {0};
		struct params p;

		if (params_read(&p, (enum params_endpoint)where, body, &e)) check(&p);
		else CHECK(e.status == 400 && e.message[0] && e.param[0]);
	}
	json_decref(body);
	return 0;
}
