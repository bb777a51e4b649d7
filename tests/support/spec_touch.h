/* spec_touch.h - checks what spec.h promises of a description, and reads from each of its weights. */
#ifndef SLUICE_SPEC_TOUCH_H
#define SLUICE_SPEC_TOUCH_H

#include "model/ckpt.h"
#include "model/spec.h"

/* CHECKs bounds and that each weight is found with its shape, as a whole and as a rank's share; reads the first and the
 * last row of each. Values that are not finite may be refused. */
void spec_touch(const struct spec *s, const struct ckpt *c);

#endif
