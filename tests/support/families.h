/* families.h - tokenizers of the model families whose results are recorded, and the comparison with the records. */
#ifndef SLUICE_FAMILIES_H
#define SLUICE_FAMILIES_H

#include "common/base.h"

#include <jansson.h>

struct strbuf;
struct token_vec;
struct tokenizer;

/* By a family's name as in families.c; NULL, and a line that says which file is missing, when its vocabulary is not here.
 * Fails the test when it is here and cannot be used. */
struct tokenizer *families_load(const char *name);

/* Every recorded case of tokenizer/RECORDS.jsonl and tokenizer/RECORDS.decode.jsonl (where there are any), at least n_min and
 * n_decode_min. */
void families_check(const struct tokenizer *t, const char *records, size_t n_min, size_t n_decode_min);

/* The text of ids from the beginning on; each step gives whole characters only. */
void families_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool skip_special, struct strbuf *out);
void families_expect_ids(const char *what, const struct token_vec *got, const uint32_t *ids, size_t n);

#endif
