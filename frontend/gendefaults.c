/* gendefaults.c - see gendefaults.h. The values are read as if a request had brought them, so both have the same
 * bounds. */
#include "frontend/gendefaults.h"

#include "common/quote.h"
#include "frontend/params.h"
#include "model/jsonplace.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name, *param;
} members[] = {
	{"temperature", "temperature"},
	{"top_k", "top_k"},
	{"top_p", "top_p"},
	{"min_p", "min_p"},
	{"repetition_penalty", "repetition_penalty"},
	{"max_new_tokens", "max_tokens"},
};

static void append(char says[200], const char *name, const json_t *value)
{
	size_t len = strlen(says);

	snprintf(says + len, 200 - len, "%s%s %g", len ? ", " : "", name, json_number_value(value));
}

int gendefaults_read(struct gendefaults *d, const char *folder, char says[200], struct errbuf *err)
{
	static const char file[] = "generation_config.json";
	json_t *root = NULL, *body = json_object();
	struct errbuf why = {{0}};
	struct params p;
	struct apierr e = {0};
	char path[4400];
	int rc;

	*d = GENDEFAULTS_NEUTRAL;
	says[0] = 0;
	snprintf(path, sizeof(path), "%s/%s", folder, file);
	rc = jsonplace_load(&root, path, file, &why);
	for (size_t i = 0; i < ARRAY_LEN(members) && rc == ST_OK; i++) {
		json_t *value = json_object_get(root, members[i].name);

		if (!value || json_is_null(value)) continue;
		json_object_set(body, members[i].param, value);
		if (!params_read(&p, PARAMS_CHAT, body, NULL, &e)) {
			rc = err_set(&why, ST_INVALID,
				     "%s: %s: as a request's parameter: %s (--generation-config vllm ignores it)", file,
				     members[i].name, e.message);
			break;
		}
		append(says, members[i].name, value);
		*d = (struct gendefaults){.temperature = p.temperature,
					  .top_p = p.top_p,
					  .min_p = p.min_p,
					  .repetition_penalty = p.repetition_penalty,
					  .top_k = p.top_k,
					  .output_max = p.output_max};
	}
	json_decref(body);
	json_decref(root);
	if (rc == ST_OK || rc == ST_NOT_FOUND) return ST_OK;
	return err_set(err, rc, "%s: %s", quote_short(folder, strlen(folder)).text, why.text);
}
