/* jinja_filters.h - what the files of filters and methods share. Internal to frontend/jinja_*.c. */
#ifndef SLUICE_JINJA_FILTERS_H
#define SLUICE_JINJA_FILTERS_H

#include "frontend/jinja_value.h"

enum jpad { JPAD_LEFT, JPAD_RIGHT, JPAD_CENTER };

/* s with `fill` (one character) on the named side up to `width` characters. */
struct jv jfilter_pad(struct jrun *r, struct jv s, int64_t width, struct jv fill, enum jpad where);
bool jfilter_is_alnum(uint32_t cp);
/* The whole text as Python's int() and float() read it; false when it is no number (or has more than 127 bits). */
bool jfilter_parse_int(struct jv s, int base, jint *out);
bool jfilter_parse_float(struct jv s, double *out);
const struct jfunction *jfilter_seq_table(size_t *n);
const struct jfunction *jfilter_words_table(size_t *n);
/* "a.b.0" or a number: the value that it names in item; `fallback` (if given) when that is undefined. */
struct jv jfilter_attribute(struct jrun *r, struct jv item, struct jv attribute, struct jv fallback);

#endif
