/* jsonread.c - see jsonread.h. */
#include "frontend/jsonread.h"

#include "common/jsonbound.h"
#include "common/jsonbig.h"
#include "frontend/jsonquick.h"

#include <string.h>

static int check_bounds(const char *s, size_t len, struct errbuf *err)
{
	switch (jsonbound_scan(s, len, JSONREAD_DEPTH_MAX, JSONREAD_VALUES_MAX)) {
	case JSONBOUND_TOO_DEEP: return err_set(err, ST_LIMIT, "The request's body is nested deeper than %d levels.", JSONREAD_DEPTH_MAX);
	case JSONBOUND_TOO_MANY: return err_set(err, ST_LIMIT, "The request's body holds more than %u values.", JSONREAD_VALUES_MAX);
	case JSONBOUND_FITS: break;
	}
	return ST_OK;
}

int jsonread(json_t **out, const char *data, size_t len, struct errbuf *err)
{
	json_error_t e;
	json_t *j = NULL;
	int rc;

	*out = NULL;
	if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
		data += 3;
		len -= 3;
	}
	if (len == 0) return err_set(err, ST_INVALID, "The request's body is empty; a JSON object is needed.");
	/* What is this short cannot hold too many values, and jsonquick() looks at the depth. */
	if (len <= JSONREAD_VALUES_MAX) j = jsonquick(data, len, JSONREAD_DEPTH_MAX);
	rc = j ? ST_OK : check_bounds(data, len, err);
	if (rc != ST_OK) return rc;
	if (!j) j = jsonquick(data, len, JSONREAD_DEPTH_MAX);
	if (!j) j = jsonbig_load(data, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
	if (!j) return err_set(err, ST_INVALID, "The request's body is not valid JSON (line %d, column %d): %s", e.line, e.column, e.text);
	if (!json_is_object(j)) {
		json_decref(j);
		return err_set(err, ST_INVALID, "The request's body must be a JSON object.");
	}
	*out = j;
	return ST_OK;
}
