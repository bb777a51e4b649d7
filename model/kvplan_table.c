/* kvplan_table.c - the plan as a table for people. Every number of the calculation stands in it, so that it can be done
 * again by hand. */
#include "model/kvplan.h"

#include <inttypes.h>
#include <stdio.h>

#define TABLE_LABEL 44 /* columns before an amount */

struct table_amount {
	char text[32];
};

static struct table_amount table_bytes(uint64_t n)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	struct table_amount a;
	double value = (double)n;
	size_t unit = 0;

	for (; value >= 1024 && unit + 1 < ARRAY_LEN(units); unit++) value /= 1024;
	snprintf(a.text, sizeof(a.text), unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return a;
}

/* "  label      12.3 MiB   why" */
static void table_line(struct strbuf *out, const char *label, uint64_t bytes, const char *why)
{
	strbuf_printf(out, "  %-*s %12s%s%s\n", TABLE_LABEL, label, table_bytes(bytes).text, why[0] ? "  " : "", why);
}

static void table_group(struct strbuf *out, const struct kvplan_group *g)
{
	char kind[32], heads[48];

	if (g->kind == KVPLAN_WINDOW)
		snprintf(kind, sizeof(kind), "window %u", g->window);
	else
		snprintf(kind, sizeof(kind), "%s", g->kind == KVPLAN_LATENT ? "latent" : "full");
	if (g->kind == KVPLAN_LATENT)
		snprintf(heads, sizeof(heads), "%u, no values", g->k_dim);
	else
		snprintf(heads, sizeof(heads), "%u x (%u + %u)", g->kv_heads, g->k_dim, g->v_dim);
	strbuf_printf(out, "  %6u  %-14s  %-20s  %14" PRIu64 "  %12" PRIu64 "\n", g->n_layers, kind, heads,
		      g->block_bytes, g->block_bytes / KVPLAN_BLOCK);
}

static void table_shape(struct strbuf *out, const struct spec *s, const struct kvplan_shape *shape)
{
	strbuf_printf(out, "KV cache: %s, %u layers, %s", s->family, s->n_layers, kvplan_type_name(shape->kv_type));
	if (shape->tp > 1) strbuf_printf(out, "; one of %u ranks", shape->tp);
	strbuf_printf(out, "\n  %6s  %-14s  %-20s  %14s  %12s\n", "layers", "kind", "heads x (key + value)",
		      "bytes a block", "a token");
	for (uint32_t i = 0; i < shape->n_groups; i++) table_group(out, &shape->groups[i]);
	if (shape->n_state_layers)
		strbuf_printf(out, "  %6u  %-14s  %" PRIu64 " bytes of state a sequence, no KV cache\n",
			      shape->n_state_layers, "linear", shape->state_bytes);
	if (shape->n_groups > 1)
		strbuf_printf(out, "  %6s  %-14s  %-20s  %14" PRIu64 "  %12" PRIu64 "\n", "all", "", "",
			      shape->block_bytes, shape->block_bytes / KVPLAN_BLOCK);
}

/* What the layers with a window would need, if they did not have every block. */
static void table_windows(struct strbuf *out, const struct kvplan_shape *shape, const struct kvplan *p)
{
	for (uint32_t i = 0; i < shape->n_groups; i++) {
		const struct kvplan_group *g = &shape->groups[i];
		uint64_t n;

		if (g->kind != KVPLAN_WINDOW || !p->model_len_max) continue;
		n = kvplan_window_blocks(g->window, p->model_len_max, 1);
		strbuf_printf(out,
			      "  window %u: a request reads at most %" PRIu64
			      " blocks of these layers at a time (%s); all %" PRIu64 " are kept (%s)\n",
			      g->window, n, table_bytes(n * g->block_bytes).text, p->blocks_needed,
			      table_bytes(p->blocks_needed * g->block_bytes).text);
	}
}

