/* ckpt_dir.h - the files of a checkpoint: those of a folder, or bytes in memory that stand for them. Inside model/ckpt*
 * only. */
#ifndef SLUICE_CKPT_DIR_H
#define SLUICE_CKPT_DIR_H

#include "model/ckpt.h"
#include "model/filemap.h"

struct ckpt_dir {
	char *path;                    /* with its slash, or "" */
	int fd;                        /* AT_FDCWD when path is "", -1 for parts */
	const struct ckpt_part *parts; /* (n_parts); borrowed; NULL: a folder */
	size_t n_parts;
};

/* path: "" is the working folder. ST_NOT_FOUND, ST_DENIED, ST_IO: the text names it. */
int ckpt_dir_open(struct ckpt_dir *d, const char *path, struct errbuf *err) MUST_CHECK;
void ckpt_dir_close(struct ckpt_dir *d);

bool ckpt_dir_has(const struct ckpt_dir *d, const char *name);
/* "folder/name" and the same as messages show it; free() it. */
char *ckpt_dir_path(const struct ckpt_dir *d, const char *name);
/* Puts it in front of the text; returns rc. */
int ckpt_dir_prefix(const struct ckpt_dir *d, const char *name, int rc, struct errbuf *err);
char *ckpt_dir_shown(const struct ckpt_dir *d, const char *name);

/* The names that end so, sorted; hidden ones are left out. At most CKPT_DIR_NAMES_MAX, ST_LIMIT beyond. Release also
 * after an error. */
#define CKPT_DIR_NAMES_MAX 65536
struct ckpt_names {
	char **names;
	size_t n, cap;
};
int ckpt_dir_list(const struct ckpt_dir *d, const char *ending, struct ckpt_names *out, struct errbuf *err) MUST_CHECK;
void ckpt_names_sort(struct ckpt_names *n);
void ckpt_names_release(struct ckpt_names *n);

/* filemap_open(), filetext_read(); the text does not name the file. */
int ckpt_dir_map(const struct ckpt_dir *d, const char *name, const char *kind, struct filemap *out,
		 struct errbuf *err) MUST_CHECK;
int ckpt_dir_text(const struct ckpt_dir *d, const char *name, size_t bytes_max, char **out, size_t *len,
		  struct errbuf *err) MUST_CHECK;

/* Which of these files are not there: "a, b, c and 2 others are"; free() it. NULL: all are. */
char *ckpt_dir_missing(const struct ckpt_dir *d, const struct ckpt_names *n);

/* "NAME-00001-of-00003.gguf" with the ending ".gguf": the length of NAME; 0: it is not named so. */
size_t ckpt_part_stem(const char *name, const char *ending);

#endif
