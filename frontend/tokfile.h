/* tokfile.h - reading tokenizer.json and what lies beside it, for the files that do it.
 *
 * Inside the tokenizer only. Files and places in them: model/jsonplace.h. */
#ifndef SLUICE_TOKFILE_H
#define SLUICE_TOKFILE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "frontend/pretok.h"
#include "frontend/textnorm.h"
#include "frontend/vocab.h"
#include "model/jsonplace.h"

/* ---- steps ---- */

#define TOKFILE_STAGES_BYTES (64 * KIB) /* of all expressions */

/* What the parts around the model add up to. */
struct tokfile_steps {
	struct textnorm *norm; /* owned; NULL: no steps */
	bool has_mark_replace; /* it spells spaces as U+2581 */
	struct pretok_stage stages[PRETOK_STAGES_MAX];
	char *exprs[PRETOK_STAGES_MAX]; /* owned: the expressions of the stages */
	size_t n_stages;
	bool is_byte_level;
	bool has_metaspace; /* spaces become U+2581 in the pre-tokenizer */
	enum vocab_prefix prefix;
	bool strip_first;
	bool has_template;
	struct gguf_str bos; /* of the template, in the file; len 0: none */
};

void tokfile_steps_release(struct tokfile_steps *s);
int tokfile_read_normalizer(const struct jsonplace *p, struct tokfile_steps *s) MUST_CHECK;
int tokfile_read_pretokenizer(const struct jsonplace *p, struct tokfile_steps *s) MUST_CHECK;
int tokfile_read_postprocessor(const struct jsonplace *p, struct tokfile_steps *s) MUST_CHECK;
int tokfile_read_decoder(const struct jsonplace *p, struct tokfile_steps *s) MUST_CHECK;

/* ---- companions ---- */

/* Ids that end a generation. */
struct tokfile_stops {
	uint32_t ids[16];
	size_t n;
};

/* eos_token_id of the folder's generation_config.json, else of its config.json, as far as they are there; compared with nothing. */
int tokfile_stops_read(struct tokfile_stops *s, const char *folder, struct errbuf *err) MUST_CHECK;

/* What lies beside a tokenizer.json in a model's folder. */
struct tokfile_folder {
	json_t *config;              /* owned; NULL: no such file */
	json_t *named;               /* owned; bos_token, pad_token ...: their texts; NULL: no tokenizer_config.json */
	char *chat_template;         /* owned; NULL: none */
	char *bos, *eos;             /* owned texts; NULL: none said */
	int add_bos;                 /* 1, 0, or -1: not said */
	struct tokfile_stops stops;
};

/* Reads tokenizer_config.json, chat_template.jinja and the ends of a generation, as far as they are there. */
int tokfile_folder_read(struct tokfile_folder *f, const char *folder, struct errbuf *err) MUST_CHECK;
void tokfile_folder_release(struct tokfile_folder *f);

#endif
