/* gramtry.c - see gramtry.h. */
#include "tests/support/gramtry.h"

#include "common/jsonbig.h"
#include "proto/limits.h"

#include <string.h>

const struct gramc_opts gramtry_opts = {.bytes_max = LIMIT_GRAMMAR_BYTES, .any_whitespace = true};

int gramtry_compile(struct gram **out, enum gramtry_kind kind, const char *source, size_t len, const struct gramc_opts *o, struct errbuf *err)
{
	json_t *json = NULL;
	json_error_t at;
	struct strbuf wire;
	int rc = ST_INVALID;

	*out = NULL;
	strbuf_init(&wire, LIMIT_GRAMMAR_BYTES);
	if (kind == GRAMTRY_SCHEMA || kind == GRAMTRY_CHOICE) {
		json = jsonbig_load(source, len, JSON_DECODE_ANY, &at);
		if (!json) return err_set(err, ST_INVALID, "the test's JSON is wrong: %s", at.text);
	}
	switch (kind) {
	case GRAMTRY_REGEX: rc = gramc_regex(&wire, source, len, o, err); break;
	case GRAMTRY_EBNF: rc = gramc_ebnf(&wire, source, len, o, err); break;
	case GRAMTRY_SCHEMA: rc = gramc_schema(&wire, json, o, err); break;
	case GRAMTRY_CHOICE: rc = gramc_choice(&wire, json, o, err); break;
	case GRAMTRY_JSON: rc = gramc_json_object(&wire, o, err); break;
	}
	if (rc == ST_OK) {
		CHECK(gram_load(out, wire.data, wire.len, err) == ST_OK); /* what was made is always good */
	}
	strbuf_release(&wire);
	json_decref(json);
	return rc;
}
