/* oom.h - whether a child that was ended by SIGKILL was killed by the kernel for want of memory, as plain C.
 *
 * A control group counts such kills, and children live in their supervisor's group. A kill is counted at once, but its process may
 * take a while to end, and others of the group may have been killed long ago: so a count that has grown within the last one or two
 * OOM_LOOK_NS belongs to the next child that ends by SIGKILL; each kill to one child. */
#ifndef SLUICE_OOM_H
#define SLUICE_OOM_H

#include "common/base.h"
#include "common/cgroup.h"

#define OOM_LOOK_NS (10 * NS_PER_S)

struct oom {
	bool readable;
	uint64_t counted;        /* kills that are explained or old */
	uint64_t newest;         /* at the last look */
	uint64_t looked_ns;
};

/* m: what cgroup_memory() gives; NULL: nothing can be read. */
void oom_init(struct oom *o, const struct cgroup_memory *m, uint64_t now);
/* When the next look is due. */
static inline bool oom_is_due(const struct oom *o, uint64_t now)
{
	return o->readable && now - o->looked_ns >= OOM_LOOK_NS;
}
void oom_look(struct oom *o, const struct cgroup_memory *m, uint64_t now);
/* A child was ended by a SIGKILL that the supervisor did not send: true when it was for want of memory. */
bool oom_claim(struct oom *o, const struct cgroup_memory *m);

/* How it ended, and what can be done about it. options: those that take less memory. */
void oom_text(char *out, size_t cap, const char *name, const char *options, const struct cgroup_memory *m);

#endif
