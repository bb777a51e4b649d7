/* tokjson.c - see tokjson.h. The product reads a folder; here it is a temporary one. */
#include "tests/support/tokjson.h"

#include "frontend/tokenizer.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void write_file(const char *dir, const char *name, const char *data, size_t len)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0) fail_msg("cannot write %s", path);
}

static void remove_file(const char *dir, const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

int tokjson_try(struct tokenizer **t, const char *text, size_t len, const char *config, struct errbuf *err)
{
	char dir[] = "/tmp/sluice-tokjson-XXXXXX";
	int rc;

	if (!mkdtemp(dir)) fail_msg("cannot make %s", dir);
	write_file(dir, "tokenizer.json", text, len);
	if (config) write_file(dir, "tokenizer_config.json", config, strlen(config));
	rc = tokenizer_from_json(t, dir, err);
	remove_file(dir, "tokenizer.json");
	remove_file(dir, "tokenizer_config.json");
	rmdir(dir);
	return rc;
}

struct tokenizer *tokjson_load(const char *relpath, const char *bos, const char *eos)
{
	struct errbuf err = {0};
	struct tokenizer *t;
	json_t *config = json_object();
	size_t len;
	char *text = golden_text(relpath, &len), *dumped;

	if (!text) return NULL;
	if (bos) json_object_set_new(config, "bos_token", json_string(bos));
	if (eos) json_object_set_new(config, "eos_token", json_string(eos));
	dumped = json_dumps(config, 0);
	if (tokjson_try(&t, text, len, dumped, &err) != ST_OK) fail_msg("%s", err.text);
	json_decref(config);
	free(dumped);
	free(text);
	return t;
}
