/* gramc.c - see gramc.h. Being built: everything is refused. */
#include "frontend/gramc.h"

static int not_yet(struct errbuf *err)
{
	return err_set(err, ST_UNSUPPORTED, "structured output is not supported yet");
}

int gramc_json_object(struct strbuf *out, const struct gramc_opts *o, struct errbuf *err)
{
	return not_yet(err);
}

int gramc_schema(struct strbuf *out, const json_t *schema, const struct gramc_opts *o, struct errbuf *err)
{
	return not_yet(err);
}

int gramc_regex(struct strbuf *out, const char *text, size_t len, const struct gramc_opts *o, struct errbuf *err)
{
	return not_yet(err);
}

int gramc_choice(struct strbuf *out, const json_t *list, const struct gramc_opts *o, struct errbuf *err)
{
	return not_yet(err);
}

int gramc_ebnf(struct strbuf *out, const char *text, size_t len, const struct gramc_opts *o, struct errbuf *err)
{
	return not_yet(err);
}
