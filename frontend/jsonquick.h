/* jsonquick.h - reads the JSON that clients nearly always send, several times faster than jansson, into jansson's values.
 *
 * It only ever says yes: what is rare or wrong (doubled keys, integers of more than 18 digits, a NUL, anything ill-formed) gives
 * NULL, and jsonread.c asks jansson, which decides and words the error. What it reads is what jansson reads: tests compare them. */
#ifndef SLUICE_JSONQUICK_H
#define SLUICE_JSONQUICK_H

#include "common/base.h"

#include <jansson.h>

/* A new reference to the text's one value; NULL: not for us. Values may be nested depth_max deep. */
json_t *jsonquick(const char *text, size_t len, int depth_max);

#endif
