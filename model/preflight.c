/* preflight.c - see preflight.h. */
#include "model/preflight.h"

#include "model/gguf.h"
#include "model/modelshape.h"

int preflight_check(const char *path, struct errbuf *err)
{
	struct modelshape s;
	struct gguf *g = NULL;
	int rc = gguf_open(&g, path, err);

	if (rc != ST_OK) return rc;
	rc = modelshape_read(&s, g, err);
	gguf_close(g);
	return rc;
}
