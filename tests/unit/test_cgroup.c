/* test_cgroup.c - limits of control groups, read from made-up roots of a file system. */
#include "common/cgroup.h"
#include "common/cpuset.h"
#include "tests/support/test_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FILES_MAX 8

struct file {
	const char *path, *text;
};

struct row {
	const char *what;
	struct file files[FILES_MAX];
	double cores;
	uint64_t memory;
};

static const struct row rows[] = {
	{"nothing there", {{NULL, NULL}}, 0, UINT64_MAX},
	{"version 2, own group",
	 {{"proc/self/cgroup", "0::/a/b\n"},
	  {"sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"},
	  {"sys/fs/cgroup/a/b/memory.max", "1000000\n"},
	  {"sys/fs/cgroup/a/b/memory.current", "400000\n"},
	  {"sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 100000\nactive_file 50000\n"}},
	 1.5,
	 750000},
	{"version 2, the tighter limit stands above",
	 {{"proc/self/cgroup", "0::/a/b\n"},
	  {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
	  {"sys/fs/cgroup/a/cpu.max", "50000 100000\n"},
	  {"sys/fs/cgroup/a/b/memory.max", "max\n"},
	  {"sys/fs/cgroup/a/memory.max", "300\n"},
	  {"sys/fs/cgroup/a/memory.current", "500\n"}},
	 0.5,
	 0},
	{"version 2 in a container: the path is the host's, the mount is the group",
	 {{"proc/self/cgroup", "0::/\n"},
	  {"sys/fs/cgroup/cpu.max", "400000 100000\n"},
	  {"sys/fs/cgroup/memory.max", "2000\n"},
	  {"sys/fs/cgroup/memory.current", "500\n"}},
	 4,
	 1500},
	{"version 1",
	 {{"proc/self/cgroup", "4:memory:/x\n2:cpu,cpuacct:/x\n"},
	  {"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n"},
	  {"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"},
	  {"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9000\n"},
	  {"sys/fs/cgroup/memory/x/memory.usage_in_bytes", "3000\n"},
	  {"sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 1000\n"}},
	 2.5,
	 7000},
	{"version 1 without limits, in a container whose path is not mounted",
	 {{"proc/self/cgroup", "4:memory:/docker/abc\n2:cpu:/docker/abc\n"},
	  {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
	  {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
	  {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
	  {"sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n"}},
	 0,
	 UINT64_MAX},
	{"nonsense",
	 {{"proc/self/cgroup", "0::/../../etc\nrubbish\n:::\n7:cpu\n"},
	  {"sys/fs/cgroup/cpu.max", "x y\n"},
	  {"sys/fs/cgroup/memory.max", "-5\n"}},
	 0,
	 UINT64_MAX},
};

static void make_file(const char *root, const struct file *f)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", root, f->path);
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = 0;
		mkdir(path, 0700);
	}
	test_file_write(path, f->text, strlen(f->text));
}

static void limits_are_read(void **state)
{
	char root[64], cmd[128];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];

		snprintf(root, sizeof(root), "/tmp/sluice-cgroup-XXXXXX");
		assert_non_null(mkdtemp(root));
		for (int k = 0; k < FILES_MAX && r->files[k].path; k++) make_file(root, &r->files[k]);
		if (cgroup_cpu_limit(root) != r->cores)
			fail_msg("%s: %g cores, expected %g", r->what, cgroup_cpu_limit(root), r->cores);
		if (cgroup_memory_left(root) != r->memory)
			fail_msg("%s: %llu bytes, expected %llu", r->what, (unsigned long long)cgroup_memory_left(root),
				 (unsigned long long)r->memory);
		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
		assert_int_equal(system(cmd), 0);
	}
}

static const struct kill_row {
	const char *what;
	struct file files[FILES_MAX];
	bool found;
	struct cgroup_memory expect;
} kill_rows[] = {
	{"nothing there", {{NULL, NULL}}, false, {0}},
	{"version 2: own kills, the tighter limit above",
	 {{"proc/self/cgroup", "0::/a/b\n"},
	  {"sys/fs/cgroup/a/b/memory.events", "low 0\noom 9\noom_kill 3\noom_group_kill 0\n"},
	  {"sys/fs/cgroup/a/b/memory.max", "max\n"},
	  {"sys/fs/cgroup/a/memory.events", "oom_kill 8\n"},
	  {"sys/fs/cgroup/a/memory.max", "300\n"},
	  {"sys/fs/cgroup/a/memory.peak", "299\n"},
	  {"sys/fs/cgroup/memory.max", "400\n"}},
	 true,
	 {3, "/a", 300, 299}},
	{"version 2 without memory.peak",
	 {{"proc/self/cgroup", "0::/\n"},
	  {"sys/fs/cgroup/memory.events", "oom_kill 0\n"},
	  {"sys/fs/cgroup/memory.max", "300\n"},
	  {"sys/fs/cgroup/memory.current", "20\n"}},
	 true,
	 {0, "/", 300, 20}},
	{"version 1",
	 {{"proc/self/cgroup", "4:memory:/x\n0::/\n"},
	  {"sys/fs/cgroup/memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"},
	  {"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9000\n"},
	  {"sys/fs/cgroup/memory/x/memory.max_usage_in_bytes", "8000\n"}},
	 true,
	 {5, "/x", 9000, 8000}},
	{"version 1 in a container, without a limit",
	 {{"proc/self/cgroup", "4:memory:/docker/abc\n"},
	  {"sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n"},
	  {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}},
	 true,
	 {6, "", 0, 0}},
	{"an old kernel counts none",
	 {{"proc/self/cgroup", "4:memory:/x\n"},
	  {"sys/fs/cgroup/memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n"}},
	 false,
	 {0}},
};

static void kills_are_read(void **state)
{
	char root[64], cmd[128];

	for (size_t i = 0; i < sizeof(kill_rows) / sizeof(kill_rows[0]); i++) {
		const struct kill_row *r = &kill_rows[i];
		struct cgroup_memory m;

		snprintf(root, sizeof(root), "/tmp/sluice-cgroup-XXXXXX");
		assert_non_null(mkdtemp(root));
		for (int k = 0; k < FILES_MAX && r->files[k].path; k++) make_file(root, &r->files[k]);
		if (cgroup_memory(&m, root) != r->found || m.oom_kills != r->expect.oom_kills || m.limit != r->expect.limit ||
		    m.peak != r->expect.peak || strcmp(m.path, r->expect.path) != 0)
			fail_msg("%s: %llu kills, limit %llu, peak %llu of %s", r->what, (unsigned long long)m.oom_kills,
				 (unsigned long long)m.limit, (unsigned long long)m.peak, m.path);
		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
		assert_int_equal(system(cmd), 0);
	}
}

static void this_machine_has_something(void **state)
{
	assert_in_range(cpuset_available(), 1, sysconf(_SC_NPROCESSORS_ONLN));
	assert_true(cpuset_memory_available() > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_are_read),
		cmocka_unit_test(kills_are_read),
		cmocka_unit_test(this_machine_has_something),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
