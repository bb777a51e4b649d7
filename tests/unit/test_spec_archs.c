/* test_spec_archs.c - GGUF files of the architectures that the golden data have no file of: keys and tensors as
 * llama.cpp's converter (gguf-py's constants.py, conversion code) spells them. */
#include "model/ckpt.h"
#include "model/spec.h"
#include "model/wsrc.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/test_file.h"

#include "common/mem.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* "KEY VALUE": a whole number, a number with a point, true or false, or a word. */
static void put_key(struct gguf_writer *w, const char *arch, const char *line)
{
	const char *value = strchr(line, ' ') + 1;
	char key[128];

	snprintf(key, sizeof(key), "%s.%.*s", arch, (int)(value - 1 - line), line);
	if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
		gguf_writer_bool(w, key, *value == 't');
	else if (strspn(value, "0123456789") == strlen(value))
		gguf_writer_u32(w, key, (uint32_t)strtoul(value, NULL, 10));
	else if (strspn(value, "0123456789.e-") == strlen(value))
		gguf_writer_f32(w, key, strtof(value, NULL));
	else
		gguf_writer_str(w, key, value);
}

/* "NAME DIM DIM ...", outermost first, F32; "*" in a name: layers 0 and 1. */
static void put_tensor(struct gguf_writer *w, const char *line)
{
	size_t len = strcspn(line, " ");
	const char *rest = line + len, *star = memchr(line, '*', len);
	uint64_t found[4], dims[4];
	uint32_t n = 0, i, layer;
	char name[128];
	int used;

	while (n < 4 && sscanf(rest, "%" SCNu64 "%n", &found[n], &used) == 1) {
		rest += used;
		n++;
	}
	for (i = 0; i < n; i++) dims[i] = found[n - 1 - i];
	for (layer = 0; layer < (star ? 2u : 1u); layer++) {
		if (star)
			snprintf(name, sizeof(name), "%.*s%u%.*s", (int)(star - line), line, layer,
				 (int)(len - (size_t)(star - line) - 1), star + 1);
		else
			snprintf(name, sizeof(name), "%.*s", (int)len, line);
		gguf_writer_tensor(w, name, GGTYPE_F32, n, dims, NULL, 0);
	}
}

/* The file, with further lines of either kind; lines end with NULL. */
static int read_arch(const char *arch, const char *const *keys, const char *const *tensors,
		     const struct spec_opts *opts, struct ckpt **c, struct spec *s, struct errbuf *err)
{
	struct test_file_mem m;
	struct gguf_writer w;
	uint8_t *bytes;
	size_t len;
	int rc;

	gguf_writer_init(&w);
	gguf_writer_str(&w, "general.architecture", arch);
	for (; *keys; keys++) put_key(&w, arch, *keys);
	for (; *tensors; tensors++) put_tensor(&w, *tensors);
	bytes = gguf_writer_build(&w, &len);
	test_file_mem_init(&m, bytes, len);
	err->text[0] = 0;
	rc = ckpt_open(c, m.path, err);
	if (rc != ST_OK) fail_msg("%s", err->text);
	rc = spec_read(s, *c, opts, err);
	test_file_mem_release(&m);
	free(bytes);
	gguf_writer_release(&w);
	return rc;
}

static struct wsrc find(const struct spec *s, const struct ckpt *c, enum spec_role role, uint32_t layer, uint32_t ix)
{
	struct errbuf err;
	struct wsrc w;

	if (wsrc_find(&w, s, c, role, layer, ix, &err) != ST_OK) fail_msg("%s", err.text);
	return w;
}

static void close_all(struct ckpt *c, struct spec *s)
{
	spec_release(s);
	ckpt_close(c);
}

#define COMMON_KEYS                                                                               \
	"block_count 2", "context_length 4096", "embedding_length 64", "feed_forward_length 128", \
		"attention.head_count 4", "attention.layer_norm_rms_epsilon 0.000001", "rope.freq_base 10000.0"
