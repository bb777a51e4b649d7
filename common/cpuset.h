/* cpuset.h - how much of the machine this process may use: cores and memory, affinity and control groups included. */
#ifndef SLUICE_CPUSET_H
#define SLUICE_CPUSET_H

#include "common/base.h"

/* Threads that can run at once: the cores of the affinity mask, at most the cgroup's share rounded up; at least 1. */
uint32_t cpuset_available(void);

/* Bytes that can be taken without swapping: the machine's MemAvailable, at most what the cgroup leaves. */
uint64_t cpuset_memory_available(void);

#endif
