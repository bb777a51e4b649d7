/* cgroup.c - see cgroup.h. Files that are missing or unreadable mean "no limit": a guess would be worse. */
#include "common/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CGROUP_PATH_MAX  4096
#define CGROUP_FILE_MAX  8192         /* memory.stat has about 2 KiB */
#define CGROUP_UNLIMITED (1ull << 62) /* version 1 writes "no limit" as a number near 2^63 */

/* Reads a small file whole; false when it cannot be read. */
static bool cgroup_read(const char *path, char *buf, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	if (fd < 0) return false;
	while (len + 1 < cap && (n = read(fd, buf + len, cap - 1 - len)) > 0) len += (size_t)n;
	close(fd);
	buf[len] = 0;
	return true;
}

static bool cgroup_read_at(const char *dir, const char *name, char *buf, size_t cap)
{
	char path[CGROUP_PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path)) return false;
	return cgroup_read(path, buf, cap);
}

/* A number of one of the files; false for "max" and anything else. */
static bool cgroup_number(const char *text, uint64_t *out)
{
	char *end;

	if (*text < '0' || *text > '9') return false;
	*out = strtoull(text, &end, 10);
	return end != text;
}

static bool cgroup_number_at(const char *dir, const char *name, uint64_t *out)
{
	char buf[64];

	return cgroup_read_at(dir, name, buf, sizeof(buf)) && cgroup_number(buf, out);
}

/* The value of "name 123" in a file of such lines; false when it is not there. */
static bool cgroup_find_stat(const char *dir, const char *file, const char *name, uint64_t *out)
{
	char buf[CGROUP_FILE_MAX];
	size_t len = strlen(name);

	if (!cgroup_read_at(dir, file, buf, sizeof(buf))) return false;
	for (char *line = buf; line && *line; line = strchr(line, '\n')) {
		if (*line == '\n') line++;
		if (strncmp(line, name, len) != 0 || line[len] != ' ') continue;
		return cgroup_number(line + len + 1, out);
	}
	return false;
}

/* Likewise; 0 when it is not there. */
static uint64_t cgroup_stat(const char *dir, const char *file, const char *name)
{
	uint64_t value;

	return cgroup_find_stat(dir, file, name, &value) ? value : 0;
}

/* The process's path in the hierarchy of `controller` ("" for version 2), from /proc/self/cgroup. */
static bool cgroup_path(const char *root, const char *controller, char *out, size_t cap)
{
	char file[CGROUP_PATH_MAX], buf[CGROUP_FILE_MAX], *save = NULL, *word_save;

	snprintf(file, sizeof(file), "%s/proc/self/cgroup", root);
	if (!cgroup_read(file, buf, sizeof(buf))) return false;
	for (char *line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *names = strchr(line, ':'), *path;
		bool found;

		if (!names || !(path = strchr(names + 1, ':'))) continue;
		*names++ = 0;
		*path++ = 0;
		found = !*controller && !*names;
		for (char *w = strtok_r(names, ",", &word_save); w && *controller; w = strtok_r(NULL, ",", &word_save))
			found = found || strcmp(w, controller) == 0;
		if (!found) continue;
		return snprintf(out, cap, "%s", path) < (int)cap;
	}
	return false;
}

typedef void cgroup_visit(const char *dir, void *ctx);

/* Visits the process's group below `mount` and every group above it. */
static void cgroup_walk(const char *root, const char *mount, const char *controller, cgroup_visit *visit, void *ctx)
{
	char path[CGROUP_PATH_MAX / 2], dir[CGROUP_PATH_MAX];
	size_t base;

	if (!cgroup_path(root, controller, path, sizeof(path))) return;
	base = (size_t)snprintf(dir, sizeof(dir), "%s%s", root, mount);
	if (base + strlen(path) + 1 >= sizeof(dir) || access(dir, F_OK) != 0) return;
	if (strcmp(path, "/") != 0 && !strstr(path, "..")) strcpy(dir + base, path);
	for (;;) {
		char *slash;

		visit(dir, ctx);
		if (strlen(dir) <= base) return;
		slash = strrchr(dir, '/');
		*slash = 0;
		if (strlen(dir) < base) return;
	}
}

