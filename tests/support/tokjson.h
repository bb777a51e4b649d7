/* tokjson.h - a tokenizer from a golden tokenizer.json (byte-level BPE), for tests. */
#ifndef SLUICE_TOKJSON_H
#define SLUICE_TOKJSON_H

struct tokenizer;

/* relpath as for golden_open(); NULL when the file is nowhere. pre, bos and eos (texts, or NULL) as a model file would
 * say. Fails the test when the file is there and cannot be used. */
struct tokenizer *tokjson_load(const char *relpath, const char *pre, const char *bos, const char *eos);

#endif
