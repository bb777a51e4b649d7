/* jsonread.c - see jsonread.h. */
#include "frontend/jsonread.h"

#include "frontend/jsonbig.h"

#include <string.h>

enum jsonread_bound jsonread_bounds(const char *s, size_t len, uint32_t depth_max, size_t values_max)
{
	size_t i, values = 1;
	int64_t depth = 0;
	bool in_string = false;

	for (i = 0; i < len; i++) {
		char c = s[i];

		if (in_string) {
			if (c == '\\') i++;
			else if (c == '"') in_string = false;
			continue;
		}
		if (c == '"') in_string = true;
		else if (c == '[' || c == '{') depth++;
		else if (c == ']' || c == '}') depth--;
		if (c == '[' || c == '{' || c == ',' || c == ':') values++;
		if (depth > depth_max) return JSONREAD_TOO_DEEP;
		if (values > values_max) return JSONREAD_TOO_MANY;
	}
	return JSONREAD_FITS;
}

static int check_bounds(const char *s, size_t len, struct errbuf *err)
{
	switch (jsonread_bounds(s, len, JSONREAD_DEPTH_MAX, JSONREAD_VALUES_MAX)) {
	case JSONREAD_TOO_DEEP: return err_set(err, ST_LIMIT, "The request's body is nested deeper than %d levels.", JSONREAD_DEPTH_MAX);
	case JSONREAD_TOO_MANY: return err_set(err, ST_LIMIT, "The request's body holds more than %u values.", JSONREAD_VALUES_MAX);
	case JSONREAD_FITS: break;
	}
	return ST_OK;
}

int jsonread(json_t **out, const char *data, size_t len, struct errbuf *err)
{
	json_error_t e;
	json_t *j;
	int rc;

	*out = NULL;
	if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
		data += 3;
		len -= 3;
	}
	if (len == 0) return err_set(err, ST_INVALID, "The request's body is empty; a JSON object is needed.");
	rc = check_bounds(data, len, err);
	if (rc != ST_OK) return rc;
	j = jsonbig_load(data, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
	if (!j) return err_set(err, ST_INVALID, "The request's body is not valid JSON (line %d, column %d): %s", e.line, e.column, e.text);
	if (!json_is_object(j)) {
		json_decref(j);
		return err_set(err, ST_INVALID, "The request's body must be a JSON object.");
	}
	*out = j;
	return ST_OK;
}
