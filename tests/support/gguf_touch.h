/* gguf_touch.h - reads everything that an opened GGUF file offers, so that a sanitizer sees each access. */
#ifndef SLUICE_GGUF_TOUCH_H
#define SLUICE_GGUF_TOUCH_H

#include "model/gguf.h"

/* All keys, values, strings and tensor bytes, every typed accessor on every key, and the shape. Returns a sum of what
 * was read, which keeps the reads from being optimised away. CHECKs what gguf.h promises (views within the map,
 * lookups). */
uint64_t gguf_touch(const struct gguf *g);

#endif
