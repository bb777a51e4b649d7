/* test_config.c - options: defaults, flags, aliases, variables, bounds, messages, and the trip through the boot message. */
#include "proto/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void defaults(void **state)
{
	struct config c;

	config_init(&c);
	assert_int_equal(c.port, 8000);
	assert_string_equal(c.host, "0.0.0.0");
	assert_int_equal(c.num_frontends, 1);
	assert_int_equal(c.max_model_len, 0); /* the model's own */
	assert_int_equal(c.kv_cache_dtype, KV_DTYPE_AUTO);
	assert_int_equal(c.max_body_bytes, 32 << 20);
	assert_int_equal(c.drain_timeout, 30 * NS_PER_S);
	assert_true(c.enable_prefix_caching);
	assert_int_equal(c.device, DEVICE_AUTO);
	assert_true(c.gpu_memory_utilization == 0.92);
	config_release(&c);
}

static void good_values(void **state)
{
	static const char *const cases[][2] = {
		{"port", "0"},           {"port", "65535"},        {"num-frontends", "auto"}, {"api-server-count", "4"},
		{"max_num_seqs", "8"},   {"max-body-bytes", "1K"}, {"max-body-bytes", "2MiB"}, {"max-body-bytes", "3000"},
		{"drain-timeout", "0.5"}, {"device", "null"},       {"progress", "no"},        {"gpu-memory-utilization", "1"},
		{"kv-cache-memory-bytes", "1.5G"}, {"t", "2"},     {"m", "x.gguf"},
	};
	struct errbuf err;
	struct config c;

	config_init(&c);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (config_set(&c, cases[i][0], cases[i][1], &err) != ST_OK) fail_msg("--%s %s: %s", cases[i][0], cases[i][1], err.text);
	assert_int_equal(c.port, 65535);
	assert_int_equal(c.num_frontends, 4);
	assert_int_equal(c.max_num_seqs, 8);
	assert_int_equal(c.max_body_bytes, 3000);
	assert_int_equal(c.kv_cache_memory_bytes, 3ull << 29);
	assert_int_equal(c.drain_timeout, NS_PER_S / 2);
	assert_int_equal(c.device, DEVICE_NULL);
	assert_int_equal(c.threads, 2);
	assert_string_equal(c.model, "x.gguf");
	assert_false(c.progress);
	config_release(&c);
}

static void bad_values_say_what_is_expected(void **state)
{
	static const struct {
		const char *name, *value, *text;
	} cases[] = {
		{"port", "65536", "--port 65536: expected a whole number from 0 to 65535"},
		{"port", "-1", "--port -1: expected a whole number from 0 to 65535"},
		{"port", "80x", "--port 80x: expected a whole number from 0 to 65535"},
		{"port", "1.5", "--port 1.5: expected a whole number from 0 to 65535"},
		{"port", "", "--port \"\": expected a whole number from 0 to 65535"},
		{"port", "nan", "--port nan: expected a whole number from 0 to 65535"},
		{"port", "1K", "--port 1K: expected a whole number from 0 to 65535"},
		{"num-frontends", "0", "--num-frontends 0: expected a whole number from 1 to 256, or auto"},
		{"device", "tpu", "--device tpu: expected one of auto|cpu|cuda|null"},
		{"device", "cp", "--device cp: expected one of auto|cpu|cuda|null"},
		{"progress", "maybe", "--progress maybe: expected true or false"},
		{"max-body-bytes", "auto", "--max-body-bytes auto: expected a size"},
		{"gpu-memory-utilization", "1.1", "--gpu-memory-utilization 1.1: expected a number from 0.01 to 1"},
	};
	struct errbuf err;
	struct config c;

	config_init(&c);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(config_set(&c, cases[i].name, cases[i].value, &err), ST_INVALID);
		assert_string_equal(err.text, cases[i].text);
	}
	assert_int_equal(config_set(&c, "nosuch", "1", &err), ST_NOT_FOUND);
	config_release(&c);
}

