/* jsonfile.h - JSON that an operator brings: config.json, tokenizer.json, an index of shards.
 *
 * Bytes, depth and number of values are bounded before jansson sees the text: its parser and, later, its destructor
 * recurse, and each value costs it some 50 bytes. Strict otherwise: doubled keys, ill-formed UTF-8, NaN, comments,
 * trailing bytes are errors. Integers beyond 64 bits (the usual model_max_length of tokenizer_config.json) become what
 * jsonbig.h says. */
#ifndef SLUICE_JSONFILE_H
#define SLUICE_JSONFILE_H

#include "common/base.h"
#include "common/errbuf.h"

#include <jansson.h>

struct jsonfile_bounds {
	size_t bytes_max;
	uint32_t depth_max;
	size_t values_max;
};

/* *out: an object, to be released with json_decref(). filetext_read()'s errors, ST_LIMIT, ST_INVALID (line and column):
 * the text begins with `shown`, the file as messages name it. */
int jsonfile_load(json_t **out, const char *path, const char *shown, const struct jsonfile_bounds *bounds,
		  struct errbuf *err) MUST_CHECK;

/* The same from bytes; the text does not name them. */
int jsonfile_parse(json_t **out, const char *text, size_t len, const struct jsonfile_bounds *bounds,
		   struct errbuf *err) MUST_CHECK;

#endif
