/* test_ckpt_faults.c - checkpoints whose parts disagree: config.json against tensors, missing and surplus tensors, tied
 * embeddings. Each is refused before anything is loaded, by the name of the setting or the tensor.
 *
 * Without the shared folder: one small llama folder, made in memory. With it, every size in the config.json of every
 * checkpoint there. */
#include "model/ckpt.h"
#include "model/spec.h"
#include "tests/support/golden.h"
#include "tests/support/st_writer.h"

#include "common/mem.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- a small llama ---- */

static const char config[] =
	"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 32, "
	"\"intermediate_size\": 48,"
	" \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"vocab_size\": 40, "
	"\"head_dim\": 8,"
	" \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
	" \"tie_word_embeddings\": false}";

struct change {
	const char *drop;  /* this tensor is not there */
	const char *add;   /* this one is, (32, 32) */
	const char *alter; /* this one has the dtype and the shape below */
	const char *dtype;
	uint32_t n_dims;
	uint64_t dims[3];
};

static void put(struct st_writer *w, const struct change *ch, const char *name, uint64_t rows, uint64_t cols)
{
	const char *dtype = "F32";
	uint64_t dims[3] = {rows, cols}, n = 1;
	uint32_t n_dims = cols ? 2 : 1;

	if (ch->drop && strcmp(ch->drop, name) == 0) return;
	if (ch->alter && strcmp(ch->alter, name) == 0) {
		dtype = ch->dtype;
		n_dims = ch->n_dims;
		memcpy(dims, ch->dims, sizeof(dims));
	}
	for (uint32_t i = 0; i < n_dims; i++) n *= dims[i];
	st_writer_tensor(w, name, dtype, n_dims, dims, NULL,
			 n * (strcmp(dtype, "F32") == 0  ? 4
			      : strcmp(dtype, "I8") == 0 ? 1
							 : 2));
}

static uint8_t *make_tensors(const struct change *ch, size_t *len)
{
	static const struct {
		const char *name;
		uint64_t rows, cols;
	} of_layer[] = {
		{"input_layernorm", 32, 0},   {"self_attn.q_proj", 32, 32}, {"self_attn.k_proj", 16, 32},
		{"self_attn.v_proj", 16, 32}, {"self_attn.o_proj", 32, 32}, {"post_attention_layernorm", 32, 0},
		{"mlp.gate_proj", 48, 32},    {"mlp.up_proj", 48, 32},      {"mlp.down_proj", 32, 48},
	};
	struct st_writer w;
	uint8_t *bytes;

	st_writer_init(&w);
	put(&w, ch, "model.embed_tokens.weight", 40, 32);
	for (int layer = 0; layer < 2; layer++)
		for (size_t i = 0; i < ARRAY_LEN(of_layer); i++) {
			char name[100];

			snprintf(name, sizeof(name), "model.layers.%d.%s.weight", layer, of_layer[i].name);
			put(&w, ch, name, of_layer[i].rows, of_layer[i].cols);
		}
	put(&w, ch, "model.norm.weight", 32, 0);
	put(&w, ch, "lm_head.weight", 40, 32);
	if (ch->add) put(&w, &(struct change){0}, ch->add, 32, 32);
	bytes = st_writer_build(&w, len);
	st_writer_release(&w);
	return bytes;
}

/* The folder with these settings changed (a JSON object, merged; NULL: none) and this change of its tensors:
 * spec_read()'s verdict. */
static int verdict(const struct ckpt *c, const char *overrides, struct errbuf *err)
{
	struct spec s = {0};
	struct spec_opts opts = {0};
	json_t *j = overrides ? json_loads(overrides, JSON_REJECT_DUPLICATES, NULL) : NULL;
	int rc;

	assert_true(!overrides || j);
	opts.overrides = j;
	err->text[0] = 0;
	rc = spec_read(&s, c, &opts, err);
	assert_true(rc == ST_OK || err->text[0]);
	spec_release(&s);
	json_decref(j);
	return rc;
}

static int small_verdict(const char *overrides, const struct change *ch, struct errbuf *err)
{
	size_t len;
	uint8_t *tensors = make_tensors(ch, &len);
	struct ckpt_part parts[] = {{"config.json", config, sizeof(config) - 1, 0}, {"model.safetensors", tensors, len, 0}};
	struct ckpt *c;
	int rc;

	if (ckpt_open_parts(&c, parts, 2, NULL, err) != ST_OK) fail_msg("%s", err->text);
	rc = verdict(c, overrides, err);
	ckpt_close(c);
	free(tensors);
	return rc;
}

/* ---- faults, one at a time ---- */

