/* family.h - the families of models: for each, a table of its settings and of its tensors' names.
 *
 * The one place that knows that Gemma stores norms minus 1 or that Phi fuses q, k and v. Adding a family: a row in FAMILIES, a function
 * that fills the description where the common settings do not suffice, names where they differ from the usual ones, and a golden
 * test. ARCHITECTURE.md shows the last one that was added. */
#ifndef SLUICE_FAMILY_H
#define SLUICE_FAMILY_H

#include "model/ckpt.h"
#include "model/spec.h"

/* Inside model/ only; what others use is spec_read() and wsrc_find(). */

struct family; /* defined by whoever implements it */

/* NULL when unknown. From general.architecture, or model_type and architectures of config.json. */
const struct family *family_find(const struct ckpt *c, struct errbuf *err);
const char *family_known(void); /* "llama, qwen2, ...", for messages */

#endif