static void cgroup_visit_cpu(const char *dir, void *ctx)
{
	double *limit = ctx, cores;
	uint64_t quota = 0, period = 0;
	char buf[64], *space;

	if (cgroup_read_at(dir, "cpu.max", buf, sizeof(buf))) { /* version 2: "quota period", quota may be "max" */
		space = strchr(buf, ' ');
		if (!space || !cgroup_number(buf, &quota) || !cgroup_number(space + 1, &period)) return;
	} else if (!cgroup_number_at(dir, "cpu.cfs_quota_us", &quota) ||
		   !cgroup_number_at(dir, "cpu.cfs_period_us", &period)) {
		return;
	}
	if (quota == 0 || period == 0) return;
	cores = (double)quota / (double)period;
	if (*limit == 0 || cores < *limit) *limit = cores;
}

double cgroup_cpu_limit(const char *root)
{
	double limit = 0;

	cgroup_walk(root, "/sys/fs/cgroup", "", cgroup_visit_cpu, &limit);
	cgroup_walk(root, "/sys/fs/cgroup/cpu", "cpu", cgroup_visit_cpu, &limit);
	cgroup_walk(root, "/sys/fs/cgroup/cpu,cpuacct", "cpu", cgroup_visit_cpu, &limit);
	return limit;
}

static void cgroup_visit_memory(const char *dir, void *ctx)
{
	uint64_t *left = ctx, limit, used, cache;

	if (cgroup_number_at(dir, "memory.max", &limit)) {
		if (!cgroup_number_at(dir, "memory.current", &used)) return;
		cache = cgroup_stat(dir, "memory.stat", "inactive_file") +
			cgroup_stat(dir, "memory.stat", "active_file");
	} else {
		if (!cgroup_number_at(dir, "memory.limit_in_bytes", &limit) || limit >= CGROUP_UNLIMITED ||
		    !cgroup_number_at(dir, "memory.usage_in_bytes", &used))
			return;
		cache = cgroup_stat(dir, "memory.stat", "total_inactive_file") +
			cgroup_stat(dir, "memory.stat", "total_active_file");
	}
	used -= min_u64(cache, used);
	*left = min_u64(*left, limit > used ? limit - used : 0);
}

uint64_t cgroup_memory_left(const char *root)
{
	uint64_t left = UINT64_MAX;

	cgroup_walk(root, "/sys/fs/cgroup", "", cgroup_visit_memory, &left);
	cgroup_walk(root, "/sys/fs/cgroup/unified", "", cgroup_visit_memory, &left);
	cgroup_walk(root, "/sys/fs/cgroup/memory", "memory", cgroup_visit_memory, &left);
	return left;
}

struct cgroup_oom {
	struct cgroup_memory *out;
	bool found;   /* the process's own group, or the nearest one that can be read */
	size_t base;  /* length of the mount's path */
};

static void cgroup_visit_oom(const char *dir, void *ctx)
{
	struct cgroup_oom *o = ctx;
	uint64_t kills, limit, peak = 0;

	if (!o->found && (cgroup_find_stat(dir, "memory.events", "oom_kill", &kills) || /* version 2, then 1 */
			  cgroup_find_stat(dir, "memory.oom_control", "oom_kill", &kills))) {
		o->found = true;
		o->out->oom_kills = kills;
	}
	if (cgroup_number_at(dir, "memory.max", &limit)) {
		if (!cgroup_number_at(dir, "memory.peak", &peak)) (void)cgroup_number_at(dir, "memory.current", &peak);
	} else if (cgroup_number_at(dir, "memory.limit_in_bytes", &limit) && limit < CGROUP_UNLIMITED) {
		(void)cgroup_number_at(dir, "memory.max_usage_in_bytes", &peak);
	} else {
		return;
	}
	if (o->out->path[0] && o->out->limit <= limit) return;
	snprintf(o->out->path, sizeof(o->out->path), "%s", dir[o->base] ? dir + o->base : "/");
	o->out->limit = limit;
	o->out->peak = peak;
}

bool cgroup_memory(struct cgroup_memory *out, const char *root)
{
	static const struct {
		const char *mount, *controller;
	} places[] = {{"/sys/fs/cgroup", ""}, {"/sys/fs/cgroup/unified", ""}, {"/sys/fs/cgroup/memory", "memory"}};
	struct cgroup_oom o = {.out = out};

	*out = (struct cgroup_memory){0};
	for (size_t i = 0; i < ARRAY_LEN(places) && !o.found; i++) {
		o.base = strlen(root) + strlen(places[i].mount);
		cgroup_walk(root, places[i].mount, places[i].controller, cgroup_visit_oom, &o);
	}
	return o.found;
}
