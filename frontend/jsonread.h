/* jsonread.h - JSON bodies from clients.
 *
 * Depth and number of values are checked before jansson sees the text (common/jsonbound.h). Then everything strict: doubled keys, ill-formed UTF-8, NaN, comments,
 * trailing bytes are errors. A byte order mark at the beginning is skipped. Integers beyond 64 bits, which schemas and the
 * arguments of tools may hold, become what jsonbig.h says. */
#ifndef SLUICE_JSONREAD_H
#define SLUICE_JSONREAD_H

#include "common/base.h"
#include "common/errbuf.h"

#include <jansson.h>

#define JSONREAD_DEPTH_MAX 128
#define JSONREAD_VALUES_MAX (1u << 20) /* above the longest prompts as token ids */

/* *out: an object, to be released with json_decref(). ST_INVALID, ST_LIMIT: err holds a text for the client. */
int jsonread(json_t **out, const char *data, size_t len, struct errbuf *err) MUST_CHECK;

#endif
