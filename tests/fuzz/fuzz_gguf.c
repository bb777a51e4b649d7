/* fuzz_gguf.c - any bytes as a model file: opening must refuse them or leave everything in them readable;
 * a description that is read from them keeps the promises of spec.h.
 *
 * What begins with "GGUF" is one file. Else the first four bytes are the length of the first of two parts of a split
 * model. Seeds: corpus/gguf. */
#include "model/ckpt.h"
#include "model/spec.h"
#include "tests/support/ckpt_touch.h"
#include "tests/support/spec_touch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ckpt_part parts[2] = {{"m.gguf", data, size, 0}};
	struct spec_opts opts = {0};
	struct errbuf err = {0};
	struct spec s = {0};
	size_t n = 1;
	struct ckpt *c;
	uint32_t first;

	if (size >= 4 && memcmp(data, "GGUF", 4) != 0) {
		memcpy(&first, data, 4);
		if (first > size - 4) first = (uint32_t)(size - 4);
		parts[0] = (struct ckpt_part){"m-00001-of-00002.gguf", data + 4, first, 0};
		parts[1] = (struct ckpt_part){"m-00002-of-00002.gguf", data + 4 + first, size - 4 - first, 0};
		n = 2;
	}
	if (ckpt_open_parts(&c, parts, n, n == 1 ? "m.gguf" : NULL, &err) != ST_OK) {
		CHECK(err.text[0] && !c);
		return 0;
	}
	ckpt_touch(c);
	if (spec_read(&s, c, &opts, &err) == ST_OK) spec_touch(&s, c);
	else CHECK(err.text[0]);
	spec_release(&s);
	ckpt_close(c);
	return 0;
}
