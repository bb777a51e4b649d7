/* tokenizer_impl.h - a tokenizer's parts, for the files that make it up.
 *
 * Inside the tokenizer only. */
#ifndef SLUICE_TOKENIZER_IMPL_H
#define SLUICE_TOKENIZER_IMPL_H

#include "frontend/addtok.h"
#include "frontend/bpe.h"
#include "frontend/pretok.h"
#include "frontend/spm.h"
#include "frontend/textnorm.h"
#include "frontend/tokenizer.h"
#include "frontend/vocab.h"

#define TOKENIZER_STOPS_MAX 16

/* Never changes once it was made. */
struct tokenizer {
	enum tokbytes_spelling spelling;
	struct vocab vocab;
	struct addtok added;        /* looked for in the text as it came */
	struct addtok added_normal; /* and in what is left, once it is normalised */
	struct textnorm *norm;      /* owned; NULL: no steps */
	struct pretok *words;       /* owned; NULL: the text is one word */
	struct spm *spm;            /* owned; TOKBYTES_LLAMA only */
	struct bpe bpe;
	enum vocab_prefix prefix;
	bool whole_words, strip_first, unk_fused;
	bool add_bos;
	uint32_t bos, eos, unk;
	uint32_t stop_ids[TOKENIZER_STOPS_MAX];
	size_t n_stop_ids;
	char *chat_template; /* owned; NULL: none */
	json_t *named;       /* owned; NULL: none */
	uint32_t n_ids;      /* of the model, >= vocab.n; 0: not told */
};

#endif