/* Suffixes as vLLM has them: small letters are powers of 1000. */
static void sizes_and_lengths_have_suffixes(void **state)
{
	static const struct {
		const char *name, *value;
		uint64_t expected;
	} rows[] = {
		{"kv-cache-memory-bytes", "2K", 2048},
		{"kv-cache-memory-bytes", "2k", 2000},
		{"kv-cache-memory-bytes", "2kB", 2000},
		{"kv-cache-memory-bytes", "2KB", 2048},
		{"kv-cache-memory-bytes", "2kib", 2048},
		{"kv-cache-memory-bytes", "2KiB", 2048},
		{"kv-cache-memory-bytes", "3B", 3},
		{"kv-cache-memory-bytes", "1.5G", 3ull << 29},
		{"kv-cache-memory-bytes", "1.5g", 1500000000},
		{"kv-cache-memory-bytes", "0.3K", 307}, /* 307.2 */
		{"kv-cache-memory-bytes", "1T", 1ull << 40},
		{"kv-cache-memory-bytes", "auto", 0},
		{"max-model-len", "32K", 32768},
		{"max-model-len", "32k", 32000},
		{"max-model-len", "25.6k", 25600},
		{"max-model-len", "4M", 4194304},
		{"max-model-len", "17", 17},
		{"ctx-size", "auto", CONFIG_LEN_AUTO},
		{"max-model-len", "-1", CONFIG_LEN_AUTO},
		{"max-model-len", "", 0},
	};
	static const char *const bad[][2] = {
		{"max-model-len", "4.1M"}, {"max-model-len", "0"},      {"max-model-len", "1.5"},          {"max-model-len", "16B"},
		{"max-model-len", "-2"},   {"max-model-len", "32KK"},   {"max-model-len", "0x"},           {"kv-cache-memory-bytes", "1X"},
		{"max-model-len", "none"}, {"max-model-len", "AUTO"},   {"kv-cache-memory-bytes", "1e30"}, {"kv-cache-memory-bytes", "2T T"},
		{"max-model-len", "inf"},  {"max-model-len", "0.0001K"}, {"kv-cache-memory-bytes", "-1G"},  {"kv-cache-memory-bytes", "1Ki Bytes"},
	};
	struct errbuf err;
	struct config c;

	config_init(&c);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		bool is_len = rows[i].name[0] != 'k';

		if (config_set(&c, rows[i].name, rows[i].value, &err) != ST_OK) fail_msg("--%s %s: %s", rows[i].name, rows[i].value, err.text);
		if ((is_len ? c.max_model_len : c.kv_cache_memory_bytes) != rows[i].expected)
			fail_msg("--%s %s: %u, %llu", rows[i].name, rows[i].value, c.max_model_len, (unsigned long long)c.kv_cache_memory_bytes);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (config_set(&c, bad[i][0], bad[i][1], &err) != ST_INVALID) fail_msg("--%s %s is accepted", bad[i][0], bad[i][1]);
	assert_int_equal(config_set(&c, "max-model-len", "5M", &err), ST_INVALID);
	assert_string_equal(err.text, "--max-model-len 5M: expected a whole number from 1 to 4194304, or auto");
	config_release(&c);
}

