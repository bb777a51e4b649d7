/* jsonbig_dump.h - writes what jsonbig_load() read. */
#ifndef SLUICE_JSONBIG_DUMP_H
#define SLUICE_JSONBIG_DUMP_H

#include "common/strbuf.h"

#include <jansson.h>

/* Appends it as compact JSON, large integers as the numbers they were. */
void jsonbig_dump(const json_t *j, struct strbuf *out);

#endif
