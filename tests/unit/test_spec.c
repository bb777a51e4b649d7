/* test_spec.c - what the golden checkpoints are, field by field against values written by hand; the roles' table; the
 * types. */
#include "model/spec.h"
#include "model/wsrc.h"
#include "kernels/kernels.h"
#include "tests/support/golden.h"

#include "common/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- comparing ---- */

/* Every field of struct spec_layer, once. */
#define LAYER_NUMBERS(N)                                                                                             \
	N(mixer)                                                                                                     \
	N(post_norms)                                                                                                \
	N(heads)                                                                                                     \
	N(kv_heads) N(k_dim) N(v_dim) N(rope) N(window) N(qkv_bias) N(o_bias) N(qk_norm) N(sinks) N(out_gate)        \
		N(q_lora) N(kv_lora) N(nope_dim) N(latent_eps) N(dk_heads) N(dv_heads) N(dk_dim) N(dv_dim) N(conv_width) N(dv_tiled) N(glu)    \
			N(ffn) N(ffn_bias) N(n_experts) N(n_used) N(expert_ffn) N(n_groups) N(groups_used) N(router) \
				N(router_norm) N(router_bias) N(router_correction) N(expert_bias) N(shared_ffn)      \
					N(shared_gate)
#define LAYER_DOUBLES(N) N(scale) N(softcap) N(glu_limit) N(router_scale)

static void same_number(const char *where, uint32_t layer, const char *field, int64_t found, int64_t expected)
{
	if (found != expected)
		fail_msg("%s, layer %u: %s is %lld; expected %lld", where, layer, field, (long long)found,
			 (long long)expected);
}

static void same_double(const char *where, uint32_t layer, const char *field, double found, double expected)
{
	if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
		fail_msg("%s, layer %u: %s is %.12g; expected %.12g", where, layer, field, found, expected);
}

static void same_layer(const char *where, uint32_t i, const struct spec_layer *found, const struct spec_layer *expected)
{
#define SAME(field) same_number(where, i, #field, found->field, expected->field);
	LAYER_NUMBERS(SAME)
#undef SAME
#define SAME(field) same_double(where, i, #field, found->field, expected->field);
	LAYER_DOUBLES(SAME)
#undef SAME
}

/* ---- the golden checkpoints ---- */

/* What most layers have: attention with 8 heads on 4 of keys and values. */
#define ATT(dim, length)                                                                                           \
	.heads = 8, .kv_heads = 4, .k_dim = (length), .v_dim = (length), .scale = 1 / sqrt(length), .n_groups = 1, \
	.groups_used = 1, .router_scale = 1
#define MLA_HEAD .mixer = SPEC_MLA, .heads = 8, .kv_heads = 8, .k_dim = 24, .v_dim = 16, .kv_lora = 32, .nope_dim = 16, .latent_eps = 1e-6
#define DELTA_NET                                                                                                   \
	.mixer = SPEC_DELTA, .rope = -1, .dk_heads = 4, .dv_heads = 8, .dk_dim = 16, .dv_dim = 16, .conv_width = 4, \
	.n_groups = 1, .groups_used = 1, .router_scale = 1

struct known {
	const char *folder, *file; /* file: of GGUF */
	struct spec spec;
	struct {
		uint32_t dims;
		bool neox;
		double mscale,
			base; /* base: the second frequency is base^(-2 / dims), with scaling what `second` says */
		double second;
	} ropes[2];
	const char *pattern; /* which of kinds each layer is */
	struct spec_layer kinds[3];
};

static const double no_scaling = 0;

