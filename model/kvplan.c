/* kvplan.c - see kvplan.h. The bounds of spec.h keep a layer's block below 2^38 bytes, so all layers' below 2^48. */
#include "model/kvplan.h"

#include <stdio.h>

#define KVPLAN_TP_MAX 64 /* sizes that an error lists at most */

/* ---- the shape ---- */

static bool kvplan_may_share(uint32_t heads, uint32_t tp)
{
	return heads % tp == 0;
}

/* Shared while there are enough, then replicated. */
static bool kvplan_may_replicate(uint32_t heads, uint32_t tp)
{
	return heads >= tp ? heads % tp == 0 : tp % heads == 0;
}

static uint32_t kvplan_replicated(uint32_t heads, uint32_t tp)
{
	return heads > tp ? heads / tp : 1;
}

static bool kvplan_layer_divides(const struct spec_layer *y, uint32_t tp)
{
	if (y->mixer == SPEC_DELTA) return kvplan_may_share(y->dv_heads, tp) && kvplan_may_replicate(y->dk_heads, tp);
	return kvplan_may_share(y->heads, tp) && (y->mixer == SPEC_MLA || kvplan_may_replicate(y->kv_heads, tp));
}

static bool kvplan_divides(const struct spec *s, uint32_t tp)
{
	for (uint32_t i = 0; i < s->n_layers; i++)
		if (!kvplan_layer_divides(&s->layers[i], tp)) return false;
	return true;
}

static int kvplan_check_tp(const struct spec *s, uint32_t tp, struct errbuf *err)
{
	const struct spec_layer *y = s->layers;
	char sizes[256];
	size_t n = 0;
	uint32_t i;

	for (i = 0; i < s->n_layers && tp && kvplan_layer_divides(&s->layers[i], tp); i++) {
	}
	if (i == s->n_layers) return ST_OK;
	y += i;
	for (uint32_t k = 1; k <= KVPLAN_TP_MAX && n < sizeof(sizes); k++)
		if (kvplan_divides(s, k)) n += (size_t)snprintf(sizes + n, sizeof(sizes) - n, "%s%u", n ? ", " : "", k);
	if (y->mixer == SPEC_DELTA)
		return err_set(
			err, ST_INVALID,
			"layer %u: %u value heads and %u key heads cannot be shared by %u ranks; sizes that divide: %s",
			i, y->dv_heads, y->dk_heads, tp, sizes);
	return err_set(err, ST_INVALID,
		       "layer %u: %u heads and %u KV heads cannot be shared by %u ranks; sizes that divide: %s", i,
		       y->heads, y->mixer == SPEC_MLA ? 1 : y->kv_heads, tp, sizes);
}

static uint64_t kvplan_state_bytes(const struct spec_layer *y, uint32_t tp)
{
	uint64_t v_heads = y->dv_heads / tp, k_heads = kvplan_replicated(y->dk_heads, tp);
	uint64_t channels = 2 * k_heads * y->dk_dim + v_heads * y->dv_dim;
	uint64_t floats = v_heads * y->dk_dim * y->dv_dim + (y->conv_width - 1) * channels;

	return floats * sizeof(float);
}

static struct kvplan_layers kvplan_layers_of(const struct spec_layer *y, enum ggtype kv_type, uint32_t tp)
{
	bool latent = y->mixer == SPEC_MLA;
	struct kvplan_layers l = {.kind = latent      ? KVPLAN_LATENT
					  : y->window ? KVPLAN_WINDOW
						      : KVPLAN_FULL,
				  .n_layers = 1,
				  .window = y->window,
				  .kv_heads = latent ? 1 : kvplan_replicated(y->kv_heads, tp),
				  .k_dim = latent ? y->kv_lora + y->k_dim - y->nope_dim : y->k_dim,
				  .v_dim = latent ? 0 : y->v_dim};
	uint64_t scales = kv_type == GGTYPE_I8 ? (latent ? 1 : 2) * sizeof(float) : 0; /* of a position of a head */

