/* jsonbound.h - how deep and how large a JSON text is, found in a flat scan before a parser sees it.
 *
 * jansson's parser and, later, its destructor recurse, and each value costs it some 50 bytes. What is not JSON is left
 * to the parser. */
#ifndef SLUICE_JSONBOUND_H
#define SLUICE_JSONBOUND_H

#include "common/base.h"

enum jsonbound { JSONBOUND_FITS, JSONBOUND_TOO_DEEP, JSONBOUND_TOO_MANY };
enum jsonbound jsonbound_scan(const char *s, size_t len, uint32_t depth_max, size_t values_max);

#endif
