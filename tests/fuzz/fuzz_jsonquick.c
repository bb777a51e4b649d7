/* fuzz_jsonquick.c - any bytes as JSON: what the quick reader takes, jansson takes, and both have read the same.
 *
 * Seeds: corpus/jsonquick. */
#include "frontend/jsonquick.h"

#include "frontend/jsonread.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FLAGS (JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *j = jsonquick((const char *)data, size, JSONREAD_DEPTH_MAX), *twin;
	char *read, *meant;

	if (!j) return 0;
	twin = json_loadb((const char *)data, size, FLAGS, NULL);
	CHECK(twin);
	/* Written out, because json_equal() sees no difference between 0.0 and -0.0, and does not look at the order of members. */
	read = json_dumps(j, JSON_ENCODE_ANY | JSON_COMPACT);
	meant = json_dumps(twin, JSON_ENCODE_ANY | JSON_COMPACT);
	CHECK(read && meant && strcmp(read, meant) == 0);
	free(read);
	free(meant);
	json_decref(j);
	json_decref(twin);
	return 0;
}
