/* preflight.h - what can be said about a model before a process is started for it. */
#ifndef SLUICE_PREFLIGHT_H
#define SLUICE_PREFLIGHT_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/spec.h"

/* Opens the checkpoint, reads its description, closes it. err names the file and what is wrong with it. What the
 * tokenizer and the chat template hold is checked by the frontend, which alone knows them, when it loads them.
 * *ident: as ckptident(); NULL: not wanted. */
int preflight_check(const char *path, const struct spec_opts *opts, uint64_t *ident, struct errbuf *err) MUST_CHECK;

/* The text of --hf-overrides as spec_opts takes it, to be released with json_decref(); NULL for an empty text.
 * ST_INVALID, ST_LIMIT. */
int preflight_overrides(struct json_t **out, const char *text, struct errbuf *err) MUST_CHECK;

#endif