	l.bytes = l.kv_heads * (((uint64_t)l.k_dim + l.v_dim) * ggtype_row_bytes(kv_type, 1) + scales) * KVPLAN_BLOCK;
	return l;
}

static bool kvplan_alike(const struct kvplan_layers *a, const struct kvplan_layers *b)
{
	return a->kind == b->kind && a->window == b->window && a->kv_heads == b->kv_heads && a->k_dim == b->k_dim &&
	       a->v_dim == b->v_dim;
}

static int kvplan_add(struct kvplan_shape *out, const struct kvplan_layers *l, struct errbuf *err)
{
	out->bytes += l->bytes;
	for (uint32_t i = 0; i < out->n_kinds; i++) {
		if (!kvplan_alike(&out->layers[i], l)) continue;
		out->layers[i].n_layers++;
		out->layers[i].bytes += l->bytes;
		return ST_OK;
	}
	if (out->n_kinds == KVPLAN_KINDS_MAX)
		return err_set(err, ST_UNSUPPORTED, "the model's layers have more than %d different kinds of KV cache",
			       KVPLAN_KINDS_MAX);
	out->layers[out->n_kinds++] = *l;
	return ST_OK;
}

/* A place has room for the largest of the layers that share it. */
static uint64_t kvplan_block_bytes(const struct kvplan_shape *shape, const struct spec *s)
{
	uint64_t places[SPEC_LAYERS_MAX] = {0}, sum = 0;

	for (uint32_t i = 0; i < s->n_layers; i++) {
		uint64_t *place = &places[shape->groups.place[i]];

		if (shape->groups.group[i] == KVGROUPS_NONE) continue;
		*place = max_u64(*place, kvplan_layers_of(&s->layers[i], shape->kv_type, shape->tp).bytes);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(places); i++) sum += places[i];
	return max_u64(sum, 1);
}

int kvplan_shape(struct kvplan_shape *out, const struct spec *s, enum ggtype kv_type, uint32_t tp,
		 uint32_t model_len_max, struct errbuf *err)
{
	int rc;

	*out = (struct kvplan_shape){.kv_type = kv_type, .tp = tp, .model_len_max = model_len_max};
	if (!kvplan_type_name(kv_type)) {
		const struct ggtype_info *t = ggtype_info(kv_type);

		return err_set(err, ST_UNSUPPORTED, "no KV cache of type %s; known ones: f16, bf16, f32, fp8, int8",
			       t ? t->name : "?");
	}
	rc = kvplan_check_tp(s, tp, err);
	for (uint32_t i = 0; i < s->n_layers && rc == ST_OK; i++) {
		const struct spec_layer *y = &s->layers[i];
		struct kvplan_layers l;

		if (y->mixer == SPEC_DELTA) {
			out->n_state_layers++;
			out->state_bytes += kvplan_state_bytes(y, tp);
			continue;
		}
		l = kvplan_layers_of(y, kv_type, tp);
		rc = kvplan_add(out, &l, err);
	}
	if (rc != ST_OK) return rc;
	kvgroups_make(&out->groups, s, model_len_max);
	out->block_bytes = kvplan_block_bytes(out, s);
	return ST_OK;
}

const char *kvplan_type_name(enum ggtype kv_type)
{
	switch (kv_type) {
	case GGTYPE_F16:
		return "f16";
	case GGTYPE_BF16:
		return "bf16";
	case GGTYPE_F32:
		return "f32";
	case GGTYPE_F8_E4M3:
		return "fp8";
	case GGTYPE_I8:
		return "int8";
	default:
		return NULL;
	}
}

/* ---- the plan ---- */

static double kvplan_mib(uint64_t bytes)
{
	return (double)bytes / (double)MIB;
}

