/* fuzz_schema.c - any bytes as a JSON schema: schemac.h and all that it uses.
 *
 * The first byte chooses options; the rest is JSON. What is compiled is a grammar that loads, has a text, and whose random texts are
 * JSON; what is refused has a reason. Seeds: corpus/schema. */
#include "frontend/gramc.h"
#include "frontend/jsonread.h"
#include "proto/gram.h"
#include "proto/limits.h"
#include "tests/support/gramwalk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_MAX (64 * KIB)
#define WALK_MAX 256 /* bytes: the plain walk takes the square of a text's length, and more */

static void check_text(const struct gram *g, uint64_t seed)
{
	struct strbuf text;
	json_error_t err;
	json_t *value;

	if (g->state_min[g->rule_start[0]] > WALK_MAX) return;
	strbuf_init(&text, TEXT_MAX);
	gramwalk_random(g, &seed, 30, &text);
	if (!text.overflow) {
		value = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &err);
		/* Numbers of enumerations may be beyond a double. */
		CHECK(value || json_error_code(&err) == json_error_numeric_overflow);
		json_decref(value);
	}
	strbuf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gramc_opts o = {.bytes_max = size ? (size_t)1 << (10 + data[0] % 8) : KIB};
	struct errbuf err = {{0}};
	struct strbuf wire;
	json_t *schema;
	struct gram *g;
	int rc;

	if (size < 2) return 0;
	o.any_whitespace = data[0] & 16;
	o.exact_types = data[0] & 32;
	if (jsonread(&schema, (const char *)data + 1, size - 1, &err) != ST_OK) return 0;
	err.text[0] = 0;
	strbuf_init(&wire, LIMIT_GRAMMAR_BYTES);
	rc = gramc_schema(&wire, schema, &o, &err);
	CHECK(rc == ST_OK || rc == ST_INVALID || rc == ST_UNSUPPORTED || rc == ST_LIMIT);
	CHECK((rc == ST_OK) == !err.text[0] && wire.len <= o.bytes_max);
	if (rc == ST_OK) {
		CHECK(gram_load(&g, wire.data, wire.len, &err) == ST_OK);
		check_text(g, size);
		gram_free(g);
	}
	strbuf_release(&wire);
	json_decref(schema);
	return 0;
}
