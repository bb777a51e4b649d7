/* kkv.c - sizes and places of KV memory, the same for every device. */
#include "kernels/kernels.h"

#define KKV_ALIGN 64

bool kkv_type_built(enum ggtype type)
{
	switch (type) {
	case GGTYPE_F32:
	case GGTYPE_F16:
	case GGTYPE_BF16:
	case GGTYPE_F8_E4M3:
	case GGTYPE_I8:
		return true;
	default:
		return false;
	}
}

static size_t kkv_elems(const struct kkv *kv, uint32_t dim)
{
	return (size_t)kv->kv_heads * KBLOCK_LEN * dim;
}

/* Bytes of the parts of n_blocks: K, V, the scales of each. */
static void kkv_parts(const struct kkv *kv, size_t n_blocks, size_t out[4])
{
	size_t elem = ggtype_row_bytes(kv->type, 1), scales = kv->type == GGTYPE_I8 ? kkv_elems(kv, sizeof(float)) : 0;

	out[0] = n_blocks * kkv_elems(kv, kv->k_dim) * elem;
	out[1] = kv->latent ? 0 : n_blocks * kkv_elems(kv, kv->v_dim) * elem;
	out[2] = n_blocks * scales;
	out[3] = kv->latent ? 0 : n_blocks * scales;
}

size_t kkv_bytes(const struct kkv *kv, uint32_t n_blocks)
{
	size_t parts[4], sum = 0;

	kkv_parts(kv, n_blocks, parts);
	for (int i = 0; i < 4; i++) sum += align_up(parts[i], KKV_ALIGN);
	return sum;
}

size_t kkv_block_bytes(const struct kkv *kv)
{
	size_t parts[4];

	kkv_parts(kv, 1, parts);
	return parts[0] + parts[1] + parts[2] + parts[3];
}

void kkv_place(struct kkv *kv, void *base, uint32_t n_blocks)
{
	size_t parts[4], at[4], sum = 0;

	kkv_parts(kv, n_blocks, parts);
	for (int i = 0; i < 4; i++) {
		at[i] = sum;
		sum += align_up(parts[i], KKV_ALIGN);
	}
	kv->k = (char *)base + at[0];
	kv->v = parts[1] ? (char *)base + at[1] : NULL;
	kv->k_scale = parts[2] ? (float *)((char *)base + at[2]) : NULL;
	kv->v_scale = parts[3] ? (float *)((char *)base + at[3]) : NULL;
}