static void words_have_other_spellings(void **state)
{
	static const struct {
		const char *value;
		uint32_t expected;
		const char *printed;
	} rows[] = {
		{"auto", KV_DTYPE_AUTO, "auto"},     {"bf16", KV_DTYPE_BF16, "bf16"},    {"bfloat16", KV_DTYPE_BF16, "bf16"},
		{"f16", KV_DTYPE_F16, "f16"},        {"float16", KV_DTYPE_F16, "f16"},   {"half", KV_DTYPE_F16, "f16"},
		{"f32", KV_DTYPE_F32, "f32"},        {"float32", KV_DTYPE_F32, "f32"},   {"fp8", KV_DTYPE_FP8, "fp8"},
		{"fp8_e4m3", KV_DTYPE_FP8, "fp8"},   {"int8", KV_DTYPE_INT8, "int8"},
	};
	struct strbuf text;
	struct errbuf err;
	struct config c;

	config_init(&c);
	strbuf_init(&text, 64);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(config_set(&c, "kv-cache-dtype", rows[i].value, &err), ST_OK);
		assert_int_equal(c.kv_cache_dtype, rows[i].expected);
		strbuf_reset(&text);
		config_print(&c, "kv-cache-dtype", &text);
		assert_string_equal(text.data, rows[i].printed);
	}
	assert_int_equal(config_set(&c, "kv-cache-dtype", "fp8_e5m2", &err), ST_INVALID);
	assert_string_equal(err.text, "--kv-cache-dtype fp8_e5m2: expected one of auto|bf16|f16|f32|fp8|int8");
	assert_int_equal(config_set(&c, "kv-cache-dtype", "bf16=bfloat16", &err), ST_INVALID);
	assert_int_equal(config_set(&c, "kv-cache-dtype", "", &err), ST_INVALID);
	strbuf_release(&text);
	config_release(&c);
}

static int parse(struct config *c, struct errbuf *err, bool *help, int argc, ...)
{
	char *argv[16];
	va_list ap;

	va_start(ap, argc);
	for (int i = 0; i < argc; i++) argv[i] = va_arg(ap, char *);
	va_end(ap);
	return config_from_args(c, argc, argv, help, err);
}

static void command_line(void **state)
{
	struct errbuf err = {{0}};
	struct config c;
	bool help;

	config_init(&c);
	assert_int_equal(parse(&c, &err, &help, 7, "a.gguf", "--port=9", "--num_frontends", "2", "--no-progress", "-t", "1"), ST_OK);
	assert_false(help);
	assert_string_equal(c.model, "a.gguf");
	assert_int_equal(c.port, 9);
	assert_int_equal(c.num_frontends, 2);
	assert_int_equal(c.threads, 1);
	assert_false(c.progress);
	assert_int_equal(parse(&c, &err, &help, 2, "--", "-odd-name.gguf"), ST_OK);
	assert_string_equal(c.model, "-odd-name.gguf");
	assert_int_equal(parse(&c, &err, &help, 2, "--help", "--nosuch"), ST_OK);
	assert_true(help);
	assert_int_equal(parse(&c, &err, &help, 1, "--prot"), ST_INVALID);
	assert_string_equal(err.text, "unknown option --prot; did you mean --port?");
	assert_int_equal(parse(&c, &err, &help, 1, "--frobnicate-all"), ST_INVALID);
	assert_string_equal(err.text, "unknown option --frobnicate-all; `sluice serve --help` lists all");
	assert_int_equal(parse(&c, &err, &help, 1, "--port"), ST_INVALID);
	assert_string_equal(err.text, "--port needs a value (N)");
	assert_int_equal(parse(&c, &err, &help, 2, "a", "b"), ST_INVALID);
	assert_string_equal(err.text, "unexpected argument b: the model is a already");
	assert_int_equal(parse(&c, &err, &help, 1, "--no-port"), ST_INVALID);
	config_release(&c);
}

static void environment(void **state)
{
	struct errbuf err;
	struct config c;

	config_init(&c);
	setenv("SLUICE_NUM_FRONTENDS", "3", 1);
	setenv("SLUICE_MAX_BODY_BYTES", "4K", 1);
	assert_int_equal(config_from_env(&c, &err), ST_OK);
	assert_int_equal(c.num_frontends, 3);
	assert_int_equal(c.max_body_bytes, 4096);
	setenv("SLUICE_NUM_FRONTENDS", "many", 1);
	assert_int_equal(config_from_env(&c, &err), ST_INVALID);
	assert_string_equal(err.text, "environment variable SLUICE_NUM_FRONTENDS: --num-frontends many: expected a whole number from 1 to "
				      "256, or auto");
	unsetenv("SLUICE_NUM_FRONTENDS");
	unsetenv("SLUICE_MAX_BODY_BYTES");
	config_release(&c);
}