/* Filled at run time because of the roots. */
static size_t known_fill(struct known *k)
{
	const struct known all[] = {
		{"tiny/llama",
		 NULL,
		 {.family = "llama",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-5,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{16, true, 1, 500000, 0.079403007155}},
		 "aaaa",
		 {{ATT(128, 16), .ffn = 256}}},
		{"tiny/llama-gptq",
		 NULL,
		 {.family = "llama",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-5,
		  .embed_scale = 1,
		  .file_types = "GPTQ"},
		 {{16, true, 1, 500000, no_scaling}},
		 "aaaa",
		 {{ATT(128, 16), .ffn = 256}}},
		{"tiny/mistral",
		 NULL,
		 {.family = "mistral",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-5,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{16, true, 1, 10000, no_scaling}},
		 "aaaa",
		 {{ATT(128, 16), .ffn = 256, .window = 24}}},
		{"tiny/mixtral",
		 NULL,
		 {.family = "mixtral",
		  .n_layers = 3,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-5,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{16, true, 1, 10000, no_scaling}},
		 "aaa",
		 {{ATT(128, 16), .n_experts = 8, .n_used = 2, .expert_ffn = 64, .router_norm = true}}},
		{"tiny/qwen2",
		 NULL,
		 {.family = "qwen2",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 515,
		  .context_len = 512,
		  .tied = true,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{16, true, 1, 1e6, no_scaling}},
		 "aaaa",
		 {{ATT(128, 16), .ffn = 256, .qkv_bias = true}}},
		{"tiny/qwen2-awq",
		 NULL,
		 {.family = "qwen2",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "AWQ"},
		 {{16, true, 1, 1e6, no_scaling}},
		 "aaaa",
		 {{ATT(128, 16), .ffn = 256, .qkv_bias = true}}},
		{"tiny/qwen3",
		 NULL,
		 {.family = "qwen3",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{32, true, 1, 1e6, no_scaling}},
		 "aaaa",
		 {{ATT(128, 32), .ffn = 256, .qk_norm = true}}},
		{"tiny/qwen3-fp8",
		 NULL,
		 {.family = "qwen3",
		  .n_layers = 2,
		  .dim = 256,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "F8_E4M3"},
		 {{32, true, 1, 1e6, no_scaling}},
		 "aa",
		 {{ATT(256, 32), .ffn = 384, .qk_norm = true}}},
		{"tiny/qwen3-moe",
		 NULL,
		 {.family = "qwen3_moe",
		  .n_layers = 3,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{16, true, 1, 1e6, no_scaling}},
		 "aaa",
		 {{ATT(128, 16), .n_experts = 8, .n_used = 2, .expert_ffn = 64, .router_norm = true, .qk_norm = true}}},
		{"tiny/qwen3-next",
		 NULL,
		 {.family = "qwen3_next",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16",
		  .zero_centered_norms = true},
		 {{8, true, 1, 1e7, no_scaling}},
		 "bbba",
		 {{ATT(128, 32), .n_experts = 8, .n_used = 2, .expert_ffn = 32, .router_norm = true, .shared_ffn = 64,
		   .shared_gate = true, .qk_norm = true, .out_gate = true},
		  {DELTA_NET, .n_experts = 8, .n_used = 2, .expert_ffn = 32, .router_norm = true, .shared_ffn = 64,
		   .shared_gate = true}}},
		{"tiny/qwen3.5",
		 NULL,
		 {.family = "qwen3_5",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16",
		  .zero_centered_norms = true},
		 {{8, true, 1, 1e7, no_scaling}},
		 "bbba",
		 {{ATT(128, 32), .ffn = 256, .qk_norm = true, .out_gate = true}, {DELTA_NET, .ffn = 256}}},
		{"tiny/gemma2",
		 NULL,
		 {.family = "gemma2",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .tied = true,
		  .eps = 1e-6,
		  .embed_scale = sqrt(128),
		  .logit_softcap = 30,
		  .file_types = "BF16",
		  .zero_centered_norms = true},
		 {{32, true, 1, 10000, no_scaling}},
		 "abab",
		 {{ATT(128, 32), .ffn = 256, .window = 16, .softcap = 8, .post_norms = true, .glu = SPEC_GELU_TANH},
		  {ATT(128, 32), .ffn = 256, .softcap = 8, .post_norms = true, .glu = SPEC_GELU_TANH}}},
		{"tiny/gemma3",
		 NULL,
		 {.family = "gemma3",
		  .n_layers = 6,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .tied = true,
		  .eps = 1e-6,
		  .embed_scale = sqrt(128),
		  .file_types = "BF16",
		  .zero_centered_norms = true},
		 {{16, true, 1, 1e6, no_scaling}, {16, true, 1, 10000, no_scaling}},
		 "aabaab",
		 {{.heads = 8,
		   .kv_heads = 4,
		   .k_dim = 16,
		   .v_dim = 16,
		   .scale = 1 / sqrt(24),
		   .n_groups = 1,
		   .groups_used = 1,
		   .router_scale = 1,
		   .rope = 1,
		   .ffn = 256,
		   .window = 16,
		   .post_norms = true,
		   .qk_norm = true,
		   .glu = SPEC_GELU_TANH},
		  {.heads = 8,
		   .kv_heads = 4,
		   .k_dim = 16,
		   .v_dim = 16,
		   .scale = 1 / sqrt(24),
		   .n_groups = 1,
		   .groups_used = 1,
		   .router_scale = 1,
		   .ffn = 256,
		   .post_norms = true,
		   .qk_norm = true,
		   .glu = SPEC_GELU_TANH}}},
		{"tiny/phi3",
		 NULL,
		 {.family = "phi3",
		  .n_layers = 4,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-5,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{8, true, 1, 10000, no_scaling}},
		 "aaaa",
		 {{ATT(128, 16), .ffn = 256}}},
		{"tiny/deepseek-v2",
		 NULL,
		 {.family = "deepseek_v2",
		  .n_layers = 3,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{8, false, 1, 10000, no_scaling}},
		 "abb",
		 {{MLA_HEAD, .scale = 1 / sqrt(24), .ffn = 256, .n_groups = 1, .groups_used = 1, .router_scale = 1},
		  {MLA_HEAD, .scale = 1 / sqrt(24), .n_experts = 8, .n_used = 2, .expert_ffn = 64, .shared_ffn = 64,
		   .n_groups = 1, .groups_used = 1, .router_scale = 1}}},
		{"tiny/deepseek-v3",
		 NULL,
		 {.family = "deepseek_v3",
		  .n_layers = 3,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{8, false, 1, 10000, 0.0625}},
		 "abb",
		 {{MLA_HEAD, .scale = (0.1 * log(4) + 1) * (0.1 * log(4) + 1) / sqrt(24), .q_lora = 48, .ffn = 256,
		   .n_groups = 1, .groups_used = 1, .router_scale = 1},
		  {MLA_HEAD, .scale = (0.1 * log(4) + 1) * (0.1 * log(4) + 1) / sqrt(24), .q_lora = 48, .n_experts = 8,
		   .n_used = 2, .expert_ffn = 64, .shared_ffn = 64, .n_groups = 4, .groups_used = 2,
		   .router = SPEC_SIGMOID, .router_norm = true, .router_correction = true, .router_scale = 2.5}}},
		{"tiny/gpt-oss",
		 NULL,
		 {.family = "gpt_oss",
		  .n_layers = 3,
		  .dim = 128,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-5,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{16, true, 0.1 * log(4) + 1, 150000, 0.14185543}},
		 "aba",
		 {{ATT(128, 16), .window = 16, .qkv_bias = true, .o_bias = true, .sinks = true, .n_experts = 8,
		   .n_used = 2, .expert_ffn = 64, .router = SPEC_SOFTMAX_TOPK, .router_bias = true, .expert_bias = true,
		   .glu = SPEC_OAI, .glu_limit = 7},
		  {ATT(128, 16), .qkv_bias = true, .o_bias = true, .sinks = true, .n_experts = 8, .n_used = 2,
		   .expert_ffn = 64, .router = SPEC_SOFTMAX_TOPK, .router_bias = true, .expert_bias = true,
		   .glu = SPEC_OAI, .glu_limit = 7}}},
		{"tiny/smollm3",
		 NULL,
		 {.family = "smollm3",
		  .n_layers = 5,
		  .dim = 64,
		  .vocab = 512,
		  .context_len = 512,
		  .tied = true,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{8, true, 1, 5e6, no_scaling}},
		 "aaaba",
		 {{ATT(64, 8), .ffn = 128}, {ATT(64, 8), .rope = -1, .ffn = 128}}},
		{"tiny/qwen2-moe",
		 NULL,
		 {.family = "qwen2_moe",
		  .n_layers = 4,
		  .dim = 64,
		  .vocab = 512,
		  .context_len = 512,
		  .tied = true,
		  .eps = 1e-6,
		  .embed_scale = 1,
		  .file_types = "BF16"},
		 {{8, true, 1, 1e6, no_scaling}},
		 "abac",
		 {{ATT(64, 8), .qkv_bias = true, .window = 24, .n_experts = 6, .n_used = 2, .expert_ffn = 16,
		   .shared_ffn = 40, .shared_gate = true},
		  {ATT(64, 8), .qkv_bias = true, .ffn = 96},
		  {ATT(64, 8), .qkv_bias = true, .n_experts = 6, .n_used = 2, .expert_ffn = 16, .shared_ffn = 40,
		   .shared_gate = true}}},
		{"tiny/gguf-llama",
		 "model.gguf",
		 {.family = "llama",
		  .from_gguf = true,
		  .n_layers = 2,
		  .dim = 256,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6f,
		  .embed_scale = 1,
		  .file_types = "mixed"},
		 {{32, false, 1, 10000, no_scaling}},
		 "aa",
		 {{ATT(256, 32), .ffn = 256}}},
		{"tiny/gguf-qwen2",
		 "model.gguf",
		 {.family = "qwen2",
		  .from_gguf = true,
		  .n_layers = 2,
		  .dim = 256,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6f,
		  .embed_scale = 1,
		  .file_types = "Q8_0"},
		 {{32, true, 1, 1e6, no_scaling}},
		 "aa",
		 {{ATT(256, 32), .ffn = 256, .qkv_bias = true}}},
		{"tiny/gguf-qwen3",
		 "model.gguf",
		 {.family = "qwen3",
		  .from_gguf = true,
		  .n_layers = 2,
		  .dim = 256,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6f,
		  .embed_scale = 1,
		  .file_types = "mixed"},
		 {{32, true, 1, 1e6, no_scaling}},
		 "aa",
		 {{ATT(256, 32), .ffn = 256, .qk_norm = true}}},
		{"tiny/gguf-qwen3moe",
		 "model.gguf",
		 {.family = "qwen3_moe",
		  .from_gguf = true,
		  .n_layers = 2,
		  .dim = 256,
		  .vocab = 512,
		  .context_len = 512,
		  .eps = 1e-6f,
		  .embed_scale = 1,
		  .file_types = "mixed"},
		 {{32, true, 1, 1e6, no_scaling}},
		 "aa",
		 {{ATT(256, 32), .n_experts = 4, .n_used = 2, .expert_ffn = 256, .router_norm = true,
		   .qk_norm = true}}},
		{"tiny/gguf-gemma3",
		 "model.gguf",
		 {.family = "gemma3",
		  .from_gguf = true,
		  .n_layers = 6,
		  .dim = 256,
		  .vocab = 512,
		  .context_len = 512,
		  .tied = true,
		  .eps = 1e-6f,
		  .embed_scale = 16,
		  .file_types = "mixed"},
		 {{32, true, 1, 1e6, no_scaling}, {32, true, 1, 10000, no_scaling}},
		 "aaaaab",
		 {{ATT(256, 32), .rope = 1, .ffn = 256, .window = 16, .post_norms = true, .qk_norm = true,
		   .glu = SPEC_GELU_TANH},
		  {ATT(256, 32), .ffn = 256, .post_norms = true, .qk_norm = true, .glu = SPEC_GELU_TANH}}},
	};

	if (k) memcpy(k, all, sizeof(all));
	return ARRAY_LEN(all);
}