#define ENDS   "token_embd.weight 100 64", "output_norm.weight 64", "output.weight 100 64"
#define NORMS  "blk.*.attn_norm.weight 64", "blk.*.ffn_norm.weight 64"
#define FFN(l) "blk." l ".ffn_gate.weight 128 64", "blk." l ".ffn_up.weight 128 64", "blk." l ".ffn_down.weight 64 128"
#define Q_AND_KV                                                                               \
	"blk.*.attn_q.weight 64 64", "blk.*.attn_k.weight 32 64", "blk.*.attn_v.weight 32 64", \
		"blk.*.attn_output.weight 64 64"

/* ---- deepseek2 ---- */

#define DS_KEYS                                                                                                    \
	COMMON_KEYS, "attention.q_lora_rank 24", "attention.kv_lora_rank 32", "rope.dimension_count 8",            \
		"leading_dense_block_count 1", "expert_feed_forward_length 16", "expert_count 8",                  \
		"expert_used_count 2", "expert_shared_count 2", "expert_weights_scale 2.5", "vocab_size 100",      \
		"rope.scaling.type yarn", "rope.scaling.factor 40.0", "rope.scaling.original_context_length 4096", \
		"rope.scaling.yarn_log_multiplier 0.0707"
#define DS_TENSORS                                                                                                   \
	ENDS, NORMS, FFN("0"), "blk.*.attn_q_a.weight 24 64", "blk.*.attn_q_a_norm.weight 24",                       \
		"blk.*.attn_q_b.weight 96 24", "blk.*.attn_kv_a_mqa.weight 40 64", "blk.*.attn_kv_a_norm.weight 32", \
		"blk.*.attn_output.weight 64 80", "blk.1.ffn_gate_inp.weight 8 64",                                  \
		"blk.1.ffn_gate_exps.weight 8 16 64", "blk.1.ffn_up_exps.weight 8 16 64",                            \
		"blk.1.ffn_down_exps.weight 8 64 16", "blk.1.ffn_gate_shexp.weight 32 64",                           \
		"blk.1.ffn_up_shexp.weight 32 64", "blk.1.ffn_down_shexp.weight 64 32"

