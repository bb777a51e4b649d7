/* memplan.c - see memplan.h. Sizes are bounded by spec.h and limits.h, so that products stay within 64 bits. */
#include "worker/memplan.h"

#include "worker/batch.h"

#define MEMPLAN_ALIGN 64

static void memplan_add(struct memplan *p, struct memplan_part *part, uint64_t rows, uint64_t row_bytes)
{
	part->at = p->activation_bytes;
	part->bytes = align_up(rows * row_bytes, MEMPLAN_ALIGN);
	p->activation_bytes += part->bytes;
}

static void memplan_add_floats(struct memplan *p, struct memplan_part *part, uint64_t rows, uint64_t floats)
{
	memplan_add(p, part, rows, floats * sizeof(float));
}

uint32_t memplan_mix_width(const struct spec_layer *y)
{
	uint32_t latent = y->kv_lora + y->k_dim - y->nope_dim;

	switch (y->mixer) {
	case SPEC_ATTENTION: /* q, k, v, gate */
		return y->heads * y->k_dim + y->kv_heads * (y->k_dim + y->v_dim) +
		       (y->out_gate ? y->heads * y->v_dim : 0);
	case SPEC_MLA: /* q, latent and k_pe, q's bottleneck; q in the latent space, later the values */
		return y->heads * y->k_dim + latent + y->q_lora + y->heads * max_u32(latent, y->v_dim);
	case SPEC_DELTA: /* qkv, z, b and a */
		return SPEC_D_QKV(y) + y->dv_heads * y->dv_dim + 2 * y->dv_heads;
	}
	CHECK(!"a mixer that is built");
	return 0;
}

uint32_t memplan_core_width(const struct spec_layer *y)
{
	switch (y->mixer) {
	case SPEC_ATTENTION:
		return y->heads * y->v_dim;
	case SPEC_MLA:
		return y->heads * max_u32(y->kv_lora, y->v_dim);
	case SPEC_DELTA:
		return y->dv_heads * y->dv_dim;
	}
	CHECK(!"a mixer that is built");
	return 0;
}

/* What the layers need at most. */
struct memplan_widest {
	uint32_t ffn; /* dense */
	uint32_t n_used, n_experts, expert_ffn,
		shared; /* experts; (n_used * expert_ffn) is at most the product of the two */
	bool experts_sum;
};

static void memplan_measure(struct memplan *p, const struct spec *s, struct memplan_widest *w)
{
	*w = (struct memplan_widest){0};
	p->core_width = p->mix_width = s->dim; /* what waits for its norm, or is brought together */
	for (uint32_t i = 0; i < s->n_layers; i++) {
		const struct spec_layer *y = &s->layers[i];

		p->mix_width = max_u32(p->mix_width, max_u32(memplan_mix_width(y), memplan_core_width(y)));
		p->core_width = max_u32(p->core_width, memplan_core_width(y));
		if (!y->n_experts) {
			w->ffn = max_u32(w->ffn, y->ffn);
			continue;
		}
		w->n_used = max_u32(w->n_used, y->n_used);
		w->n_experts = max_u32(w->n_experts, y->n_experts);
		w->expert_ffn = max_u32(w->expert_ffn, y->expert_ffn);
		w->shared = max_u32(w->shared, y->shared_ffn);
		w->experts_sum |= y->post_norms;
	}
}

static void memplan_add_ffn(struct memplan *p, const struct spec *s, const struct memplan_widest *w)
{
	uint64_t rows = w->n_experts ? p->expert_rows : 0, used = rows * w->n_used;
	uint64_t inner = (uint64_t)p->ffn_rows * w->ffn;

	inner = max_u64(inner, max_u64(used * w->expert_ffn, rows * w->shared));
	memplan_add_floats(p, &p->gate, 1, inner);
	memplan_add_floats(p, &p->up, 1, inner);
	memplan_add_floats(p, &p->experts_x, used, s->dim);
	memplan_add_floats(p, &p->experts_sum, w->experts_sum ? rows : 0, s->dim);
	memplan_add_floats(p, &p->route_logits, rows, w->n_experts);
	memplan_add_floats(p, &p->route_weights, rows, w->n_used);
	memplan_add(p, &p->route_tokens, used, sizeof(uint32_t));
	memplan_add(p, &p->route_places, used, sizeof(uint32_t));
	memplan_add(p, &p->route_starts, rows ? w->n_experts + 1 : 0, sizeof(uint32_t));
	memplan_add_floats(p, &p->shared_gate, rows, 1);
}

