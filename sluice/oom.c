/* oom.c - see oom.h. */
#include "sluice/oom.h"

#include <stdio.h>

void oom_init(struct oom *o, const struct cgroup_memory *m, uint64_t now)
{
	*o = (struct oom){.readable = m != NULL, .looked_ns = now};
	if (m) o->counted = o->newest = m->oom_kills;
}

void oom_look(struct oom *o, const struct cgroup_memory *m, uint64_t now)
{
	o->looked_ns = now;
	o->counted = max_u64(o->counted, o->newest); /* nobody ended for them: they were others of the group */
	o->newest = m->oom_kills;
}

bool oom_claim(struct oom *o, const struct cgroup_memory *m)
{
	if (!o->readable || m->oom_kills <= o->counted) return false;
	o->counted++;
	return true;
}

void oom_text(char *out, size_t cap, const char *name, const char *options, const struct cgroup_memory *m)
{
	if (m->limit)
		snprintf(out, cap,
			 "%s was killed by the kernel for want of memory (control group %s: limit %llu MiB, at most %llu MiB were used); raise the limit, or "
			 "lower %s",
			 name, m->path, (unsigned long long)(m->limit / MIB), (unsigned long long)(m->peak / MIB), options);
	else
		snprintf(out, cap, "%s was killed by the kernel for want of memory: the machine had no more; lower %s", name, options);
}
