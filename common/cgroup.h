/* cgroup.h - the limits that control groups put on this process: processor time and memory, version 1 and 2.
 *
 * A limit may stand at any level between the process's group and the root, so every level is asked and the tightest
 * wins. In a container the path in /proc/self/cgroup may not exist under the mount; then the mount's top is the
 * process's own group. Every function takes the root of the file system ("" for the real one), so that tests can build
 * their own. */
#ifndef SLUICE_CGROUP_H
#define SLUICE_CGROUP_H

#include "common/base.h"

/* Cores' worth of processor time, 0 when there is no limit. */
double cgroup_cpu_limit(const char *root);

/* Bytes that the groups still leave: limit minus use, where file cache that can be given back does not count as used.
 * UINT64_MAX when there is no limit. */
uint64_t cgroup_memory_left(const char *root);

/* What the kernel's out-of-memory killer looks at. */
struct cgroup_memory {
	uint64_t oom_kills;   /* processes of this process's group that it has killed, ever */
	char path[512];       /* of the group with the tightest limit, below the mount; "" when none has one */
	uint64_t limit, peak; /* of that group, bytes: what it may use, and the most that it has used; 0 without a limit */
};

/* False when the kills of no group can be read. */
bool cgroup_memory(struct cgroup_memory *out, const char *root) MUST_CHECK;

#endif
