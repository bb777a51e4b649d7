/* avx512.c - the table of the AVX-512 level: products on groups of 16 rows with VNNI; the rest is the AVX2 level's,
 * which memory bounds on these processors just the same. */
#include "kernels/avx2.h"
#include "kernels/avx512.h"

const struct cpu_level cpu_level_avx512 = {
	.ops = CPU_OPS("avx512"),
	.layout = CPU_LAYOUT_GROUPS16,
	.quantize = avx2_quantize,
	.product = avx512_product,
	.norm = avx2_norm,
	.glu = avx2_glu,
	.sigmoid = avx2_sigmoid,
	.softcap = avx2_softcap_row,
	.combine = avx2_combine,
	.conv = avx2_conv,
	.delta = avx2_delta,
	.rope = avx2_rope,
	.kv_store = avx2_kv_store,
	.attention = avx2_attention,
	.sampler = {avx2_best, avx2_softmax_terms, avx2_chunk_sums},
};
