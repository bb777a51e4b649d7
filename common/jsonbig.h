/* jsonbig.h - JSON as jansson reads it, and also integers beyond 64 bits, which jansson refuses.
 *
 * Such an integer becomes the string JSONBIG_MARK followed by its digits (the mark starts with a zero byte, so no honest
 * text looks like it). The template interpreter prints it as the number it was; everyone else sees a string where a number
 * was expected and says so. */
#ifndef SLUICE_JSONBIG_H
#define SLUICE_JSONBIG_H

#include "common/base.h"

#include <jansson.h>

#define JSONBIG_MARK "\0int:"
#define JSONBIG_MARK_LEN 5

/* Like json_loadb() with JSON_REJECT_DUPLICATES left to `flags`; zero bytes in strings are allowed. A new reference, or NULL
 * and `error` set. */
json_t *jsonbig_load(const char *text, size_t len, size_t flags, json_error_t *error);

/* Whether it stands for such an integer. */
bool jsonbig_is(const json_t *j);

/* Its digits; NULL: it is none, or only looks like one: a client can write the mark too. */
const char *jsonbig_digits(const json_t *j);

#endif
