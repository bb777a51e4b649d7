/* fuzz_outparse.c - any bytes as a model's output, under any format: the same pieces come out whether it comes whole or in parts.
 *
 * The first byte chooses the format, the second how the rest is cut. Seeds: corpus/outparse. */
#include "common/base.h"
#include "frontend/outparse.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const struct outparse_config *cfg, const char *s, size_t len, size_t step, struct pieces *out)
{
	struct outparse *p = outparse_new(cfg);
	size_t at, n;

	pieces_init(out);
	for (at = 0; at < len; at += n) {
		n = min_size(step, len - at);
		outparse_push(p, s + at, n, out);
	}
	outparse_finish(p, out);
	outparse_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct outparse_config cfg = {0};
	struct pieces whole, parts;
	size_t i;

	if (size < 2) return 0;
	cfg.tools = (enum outparse_tools)(data[0] % 6);
	cfg.reasoning = (enum outparse_reasoning)(data[0] >> 3 & 1);
	cfg.in_reasoning = data[0] >> 4 & 1;
	cfg.named = data[0] >> 5 & 1 ? "f" : NULL;
	cfg.calls_max = data[0] >> 6 & 1;
	parse(&cfg, (const char *)data + 2, size - 2, size, &whole);
	parse(&cfg, (const char *)data + 2, size - 2, 1 + data[1] % 16, &parts);
	CHECK(whole.n == parts.n && whole.n_calls == parts.n_calls && whole.n_calls <= PIECES_CALLS_MAX);
	for (i = 0; i < whole.n; i++) {
		const struct piece *a = &whole.list[i], *b = &parts.list[i];

		CHECK(a->kind == b->kind && a->call == b->call && a->text.len == b->text.len);
		CHECK(a->text.len == 0 || memcmp(a->text.data, b->text.data, a->text.len) == 0);
	}
	CHECK(pieces_bytes(&whole) <= size * 2 + 16);
	pieces_release(&whole);
	pieces_release(&parts);
	return 0;
}
