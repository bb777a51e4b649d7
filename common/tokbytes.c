/* tokbytes.c - see tokbytes.h. Being built. */
#include "common/tokbytes.h"

#include <stdlib.h>

int tokbytes_from_gguf(struct tokbytes **out, const struct gguf *g, struct errbuf *err)
{
	*out = NULL;
	return err_set(err, ST_UNSUPPORTED, "not built yet");
}

void tokbytes_free(struct tokbytes *t)
{
	if (!t) return;
	free(t->offs);
	free(t->bytes);
	free(t->kinds);
	free(t);
}
