/* ckpt_gguf.c - a GGUF file as a checkpoint, or all files of a split one.
 *
 * llama.cpp names the parts of a model NAME-00001-of-0000N.gguf and writes split.no (from 0), split.count and
 * split.tensors.count into each; the first has the metadata. The model is given by its first part, the others are found
 * beside it. */
#include "common/mem.h"
#include "common/quote.h"
#include "model/ckpt_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int open_file(struct ckpt *c, const struct ckpt_dir *dir, const char *name, struct gguf **out,
		     struct errbuf *err)
{
	struct ckpt_file *f = ckpt_add_file(c, name);
	char *path = ckpt_dir_path(dir, name), *shown = quote_path(path);
	struct filemap map;
	int rc = ckpt_dir_map(dir, name, "a GGUF file", &map, err);

	if (rc == ST_OK)
		rc = gguf_open_map(&f->gguf, path, map, err);
	else
		err_prefix(err, rc, "%s", shown);
	*out = f->gguf;
	free(path);
	free(shown);
	return rc;
}

static int add_tensors(struct ckpt *c, const struct gguf *g, struct errbuf *err)
{
	int rc = ST_OK;

	for (size_t i = 0; i < gguf_tensor_count(g) && rc == ST_OK; i++) {
		const struct gguf_tensor *from = gguf_tensor_at(g, i);
		struct ckpt_tensor t = {.name = from->name,
					.type = from->type,
					.n_dims = from->n_dims,
					.data = from->data,
					.bytes = from->bytes};

		t.file = (uint32_t)c->n_files - 1;
		for (uint32_t d = 0; d < t.n_dims; d++) t.dims[d] = from->dims[t.n_dims - 1 - d];
		rc = ckpt_add_tensor(c, &t, err);
	}
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "%s", gguf_shown_path(g));
}

/* ---- parts ---- */

/* "-00002-of-00003.gguf" */
static void part_suffix(char out[48], uint32_t no, uint32_t count)
{
	snprintf(out, 48, "-%05u-of-%05u.gguf", no + 1, count);
}

/* The name of part no of the same model; free() it. `stem` bytes of name are the model's. */
static char *part_name(const char *name, size_t stem, uint32_t no, uint32_t count)
{
	char suffix[48], *out = mem_realloc(NULL, stem + sizeof(suffix), 1);

	part_suffix(suffix, no, count);
	memcpy(out, name, stem);
	strcpy(out + stem, suffix);
	return out;
}

bool ckpt_same_split(const char *a, const char *b)
{
	size_t stem = ckpt_part_stem(a, ".gguf"), count_at = stem + 10; /* "-00001-of-" */

	return stem && stem == ckpt_part_stem(b, ".gguf") && memcmp(a, b, stem) == 0 &&
	       strcmp(a + count_at, b + count_at) == 0;
}

static int find_missing(const struct ckpt_dir *dir, const char *name, size_t stem, uint32_t count, struct errbuf *err)
{
	struct ckpt_names parts = {0};
	char *missing;
	int rc = ST_OK;

	for (uint32_t i = 0; i < count; i++) {
		mem_reserve(parts.names, parts.cap, parts.n + 1);
		parts.names[parts.n++] = part_name(name, stem, i, count);
	}
	missing = ckpt_dir_missing(dir, &parts);
	if (missing) rc = err_set(err, ST_NOT_FOUND, "a split model of %u parts, of which %s missing", count, missing);
	free(missing);
	ckpt_names_release(&parts);
	return rc;
}

/* The first part is open. */
static int check_first(const struct ckpt_dir *dir, const char *name, const struct gguf *g, size_t *stem,
		       struct errbuf *err)
{
	struct gguf_split s = gguf_split(g);
	char suffix[48];

	if (s.no >= s.count)
		return err_set(err, ST_CORRUPT, "split.no is %u; expected less than split.count, %u", s.no, s.count);
	part_suffix(suffix, s.no, s.count);
	*stem = strlen(name) - min_size(strlen(name), strlen(suffix));
	if (strcmp(name + *stem, suffix) != 0)
		return err_set(err, ST_CORRUPT,
			       "split.count is %u and split.no %u, but the file is not named \"...%s\"", s.count, s.no,
			       suffix);
	if (s.no) {
		char *first = part_name(name, *stem, 0, s.count);
		bool there = ckpt_dir_has(dir, first);
		int rc = err_set(err, there ? ST_INVALID : ST_NOT_FOUND,
				 "part %u of a split model of %u; give its first part, %s%s", s.no + 1, s.count,
				 quote_short(first, strlen(first)).text, there ? "" : ", which is missing");

		free(first);
		return rc;
	}
	return find_missing(dir, name, *stem, s.count, err);
}

/* `no`: which part it must be. */
static int check_part(const struct gguf *g, struct gguf_split first, uint32_t no, struct errbuf *err)
{
	struct gguf_split s = gguf_split(g);

	if (s.no != no || s.count != first.count)
		return err_set(err, ST_CORRUPT,
			       "%s: split.no is %u and split.count %u; expected %u and %u, as its name says",
			       gguf_shown_path(g), s.no, s.count, no, first.count);
	if (s.tensors != first.tensors)
		return err_set(err, ST_CORRUPT,
			       "%s: split.tensors.count is %" PRIu64 ", but the first part says %" PRIu64,
			       gguf_shown_path(g), s.tensors, first.tensors);
	return ST_OK;
}

static int read_others(struct ckpt *c, const struct ckpt_dir *dir, const char *name, const struct gguf *g,
		       struct errbuf *err)
{
	struct gguf_split first = gguf_split(g);
	size_t stem = 0;
	int rc = check_first(dir, name, g, &stem, err);

	if (rc != ST_OK) return err_prefix(err, rc, "%s", gguf_shown_path(g));
	for (uint32_t i = 1; i < first.count && rc == ST_OK; i++) {
		char *part = part_name(name, stem, i, first.count);
		struct gguf *other;

		rc = open_file(c, dir, part, &other, err);
		if (rc == ST_OK) rc = check_part(other, first, i, err);
		if (rc == ST_OK) rc = add_tensors(c, other, err);
		free(part);
	}
	if (rc == ST_OK && first.tensors && first.tensors != c->n_tensors)
		rc = err_set(err, ST_CORRUPT,
			     "%s: split.tensors.count is %" PRIu64 ", but the %u parts have %zu tensors",
			     gguf_shown_path(g), first.tensors, first.count, c->n_tensors);
	return rc;
}

int ckpt_read_gguf(struct ckpt *c, const struct ckpt_dir *dir, const char *name, struct errbuf *err)
{
	struct gguf_str architecture;
	struct gguf *g;
	int rc = open_file(c, dir, name, &g, err);

	if (rc == ST_OK) rc = add_tensors(c, g, err);
	if (rc == ST_OK && gguf_split(g).count > 1) rc = read_others(c, dir, name, g, err);
	if (rc == ST_OK) rc = gguf_get_str(g, "general.architecture", &architecture, err);
	return rc;
}
