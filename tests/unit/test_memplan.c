/* test_memplan.c - the plan of a step's memory: parts that do not overlap, and room for what each kind of layer needs.
 */
#include "worker/memplan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS 3

struct model {
	struct spec s;
	struct spec_layer layers[LAYERS];
	double freqs[32];
};

/* SmolLM2-135M's sizes. */
static void model_init(struct model *m)
{
	*m = (struct model){.s = {.n_layers = LAYERS, .dim = 576, .vocab = 49152, .n_tokens = 49152, .n_ropes = 1}};
	m->s.layers = m->layers;
	m->s.ropes[0] = (struct spec_rope){.dims = 64, .freqs = m->freqs, .mscale = 1};
	for (int i = 0; i < LAYERS; i++)
		m->layers[i] = (struct spec_layer){.mixer = SPEC_ATTENTION,
						   .heads = 9,
						   .kv_heads = 3,
						   .k_dim = 64,
						   .v_dim = 64,
						   .ffn = 1536,
						   .n_groups = 1};
}

static struct memplan plan_of(const struct model *m, uint32_t tokens, uint32_t seqs, uint32_t model_len)
{
	struct memplan_sizes sizes = {.batched_tokens_max = tokens,
				      .seqs_max = seqs,
				      .model_len_max = model_len,
				      .kv_type = GGTYPE_F16,
				      .kv_groups = 1};
	struct memplan p;

	memplan_init(&p, &m->s, &sizes);
	return p;
}

static void check_parts(const struct memplan *p)
{
	const struct memplan_part *parts[] = {&p->x,
					      &p->h,
					      &p->mix,
					      &p->gate,
					      &p->up,
					      &p->experts_x,
					      &p->experts_sum,
					      &p->route_logits,
					      &p->route_weights,
					      &p->route_tokens,
					      &p->route_places,
					      &p->route_starts,
					      &p->shared_gate,
					      &p->x_out,
					      &p->logits,
					      &p->rope[0],
					      &p->input,
					      &p->extra,
					      &p->sampled};
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		assert_int_equal(parts[i]->at, at);
		assert_int_equal(parts[i]->at % 64, 0);
		at += parts[i]->bytes;
	}
	assert_int_equal(p->activation_bytes, at);
}

static void parts_lie_behind_each_other(void **state)
{
	struct model m;
	struct memplan p;

	model_init(&m);
	p = plan_of(&m, 512, 256, 8192);
	check_parts(&p);
	assert_true(p.logits.bytes >= (size_t)64 * 49152 * 4);
	assert_int_equal(p.x.bytes, 512 * 576 * 4);
	assert_int_equal(p.mix.bytes, 512 * 15 * 64 * 4);
	assert_int_equal(p.gate.bytes, 128 * 1536 * 4);
	assert_int_equal(p.rope[0].bytes, align_up((8192 + MEMPLAN_SPARE_POSITIONS) * 64 * 4, 64));
	assert_int_equal(p.experts_x.bytes + p.route_starts.bytes + p.shared_gate.bytes, 0);
	assert_int_equal(p.state_bytes, 0);
	assert_true(p.activation_bytes < 32 * MIB);
}

static void small_steps_take_little(void **state)
{
	struct model m;
	struct memplan p;

	model_init(&m);
	p = plan_of(&m, 1, 256, 64);
	assert_int_equal(p.ffn_rows, 1);
	assert_int_equal(p.expert_rows, 1);
	assert_int_equal(p.logits_rows, 1);
	assert_int_equal(p.outs, 1);
	assert_int_equal(p.seq_blocks_max, 5); /* 64 tokens and the spare ones */
}

static void the_widest_mixer_decides(void **state)
{
	struct model m;
	struct memplan p;

	model_init(&m);
	m.layers[1].out_gate = true;
	p = plan_of(&m, 512, 256, 8192);
	assert_int_equal(p.mix_width, 15 * 64 + 9 * 64);
	assert_int_equal(p.core_width, 576);

	/* DeepSeek-V3: 128 heads of 128 + 64, latent 512 + 64, q_lora 1536, values of 128. */
	m.layers[1] = (struct spec_layer){.mixer = SPEC_MLA,
					  .heads = 128,
					  .kv_heads = 128,
					  .k_dim = 192,
					  .v_dim = 128,
					  .q_lora = 1536,
					  .kv_lora = 512,
					  .nope_dim = 128,
					  .ffn = 18432};
	p = plan_of(&m, 512, 256, 8192);
	assert_int_equal(p.mix_width, 128 * 192 + 576 + 1536 + 128 * 576);
	assert_int_equal(p.core_width, 128 * 512);
	assert_int_equal(p.limits.heads, 128);
	assert_int_equal(p.limits.head_dim, 576);
	assert_int_equal(p.limits.cols, 18432);
	check_parts(&p);
}

static void experts_get_their_room(void **state)
{
	struct model m;
	struct memplan p;

	model_init(&m);
	m.layers[2].ffn = 0;
	m.layers[2].n_experts = 60;
	m.layers[2].n_used = 4;
	m.layers[2].expert_ffn = 200;
	m.layers[2].shared_ffn = 900;
	p = plan_of(&m, 1000, 256, 8192);
	assert_int_equal(p.expert_rows, 512);
	assert_int_equal(p.gate.bytes,
			 512 * 900 * 4); /* the shared one's: more than 512 * 4 * 200, and than 128 * 1536 */
	assert_int_equal(p.up.bytes, p.gate.bytes);
	assert_int_equal(p.experts_x.bytes, 512 * 4 * 576 * 4);
	assert_int_equal(p.experts_sum.bytes, 0);
	assert_int_equal(p.route_logits.bytes, 512 * 60 * 4);
	assert_int_equal(p.route_tokens.bytes, 512 * 4 * 4);
	assert_int_equal(p.route_starts.bytes, align_up(61 * 4, 64));
	assert_int_equal(p.limits.n_tokens, 2048); /* rows of experts' products */
	m.layers[2].post_norms = true;
	p = plan_of(&m, 1000, 256, 8192);
	assert_int_equal(p.experts_sum.bytes, 512 * 576 * 4);
	check_parts(&p);
}

static void each_running_sequence_has_a_state(void **state)
{
	struct model m;
	struct memplan p;

	model_init(&m);
	for (int i = 0; i < 2; i++)
		m.layers[i] = (struct spec_layer){.mixer = SPEC_DELTA,
						  .dk_heads = 4,
						  .dv_heads = 8,
						  .dk_dim = 32,
						  .dv_dim = 16,
						  .conv_width = 4,
						  .ffn = 100};
	p = plan_of(&m, 512, 7, 8192);
	/* Two layers: 3 columns of 2 * 4 * 32 + 8 * 16 channels, and 8 heads of 32 x 16. */
	assert_int_equal(p.n_states, 7);
	assert_int_equal(p.state_bytes, 7 * 2 * (3 * 384 + 8 * 32 * 16) * 4);
	assert_int_equal(p.mix_width, 15 * 64); /* attention's: more than 384 + 8 * 16 + 2 * 8 */
	assert_int_equal(memplan_mix_width(&m.layers[0]), 384 + 8 * 16 + 2 * 8);
	check_parts(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_lie_behind_each_other),       cmocka_unit_test(small_steps_take_little),
		cmocka_unit_test(the_widest_mixer_decides),          cmocka_unit_test(experts_get_their_room),
		cmocka_unit_test(each_running_sequence_has_a_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