static void deepseek2_with_the_latent_parts_apart(void **state)
{
	static const char *const keys[] = {DS_KEYS,
					   "attention.head_count_kv 1",
					   "attention.key_length 40",
					   "attention.value_length 32",
					   "attention.key_length_mla 24",
					   "attention.value_length_mla 20",
					   "expert_gating_func 2",
					   "expert_weights_norm true",
					   "expert_group_count 4",
					   "expert_group_used_count 2",
					   NULL};
	static const char *const tensors[] = {DS_TENSORS, "blk.*.attn_k_b.weight 4 32 16",
					      "blk.*.attn_v_b.weight 4 20 32", "blk.1.exp_probs_b.bias 8", NULL};
	double mscale = 1 + 0.0707 * log(40);
	const struct spec_layer *y;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	if (read_arch("deepseek2", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	y = &s.layers[1];
	assert_true(y->mixer == SPEC_MLA && y->heads == 4 && y->kv_heads == 4 && y->k_dim == 24 && y->v_dim == 20 &&
		    y->nope_dim == 16);
	assert_true(y->n_experts == 8 && y->shared_ffn == 32 && y->router == SPEC_SIGMOID && y->router_norm &&
		    y->router_correction);
	assert_true(y->n_groups == 4 && y->groups_used == 2 && y->router_scale == 2.5 && s.layers[0].ffn == 128 &&
		    !s.layers[0].n_experts);
	assert_true(fabs(y->scale * sqrt(24) / (mscale * mscale) - 1) < 1e-6 && s.ropes[0].mscale == 1 &&
		    !s.ropes[0].neox);
	w = find(&s, c, SPEC_K_B, 0, 3);
	assert_true(!w.transposed && w.at == 3 * 32 && w.rows == 32 && w.cols == 16);
	w = find(&s, c, SPEC_V_B, 1, 2);
	assert_true(w.at == 2 * 20 && w.rows == 20 && w.cols == 32);
	close_all(c, &s);
}

static void deepseek2_of_older_files(void **state)
{
	static const char *const keys[] = {DS_KEYS, "attention.head_count_kv 4", "attention.key_length 24",
					   "attention.value_length 20", NULL};
	static const char *const tensors[] = {DS_TENSORS, "blk.*.attn_kv_b.weight 144 32", NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	if (read_arch("deepseek2", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.layers[1].router == SPEC_SOFTMAX && !s.layers[1].router_norm && !s.layers[1].router_correction);
	assert_true(s.layers[1].nope_dim == 16 && s.layers[1].v_dim == 20);
	w = find(&s, c, SPEC_K_B, 0, 3);
	assert_true(w.transposed && w.at == 3 * 36 && w.tensor_rows == 16 && w.tensor_cols == 32 && w.rows == 32 &&
		    w.cols == 16);
	w = find(&s, c, SPEC_V_B, 0, 3);
	assert_true(!w.transposed && w.at == 3 * 36 + 16 && w.rows == 20 && w.cols == 32);
	close_all(c, &s);
}

/* ---- gpt-oss ---- */

static void gpt_oss(void **state)
{
	static const char *const keys[] = {COMMON_KEYS,
					   "attention.head_count_kv 2",
					   "attention.key_length 16",
					   "attention.value_length 16",
					   "attention.sliding_window 128",
					   "expert_count 4",
					   "expert_used_count 2",
					   "expert_feed_forward_length 32",
					   "rope.scaling.type yarn",
					   "rope.scaling.factor 32.0",
					   "rope.scaling.original_context_length 128",
					   NULL};
	static const char *const tensors[] = {ENDS,
					      "blk.*.attn_norm.weight 64",
					      "blk.*.post_attention_norm.weight 64",
					      Q_AND_KV,
					      "blk.*.attn_q.bias 64",
					      "blk.*.attn_k.bias 32",
					      "blk.*.attn_v.bias 32",
					      "blk.*.attn_output.bias 64",
					      "blk.*.attn_sinks.weight 4",
					      "blk.*.ffn_gate_inp.weight 4 64",
					      "blk.*.ffn_gate_inp.bias 4",
					      "blk.*.ffn_gate_exps.weight 4 32 64",
					      "blk.*.ffn_up_exps.weight 4 32 64",
					      "blk.*.ffn_down_exps.weight 4 64 32",
					      "blk.*.ffn_gate_exps.bias 4 32",
					      "blk.*.ffn_up_exps.bias 4 32",
					      "blk.*.ffn_down_exps.bias 4 64",
					      NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	if (read_arch("gpt-oss", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.layers[0].window == 128 && s.layers[1].window == 0 && s.layers[0].sinks &&
		    s.layers[0].glu == SPEC_OAI);
	assert_true(s.layers[0].router == SPEC_SOFTMAX_TOPK && s.layers[0].glu_limit == 7 && s.ropes[0].neox);
	assert_true(fabs(s.ropes[0].mscale - (0.1 * log(32) + 1)) < 1e-9);
	w = find(&s, c, SPEC_EXP_UP_BIAS, 1, 3);
	assert_true(w.at == 3 && w.rows == 1 && w.cols == 32 && !w.transposed);
	assert_ptr_equal(find(&s, c, SPEC_FFN_NORM, 1, 0).t, ckpt_find(c, "blk.1.post_attention_norm.weight"));
	close_all(c, &s);
}

/* ---- phi3 ---- */

static void phi3_with_long_and_short_divisors(void **state)
{
	static const char *const keys[] = {COMMON_KEYS,
					   "attention.head_count_kv 2",
					   "rope.dimension_count 12",
					   "attention.sliding_window 2047",
					   "rope.scaling.original_context_length 1024",
					   "rope.scaling.attn_factor 1.19",
					   NULL};
	static const char *const tensors[] = {ENDS,
					      NORMS,
					      "rope_factors_long.weight 6",
					      "rope_factors_short.weight 6",
					      "blk.*.attn_qkv.weight 128 64",
					      "blk.*.attn_output.weight 64 64",
					      "blk.*.ffn_up.weight 256 64",
					      "blk.*.ffn_down.weight 64 128",
					      NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;

	/* The writer's tensors hold zeros. */
	assert_int_equal(read_arch("phi3", keys, tensors, NULL, &c, &s, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "tensor rope_factors_short.weight: value 0 is 0; expected 1e-06 to 1e+06"));
	close_all(c, &s);
}

static void phi3_without_divisors(void **state)
{
	static const char *const keys[] = {COMMON_KEYS,
					   "attention.head_count_kv 2",
					   "rope.dimension_count 16",
					   "attention.sliding_window 2047",
					   "rope.scaling.original_context_length 4096",
					   NULL};
	static const char *const tensors[] = {ENDS,
					      NORMS,
					      "blk.*.attn_qkv.weight 128 64",
					      "blk.*.attn_output.weight 64 64",
					      "blk.*.ffn_up.weight 256 64",
					      "blk.*.ffn_down.weight 64 128",
					      NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	if (read_arch("phi3", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.layers[0].window == 2047 && s.ropes[0].neox && s.ropes[0].mscale == 1);
	w = find(&s, c, SPEC_K, 1, 0);
	assert_true(w.pieces[0].first == 64 && w.rows == 32 && w.tensor_rows == 128);
	w = find(&s, c, SPEC_GATE, 1, 0);
	assert_true(w.pieces[0].first == 0 && w.rows == 128 && w.tensor_rows == 256);
	close_all(c, &s);
}

/* ---- qwen3next ---- */

#define NEXT_KEYS                                                                                                      \
	COMMON_KEYS, "attention.head_count_kv 2", "attention.key_length 32", "attention.value_length 32",              \
		"rope.dimension_count 8", "expert_count 4", "expert_used_count 2", "expert_feed_forward_length 16",    \
		"expert_shared_feed_forward_length 24", "ssm.conv_kernel 4", "ssm.state_size 16", "ssm.group_count 2", \
		"ssm.time_step_rank 4", "ssm.inner_size 48", "full_attention_interval 2"
#define NEXT_TENSORS                                                                                                  \
	ENDS, "blk.*.attn_norm.weight 64", "blk.*.post_attention_norm.weight 64", "blk.1.attn_q.weight 256 64",       \
		"blk.1.attn_k.weight 64 64", "blk.1.attn_v.weight 64 64", "blk.1.attn_output.weight 64 128",          \
		"blk.1.attn_q_norm.weight 32", "blk.1.attn_k_norm.weight 32", "blk.0.ssm_conv1d.weight 112 4",        \
		"blk.0.ssm_dt.bias 4", "blk.0.ssm_a 4", "blk.0.ssm_ba.weight 8 64", "blk.0.ssm_norm.weight 12",       \
		"blk.0.ssm_out.weight 64 48", "blk.*.ffn_gate_inp.weight 4 64", "blk.*.ffn_gate_exps.weight 4 16 64", \
		"blk.*.ffn_up_exps.weight 4 16 64", "blk.*.ffn_down_exps.weight 4 64 16",                             \
		"blk.*.ffn_gate_inp_shexp.weight 64", "blk.*.ffn_gate_shexp.weight 24 64",                            \
		"blk.*.ffn_up_shexp.weight 24 64", "blk.*.ffn_down_shexp.weight 64 24"

static void qwen3next_with_its_projection_whole_or_apart(void **state)
{
	static const char *const keys[] = {NEXT_KEYS, NULL};
	static const char *const whole[] = {NEXT_TENSORS, "blk.0.ssm_in.weight 160 64", NULL};
	static const char *const apart[] = {NEXT_TENSORS, "blk.0.attn_qkv.weight 112 64",
					    "blk.0.attn_gate.weight 48 64", NULL};
	const struct spec_layer *y;
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	if (read_arch("qwen3next", keys, whole, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	y = &s.layers[0];
	assert_true(y->mixer == SPEC_DELTA && y->dk_heads == 2 && y->dv_heads == 4 && y->dk_dim == 16 &&
		    y->dv_dim == 12 && y->conv_width == 4);
	assert_true(y->shared_ffn == 24 && y->shared_gate && y->router_norm && s.layers[1].out_gate &&
		    s.ropes[0].dims == 8);
	assert_false(s.zero_centered_norms);
	/* by k head: 16 of q, 16 of k, two heads of 12 of v, the same of z: 80 */
	w = find(&s, c, SPEC_D_QKV, 0, 0);
	assert_true(w.n_pieces == 3 && w.tensor_rows == 160);
	assert_true(w.pieces[0].rows == 32 && w.pieces[0].first == 0 && w.pieces[0].run == 16 &&
		    w.pieces[0].step == 80);
	assert_true(w.pieces[1].rows == 32 && w.pieces[1].first == 16 && w.pieces[1].run == 16 &&
		    w.pieces[1].step == 80);
	assert_true(w.pieces[2].rows == 48 && w.pieces[2].first == 32 && w.pieces[2].run == 24 &&
		    w.pieces[2].step == 80);
	w = find(&s, c, SPEC_D_Z, 0, 0);
	assert_true(w.n_pieces == 1 && w.pieces[0].first == 56 && w.pieces[0].run == 24 && w.pieces[0].step == 80);
	w = find(&s, c, SPEC_D_A, 0, 0);
	assert_true(w.tensor_rows == 8 && w.pieces[0].first == 2 && w.pieces[0].run == 2 && w.pieces[0].step == 4);
	assert_true(find(&s, c, SPEC_D_NEG_A, 0, 0).map == WSRC_AS_IS);
	w = find(&s, c, SPEC_D_CONV, 0, 111);
	assert_true(w.at == 111 && w.rows == 1 && w.cols == 4);
	close_all(c, &s);
	if (read_arch("qwen3next", keys, apart, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	w = find(&s, c, SPEC_D_QKV, 0, 0);
	assert_true(w.n_pieces == 1 && w.tensor_rows == 112);
	close_all(c, &s);
}

/* Value heads lie in another order there; a block that predicts further tokens is left out. */
static void qwen35moe(void **state)
{
	static const char *const keys[] = {NEXT_KEYS, NULL};
	static const char *const keys_mtp[] = {NEXT_KEYS, "nextn_predict_layers 1", NULL};
	static const char *const keys_all_mtp[] = {NEXT_KEYS, "nextn_predict_layers 2", NULL};
	static const char *const tensors[] = {NEXT_TENSORS, "blk.0.attn_qkv.weight 112 64",
					      "blk.0.attn_gate.weight 48 64", NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	if (read_arch("qwen35moe", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_string_equal(s.family, "qwen3_5_moe");
	assert_true(s.layers[0].dv_tiled && !s.layers[1].dv_tiled && s.layers[1].out_gate && s.layers[0].router_norm);
	assert_true(s.ropes[0].dims == 8 && s.layers[0].n_experts == 4 && s.layers[0].shared_ffn == 24);
	w = find(&s, c, SPEC_D_Z, 0, 0);
	assert_int_equal(wsrc_shard(&w, &s, SPEC_D_Z, 0, (struct wsrc_rank){.rank = 0, .size = 2}, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "4 value heads with their key heads cannot be shared by 2 ranks"));
	close_all(c, &s);
	if (read_arch("qwen35moe", keys_mtp, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_int_equal(s.n_layers, 1);
	close_all(c, &s);
	assert_int_equal(read_arch("qwen35moe", keys_all_mtp, tensors, NULL, &c, &s, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "qwen35moe.nextn_predict_layers is 2; expected less than qwen35moe.block_count, 2"));
	close_all(c, &s);
}

/* ---- others ---- */

static void gemma2(void **state)
{
	static const char *const keys[] = {COMMON_KEYS,
					   "attention.head_count_kv 2",
					   "attention.key_length 16",
					   "attention.value_length 16",
					   "attention.sliding_window 1024",
					   "attn_logit_softcapping 50.0",
					   "final_logit_softcapping 30.0",
					   NULL};
	static const char *const tensors[] = {"token_embd.weight 100 64",
					      "output_norm.weight 64",
					      NORMS,
					      Q_AND_KV,
					      FFN("*"),
					      "blk.*.post_attention_norm.weight 64",
					      "blk.*.post_ffw_norm.weight 64",
					      NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;

	if (read_arch("gemma2", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.tied && s.embed_scale == 8 && s.logit_softcap == 30 && s.layers[1].softcap == 50 &&
		    s.layers[1].scale == 0.25);
	assert_true(s.layers[0].window == 1024 && s.layers[1].window == 0 &&
		    find(&s, c, SPEC_FFN_NORM, 0, 0).map == WSRC_AS_IS);
	close_all(c, &s);
}

static void mixtral_as_llama(void **state)
{
	static const char *const keys[] = {COMMON_KEYS,      "attention.head_count_kv 2", "rope.dimension_count 16",
					   "expert_count 3", "expert_used_count 2",       NULL};
	static const char *const stacks[] = {ENDS,
					     NORMS,
					     Q_AND_KV,
					     "blk.*.ffn_gate_inp.weight 3 64",
					     "blk.*.ffn_gate_exps.weight 3 128 64",
					     "blk.*.ffn_up_exps.weight 3 128 64",
					     "blk.*.ffn_down_exps.weight 3 64 128",
					     NULL};
	static const char *const single[] = {ENDS,
					     NORMS,
					     Q_AND_KV,
					     "blk.*.ffn_gate_inp.weight 3 64",
					     "blk.*.ffn_gate.0.weight 128 64",
					     "blk.*.ffn_gate.1.weight 128 64",
					     "blk.*.ffn_gate.2.weight 128 64",
					     "blk.*.ffn_up.0.weight 128 64",
					     "blk.*.ffn_up.1.weight 128 64",
					     "blk.*.ffn_up.2.weight 128 64",
					     "blk.*.ffn_down.0.weight 64 128",
					     "blk.*.ffn_down.1.weight 64 128",
					     "blk.*.ffn_down.2.weight 64 128",
					     NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;
	struct wsrc w;

	if (read_arch("llama", keys, stacks, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.layers[0].n_experts == 3 && s.layers[0].expert_ffn == 128 && s.layers[0].ffn == 0 &&
		    s.layers[0].router_norm);
	assert_int_equal(find(&s, c, SPEC_EXP_DOWN, 1, 2).at, 2 * 64);
	close_all(c, &s);
	if (read_arch("llama", keys, single, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	w = find(&s, c, SPEC_EXP_DOWN, 1, 2);
	assert_true(w.at == 0 && w.t == ckpt_find(c, "blk.1.ffn_down.2.weight"));
	close_all(c, &s);
}

static void llama_with_biases(void **state)
{
	static const char *const keys[] = {COMMON_KEYS, "attention.head_count_kv 2", NULL};
	static const char *const tensors[] = {ENDS,
					      NORMS,
					      Q_AND_KV,
					      FFN("*"),
					      "blk.*.attn_q.bias 64",
					      "blk.*.attn_k.bias 32",
					      "blk.*.attn_v.bias 32",
					      "blk.*.attn_output.bias 64",
					      "blk.*.ffn_gate.bias 128",
					      "blk.*.ffn_up.bias 128",
					      "blk.*.ffn_down.bias 64",
					      NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;

	if (read_arch("llama", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.layers[1].qkv_bias && s.layers[1].o_bias && s.layers[1].ffn_bias);
	close_all(c, &s);
}

static void qwen2moe(void **state)
{
	static const char *const keys[] = {COMMON_KEYS,
					   "attention.head_count_kv 2",
					   "expert_count 8",
					   "expert_used_count 2",
					   "expert_feed_forward_length 16",
					   "expert_shared_feed_forward_length 48",
					   NULL};
	static const char *const tensors[] = {ENDS,
					      NORMS,
					      Q_AND_KV,
					      "blk.*.attn_q.bias 64",
					      "blk.*.attn_k.bias 32",
					      "blk.*.attn_v.bias 32",
					      "blk.*.ffn_gate_inp.weight 8 64",
					      "blk.*.ffn_gate_exps.weight 8 16 64",
					      "blk.*.ffn_up_exps.weight 8 16 64",
					      "blk.*.ffn_down_exps.weight 8 64 16",
					      "blk.*.ffn_gate_inp_shexp.weight 64",
					      "blk.*.ffn_gate_shexp.weight 48 64",
					      "blk.*.ffn_up_shexp.weight 48 64",
					      "blk.*.ffn_down_shexp.weight 64 48",
					      NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;

	if (read_arch("qwen2moe", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.layers[1].qkv_bias && !s.layers[1].o_bias && s.layers[1].n_experts == 8 &&
		    s.layers[1].expert_ffn == 16 && s.layers[1].shared_ffn == 48 && s.layers[1].shared_gate);
	assert_true(!s.layers[1].router_norm && s.layers[1].window == 0 && s.ropes[0].neox);
	close_all(c, &s);
}

static void smollm3(void **state)
{
	static const char *const keys[] = {COMMON_KEYS, "attention.head_count_kv 2", "rope.dimension_count 16", NULL};
	static const char *const tensors[] = {
		"token_embd.weight 100 64", "output_norm.weight 64", NORMS, Q_AND_KV, FFN("*"), NULL};
	struct errbuf err;
	struct ckpt *c;
	struct spec s;

	if (read_arch("smollm3", keys, tensors, NULL, &c, &s, &err) != ST_OK) fail_msg("%s", err.text);
	assert_true(s.tied && !s.ropes[0].neox && s.layers[1].rope == 0);
	close_all(c, &s);
}

static void settings_of_no_meaning_here_are_refused(void **state)
{
	static const char *const tensors[] = {ENDS, NORMS, Q_AND_KV, FFN("*"), NULL};
	static const struct {
		const char *key, *words; /* words NULL: it is fine */
	} cases[] = {
		{"attention.causal true", NULL},
		{"attention.causal false", "key llama.attention.causal is a setting that is not built"},
		{"attention.clamp_kqv 0.0", NULL},
		{"attention.clamp_kqv 8.0", "llama.attention.clamp_kqv is a setting"},
		{"attention.temperature_scale 0.1", "llama.attention.temperature_scale is a setting"},
		{"expert_count 0", NULL},
		{"vocab_size 100", NULL},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		const char *keys[] = {COMMON_KEYS, "attention.head_count_kv 2", cases[i].key, NULL};
		struct errbuf err;
		struct ckpt *c;
		struct spec s;
		int rc = read_arch("llama", keys, tensors, NULL, &c, &s, &err);

		if ((rc == ST_OK) != !cases[i].words || (cases[i].words && !strstr(err.text, cases[i].words)))
			fail_msg("%s: status %d, \"%s\"", cases[i].key, rc, err.text);
		close_all(c, &s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deepseek2_with_the_latent_parts_apart),
		cmocka_unit_test(deepseek2_of_older_files),
		cmocka_unit_test(gpt_oss),
		cmocka_unit_test(phi3_with_long_and_short_divisors),
		cmocka_unit_test(phi3_without_divisors),
		cmocka_unit_test(qwen3next_with_its_projection_whole_or_apart),
		cmocka_unit_test(qwen35moe),
		cmocka_unit_test(gemma2),
		cmocka_unit_test(mixtral_as_llama),
		cmocka_unit_test(llama_with_biases),
		cmocka_unit_test(qwen2moe),
		cmocka_unit_test(smollm3),
		cmocka_unit_test(settings_of_no_meaning_here_are_refused),
	};

	return cmocka_run_group_tests_name("spec_archs", tests, NULL, NULL);
}
