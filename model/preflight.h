/* preflight.h - what can be said about a model before a process is started for it. */
#ifndef SLUICE_PREFLIGHT_H
#define SLUICE_PREFLIGHT_H

#include "common/base.h"
#include "common/errbuf.h"

/* Opens the file, checks it and its shape, closes it. err names the file and what is wrong with it. What the tokenizer
 * and the chat template hold is checked by the frontend, which alone knows them, when it loads them. */
int preflight_check(const char *path, struct errbuf *err) MUST_CHECK;

#endif
