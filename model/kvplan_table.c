/* kvplan_table.c - the plan as a table for people. Every number of the calculation stands in it, so that it can be done
 * again by hand. */
#include "model/kvplan.h"

#include "common/amount.h"

#include <inttypes.h>
#include <stdio.h>

#define TABLE_LABEL 44 /* columns before an amount */

/* "  label      12.3 MiB   why" */
static void table_line(struct strbuf *out, const char *label, uint64_t bytes, const char *why)
{
	strbuf_printf(out, "  %-*s %12s%s%s\n", TABLE_LABEL, label, amount_bytes(bytes).text, why[0] ? "  " : "", why);
}

static void table_layers(struct strbuf *out, const struct kvplan_layers *l)
{
	char kind[32], heads[48];

	if (l->kind == KVPLAN_WINDOW)
		snprintf(kind, sizeof(kind), "window %u", l->window);
	else
		snprintf(kind, sizeof(kind), "%s", l->kind == KVPLAN_LATENT ? "latent" : "full");
	if (l->kind == KVPLAN_LATENT)
		snprintf(heads, sizeof(heads), "%u, no values", l->k_dim);
	else
		snprintf(heads, sizeof(heads), "%u x (%u + %u)", l->kv_heads, l->k_dim, l->v_dim);
	strbuf_printf(out, "  %6u  %-14s  %-22s  %12" PRIu64 "\n", l->n_layers, kind, heads, l->bytes / KVPLAN_BLOCK);
}

static void table_groups(struct strbuf *out, const struct kvplan_shape *shape)
{
	const struct kvgroups *g = &shape->groups;

	if (kvgroups_n(g) == 0) return;
	strbuf_printf(out, "  a block is 16 tokens of %u layer%s: %" PRIu64 " bytes\n", g->size,
		      g->size == 1 ? "" : "s", shape->block_bytes);
	if (!g->n_windowed) return;
	if (g->n_full)
		strbuf_printf(out,
			      "  a request keeps all its tokens in %u group%s of such layers, those of a window of %u "
			      "in %u\n",
			      g->n_full, g->n_full == 1 ? "" : "s", g->window, g->n_windowed);
	else
		strbuf_printf(out, "  a request keeps the tokens of a window of %u in %u group%s of such layers\n",
			      g->window, g->n_windowed, g->n_windowed == 1 ? "" : "s");
}

static void table_shape(struct strbuf *out, const struct spec *s, const struct kvplan_shape *shape)
{
	strbuf_printf(out, "KV cache: %s, %u layers, %s", s->family, s->n_layers, kvplan_type_name(shape->kv_type));
	if (shape->tp > 1) strbuf_printf(out, "; one of %u ranks", shape->tp);
	strbuf_printf(out, "\n  %6s  %-14s  %-22s  %12s\n", "layers", "kind", "heads x (key + value)", "bytes a token");
	for (uint32_t i = 0; i < shape->n_kinds; i++) table_layers(out, &shape->layers[i]);
	if (shape->n_state_layers)
		strbuf_printf(out, "  %6u  %-14s  no KV cache, %" PRIu64 " bytes of state a sequence\n",
			      shape->n_state_layers, "linear", shape->state_bytes);
	if (shape->n_kinds > 1)
		strbuf_printf(out, "  %6s  %-14s  %-22s  %12" PRIu64 "\n", "all", "", "", shape->bytes / KVPLAN_BLOCK);
	table_groups(out, shape);
}

static void table_memory(struct strbuf *out, const struct kvplan *p)
{
	const struct kvplan_in *in = &p->in;
	char label[64], why[96] = "";

	strbuf_puts(out, "memory of the device\n");
	if (in->available == UINT64_MAX) {
		strbuf_puts(out, "  available: not known\n");
	} else {
		table_line(out, "available", in->available, "");
		if (p->rule == KVPLAN_BY_UTILIZATION) {
			snprintf(label, sizeof(label), "of it, --gpu-memory-utilization %g", in->utilization);
			table_line(out, label, p->allowed, "");
		}
	}
	table_line(out, "- weights", in->weights, "");
	table_line(out, "- activations", in->activations, "");
	table_line(out, "- workspace", in->workspace, "");
	if (in->shape->state_bytes) {
		snprintf(why, sizeof(why), "%u sequences of %s", in->seqs_max,
			 amount_bytes(in->shape->state_bytes).text);
		table_line(out, "- state of linear attention", in->state, why);
	}
	if (p->left != UINT64_MAX) table_line(out, "= left for the KV cache", p->left, "");
	if (in->available != UINT64_MAX && p->fixed > p->allowed)
		table_line(out, "  missing for weights and steps", p->fixed - p->allowed, "");
}

