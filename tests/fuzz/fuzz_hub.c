/* fuzz_hub.c - a first line as a model's name, the rest as what a hub says of the repository: no bytes lead out of the
 * cache's folder.
 *
 * Checked: what is refused is refused with words; every chosen name is among the repository's, stays below its folder
 * and is chosen once; weights come last. */
#include "common/mem.h"
#include "sluice/hubinfo.h"
#include "sluice/hubpick.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The path never goes above where it begins, and ends in a name. */
static void check_path(const char *path)
{
	int depth = 0;

	CHECK(path[0] && path[0] != '/' && strlen(path) <= HUBNAME_FILE_MAX);
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");

		CHECK(n > 0 && n <= 255);
		if (n == 2 && p[0] == '.' && p[1] == '.')
			depth--;
		else if (n > 1 || p[0] != '.')
			depth++;
		CHECK(depth > 0);
		p += n;
		if (*p) CHECK(*++p);
	}
}

static void check_pick(const struct hubpick *p, const struct hubinfo *info)
{
	CHECK(p->n > 0 && p->n_small < p->n && p->n <= info->n);
	for (size_t i = 0; i < p->n; i++) {
		CHECK(p->ix[i] < info->n);
		check_path(info->names[p->ix[i]]);
		for (size_t k = 0; k < i; k++) CHECK(p->ix[k] != p->ix[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data, '\n', size);
	char *text = mem_strndup((const char *)data, end ? (size_t)(end - data) : size);
	struct errbuf err = {{0}};
	struct hubname name;
	struct hubinfo info;
	struct hubpick pick;

	if (hubname_parse(&name, text, &err) != ST_OK) {
		CHECK(err.text[0]);
		CHECK(hubname_parse(&name, "org/name", NULL) == ST_OK);
	}
	check_path(name.revision);
	CHECK(!strchr(name.quant, '/') && strchr(name.repo, '/'));
	if (name.file[0]) check_path(name.file);
	err.text[0] = 0;
	if (end && hubinfo_parse(&info, (const char *)end + 1, size - (size_t)(end + 1 - data), &name, &err) == ST_OK) {
		if (hubpick_files(&pick, &name, info.names, info.n, &err) == ST_OK) {
			check_pick(&pick, &info);
			hubpick_release(&pick);
		} else {
			CHECK(err.text[0]);
		}
	} else if (end) {
		CHECK(err.text[0]);
	}
	if (end) hubinfo_release(&info);
	free(text);
	return 0;
}
