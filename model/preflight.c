/* preflight.c - see preflight.h. */
#include "model/preflight.h"

#include "common/jsonfile.h"
#include "model/ckptident.h"

#include <string.h>

int preflight_check(const char *path, const struct spec_opts *opts, uint64_t *ident, struct errbuf *err)
{
	struct ckpt *c = NULL;
	struct spec s = {0};
	int rc = ckpt_open(&c, path, err);

	if (rc != ST_OK) return rc;
	rc = spec_read(&s, c, opts, err);
	if (rc == ST_OK && ident) *ident = ckptident(c);
	spec_release(&s);
	ckpt_close(c);
	return rc;
}

int preflight_overrides(struct json_t **out, const char *text, struct errbuf *err)
{
	static const struct jsonfile_bounds bounds = {.bytes_max = 64 * KIB, .depth_max = 16, .values_max = 4096};
	int rc;

	*out = NULL;
	if (!text[0]) return ST_OK;
	rc = jsonfile_parse(out, text, strlen(text), &bounds, err);
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "--hf-overrides");
}
