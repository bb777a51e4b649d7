/* toolspec.c - see toolspec.h. Being built: tools are refused. */
#include "frontend/toolspec.h"

#include <string.h>

bool toolspec_read(struct toolspec *t, const json_t *body, struct apierr *e)
{
	const json_t *j = json_object_get(body, "tools");

	memset(t, 0, sizeof(*t));
	t->parallel = true;
	if (j && json_array_size(j) > 0) return apierr_set(e, 400, "tools", "`tools` is not supported yet.");
	return true;
}

json_t *toolspec_schema(const struct toolspec *t)
{
	return NULL;
}