static void same_spec(const struct known *k, const struct spec *s)
{
	uint32_t i;

	assert_string_equal(s->family, k->spec.family);
	assert_string_equal(s->file_types, k->spec.file_types);
#define SAME(field) same_number(k->folder, 0, #field, s->field, k->spec.field);
	SAME(from_gguf)
	SAME(n_layers)
	SAME(dim)
	SAME(vocab) SAME(context_len) SAME(tied) SAME(zero_centered_norms)
#undef SAME
		same_number(k->folder, 0, "n_tokens", s->n_tokens, k->spec.vocab);
	same_double(k->folder, 0, "eps", s->eps, k->spec.eps);
	same_double(k->folder, 0, "embed_scale", s->embed_scale, k->spec.embed_scale);
	same_double(k->folder, 0, "logit_softcap", s->logit_softcap, k->spec.logit_softcap);
	for (i = 0; i < s->n_layers; i++) same_layer(k->folder, i, &s->layers[i], &k->kinds[k->pattern[i] - 'a']);
	same_number(k->folder, 0, "n_ropes", s->n_ropes, k->ropes[1].dims ? 2 : 1);
	for (i = 0; i < s->n_ropes; i++) {
		double second =
			k->ropes[i].second ? k->ropes[i].second : pow(k->ropes[i].base, -2.0 / k->ropes[i].dims);

		same_number(k->folder, i, "rope dims", s->ropes[i].dims, k->ropes[i].dims);
		same_number(k->folder, i, "rope neox", s->ropes[i].neox, k->ropes[i].neox);
		same_double(k->folder, i, "rope mscale", s->ropes[i].mscale, k->ropes[i].mscale);
		assert_true(s->ropes[i].freqs[0] == 1);
		if (fabs(s->ropes[i].freqs[1] / second - 1) > 1e-6)
			fail_msg("%s: the second frequency is %.9g; expected %.9g", k->folder, s->ropes[i].freqs[1],
				 second);
	}
}

