/* fuzz_safetensors.c - any bytes as a safetensors file, alone or as a shard beside its index: refused, or everything in
 * it is readable.
 *
 * What begins with "{" is an index, a zero byte, and the file m.safetensors; everything else is model.safetensors.
 * Seeds: corpus/safetensors. */
#include "model/ckpt.h"
#include "tests/support/ckpt_touch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ckpt_part parts[3] = {{"config.json", "{}", 2, 0}, {"model.safetensors", data, size, 0}};
	const uint8_t *end = size && data[0] == '{' ? memchr(data, 0, size) : NULL;
	struct errbuf err = {0};
	size_t n = 2;
	struct ckpt *c;

	if (end) {
		parts[1] = (struct ckpt_part){"model.safetensors.index.json", data, (size_t)(end - data), 0};
		parts[2] = (struct ckpt_part){"m.safetensors", end + 1, size - (size_t)(end - data) - 1, 0};
		n = 3;
	}
	if (ckpt_open_parts(&c, parts, n, NULL, &err) != ST_OK) {
		CHECK(err.text[0] && !c);
		return 0;
	}
	ckpt_touch(c);
	ckpt_close(c);
	return 0;
}