static void table_memory(struct strbuf *out, const struct kvplan_shape *shape, const struct kvplan *p)
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
	if (shape->state_bytes) {
		snprintf(why, sizeof(why), "%u sequences of %s", in->seqs_max, table_bytes(shape->state_bytes).text);
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
	uint64_t needed = p->blocks_needed * in->block_bytes;

	strbuf_puts(out, "KV blocks of 16 tokens, ");
	if (p->rule == KVPLAN_BY_BLOCKS)
		strbuf_printf(out, "--num-gpu-blocks-override %" PRIu64 "\n", in->blocks_override);
	else if (p->rule == KVPLAN_BY_BYTES)
		strbuf_printf(out, "--kv-cache-memory-bytes %" PRIu64 "\n", in->kv_bytes);
	else if (in->auto_max)
		strbuf_printf(out, "automatic: at most %s, or what one request needs\n",
			      table_bytes(in->auto_max).text);
	else
		strbuf_puts(out, "automatic\n");
	strbuf_printf(out, "  %-*s %12" PRIu64 "  %s, %" PRIu64 " tokens\n", TABLE_LABEL, "blocks", p->n_blocks,
		      table_bytes(p->kv_bytes).text, p->n_blocks * KVPLAN_BLOCK);
	strbuf_printf(out, "  one request of %-*u %12" PRIu64 "  %s%s\n", TABLE_LABEL - 15, p->model_len_max,
		      p->blocks_needed, table_bytes(needed).text, in->model_len_max ? "" : " (--max-model-len auto)");
	if (fits) strbuf_printf(out, "  %-*s %12.1f\n", TABLE_LABEL, "such requests at once", p->full_seqs);
}

/* What would fit instead: with each type of KV cache, on the same bytes. */
static void table_advice(struct strbuf *out, const struct spec *s, const struct kvplan_shape *shape,
			 const struct kvplan *p)
{
	static const enum ggtype types[] = {GGTYPE_F32, GGTYPE_F16, GGTYPE_I8, GGTYPE_F8_E4M3};
	const struct kvplan_in *in = &p->in;
	uint64_t bytes = p->rule == KVPLAN_BY_BYTES ? min_u64(p->left, in->kv_bytes) : p->left;

	strbuf_printf(out, "does not fit: %" PRIu64 " blocks more are needed\n",
		      p->blocks_needed > p->n_blocks ? p->blocks_needed - p->n_blocks : 0);
	if (p->rule == KVPLAN_BY_BLOCKS && p->left / in->block_bytes >= p->blocks_needed)
		strbuf_printf(out, "  there is memory for it: --num-gpu-blocks-override %" PRIu64 "\n",
			      p->blocks_needed);
	if (p->len_fits) strbuf_printf(out, "  fits: --max-model-len %u (or auto)\n", p->len_fits);
	for (size_t i = 0; i < ARRAY_LEN(types) && p->rule != KVPLAN_BY_BLOCKS; i++) {
		struct kvplan_shape other;
		uint64_t len;

		if (kvplan_shape(&other, s, types[i], shape->tp, NULL) != ST_OK || other.block_bytes >= in->block_bytes)
			continue;
		len = min_u64(in->context_len, bytes / other.block_bytes * KVPLAN_BLOCK);
		if (len)
			strbuf_printf(out, "  fits: --kv-cache-dtype %s with --max-model-len %" PRIu64 "\n",
				      kvplan_type_name(types[i]), len);
	}
	if (shape->state_bytes && in->available != UINT64_MAX) {
		uint64_t rest = p->fixed - in->state + p->blocks_needed * in->block_bytes;
		uint64_t seqs = p->allowed > rest ? (p->allowed - rest) / shape->state_bytes : 0;

		if (seqs && seqs < in->seqs_max) strbuf_printf(out, "  fits: --max-num-seqs %" PRIu64 "\n", seqs);
	}
	if (p->rule == KVPLAN_BY_UTILIZATION && in->available != UINT64_MAX) {
		uint64_t all = in->available > p->fixed ? in->available - p->fixed : 0;

		if (all / in->block_bytes >= p->blocks_needed)
			strbuf_printf(out, "  fits: --gpu-memory-utilization %.3f\n",
				      (double)(p->fixed + p->blocks_needed * in->block_bytes) / (double)in->available +
					      0.0005);
	}
}

void kvplan_table(struct strbuf *out, const struct spec *s, const struct kvplan_shape *shape, const struct kvplan *plan)
{
	table_shape(out, s, shape);
	table_memory(out, shape, plan);
	if (!plan->in.block_bytes) return;
	table_blocks(out, plan);
	table_windows(out, shape, plan);
	if (!plan->n_blocks || plan->blocks_needed > plan->n_blocks) table_advice(out, s, shape, plan);
}