static void golden_checkpoints_are_what_they_are(void **state)
{
	struct known *all = mem_zalloc(known_fill(NULL), sizeof(*all));
	size_t i, n = known_fill(all), n_seen = 0;

	for (i = 0; i < n; i++) {
		char folder[512], path[600];
		struct ckpt *c = NULL;
		struct errbuf err;
		struct spec s;

		if (!golden_folder(all[i].folder, folder, sizeof(folder))) continue;
		snprintf(path, sizeof(path), "%s%s%s", folder, all[i].file ? "/" : "", all[i].file ? all[i].file : "");
		if (ckpt_open(&c, path, &err) != ST_OK) fail_msg("%s", err.text);
		if (spec_read(&s, c, NULL, &err) != ST_OK) fail_msg("%s", err.text);
		same_spec(&all[i], &s);
		spec_release(&s);
		ckpt_close(c);
		n_seen++;
	}
	assert_true(n_seen >= (golden_has_shared() ? n : 12));
	free(all);
}

/* Elements of all roles are those of all tensors, where each tensor is plain and none is left out. */
static void every_element_of_a_checkpoint_has_a_role(void **state)
{
	static const char *const plain[] = {"tiny/llama",       "tiny/qwen2",   "tiny/gemma2",     "tiny/gemma3",
					    "tiny/phi3",        "tiny/mixtral", "tiny/qwen3-next", "tiny/deepseek-v2",
					    "tiny/deepseek-v3", "tiny/gpt-oss"};
	size_t i, k, d, n_seen = 0;

	for (i = 0; i < ARRAY_LEN(plain); i++) {
		uint64_t elements = 0, bytes = 0;
		struct ckpt *c = NULL;
		struct errbuf err;
		char folder[512];
		struct spec s;

		if (!golden_folder(plain[i], folder, sizeof(folder))) continue;
		assert_int_equal(ckpt_open(&c, folder, &err), ST_OK);
		assert_int_equal(spec_read(&s, c, NULL, &err), ST_OK);
		for (k = 0; k < ckpt_tensor_count(c); k++) {
			const struct ckpt_tensor *t = ckpt_tensor_at(c, k);
			uint64_t product = 1;

			for (d = 0; d < t->n_dims; d++) product *= t->dims[d];
			elements += product;
			bytes += t->bytes;
		}
		if (s.n_params != elements || s.weight_bytes != bytes)
			fail_msg("%s: %llu elements, %llu bytes; the file has %llu and %llu", plain[i],
				 (unsigned long long)s.n_params, (unsigned long long)s.weight_bytes,
				 (unsigned long long)elements, (unsigned long long)bytes);
		spec_release(&s);
		ckpt_close(c);
		n_seen++;
	}
	assert_true(n_seen > 0);
}

