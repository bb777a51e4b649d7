/* tokjson.h - a tokenizer from a golden tokenizer.json, or from a text as one, for tests. */
#ifndef SLUICE_TOKJSON_H
#define SLUICE_TOKJSON_H

#include "common/errbuf.h"

#include <stddef.h>

struct tokenizer;

/* relpath as for golden_open(); NULL when the file is nowhere. bos and eos (texts, or NULL) as tokenizer_config.json would
 * say. Fails the test when the file is there and cannot be used. */
struct tokenizer *tokjson_load(const char *relpath, const char *bos, const char *eos);

/* tokenizer_from_json() on a folder with these files; config may be NULL. */
int tokjson_try(struct tokenizer **t, const char *text, size_t len, const char *config, struct errbuf *err);

#endif
