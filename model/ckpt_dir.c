/* ckpt_dir.c - see ckpt_dir.h. */
#include "model/ckpt_dir.h"

#include "common/filetext.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MISSING_SHOWN_MAX 3 /* names of missing files in a message */

int ckpt_dir_open(struct ckpt_dir *d, const char *path, struct errbuf *err)
{
	size_t len = strlen(path);
	int rc;

	*d = (struct ckpt_dir){.fd = AT_FDCWD, .path = mem_realloc(NULL, len + 2, 1)};
	snprintf(d->path, len + 2, "%s%s", path, len && path[len - 1] != '/' ? "/" : "");
	if (len == 0) return ST_OK;
	d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->fd >= 0) return ST_OK;
	rc = errno == ENOENT ? ST_NOT_FOUND : errno == EACCES ? ST_DENIED : ST_IO;
	return err_set(err, rc, "%s: cannot open the folder: %s", quote_short(path, len).text, strerror(errno));
}

void ckpt_dir_close(struct ckpt_dir *d)
{
	if (d->fd >= 0) close(d->fd);
	free(d->path);
	*d = (struct ckpt_dir){.fd = -1};
}

static const struct ckpt_part *find_part(const struct ckpt_dir *d, const char *name)
{
	for (size_t i = 0; i < d->n_parts; i++)
		if (strcmp(d->parts[i].name, name) == 0) return &d->parts[i];
	return NULL;
}

bool ckpt_dir_has(const struct ckpt_dir *d, const char *name)
{
	struct stat st;

	if (d->parts) return find_part(d, name) != NULL;
	return fstatat(d->fd, name, &st, 0) == 0;
}

char *ckpt_dir_path(const struct ckpt_dir *d, const char *name)
{
	size_t len = strlen(d->path) + strlen(name) + 1;
	char *out = mem_realloc(NULL, len, 1);

	snprintf(out, len, "%s%s", d->path, name);
	return out;
}

char *ckpt_dir_shown(const struct ckpt_dir *d, const char *name)
{
	char *path = ckpt_dir_path(d, name), *shown = quote_path(path);

	free(path);
	return shown;
}

int ckpt_dir_prefix(const struct ckpt_dir *d, const char *name, int rc, struct errbuf *err)
{
	char *shown = ckpt_dir_shown(d, name);

	err_prefix(err, rc, "%s", shown);
	free(shown);
	return rc;
}

/* ---- listing ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(struct ckpt_names *out, const char *name, const char *ending, struct errbuf *err)
{
	size_t len = strlen(name), end = strlen(ending);

	if (name[0] == '.' || len < end || strcmp(name + len - end, ending) != 0) return ST_OK;
	if (out->n == CKPT_DIR_NAMES_MAX)
		return err_set(err, ST_LIMIT, "the folder holds more than %d files *%s", CKPT_DIR_NAMES_MAX, ending);
	mem_reserve(out->names, out->cap, out->n + 1);
	out->names[out->n++] = mem_strdup(name);
	return ST_OK;
}

static int list_folder(const struct ckpt_dir *d, const char *ending, struct ckpt_names *out, struct errbuf *err)
{
	int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = ST_OK;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;

	if (!dir) {
		if (fd >= 0) close(fd);
		return err_set(err, ST_IO, "cannot list the folder: %s", strerror(errno));
	}
	while (rc == ST_OK && (e = readdir(dir))) rc = add_name(out, e->d_name, ending, err);
	closedir(dir);
	return rc;
}

int ckpt_dir_list(const struct ckpt_dir *d, const char *ending, struct ckpt_names *out, struct errbuf *err)
{
	int rc = ST_OK;

	*out = (struct ckpt_names){0};
	for (size_t i = 0; i < d->n_parts && rc == ST_OK; i++) rc = add_name(out, d->parts[i].name, ending, err);
	if (!d->parts) rc = list_folder(d, ending, out, err);
	ckpt_names_sort(out);
	return rc;
}

void ckpt_names_sort(struct ckpt_names *n)
{
	if (n->n) qsort(n->names, n->n, sizeof(*n->names), by_name);
}

void ckpt_names_release(struct ckpt_names *n)
{
	for (size_t i = 0; i < n->n; i++) free(n->names[i]);
	free(n->names);
	*n = (struct ckpt_names){0};
}

char *ckpt_dir_missing(const struct ckpt_dir *d, const struct ckpt_names *names)
{
	struct strbuf out;
	size_t n = 0;

	strbuf_init(&out, 500);
	for (size_t i = 0; i < names->n; i++)
		if (!ckpt_dir_has(d, names->names[i]) && n++ < MISSING_SHOWN_MAX)
			strbuf_printf(&out, "%s%s", n > 1 ? ", " : "",
				      quote_short(names->names[i], strlen(names->names[i])).text);
	if (n > MISSING_SHOWN_MAX) strbuf_printf(&out, " and %zu others", n - MISSING_SHOWN_MAX);
	strbuf_puts(&out, n == 1 ? " is" : " are");
	if (n) return strbuf_take(&out);
	strbuf_release(&out);
	return NULL;
}

size_t ckpt_part_stem(const char *name, const char *ending)
{
	size_t len = strlen(name), tail = strlen("-00001-of-00003") + strlen(ending),
	       stem = len > tail ? len - tail : 0;
	unsigned no, count;
	int end = 0;

	if (!stem || sscanf(name + stem, "-%5u-of-%5u%n", &no, &count, &end) != 2) return 0;
	return strcmp(name + stem + end, ending) == 0 && end == (int)strlen("-00001-of-00003") ? stem : 0;
}

/* ---- reading ---- */

int ckpt_dir_map(const struct ckpt_dir *d, const char *name, const char *kind, struct filemap *out, struct errbuf *err)
{
	const struct ckpt_part *part = d->parts ? find_part(d, name) : NULL;

	if (!d->parts) return filemap_open(out, d->fd, name, kind, err);
	*out = (struct filemap){0};
	if (!part) return err_set(err, ST_NOT_FOUND, "cannot open the file: %s", strerror(ENOENT));
	if (part->bytes + part->zeroes == 0) return err_set(err, ST_CORRUPT, "the file is empty");
	filemap_from(out, part->data, part->bytes, part->zeroes);
	return ST_OK;
}

int ckpt_dir_text(const struct ckpt_dir *d, const char *name, size_t bytes_max, char **out, size_t *len,
		  struct errbuf *err)
{
	const struct ckpt_part *part = d->parts ? find_part(d, name) : NULL;

	if (!d->parts) return filetext_read_at(out, len, d->fd, name, bytes_max, err);
	*out = NULL;
	if (!part) return err_set(err, ST_NOT_FOUND, "%s", strerror(ENOENT));
	if (part->bytes > bytes_max)
		return err_set(err, ST_LIMIT, "has %zu bytes; expected at most %zu", part->bytes, bytes_max);
	*out = mem_realloc(NULL, part->bytes + 1, 1);
	*len = part->bytes;
	if (*len) memcpy(*out, part->data, *len);
	(*out)[*len] = 0;
	return ST_OK;
}
