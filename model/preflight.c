/* preflight.c - see preflight.h. */
#include "model/preflight.h"

#include "model/ckpt.h"
#include "model/spec.h"

int preflight_check(const char *path, struct errbuf *err)
{
	struct spec s = {0};
	struct ckpt *c = NULL;
	int rc = ckpt_open(&c, path, err);

	if (rc != ST_OK) return rc;
	rc = spec_read(&s, c, &(struct spec_opts){0}, err);
	spec_release(&s);
	ckpt_close(c);
	return rc;
}
