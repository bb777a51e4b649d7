/* golden.c - see golden.h.
 *
 * Packed files are unpacked by gzip into a temporary file, so that every stream is closed alike. */
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_LEN_MAX 1024

static FILE *golden_unpack(const char *path)
{
	char cmd[PATH_LEN_MAX + 32], buf[16384];
	FILE *from, *to;
	size_t n;

	if (strchr(path, '\'')) return NULL;
	snprintf(cmd, sizeof(cmd), "gzip -dc '%s'", path);
	from = popen(cmd, "r");
	to = tmpfile();
	if (!from || !to) fail_msg("cannot unpack %s", path);
	while ((n = fread(buf, 1, sizeof(buf), from)) > 0)
		if (fwrite(buf, 1, n, to) != n) fail_msg("cannot write a temporary file");
	if (pclose(from) != 0) fail_msg("gzip cannot unpack %s", path);
	rewind(to);
	return to;
}

static FILE *golden_try(const char *root, const char *relpath)
{
	char path[PATH_LEN_MAX];
	int len = snprintf(path, sizeof(path) - 3, "%s/%s", root, relpath);
	FILE *f;

	if (len < 0 || (size_t)len >= sizeof(path) - 3) return NULL;
	f = fopen(path, "re");
	if (f) return f;
	memcpy(path + len, ".gz", 4);
	return access(path, R_OK) == 0 ? golden_unpack(path) : NULL;
}

static const char *golden_shared_root(char *buf, size_t cap)
{
	const char *env = getenv("SLUICE_SHARED");

	snprintf(buf, cap, "%s/golden", env && *env ? env : "../shared");
	return buf;
}

/* Unpacks an archive into `folder`, unless it is there. Programs may do so at the same time: each has a folder of its own until it is
 * whole, and whoever is first gives it its name. */
static void golden_unpack_folder(const char *archive, const char *folder)
{
	char temp[PATH_LEN_MAX + 32], cmd[4 * PATH_LEN_MAX];

	if (access(folder, R_OK | X_OK) == 0) return;
	snprintf(temp, sizeof(temp), "%s.%ld", folder, (long)getpid());
	snprintf(cmd, sizeof(cmd), "mkdir -p '%s' && xz -dc '%s' | tar -xf - -C '%s'", temp, archive, temp);
	if (system(cmd) != 0) fail_msg("cannot unpack %s", archive);
	if (rename(temp, folder) == 0) return;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", temp);
	if (access(folder, R_OK | X_OK) != 0 || system(cmd) != 0) fail_msg("cannot make %s", folder);
}

bool golden_folder(const char *relpath, char *path, size_t cap)
{
	char root[PATH_LEN_MAX], archive[PATH_LEN_MAX];
	struct stat st;
	int len = snprintf(path, cap, "%s/%s", golden_shared_root(root, sizeof(root)), relpath);

	if (len > 0 && (size_t)len < cap && access(path, R_OK | X_OK) == 0) return true;
	len = snprintf(archive, sizeof(archive), "tests/data/golden/%s.tar.xz", relpath);
	if (len < 0 || (size_t)len >= sizeof(archive) || strchr(archive, '\'') || stat(archive, &st) != 0) return false;
	/* Named by size and age, so that a new archive is unpacked anew. */
	len = snprintf(path, cap, "build/golden/%s-%lld-%lld", relpath, (long long)st.st_size, (long long)st.st_mtime);
	if (len < 0 || (size_t)len >= cap || (size_t)len >= PATH_LEN_MAX) return false;
	golden_unpack_folder(archive, path);
	return true;
}

/* A file in a packed folder. */
static FILE *golden_try_folder(const char *relpath)
{
	char parent[PATH_LEN_MAX], folder[PATH_LEN_MAX];
	const char *slash = strrchr(relpath, '/');

	if (!slash || (size_t)(slash - relpath) >= sizeof(parent)) return NULL;
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - relpath), relpath);
	return golden_folder(parent, folder, sizeof(folder)) ? golden_try(folder, slash + 1) : NULL;
}

FILE *golden_open(const char *relpath)
{
	char root[PATH_LEN_MAX];
	FILE *f = golden_try(golden_shared_root(root, sizeof(root)), relpath);

	if (!f) f = golden_try("tests/data/golden", relpath);
	return f ? f : golden_try_folder(relpath);
}

bool golden_has_shared(void)
{
	char root[PATH_LEN_MAX];

	return access(golden_shared_root(root, sizeof(root)), R_OK | X_OK) == 0;
}

json_t *golden_next(FILE *f)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t len = getline(&line, &cap, f);
	json_error_t err;
	json_t *j = NULL;

	if (len > 0) {
		j = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, &err);
		if (!j) fail_msg("golden line is not JSON: %s: %.100s", err.text, line);
	}
	free(line);
	return j;
}

char *golden_text(const char *relpath, size_t *len)
{
	FILE *f = golden_open(relpath);
	char *text = NULL;
	size_t cap = 0;

	*len = 0;
	if (!f) return NULL;
	for (;;) {
		if (cap - *len < 2) text = realloc(text, cap = cap ? cap * 2 : 65536);
		if (!text) fail_msg("out of memory");
		size_t n = fread(text + *len, 1, cap - *len - 1, f);
		if (n == 0) break;
		*len += n;
	}
	text[*len] = 0;
	fclose(f);
	return text;
}

json_t *golden_json(const char *relpath)
{
	size_t len;
	char *text = golden_text(relpath, &len);
	json_error_t err;
	json_t *j;

	if (!text) return NULL;
	j = json_loadb(text, len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &err);
	if (!j) fail_msg("%s is not JSON: %s", relpath, err.text);
	free(text);
	return j;
}

uint32_t *golden_u32s(const json_t *array, size_t *n)
{
	uint32_t *out = calloc(json_array_size(array) + 1, sizeof(*out));

	if (!out || !json_is_array(array)) fail_msg("not an array");
	*n = json_array_size(array);
	for (size_t i = 0; i < *n; i++) {
		json_t *e = json_array_get(array, i);
		json_int_t v = json_integer_value(e);

		if (!json_is_integer(e) || v < 0 || v > UINT32_MAX) fail_msg("not a whole number");
		out[i] = (uint32_t)v;
	}
	return out;
}