/* ---- tables ---- */

static void the_types_are_those_of_the_kernels(void **state)
{
#define TYPE_NUMBER(name, number, len, bytes) number,
	static const uint32_t numbers[] = {GGTYPES(TYPE_NUMBER)};
#undef TYPE_NUMBER
	size_t i;

	for (i = 0; i < ARRAY_LEN(numbers); i++) {
		if (numbers[i] == GGTYPE_F8_E4M3) continue; /* of KV caches: no matrix is plain float8 */
		if (spec_type_built((enum ggtype)numbers[i]) != kdequant_supported((enum ggtype)numbers[i]))
			fail_msg("%s is in one list and not in the other", ggtype_info(numbers[i])->name);
	}
}

static void roles_follow_the_layers(void **state)
{
	struct spec_layer layers[3] = {
		{.heads = 4, .kv_heads = 2, .k_dim = 16, .v_dim = 8, .ffn = 128, .qkv_bias = true},
		{.mixer = SPEC_MLA,
		 .heads = 4,
		 .kv_heads = 4,
		 .k_dim = 24,
		 .v_dim = 16,
		 .kv_lora = 32,
		 .nope_dim = 16,
		 .n_experts = 6,
		 .expert_ffn = 40,
		 .shared_ffn = 80,
		 .expert_bias = true},
		{.mixer = SPEC_DELTA,
		 .dk_heads = 2,
		 .dv_heads = 4,
		 .dk_dim = 8,
		 .dv_dim = 6,
		 .conv_width = 4,
		 .ffn = 128},
	};
	struct spec s = {.n_layers = 3, .dim = 64, .vocab = 100, .layers = layers};
	struct spec_shape shape;

	assert_string_equal(spec_role_name(SPEC_Q_BIAS), "Q_BIAS");
	assert_int_equal(spec_role_scope(SPEC_EMBED), SPEC_MODEL);
	assert_int_equal(spec_role_form(SPEC_EXP_UP), SPEC_EACH);
	assert_int_equal(spec_role_shard(SPEC_K), SPEC_KV);
	assert_true(spec_has(&s, SPEC_OUTPUT, 0));
	s.tied = true;
	assert_false(spec_has(&s, SPEC_OUTPUT, 2));
	assert_true(spec_has(&s, SPEC_K_BIAS, 0) && !spec_has(&s, SPEC_K_BIAS, 1) && !spec_has(&s, SPEC_K_BIAS, 2));
	assert_true(spec_has(&s, SPEC_Q, 0) && spec_has(&s, SPEC_Q, 1) && !spec_has(&s, SPEC_Q, 2));
	assert_true(!spec_has(&s, SPEC_K_B, 0) && spec_has(&s, SPEC_K_B, 1) && spec_has(&s, SPEC_D_OUT, 2));
	assert_true(spec_has(&s, SPEC_GATE, 0) && !spec_has(&s, SPEC_GATE, 1) && spec_has(&s, SPEC_SH_UP, 1));
	assert_false(spec_has(&s, SPEC_SH_ROUTER, 1));
	shape = spec_role_shape(&s, SPEC_V, 0);
	assert_true(shape.n == 1 && shape.rows == 16 && shape.cols == 64);
	shape = spec_role_shape(&s, SPEC_K_B, 1);
	assert_true(shape.n == 4 && shape.rows == 32 && shape.cols == 16);
	shape = spec_role_shape(&s, SPEC_EXP_DOWN_BIAS, 1);
	assert_true(shape.n == 6 && shape.rows == 1 && shape.cols == 64);
	shape = spec_role_shape(&s, SPEC_D_CONV, 2);
	assert_true(shape.n == 2 * 16 + 24 && shape.rows == 1 && shape.cols == 4);
	/* three earlier inputs of 56 channels, and 8 x 6 for each of four heads */
	assert_int_equal(spec_state_floats(&s), 3 * 56 + 4 * 8 * 6);
	assert_int_equal(spec_layer_state_floats(&layers[0]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_checkpoints_are_what_they_are),
		cmocka_unit_test(every_element_of_a_checkpoint_has_a_role),
		cmocka_unit_test(the_types_are_those_of_the_kernels),
		cmocka_unit_test(roles_follow_the_layers),
	};

	return cmocka_run_group_tests_name("spec", tests, NULL, NULL);
}