static void boot_message_keeps_every_value(void **state)
{
	struct strbuf packed, again;
	struct errbuf err;
	struct config a, b;

	config_init(&a);
	assert_int_equal(config_set(&a, "model", "with = and \xc3\xa9", &err), ST_OK);
	assert_int_equal(config_set(&a, "timeout-write", "0.1", &err), ST_INVALID); /* below its bound */
	assert_int_equal(config_set(&a, "drain-timeout", "0.123456789", &err), ST_OK);
	assert_int_equal(config_set(&a, "kv-cache-memory-bytes", "123456789012", &err), ST_OK);
	assert_int_equal(config_set(&a, "device", "cpu", &err), ST_OK);
	assert_int_equal(config_set(&a, "max-model-len", "auto", &err), ST_OK);
	assert_int_equal(config_set(&a, "kv-cache-dtype", "half", &err), ST_OK);
	assert_int_equal(config_set(&a, "hf-overrides", "{\"rope_theta\": 1e6, \"a\": \"=\"}", &err), ST_OK);
	strbuf_init(&packed, 65536);
	strbuf_init(&again, 65536);
	config_pack(&a, &packed);
	config_init(&b);
	assert_int_equal(config_unpack(&b, packed.data, packed.len, &err), ST_OK);
	config_pack(&b, &again);
	assert_int_equal(packed.len, again.len);
	assert_memory_equal(packed.data, again.data, packed.len);
	assert_string_equal(b.model, "with = and \xc3\xa9");
	assert_int_equal(b.kv_cache_memory_bytes, 123456789012ull);
	assert_int_equal(b.max_model_len, CONFIG_LEN_AUTO);
	assert_int_equal(b.kv_cache_dtype, KV_DTYPE_F16);
	assert_string_equal(b.hf_overrides, "{\"rope_theta\": 1e6, \"a\": \"=\"}");
	assert_int_equal(config_unpack(&b, "port=1", 6, &err), ST_CORRUPT);
	assert_int_equal(config_unpack(&b, "port\0", 5, &err), ST_CORRUPT);
	assert_int_equal(config_unpack(&b, "nosuch=1", 9, &err), ST_NOT_FOUND);
	strbuf_release(&packed);
	strbuf_release(&again);
	config_release(&a);
	config_release(&b);
}

static void help_names_every_option(void **state)
{
	static const char *const flags[] = {
#define FLAG(kind, field, flag, alias, def, min, max, metavar, group, help) flag,
		CONFIG(FLAG)
#undef FLAG
	};
	struct strbuf doc;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	config_help(f);
	fclose(f);
	strbuf_init(&doc, 1 << 20);
	config_document(&doc);
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		assert_non_null(strstr(text, flags[i]));
		assert_non_null(strstr(doc.data, flags[i]));
	}
	assert_non_null(strstr(text, "[SLUICE_NUM_FRONTENDS]\n"));
	assert_non_null(strstr(text, "\n  -p, --port N                    port to listen on; 0: any free one, named in the log"));
	assert_non_null(strstr(text, "\n      --max-num-seqs, --parallel N\n                                  sequences in one step at most "));
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) assert_in_range(strcspn(line, "\n"), 0, 100);
	strbuf_release(&doc);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),     cmocka_unit_test(good_values),
		cmocka_unit_test(sizes_and_lengths_have_suffixes),
		cmocka_unit_test(words_have_other_spellings),
		cmocka_unit_test(bad_values_say_what_is_expected),
		cmocka_unit_test(command_line), cmocka_unit_test(environment),
		cmocka_unit_test(boot_message_keeps_every_value),
		cmocka_unit_test(help_names_every_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
