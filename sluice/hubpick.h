/* hubpick.h - which files of a repository are needed to serve it. Pure.
 *
 * A folder: *.json, *.jinja, tokenizer.model, and the *.safetensors at the top (not "consolidated", which is a second
 * copy in another layout). Or one GGUF: all parts of it when it is split; which one follows llama.cpp's -hf: the
 * quantization asked for, else Q4_K_M, else the first. Projectors for images ("mmproj") are no models. */
#ifndef SLUICE_HUBPICK_H
#define SLUICE_HUBPICK_H

#include "sluice/hubname.h"

struct hubpick {
	size_t *ix; /* owned; into the names that were given: what is needed, weights last */
	size_t n;
	size_t n_small; /* so many of them are no weights */
	bool is_gguf;   /* then ix[n_small] is the file to open, the first part of a split one */
};

/* names: all files of the repository. ST_NOT_FOUND: nothing there can be served; err lists what there is. */
int hubpick_files(struct hubpick *out, const struct hubname *want, const char *const *names, size_t n,
		  struct errbuf *err) MUST_CHECK;
void hubpick_release(struct hubpick *p);

/* "x-00002-of-00005.gguf": its number, the number of parts, and the length of "x". False: no such name. */
bool hubpick_part(const char *name, uint32_t *part, uint32_t *n_parts, size_t *stem_len);

#endif
