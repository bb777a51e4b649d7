/* ckpt_touch.h - reads everything that an opened checkpoint offers, so that a sanitizer sees each access. */
#ifndef SLUICE_CKPT_TOUCH_H
#define SLUICE_CKPT_TOUCH_H

#include "model/ckpt.h"

/* All tensors' bytes, names, types and files, and the metadata. Returns a sum of what was read, which keeps the reads
 * from being optimised away. CHECKs what ckpt.h promises: sizes that follow from type and shape, tensors found by name.
 */
uint64_t ckpt_touch(const struct ckpt *c);

#endif
