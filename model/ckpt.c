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

/* ---- opening ---- */

static struct ckpt *ckpt_new(const char *path)
{
	struct ckpt *c = mem_new(struct ckpt);

	c->path = mem_strdup(path);
	c->shown = quote_path(path);
	nameindex_init(&c->index);
	return c;
}

/* The folder is open, `name` a file of it or NULL for all of it. Takes c. */
static int ckpt_read(struct ckpt **out, struct ckpt *c, const struct ckpt_dir *dir, const char *name,
		     struct errbuf *err)
{
	int rc = name ? ckpt_read_gguf(c, dir, name, err) : ckpt_read_folder(c, dir, err);

	if (rc == ST_OK)
		*out = c;
	else
		ckpt_close(c);
	return rc;
}

int ckpt_open(struct ckpt **out, const char *path, struct errbuf *err)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct ckpt *c = ckpt_new(path);
	struct ckpt_dir dir = {.fd = -1};
	char *folder = NULL;
	struct stat st;
	int rc;

	*out = NULL;
	if (stat(path, &st) != 0) {
		rc = errno == ENOENT ? ST_NOT_FOUND : errno == EACCES ? ST_DENIED : ST_IO;
		err_set(err, rc, "%s: cannot open the file: %s", c->shown, strerror(errno));
		ckpt_close(c);
		return rc;
	}
	if (S_ISDIR(st.st_mode)) name = NULL;
	folder = name ? mem_strndup(path, (size_t)(name - path)) : mem_strdup(path);
	rc = ckpt_dir_open(&dir, folder, err);
	if (rc == ST_OK)
		rc = ckpt_read(out, c, &dir, name, err);
	else
		ckpt_close(c);
	ckpt_dir_close(&dir);
	free(folder);
	return rc;
}

int ckpt_open_parts(struct ckpt **out, const struct ckpt_part *parts, size_t n, const char *path, struct errbuf *err)
{
	static const struct ckpt_part none = {"", "", 0};
	struct ckpt_dir dir = {.fd = -1, .path = mem_strdup(""), .parts = n ? parts : &none, .n_parts = n};
	int rc;

	*out = NULL;
	rc = ckpt_read(out, ckpt_new(path ? path : "the folder"), &dir, path, err);
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
