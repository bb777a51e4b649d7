/* cpuset.c - see cpuset.h. */
#include "common/cpuset.h"

#include "common/cgroup.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CPUSET_CPUS_MAX (1u << 16) /* Linux is built for at most 8192 */

static uint32_t cpuset_affinity(void)
{
	/* The kernel refuses a mask that is smaller than its own, whose size it does not tell. */
	for (size_t n = 1024; n <= CPUSET_CPUS_MAX; n *= 2) {
		cpu_set_t *set = CPU_ALLOC(n);
		int rc, count = 0;

		if (!set) break;
		rc = sched_getaffinity(0, CPU_ALLOC_SIZE(n), set);
		if (rc == 0) count = CPU_COUNT_S(CPU_ALLOC_SIZE(n), set);
		CPU_FREE(set);
		if (rc == 0 && count > 0) return (uint32_t)count;
		if (errno != EINVAL) break;
	}
	return (uint32_t)max_u64(1, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) & INT32_MAX);
}

uint32_t cpuset_available(void)
{
	uint32_t cores = cpuset_affinity();
	double limit = cgroup_cpu_limit("");

	if (limit > 0 && limit < cores) cores = (uint32_t)ceil(limit);
	return max_u32(1, cores);
}

static uint64_t cpuset_meminfo(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[256];

	if (!f) return UINT64_MAX;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
	fclose(f);
	return kib ? kib * 1024 : UINT64_MAX;
}

uint64_t cpuset_memory_available(void)
{
	return min_u64(cpuset_meminfo(), cgroup_memory_left(""));
}
