/* hubname.h - names on a Hugging Face hub: what a user calls a model, and which names of a server may become paths.
 *
 *   ORG/NAME                the repository's safetensors, or one quantization of its GGUF files
 *   ORG/NAME:QUANT          the GGUF file of that quantization, "Q4_K_M"
 *   ORG/NAME/FILE.gguf      that file (FILE may lie in folders)
 * each with @REVISION behind it: a branch, a tag or a commit; default "main". Pure. */
#ifndef SLUICE_HUBNAME_H
#define SLUICE_HUBNAME_H

#include "common/base.h"
#include "common/errbuf.h"

#define HUBNAME_PART_MAX     96   /* the hub's own bound of ORG and of NAME */
#define HUBNAME_REVISION_MAX 250  /* one file name */
#define HUBNAME_FILE_MAX     1024 /* bytes of a file's path in a repository */
#define HUBNAME_COMMIT_LEN   40

struct hubname {
	char repo[2 * HUBNAME_PART_MAX + 2]; /* "ORG/NAME" */
	char quant[64];                      /* "": not given */
	char file[HUBNAME_FILE_MAX + 1];     /* "": not given */
	char revision[HUBNAME_REVISION_MAX + 1];
};

/* ST_INVALID: err says what is wrong and what is expected. */
int hubname_parse(struct hubname *out, const char *text, struct errbuf *err) MUST_CHECK;
/* Could it be meant as such a name? For words that may also be paths: no leading '/', '.' or '~', and one '/' or more.
 */
bool hubname_is_likely(const char *text);

/* A path within a repository that may become one within a folder: components that are not empty, "." or "..", of at
 * most 255 bytes, no control characters and no backslash; HUBNAME_FILE_MAX bytes at most. */
bool hubname_is_safe_path(const char *path);
/* A single file name made of letters, digits, '-', '_' and '.', not beginning with '.', of at most 200 bytes. */
bool hubname_is_safe_word(const char *word);
/* 40 hexadecimal digits. */
bool hubname_is_commit(const char *text);

#endif
