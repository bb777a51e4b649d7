/* modelside.h - what a frontend needs of the model: its tokenizer, chat template, sampling defaults and kind of pooling, from the file or
 * folder, or from what the operator's options name instead. */
#ifndef SLUICE_MODELSIDE_H
#define SLUICE_MODELSIDE_H

#include "common/errbuf.h"
#include "frontend/gendefaults.h"
#include "proto/boot.h"

struct tokenizer;
struct chat;

struct modelside {
	struct tokenizer *tokenizer;
	struct chat *chat;
	struct gendefaults defaults;
	uint32_t pooling; /* enum request_kind of embeddings */
};

/* Reads all of it; the files are closed again, and of weights only their headers are looked at. m is zero before. On an error, err names
 * the file or the option; modelside_release() either way. */
int modelside_read(struct modelside *m, const struct boot *boot, struct errbuf *err) MUST_CHECK;
void modelside_release(struct modelside *m);

#endif