static void what_does_not_fit_is_named(void **state)
{
	static const struct {
		const char *overrides;
		struct change ch;
		const char *words; /* NULL: it loads */
	} rows[] = {
		{NULL, {0}, NULL},
		/* settings */
		{"{\"hidden_size\": null}", {0}, "hidden_size is missing"},
		{"{\"num_hidden_layers\": \"one\"}", {0}, "num_hidden_layers is a string"},
		{"{\"num_hidden_layers\": 2.5}", {0}, "num_hidden_layers"},
		{"{\"num_hidden_layers\": 0}", {0}, "num_hidden_layers"},
		{"{\"num_hidden_layers\": 1000000000}", {0}, "num_hidden_layers"},
		{"{\"vocab_size\": -1}", {0}, "vocab_size is -1"},
		{"{\"vocab_size\": 1e300}", {0}, "vocab_size"},
		{"{\"num_attention_heads\": 0}", {0}, "num_attention_heads"},
		{"{\"num_attention_heads\": 3, \"head_dim\": null}", {0}, "num_attention_heads"},
		{"{\"num_key_value_heads\": 3}", {0}, "num_key_value_heads"},
		{"{\"rms_norm_eps\": 0}", {0}, "rms_norm_eps"},
		{"{\"rms_norm_eps\": -1e-5}", {0}, "rms_norm_eps"},
		{"{\"max_position_embeddings\": 0}", {0}, "max_position_embeddings"},
		{"{\"hidden_act\": \"nosuch\"}", {0}, "hidden_act"},
		{"{\"model_type\": \"nosuch\"}", {0}, "nosuch"},
		{"{\"model_type\": 5}", {0}, "model_type"},
		{"{\"rope_scaling\": {\"rope_type\": \"nosuch\"}}", {0}, "nosuch"},
		/* tensors that are not there, or too many */
		{NULL, {.drop = "model.embed_tokens.weight"}, "model.embed_tokens.weight is missing"},
		{NULL, {.drop = "model.norm.weight"}, "model.norm.weight is missing"},
		{NULL, {.drop = "model.layers.1.mlp.up_proj.weight"}, "model.layers.1.mlp.up_proj.weight is missing"},
		{NULL, {.add = "model.layers.2.self_attn.q_proj.weight"}, "model.layers.2.self_attn.q_proj.weight"},
		{NULL, {.add = "model.layers.0.self_attn.q_norm.weight"}, "model.layers.0.self_attn.q_norm.weight"},
		{NULL, {.add = "model.layers.0.self_attn.q_proj.bias"}, "model.layers.0.self_attn.q_proj.bias"},
		/* shapes and types */
		{NULL, {.alter = "model.norm.weight", .dtype = "F32", .n_dims = 1, .dims = {31}}, "model.norm.weight"},
		{NULL, {.alter = "model.norm.weight", .dtype = "F32", .n_dims = 0}, "model.norm.weight"},
		{NULL,
		 {.alter = "model.layers.0.mlp.up_proj.weight", .dtype = "F32", .n_dims = 2, .dims = {32, 48}},
		 "model.layers.0.mlp.up_proj.weight has the shape [32, 48]"},
		{NULL,
		 {.alter = "model.layers.0.mlp.up_proj.weight", .dtype = "F32", .n_dims = 3, .dims = {2, 24, 32}},
		 "model.layers.0.mlp.up_proj.weight"},
		{NULL,
		 {.alter = "model.layers.0.mlp.up_proj.weight", .dtype = "F32", .n_dims = 2, .dims = {0, 32}},
		 "model.layers.0.mlp.up_proj.weight"},
		{NULL,
		 {.alter = "model.layers.0.mlp.up_proj.weight", .dtype = "I8", .n_dims = 2, .dims = {48, 32}},
		 "model.layers.0.mlp.up_proj.weight"},
		{NULL,
		 {.alter = "model.layers.0.mlp.up_proj.weight", .dtype = "BF16", .n_dims = 2, .dims = {48, 32}},
		 NULL},
		/* tied embeddings */
		{"{\"tie_word_embeddings\": true}", {0}, NULL},
		{"{\"tie_word_embeddings\": true}", {.drop = "lm_head.weight"}, NULL},
		{NULL, {.drop = "lm_head.weight"}, "lm_head.weight is missing"},
		{"{\"tie_word_embeddings\": 1}", {0}, "tie_word_embeddings"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct errbuf err;
		int rc = small_verdict(rows[i].overrides, &rows[i].ch, &err);

		if ((rc == ST_OK) != !rows[i].words || (rows[i].words && !strstr(err.text, rows[i].words)))
			fail_msg("row %zu: %d \"%s\"; expected \"%s\"", i, rc, err.text,
				 rows[i].words ? rows[i].words : "it loads");
	}
}

/* ---- every size by one ---- */

static const char *const sizes[] = {
	"hidden_size",
	"intermediate_size",
	"num_hidden_layers",
	"num_attention_heads",
	"num_key_value_heads",
	"head_dim",
	"vocab_size",
	"moe_intermediate_size",
	"num_experts",
	"num_local_experts",
	"n_routed_experts",
	"n_shared_experts",
	"shared_expert_intermediate_size",
	"q_lora_rank",
	"kv_lora_rank",
	"qk_nope_head_dim",
	"qk_rope_head_dim",
	"v_head_dim",
	"linear_num_value_heads",
	"linear_num_key_heads",
	"linear_key_head_dim",
	"linear_value_head_dim",
	"linear_conv_kernel_dim",
};

/* Sizes that this kind of model does not have, though its config.json names them. */
static const struct {
	const char *model_type, *size;
} unused[] = {
	{"qwen3_moe", "intermediate_size"}, /* no layer is dense */
	{"qwen3_next", "intermediate_size"},
	{"deepseek_v2", "head_dim"}, /* it has qk_nope_head_dim, qk_rope_head_dim and v_head_dim */
	{"deepseek_v3", "head_dim"},
	{"deepseek_v2", "num_key_value_heads"},
	{"deepseek_v3", "num_key_value_heads"},
};

static bool is_unused(const char *model_type, const char *size)
{
	for (size_t i = 0; i < ARRAY_LEN(unused); i++)
		if (strcmp(unused[i].model_type, model_type) == 0 && strcmp(unused[i].size, size) == 0) return true;
	return false;
}

/* How many sizes were tried. */
static size_t check_sizes(const struct ckpt *c)
{
	const char *model_type = json_string_value(json_object_get(ckpt_config(c), "model_type"));
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		const json_t *value = json_object_get(ckpt_config(c), sizes[i]);

		if (!json_is_integer(value) || is_unused(model_type, sizes[i])) continue;
		for (int by = -1; by <= 1; by += 2) {
			char overrides[100];
			struct errbuf err;
			int rc;

			snprintf(overrides, sizeof(overrides), "{\"%s\": %lld}", sizes[i],
				 (long long)json_integer_value(value) + by);
			rc = verdict(c, overrides, &err);
			if (rc == ST_OK) fail_msg("%s: loads with %s", ckpt_shown_path(c), overrides);
			if (!strstr(err.text, sizes[i]) && !strstr(err.text, "tensor "))
				fail_msg("%s with %s: neither setting nor tensor is named: %s", ckpt_shown_path(c),
					 overrides, err.text);
			n++;
		}
	}
	return n;
}