static uint64_t kvplan_sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t kvplan_times(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

uint64_t kvplan_request_blocks(const struct kvplan_in *in, uint64_t tokens)
{
	const struct kvgroups *g = &in->shape->groups;

	return kvgroups_n(g) ? kvgroups_seq_blocks(g, tokens, in->tokens_ahead) : div_up(tokens, KVPLAN_BLOCK);
}

uint64_t kvplan_request_len(const struct kvplan_in *in, uint64_t n_blocks)
{
	const struct kvgroups *g = &in->shape->groups;
	uint64_t n = max_u32(kvgroups_n(g), 1),
		 windowed = g->n_windowed ? kvgroups_window_blocks(g->window, in->tokens_ahead) : 0;

	/* As long as the windowed groups hold everything, all groups are alike. */
	if (!g->n_windowed || n_blocks / n < windowed) return n_blocks / n * KVPLAN_BLOCK;
	return g->n_full ? (n_blocks - g->n_windowed * windowed) / g->n_full * KVPLAN_BLOCK : UINT64_MAX;
}

static void kvplan_start(struct kvplan *p, const struct kvplan_in *in)
{
	*p = (struct kvplan){.in = *in, .model_len_max = in->model_len_max, .allowed = in->available};
	p->rule = in->blocks_override ? KVPLAN_BY_BLOCKS : in->kv_bytes ? KVPLAN_BY_BYTES : KVPLAN_BY_UTILIZATION;
	p->fixed = kvplan_sum(kvplan_sum(in->weights, in->activations), kvplan_sum(in->workspace, in->state));
	if (in->available == UINT64_MAX) {
		p->left = UINT64_MAX;
		return;
	}
	if (p->rule == KVPLAN_BY_UTILIZATION) p->allowed = (uint64_t)((double)in->available * in->utilization);
	p->left = p->allowed > p->fixed ? p->allowed - p->fixed : 0;
}

/* A number of blocks, and what follows from it. */
static void kvplan_set(struct kvplan *p, uint64_t n_blocks)
{
	const struct kvplan_in *in = &p->in;

	p->n_blocks = n_blocks;
	p->kv_bytes = kvplan_times(n_blocks, in->shape->block_bytes);
	p->len_fits = (uint32_t)min_u64(in->context_len, kvplan_request_len(in, n_blocks));
	/* When nothing fits, one block is what is missing first. */
	if (!in->model_len_max) p->model_len_max = p->len_fits ? p->len_fits : min_u32(KVPLAN_BLOCK, in->context_len);
	p->blocks_needed = kvplan_request_blocks(in, p->model_len_max);
	p->full_seqs = p->blocks_needed ? (double)n_blocks / (double)p->blocks_needed : 0;
}

/* A size that somebody asked for by an option: taken as it is, or refused. */
static int kvplan_given(struct kvplan *p, const char *option, uint64_t blocks, struct errbuf *err)
{
	const struct kvplan_in *in = &p->in;

	kvplan_set(p, min_u64(blocks, p->left / in->shape->block_bytes));
	if (blocks == 0)
		return err_set(err, ST_INVALID, "%s %llu is less than one KV block, which takes %llu bytes", option,
			       (unsigned long long)in->kv_bytes, (unsigned long long)in->shape->block_bytes);
	if (blocks > p->n_blocks)
		return err_set(err, ST_NO_MEMORY,
			       "not enough memory: %s asks for a KV cache of %.0f MiB; %.0f MiB are left of %.0f after "
			       "weights (%.0f), "
			       "activations (%.0f), workspace (%.0f) and state (%.0f)",
			       option, kvplan_mib(kvplan_times(blocks, in->shape->block_bytes)), kvplan_mib(p->left),
			       kvplan_mib(in->available), kvplan_mib(in->weights), kvplan_mib(in->activations),
			       kvplan_mib(in->workspace), kvplan_mib(in->state));
	if (blocks > KVPLAN_BLOCKS_MAX)
		return err_set(err, ST_LIMIT, "%s asks for %llu KV blocks; at most %u are possible", option,
			       (unsigned long long)blocks, KVPLAN_BLOCKS_MAX);
	return ST_OK;
}

/* As much as memory allows, but no more than can be used, and at most auto_max when one request fits that. */
static void kvplan_automatic(struct kvplan *p)
{
	const struct kvplan_in *in = &p->in;
	uint64_t room = min_u64(p->left / in->shape->block_bytes, KVPLAN_BLOCKS_MAX), n;

	kvplan_set(p, room); /* decides the length when it is automatic */
	n = min_u64(room, kvplan_times(max_u32(in->seqs_max, 1), p->blocks_needed));
	if (in->auto_max) n = min_u64(n, max_u64(in->auto_max / in->shape->block_bytes, p->blocks_needed));
	if (p->blocks_needed <= room) kvplan_set(p, n);
}

static int kvplan_too_small(const struct kvplan *p, struct errbuf *err)
{
	static const char *const rules[] = {"--num-gpu-blocks-override", "--kv-cache-memory-bytes",
					    "--gpu-memory-utilization"};
	const struct kvplan_in *in = &p->in;
	const char *length = in->model_len_max ? "--max-model-len" : "auto";
	char fits[96];

	if (p->len_fits)
		snprintf(fits, sizeof(fits), "the largest --max-model-len that fits is %u", p->len_fits);
	else
		snprintf(fits, sizeof(fits), "not even one token fits, which takes %llu KV blocks of %llu bytes",
			 (unsigned long long)kvplan_request_blocks(in, 1), (unsigned long long)in->shape->block_bytes);
	if (p->rule != KVPLAN_BY_UTILIZATION)
		return err_set(err, ST_NO_MEMORY,
			       "one request of %u tokens (%s) needs %llu KV blocks, %.1f MiB; %s gives "
			       "%llu, %.1f MiB: %s",
			       p->model_len_max, length, (unsigned long long)p->blocks_needed,
			       kvplan_mib(kvplan_times(p->blocks_needed, in->shape->block_bytes)), rules[p->rule],
			       (unsigned long long)p->n_blocks, kvplan_mib(p->kv_bytes), fits);
	return err_set(err, ST_NO_MEMORY,
		       "not enough memory: one request of %u tokens (%s) needs a KV cache of %.1f MiB; "
		       "%.1f MiB are left of "
		       "--gpu-memory-utilization %.2f of %.0f MiB after weights (%.0f), activations (%.0f), workspace "
		       "(%.0f) and state (%.0f): %s",
		       p->model_len_max, length,
		       kvplan_mib(kvplan_times(max_u64(p->blocks_needed, 1), in->shape->block_bytes)),
		       kvplan_mib(p->left), in->utilization, kvplan_mib(in->available), kvplan_mib(in->weights),
		       kvplan_mib(in->activations), kvplan_mib(in->workspace), kvplan_mib(in->state), fits);
}

int kvplan_make(struct kvplan *out, const struct kvplan_in *in, struct errbuf *err)
{
	int rc = ST_OK;

	kvplan_start(out, in);
	if (in->shape->block_bytes == 0) return err_set(err, ST_INVALID, "a KV block of 0 bytes");
	if (in->context_len == 0) return err_set(err, ST_INVALID, "a context of 0 tokens");
	if (out->rule == KVPLAN_BY_BLOCKS)
		rc = kvplan_given(out, "--num-gpu-blocks-override", in->blocks_override, err);
	else if (out->rule == KVPLAN_BY_BYTES)
		rc = kvplan_given(out, "--kv-cache-memory-bytes", in->kv_bytes / in->shape->block_bytes, err);
	else
		kvplan_automatic(out);
	if (rc != ST_OK) return rc;
	return out->blocks_needed <= out->n_blocks ? ST_OK : kvplan_too_small(out, err);
}
