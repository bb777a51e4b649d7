/* foldertmpl.h - the chat template of a model's folder, for the frontend, which renders it, and for `sluice inspect`,
 * which shows it. */
#ifndef SLUICE_FOLDERTMPL_H
#define SLUICE_FOLDERTMPL_H

#include "model/jsonplace.h"

#define FOLDERTMPL_MAX (4 * MIB) /* the longest published ones have some 20 KB */

/* *out: owned text; NULL: the folder has none. chat_template.jinja wins over tokenizer_config.json, as in transformers;
 * in the latter it is a text, or a list of {"name", "template"} of which the one called "default" counts. config: the
 * root of tokenizer_config.json; its value is NULL when there is no such file. Errors name file and place. */
int foldertmpl_read(char **out, const char *folder, const struct jsonplace *config) MUST_CHECK;

#endif
