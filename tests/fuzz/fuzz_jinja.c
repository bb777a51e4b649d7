/* fuzz_jinja.c - any bytes as a chat template, rendered with a fixed conversation under tiny limits.
 *
 * Whatever the template is, it must be refused with a text or give spans that cover its output. Seeds: corpus/jinja, and the
 * templates of the golden data. Build by hand (clang):
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -D_GNU_SOURCE tests/fuzz/fuzz_jinja.c frontend/jinja*.c \
 *     frontend/jsonbig.c common/{arena,errbuf,log,mem,status,strbuf,utf8}.c -ljansson -lutf8proc -lm */
#include "common/utf8.h"
#include "frontend/jinja.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *make_context(void)
{
	static const char JSON[] =
		"{\"messages\": [{\"role\": \"system\", \"content\": \"Be terse <|im_end|> \\u00e9\\ud83d\\ude00\"},"
		" {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"hi\"}]}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\":"
		" [{\"id\": \"abc123XYZ\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, null, true], \"b\": {\"c\": \"d\"}}}}]},"
		" {\"role\": \"tool\", \"content\": \"4\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\","
		" \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}}}}}],"
		" \"n\": 5, \"f\": -2.5e-7, \"s\": \"  Hello, World a,b c-d\\n%s {} x \", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": [1, {\"x\": \"y\"}]},"
		" \"documents\": null, \"add_generation_prompt\": true}";

	return json_loads(JSON, 0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct jinja_limits LIMITS = {.steps_max = 20000, .output_max = 64 * KIB, .memory_max = MIB, .depth_max = 100};
	static json_t *context, *trusted;
	struct jinja_out out;
	struct errbuf err = {0};
	struct jinja *t;
	bool raised;
	size_t i, len = 0;

	if (!context) {
		context = make_context();
		trusted = json_pack("{s:s,s:s}", "bos_token", "<s>", "eos_token", "</s>");
		CHECK(context && trusted);
	}
	if (jinja_compile(&t, (const char *)data, size, &err) != ST_OK) {
		CHECK(err.text[0]);
		return 0;
	}
	jinja_out_init(&out);
	if (jinja_render(t, context, trusted, 1741529107, &LIMITS, &out, &raised, &err) == ST_OK) {
		for (i = 0; i < out.n_spans; i++) len += out.spans[i].len;
		CHECK(len == out.text.len);
		CHECK(utf8_valid_len(out.text.data ? out.text.data : "", out.text.len) == out.text.len);
	} else {
		CHECK(raised || err.text[0]);
	}
	jinja_out_release(&out);
	jinja_free(t);
	return 0;
}
