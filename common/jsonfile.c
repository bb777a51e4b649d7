/* jsonfile.c - see jsonfile.h. */
#include "common/jsonfile.h"

#include "common/filetext.h"
#include "common/jsonbig.h"
#include "common/jsonbound.h"
#include "common/quote.h"

#include <stdlib.h>
#include <string.h>

int jsonfile_parse(json_t **out, const char *text, size_t len, const struct jsonfile_bounds *b, struct errbuf *err)
{
	json_error_t e;

	*out = NULL;
	if (len > b->bytes_max) return err_set(err, ST_LIMIT, "has %zu bytes; expected at most %zu", len, b->bytes_max);
	switch (jsonbound_scan(text, len, b->depth_max, b->values_max)) {
	case JSONBOUND_TOO_DEEP:
		return err_set(err, ST_LIMIT, "is nested deeper than %u levels", b->depth_max);
	case JSONBOUND_TOO_MANY:
		return err_set(err, ST_LIMIT, "holds more than %zu values", b->values_max);
	case JSONBOUND_FITS:
		break;
	}
	*out = jsonbig_load(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
	if (!*out)
		return err_set(err, ST_INVALID, "is not valid JSON (line %d, column %d): %s", e.line, e.column,
			       quote_short(e.text, strlen(e.text)).text);
	if (json_is_object(*out)) return ST_OK;
	json_decref(*out);
	*out = NULL;
	return err_set(err, ST_INVALID, "is no JSON object");
}

int jsonfile_load(json_t **out, const char *path, const char *shown, const struct jsonfile_bounds *b,
		  struct errbuf *err)
{
	char *text;
	size_t len;
	int rc = filetext_read(&text, &len, path, b->bytes_max, err);

	*out = NULL;
	if (rc == ST_OK) rc = jsonfile_parse(out, text, len, b, err);
	free(text);
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "%s", shown);
}