/* The widest input of any product. */
static uint32_t memplan_cols(const struct spec *s)
{
	uint32_t cols = s->dim;

	for (uint32_t i = 0; i < s->n_layers; i++)
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) {
			enum spec_form form = spec_role_form(role);

			if (spec_role_scope(role) == SPEC_LAYER && (form == SPEC_MAT || form == SPEC_EACH) &&
			    spec_has(s, role, i))
				cols = max_u32(cols, spec_role_shape(s, role, i).cols);
		}
	return cols;
}

static void memplan_limits(struct memplan *p, const struct spec *s, const struct memplan_widest *w)
{
	struct kdev_limits *lim = &p->limits;

	*lim = (struct kdev_limits){
		.n_tokens = max_u32(p->sizes.batched_tokens_max, w->n_experts ? p->expert_rows * w->n_used : 0),
		.cols = memplan_cols(s),
		.seqs = p->sizes.seqs_max,
		.heads = 1,
		.head_dim = 1,
		.positions = p->positions,
		.vocab = s->n_tokens};
	for (uint32_t i = 0; i < s->n_layers; i++) {
		const struct spec_layer *y = &s->layers[i];
		uint32_t k_dim = y->mixer == SPEC_MLA ? y->kv_lora + y->k_dim - y->nope_dim : y->k_dim;

		if (y->mixer == SPEC_DELTA) {
			lim->heads = max_u32(lim->heads, y->dv_heads);
			lim->head_dim = max_u32(lim->head_dim, max_u32(y->dk_dim, y->dv_dim));
		} else {
			lim->heads = max_u32(lim->heads, y->heads);
			lim->head_dim = max_u32(lim->head_dim, max_u32(k_dim, y->v_dim));
		}
	}
}

void memplan_init(struct memplan *p, const struct spec *s, const struct memplan_sizes *sizes)
{
	uint32_t tokens = sizes->batched_tokens_max, seqs = sizes->seqs_max;
	uint32_t mask_vocab = max_u32(s->n_tokens, sizes->mask_vocab);
	struct memplan_widest w;

	*p = (struct memplan){.sizes = *sizes};
	p->positions = sizes->model_len_max + MEMPLAN_SPARE_POSITIONS;
	p->seq_blocks_max = (uint32_t)div_up(p->positions, KBLOCK_LEN);
	p->ffn_rows = min_u32(tokens, MEMPLAN_FFN_ROWS);
	p->expert_rows = min_u32(tokens, MEMPLAN_EXPERT_ROWS);
	p->outs = min_u32(seqs, tokens);
	p->logits_rows = min_u32(p->outs, MEMPLAN_LOGITS_ROWS);
	p->n_states = spec_state_floats(s) ? seqs : 0;
	p->state_bytes = p->n_states * spec_state_floats(s) * sizeof(float);
	memplan_measure(p, s, &w);

	memplan_add_floats(p, &p->x, tokens, s->dim);
	memplan_add_floats(p, &p->h, tokens, p->core_width);
	memplan_add_floats(p, &p->mix, tokens, p->mix_width);
	memplan_add_ffn(p, s, &w);
	memplan_add_floats(p, &p->x_out, p->outs, s->dim);
	memplan_add_floats(p, &p->logits, p->logits_rows, s->n_tokens);
	for (uint32_t i = 0; i < s->n_ropes; i++) memplan_add_floats(p, &p->rope[i], p->positions, s->ropes[i].dims);
	memplan_add(p, &p->input, 1, batch_input_bytes(p->positions, tokens, seqs, sizes->kv_groups));
	memplan_add(p, &p->extra, batch_extra_words(mask_vocab, p->positions, p->logits_rows), sizeof(uint32_t));
	memplan_add(p, &p->sampled, batch_rows_max(tokens, seqs), sizeof(struct ksampled));
	memplan_limits(p, s, &w);
	p->scratch_bytes = kdev_scratch_bytes(&p->limits);
}
