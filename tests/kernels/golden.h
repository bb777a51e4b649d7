/* golden.h - walks JSONL files of expected results: the copy in tests/data, and the whole set beside the project. */
#ifndef SLUICE_TESTS_GOLDEN_H
#define SLUICE_TESTS_GOLDEN_H

#include "tests/kernels/rig.h"

#include <jansson.h>
#include <unistd.h>

/* Calls each(case) for every line; returns the number of lines. gz files go through gzip. */
static inline size_t golden_walk_file(const char *path, void (*each)(const json_t *))
{
	char command[600];
	size_t len = strlen(path), n = 0, cap = 0;
	bool gz = len > 3 && strcmp(path + len - 3, ".gz") == 0;
	char *line = NULL;
	FILE *f;

	snprintf(command, sizeof(command), "gzip -dc '%s'", path);
	f = gz ? popen(command, "r") : fopen(path, "r");
	assert_non_null(f);
	while (getline(&line, &cap, f) > 0) {
		json_error_t err;
		json_t *o = json_loads(line, JSON_DECODE_ANY, &err);

		if (!o) fail_msg("%s: line %zu: %s", path, n + 1, err.text);
		each(o);
		json_decref(o);
		n++;
	}
	free(line);
	if (gz)
		assert_int_equal(pclose(f), 0);
	else
		fclose(f);
	return n;
}

/* name: "quant/blocks.jsonl" */
static inline void golden_walk(const char *name, void (*each)(const json_t *))
{
	const char *shared = getenv("SLUICE_SHARED");
	char path[500];
	size_t n;

	snprintf(path, sizeof(path), "tests/data/golden/%s.gz", name);
	n = golden_walk_file(path, each);
	assert_true(n > 0);
	print_message("%s: %zu cases\n", path, n);
	snprintf(path, sizeof(path), "%s/golden/%s", shared ? shared : "../shared", name);
	if (access(path, R_OK) != 0) {
		print_message("%s: not there, only the project's copy was run\n", path);
		return;
	}
	print_message("%s: %zu cases\n", path, golden_walk_file(path, each));
}

#endif
