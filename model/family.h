/* family.h - the families of models: for each, a table of its settings and of its tensors' names.
 *
 * The one place that knows that Gemma stores norms minus 1 or that Phi fuses q, k and v. Adding a family: a row in
 * FAMILIES (family_table.h), a function that fills the description where the common settings do not suffice, names
 * where they differ from the usual ones, and a golden test. ARCHITECTURE.md shows the last one that was added.
 *
 * Inside model/ only; what others use is spec_read() and wsrc_find(). */
#ifndef SLUICE_FAMILY_H
#define SLUICE_FAMILY_H

#include "model/ckpt.h"
#include "model/spec.h"

struct family; /* family_impl.h */

/* For messages: "llama, qwen2, ...", as GGUF's general.architecture or config.json's model_type spells them. */
const char *family_known(bool gguf);

#endif