static void a_size_that_is_one_off_is_noticed(void **state)
{
	struct change none = {0};
	struct errbuf err;
	struct ckpt *c;
	size_t len;
	uint8_t *tensors = make_tensors(&none, &len);
	struct ckpt_part parts[] = {{"config.json", config, sizeof(config) - 1, 0}, {"model.safetensors", tensors, len, 0}};

	if (ckpt_open_parts(&c, parts, 2, NULL, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(check_sizes(c), 14);
	ckpt_close(c);
	free(tensors);
}

static void a_size_that_is_one_off_is_noticed_in_every_family(void **state)
{
	char path[600], top[512];
	size_t n = 0, folders = 0;
	struct dirent *e;
	DIR *d;

	if (!golden_has_shared()) skip();
	snprintf(top, sizeof(top), "%s/golden/tiny", getenv("SLUICE_SHARED") ? getenv("SLUICE_SHARED") : "../shared");
	d = opendir(top);
	assert_non_null(d);
	while ((e = readdir(d))) {
		struct errbuf err;
		struct ckpt *c;

		snprintf(path, sizeof(path), "%s/%.60s", top, e->d_name);
		if (e->d_name[0] == '.' || e->d_name[0] == '_') continue;
		if (ckpt_open(&c, path, &err) != ST_OK) fail_msg("%s", err.text);
		if (ckpt_config(c) && verdict(c, NULL, &err) != ST_OK) {
			fail_msg("%s", err.text);
		} else if (ckpt_config(c)) {
			n += check_sizes(c);
			folders++;
		}
		ckpt_close(c);
	}
	closedir(d);
	print_message("%zu changes in %zu folders\n", n, folders);
	assert_true(folders >= 17);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_does_not_fit_is_named),
		cmocka_unit_test(a_size_that_is_one_off_is_noticed),
		cmocka_unit_test(a_size_that_is_one_off_is_noticed_in_every_family),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
