/* tokfile.h - reading tokenizer.json, for the files that do it.
 *
 * Inside the tokenizer only. A place is a value in a file and the way to it ("pre_tokenizer.pretokenizers[1].pattern"), so
 * that every message names both. */
#ifndef SLUICE_TOKFILE_H
#define SLUICE_TOKFILE_H

#include "common/base.h"
#include "common/errbuf.h"
#include "frontend/pretok.h"
#include "frontend/textnorm.h"
#include "frontend/vocab.h"

#include <jansson.h>

#define TOKFILE_FILE_MAX   (192 * MIB)        /* the largest published ones have some 35 MB */
#define TOKFILE_VALUES_MAX ((size_t)16 << 20) /* each costs jansson some 50 bytes while it is read */
#define TOKFILE_DEPTH_MAX  32                 /* the deepest published ones have 8 */

/* The object in a JSON file, bounded as above, to be released with json_decref(); no key twice. ST_NOT_FOUND: there is no
 * such file. shown: its name in messages. */
int tokfile_load(json_t **out, const char *path, const char *shown, struct errbuf *err) MUST_CHECK;

/* ---- places ---- */

struct tokfile_place {
	const char *file;
	const json_t *value; /* NULL: there is none */
	char way[160];       /* cut when longer */
	struct errbuf *err;
};

struct tokfile_place tokfile_member(const struct tokfile_place *p, const char *key);
struct tokfile_place tokfile_item(const struct tokfile_place *p, size_t ix);
/* There is no such member, or it is null. */
bool tokfile_is_null(const struct tokfile_place *p);
/* Sets "FILE: WAY: text" and returns rc. */
int tokfile_fail(const struct tokfile_place *p, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Values that must be of a kind. The _or variants give fallback where there is none. */
int tokfile_str(const struct tokfile_place *p, struct gguf_str *out) MUST_CHECK;
int tokfile_bool_or(const struct tokfile_place *p, const char *key, bool fallback, bool *out) MUST_CHECK;
int tokfile_array(const struct tokfile_place *p, size_t *n) MUST_CHECK;
/* An id below n_ids. */
int tokfile_id(const struct tokfile_place *p, size_t n_ids, uint32_t *out) MUST_CHECK;
/* A member that must be absent, null, an empty text, 0 or false, for what is not supported; why says so. */
int tokfile_must_be_unset(const struct tokfile_place *p, const char *key, const char *why) MUST_CHECK;

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
int tokfile_read_normalizer(const struct tokfile_place *p, struct tokfile_steps *s) MUST_CHECK;
int tokfile_read_pretokenizer(const struct tokfile_place *p, struct tokfile_steps *s) MUST_CHECK;
int tokfile_read_postprocessor(const struct tokfile_place *p, struct tokfile_steps *s) MUST_CHECK;
int tokfile_read_decoder(const struct tokfile_place *p, struct tokfile_steps *s) MUST_CHECK;

/* ---- companions ---- */

/* What lies beside a tokenizer.json in a model's folder. */
struct tokfile_folder {
	json_t *config, *generation; /* owned; NULL: no such file */
	char *chat_template;         /* owned; NULL: none */
	char *bos, *eos;             /* owned texts; NULL: none said */
	int add_bos;                 /* 1, 0, or -1: not said */
	uint32_t stops[16];
	size_t n_stops;
};

/* Reads tokenizer_config.json, generation_config.json and chat_template.jinja of the folder, as far as they are there. */
int tokfile_folder_read(struct tokfile_folder *f, const char *folder, struct errbuf *err) MUST_CHECK;
void tokfile_folder_release(struct tokfile_folder *f);

#endif
