/* ckpt.c - see ckpt.h: opening by what the path is, tensors by name, and advice about their pages.
 *
 * What is inside a GGUF file, a safetensors file or a folder is ckpt_gguf.c's, safetensors.c's and ckpt_folder.c's
 * business. */
#include "model/ckpt.h"

#include "common/mem.h"
#include "common/quote.h"
#include "model/ckpt_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TENSORS_MAX (1u << 22) /* the largest published models have some 220,000 */

/* ---- opening ---- */

static struct ckpt *ckpt_new(const char *path)
{
	struct ckpt *c = mem_new(struct ckpt);

	c->path = mem_strdup(path);
	c->shown = quote_path(path);
	nameindex_init(&c->index);
	return c;
}

/* The folder is open, `name` a file of it or NULL for all of it. */
static int ckpt_read(struct ckpt *c, const struct ckpt_dir *dir, const char *name, struct errbuf *err)
{
	return name ? ckpt_read_gguf(c, dir, name, err) : ckpt_read_folder(c, dir, err);
}

static bool ends_with(const char *name, const char *ending)
{
	size_t len = strlen(name), end = strlen(ending);

	return len >= end && strcmp(name + len - end, ending) == 0;
}

/* Whether the path is a folder; refuses what is neither that nor may be a GGUF file. */
static int check_path(const struct ckpt *c, bool *is_folder, struct errbuf *err)
{
	struct stat st;
	int rc;

	if (stat(c->path, &st) != 0) {
		rc = errno == ENOENT ? ST_NOT_FOUND : errno == EACCES ? ST_DENIED : ST_IO;
		return err_set(err, rc, "%s: cannot open the file: %s", c->shown, strerror(errno));
	}
	*is_folder = S_ISDIR(st.st_mode);
	if (!*is_folder && (ends_with(c->path, ".safetensors") || ends_with(c->path, ".json")))
		return err_set(err, ST_INVALID, "%s: is one file of a folder; give the folder that holds it", c->shown);
	return ST_OK;
}

int ckpt_open(struct ckpt **out, const char *path, struct errbuf *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct ckpt_dir dir = {.fd = -1};
	struct ckpt *c = ckpt_new(path);
	bool is_folder = false;
	char *folder;
	int rc = check_path(c, &is_folder, err);

	*out = NULL;
	if (rc == ST_OK) {
		folder = mem_strndup(path, is_folder ? strlen(path) : (size_t)(name - path));
		rc = ckpt_dir_open(&dir, folder, err);
		free(folder);
	}
	if (rc == ST_OK) rc = ckpt_read(c, &dir, is_folder ? NULL : name, err);
	if (rc == ST_OK)
		*out = c;
	else
		ckpt_close(c);
	ckpt_dir_close(&dir);
	return rc;
}

int ckpt_open_parts(struct ckpt **out, const struct ckpt_part *parts, size_t n, const char *path, struct errbuf *err)
{
	static const struct ckpt_part none = {"", "", 0, 0};
	struct ckpt_dir dir = {.fd = -1, .path = mem_strdup(""), .parts = n ? parts : &none, .n_parts = n};
	struct ckpt *c = ckpt_new(path ? path : "the folder");
	int rc = ckpt_read(c, &dir, path, err);

	*out = rc == ST_OK ? c : NULL;
	if (rc != ST_OK) ckpt_close(c);
	ckpt_dir_close(&dir);
	return rc;
}

void ckpt_close(struct ckpt *c)
{
	if (!c) return;
	for (size_t i = 0; i < c->n_files; i++) {
		gguf_close(c->files[i].gguf);
		safetensors_release(&c->files[i].st);
		filemap_close(&c->files[i].map);
		free(c->files[i].name);
	}
	free(c->files);
	free(c->tensors);
	nameindex_release(&c->index);
	json_decref(c->config);
	free(c->path);
	free(c->shown);
	free(c);
}

/* ---- for those who fill it ---- */

struct ckpt_file *ckpt_add_file(struct ckpt *c, const char *name)
{
	struct ckpt_file *f;

	mem_reserve(c->files, c->cap_files, c->n_files + 1);
	f = &c->files[c->n_files++];
	*f = (struct ckpt_file){.name = mem_strdup(quote_short(name, strlen(name)).text)};
	return f;
}

static const char *tensor_name(const void *owner, size_t ix, size_t *len)
{
	const struct ckpt *c = owner;

	*len = c->tensors[ix].name.len;
	return c->tensors[ix].name.s;
}

int ckpt_add_tensor(struct ckpt *c, const struct ckpt_tensor *t, struct errbuf *err)
{
	if (c->n_tensors == TENSORS_MAX)
		return err_set(err, ST_LIMIT, "more than %u tensors in all files", TENSORS_MAX);
	mem_reserve(c->tensors, c->cap_tensors, c->n_tensors + 1);
	c->tensors[c->n_tensors] = *t;
	if (!nameindex_add(&c->index, tensor_name, c, c->n_tensors)) {
		size_t first = nameindex_find(&c->index, tensor_name, c, t->name.s, t->name.len);

		return err_set(err, ST_CORRUPT, "duplicate tensor %s (the first is in %s)",
			       quote_short(t->name.s, t->name.len).text, c->files[c->tensors[first].file].name);
	}
	c->n_tensors++;
	return ST_OK;
}

/* ---- what it holds ---- */

const char *ckpt_shown_path(const struct ckpt *c)
{
	return c->shown;
}

const char *ckpt_path(const struct ckpt *c)
{
	return c->path;
}

const struct gguf *ckpt_gguf(const struct ckpt *c)
{
	return c->n_files ? c->files[0].gguf : NULL;
}

const json_t *ckpt_config(const struct ckpt *c)
{
	return c->config;
}

size_t ckpt_file_count(const struct ckpt *c)
{
	return c->n_files;
}

const char *ckpt_file_name(const struct ckpt *c, size_t ix)
{
	CHECK(ix < c->n_files);
	return c->files[ix].name;
}

uint64_t ckpt_bytes(const struct ckpt *c)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < c->n_files; i++)
		sum += c->files[i].gguf ? gguf_file_bytes(c->files[i].gguf) : c->files[i].map.bytes;
	return sum;
}

size_t ckpt_tensor_count(const struct ckpt *c)
{
	return c->n_tensors;
}

const struct ckpt_tensor *ckpt_tensor_at(const struct ckpt *c, size_t ix)
{
	CHECK(ix < c->n_tensors);
	return &c->tensors[ix];
}

const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name)
{
	size_t ix = nameindex_find(&c->index, tensor_name, c, name, strlen(name));

	return ix == SIZE_MAX ? NULL : &c->tensors[ix];
}

const char *ckpt_type_name(uint32_t type)
{
	const struct ggtype_info *info = ggtype_info(type);
	const char *name = info ? info->name : safetensors_type_name(type);

	return name ? name : "unknown";
}

/* ---- pages ---- */

void ckpt_will_need(const struct ckpt_tensor *t)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)t->data & ~(page - 1);

	/* Advice: when the kernel does not take it, pages come when they are read. */
	if (t->bytes) madvise((void *)from, (uintptr_t)t->data + t->bytes - from, MADV_WILLNEED);
}

void ckpt_drop(const struct ckpt_tensor *t, uint64_t from, uint64_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin, end;

	CHECK(from <= t->bytes && bytes <= t->bytes - from);
	begin = align_up((uintptr_t)t->data + from, page);
	end = ((uintptr_t)t->data + from + bytes) & ~(page - 1);
	/* The map is private and never written, so the pages are the file's: dropped ones are read again when somebody
	 * needs them. */
	if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}