static void table_blocks(struct strbuf *out, const struct kvplan *p)
{
	const struct kvplan_in *in = &p->in;
	bool fits = p->n_blocks && p->blocks_needed <= p->n_blocks;
	uint64_t needed = p->blocks_needed * in->shape->block_bytes;
	char label[64];

	strbuf_puts(out, "KV blocks, ");
	if (p->rule == KVPLAN_BY_BLOCKS)
		strbuf_printf(out, "--num-gpu-blocks-override %" PRIu64 "\n", in->blocks_override);
	else if (p->rule == KVPLAN_BY_BYTES)
		strbuf_printf(out, "--kv-cache-memory-bytes %" PRIu64 "\n", in->kv_bytes);
	else if (in->auto_max)
		strbuf_printf(out, "automatic: at most %s, or what one request needs\n",
			      amount_bytes(in->auto_max).text);
	else
		strbuf_puts(out, "automatic\n");
	strbuf_printf(out, "  %-*s %12" PRIu64 "  %s\n", TABLE_LABEL, "blocks", p->n_blocks,
		      amount_bytes(p->kv_bytes).text);
	snprintf(label, sizeof(label), "one request of %u tokens%s", p->model_len_max,
		 in->model_len_max ? "" : " (auto)");
	strbuf_printf(out, "  %-*s %12" PRIu64 "  %s\n", TABLE_LABEL, label, p->blocks_needed,
		      amount_bytes(needed).text);
	if (fits) strbuf_printf(out, "  %-*s %12.1f\n", TABLE_LABEL, "such requests at once", p->full_seqs);
}

/* With other types of KV cache, on the same bytes. */
static void table_other_types(struct strbuf *out, const struct spec *s, const struct kvplan *p)
{
	static const enum ggtype types[] = {GGTYPE_F32, GGTYPE_F16, GGTYPE_I8, GGTYPE_F8_E4M3};
	const struct kvplan_shape *shape = p->in.shape;
	uint64_t bytes = p->rule == KVPLAN_BY_BYTES ? min_u64(p->left, p->in.kv_bytes) : p->left;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct kvplan_shape other;
		struct kvplan_in in = p->in;
		uint64_t len;

		in.shape = &other;
		if (kvplan_shape(&other, s, types[i], shape->tp, shape->model_len_max, NULL) != ST_OK) continue;
		if (other.block_bytes >= shape->block_bytes) continue;
		len = min_u64(in.context_len, kvplan_request_len(&in, bytes / other.block_bytes));
		if (len)
			strbuf_printf(out, "  fits: --kv-cache-dtype %s with --max-model-len %" PRIu64 "\n",
				      kvplan_type_name(types[i]), len);
	}
}

/* With other shares of the memory. */
static void table_other_shares(struct strbuf *out, const struct kvplan *p)
{
	const struct kvplan_in *in = &p->in;
	uint64_t needed = p->blocks_needed * in->shape->block_bytes, rest = p->fixed - in->state + needed;
	uint64_t seqs = in->shape->state_bytes && p->allowed > rest ? (p->allowed - rest) / in->shape->state_bytes : 0;
	double share = (double)(p->fixed + needed) / (double)in->available;

	if (seqs && seqs < in->seqs_max) strbuf_printf(out, "  fits: --max-num-seqs %" PRIu64 "\n", seqs);
	if (p->rule == KVPLAN_BY_UTILIZATION && share < 0.9995)
		strbuf_printf(out, "  fits: --gpu-memory-utilization %.3f\n", share + 0.0005);
	if (p->rule != KVPLAN_BY_UTILIZATION && needed <= p->left)
		strbuf_printf(out, "  fits: there is memory for %" PRIu64 " blocks, %s\n", p->blocks_needed,
			      amount_bytes(needed).text);
}

/* What would fit instead. */
static void table_advice(struct strbuf *out, const struct spec *s, const struct kvplan *p)
{
	uint64_t missing = p->blocks_needed > p->n_blocks ? p->blocks_needed - p->n_blocks : 0;

	if (missing)
		strbuf_printf(out, "does not fit: %" PRIu64 " blocks more are needed\n", missing);
	else
		strbuf_puts(out, "does not fit\n");
	if (p->len_fits) strbuf_printf(out, "  fits: --max-model-len %u (or auto)\n", p->len_fits);
	if (p->rule != KVPLAN_BY_BLOCKS) table_other_types(out, s, p);
	if (p->in.available != UINT64_MAX) table_other_shares(out, p);
}

void kvplan_table(struct strbuf *out, const struct spec *s, const struct kvplan *plan)
{
	table_shape(out, s, plan->in.shape);
	table_memory(out, plan);
	if (!plan->in.shape->block_bytes) return;
	table_blocks(out, plan);
	if (!plan->n_blocks || plan->blocks_needed > plan->n_blocks) table_advice(out, s, plan);
}
