/* jsonfile.c - see jsonfile.h. */
#include "common/jsonfile.h"

#include "common/filetext.h"
#include "common/quote.h"

#include <stdlib.h>
#include <string.h>

enum jsonfile_fit jsonfile_scan(const char *s, size_t len, uint32_t depth_max, size_t values_max)
{
	size_t i, values = 1;
	int64_t depth = 0;
	bool in_string = false;

	for (i = 0; i < len; i++) {
		char c = s[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == '"')
			in_string = true;
		else if (c == '[' || c == '{')
			depth++;
		else if (c == ']' || c == '}')
			depth--;
		if (c == '[' || c == '{' || c == ',' || c == ':') values++;
		if (depth > depth_max) return JSONFILE_TOO_DEEP;
		if (values > values_max) return JSONFILE_TOO_MANY;
	}
	return JSONFILE_FITS;
}

int jsonfile_parse(json_t **out, const char *text, size_t len, const struct jsonfile_bounds *b, struct errbuf *err)
{
	json_error_t e;

	*out = NULL;
	if (len > b->bytes_max) return err_set(err, ST_LIMIT, "has %zu bytes; expected at most %zu", len, b->bytes_max);
	switch (jsonfile_scan(text, len, b->depth_max, b->values_max)) {
	case JSONFILE_TOO_DEEP:
		return err_set(err, ST_LIMIT, "is nested deeper than %u levels", b->depth_max);
	case JSONFILE_TOO_MANY:
		return err_set(err, ST_LIMIT, "holds more than %zu values", b->values_max);
	case JSONFILE_FITS:
		break;
	}
	*out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
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
