/* ckpt_impl.h - the inside of struct ckpt, shared by the ckpt*.c files only. */
#ifndef SLUICE_CKPT_IMPL_H
#define SLUICE_CKPT_IMPL_H

#include "common/jsonfile.h"
#include "common/nameindex.h"
#include "model/ckpt.h"
#include "model/ckpt_dir.h"
#include "model/safetensors.h"

struct ckpt_file {
	char *name;        /* as messages show it */
	struct gguf *gguf; /* owns its map; NULL in a folder of safetensors */
	struct filemap map;
	struct safetensors st;
};

struct ckpt {
	char *path, *shown;
	struct ckpt_file *files; /* (n_files) */
	size_t n_files, cap_files;
	struct ckpt_tensor *tensors; /* (n_tensors) */
	size_t n_tensors, cap_tensors;
	struct nameindex index; /* over tensors */
	json_t *config;
};

/* Appends a zeroed file of that name; valid until the next one. */
struct ckpt_file *ckpt_add_file(struct ckpt *c, const char *name);
/* Appends a tensor of file t->file; ST_CORRUPT when there is one of its name. */
int ckpt_add_tensor(struct ckpt *c, const struct ckpt_tensor *t, struct errbuf *err) MUST_CHECK;

/* The kinds of checkpoints: fill an empty c; errors name the file. ckpt_gguf.c: `name` is a GGUF file of the folder. */
int ckpt_read_gguf(struct ckpt *c, const struct ckpt_dir *dir, const char *name, struct errbuf *err) MUST_CHECK;
/* Both are names of parts of one split model. */
bool ckpt_same_split(const char *a, const char *b);

/* ckpt_folder.c */
int ckpt_read_folder(struct ckpt *c, const struct ckpt_dir *dir, struct errbuf *err) MUST_CHECK;
int ckpt_read_json(json_t **out, const struct ckpt_dir *dir, const char *name, const struct jsonfile_bounds *b,
		   struct errbuf *err) MUST_CHECK;
/* Appends the file and its tensors; with a weight_map (names to file names) only those that it places there. */
int ckpt_read_safetensors(struct ckpt *c, const struct ckpt_dir *dir, const char *name, const json_t *weight_map,
			  struct errbuf *err) MUST_CHECK;

/* ckpt_shards.c: all files of a folder that the index names. */
#define CKPT_INDEX "model.safetensors.index.json"
int ckpt_read_shards(struct ckpt *c, const struct ckpt_dir *dir, struct errbuf *err) MUST_CHECK;

#endif
