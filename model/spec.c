/* spec.c - the table of roles as functions; see spec.h. How a description is read is in spec_read.c. */
#include "model/spec.h"

#include "common/mem.h"

static const struct spec_row {
	const char *name;
	enum spec_scope scope;
	enum spec_form form;
	enum spec_shard shard;
} spec_rows[] = {
#define SPEC_AS_ROW(role, scope, form, n, rows, cols, has, shard) {#role, SPEC_##scope, SPEC_##form, SPEC_##shard},
	SPEC_ROLES(SPEC_AS_ROW)
#undef SPEC_AS_ROW
};

/* Types of matrices that are built; test_spec compares the list with what the kernels can multiply with. */
#define SPEC_TYPES(T)                                                                                            \
	T(F32)                                                                                                   \
	T(F16) T(BF16) T(Q8_0) T(Q4_0) T(Q4_1) T(Q5_0) T(Q5_1) T(Q2_K) T(Q3_K) T(Q4_K) T(Q5_K) T(Q6_K) T(IQ4_NL) \
		T(IQ4_XS) T(IQ2_XXS) T(IQ2_XS) T(IQ2_S) T(IQ3_XXS) T(IQ3_S) T(IQ1_S) T(IQ1_M) T(TQ1_0) T(TQ2_0)  \
			T(MXFP4) T(NVFP4)
#define SPEC_TYPES_OURS(T) T(F8_B32) T(Q4_Z)

const char *spec_role_name(enum spec_role role)
{
	CHECK(role < SPEC_ROLE_COUNT);
	return spec_rows[role].name;
}

enum spec_scope spec_role_scope(enum spec_role role)
{
	CHECK(role < SPEC_ROLE_COUNT);
	return spec_rows[role].scope;
}

enum spec_form spec_role_form(enum spec_role role)
{
	CHECK(role < SPEC_ROLE_COUNT);
	return spec_rows[role].form;
}

enum spec_shard spec_role_shard(enum spec_role role)
{
	CHECK(role < SPEC_ROLE_COUNT);
	return spec_rows[role].shard;
}

static const struct spec_layer *spec_layer_of(const struct spec *s, enum spec_role role, uint32_t layer)
{
	CHECK(role < SPEC_ROLE_COUNT);
	if (spec_rows[role].scope == SPEC_MODEL) layer = 0;
	CHECK(layer < s->n_layers);
	return &s->layers[layer];
}

bool spec_has(const struct spec *s, enum spec_role role, uint32_t layer)
{
	const struct spec_layer *y = spec_layer_of(s, role, layer);

	switch (role) {
#define SPEC_AS_HAS(role, scope, form, n, rows, cols, has, shard) \
	case SPEC_##role:                                         \
		return has;
		SPEC_ROLES(SPEC_AS_HAS)
#undef SPEC_AS_HAS
	case SPEC_ROLE_COUNT:
		break;
	}
	CHECK(!"a role");
}

struct spec_shape spec_role_shape(const struct spec *s, enum spec_role role, uint32_t layer)
{
	const struct spec_layer *y = spec_layer_of(s, role, layer);

	switch (role) {
#define SPEC_AS_SHAPE(role, scope, form, n, rows, cols, has, shard) \
	case SPEC_##role:                                           \
		return (struct spec_shape){n, rows, cols};
		SPEC_ROLES(SPEC_AS_SHAPE)
#undef SPEC_AS_SHAPE
	case SPEC_ROLE_COUNT:
		break;
	}
	CHECK(!"a role");
}

bool spec_type_built(enum ggtype type)
{
#define SPEC_AS_TEST(name) || type == GGTYPE_##name
	return false SPEC_TYPES(SPEC_AS_TEST) SPEC_TYPES_OURS(SPEC_AS_TEST);
#undef SPEC_AS_TEST
}

const char *spec_type_words(void)
{
#define SPEC_AS_WORD(name) " " #name
	static const char words[] = SPEC_TYPES(SPEC_AS_WORD);
#undef SPEC_AS_WORD

	return words + 1;
}

/* The convolution's last (width - 1) inputs, and S of each value head. */
uint64_t spec_layer_state_floats(const struct spec_layer *y)
{
	if (!SPEC_IS_DELTA(y)) return 0;
	return (uint64_t)(y->conv_width - 1) * SPEC_D_QKV(y) + (uint64_t)y->dv_heads * y->dk_dim * y->dv_dim;
}

uint64_t spec_state_floats(const struct spec *s)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < s->n_layers; i++) sum += spec_layer_state_floats(&s->layers[i]);
	return sum;
}

void spec_share(struct spec *out, const struct spec *s, uint32_t ranks)
{
	*out = *s;
	out->layers = mem_dup(s->layers, s->n_layers, sizeof(*s->layers));
	for (uint32_t i = 0; i < s->n_layers; i++) {
		struct spec_layer *y = &out->layers[i];
		uint32_t *const widths[] = {&y->heads,	    &y->kv_heads, &y->dk_heads, &y->dv_heads,
					    &y->ffn,	    &y->expert_ffn, &y->shared_ffn};

		for (size_t k = 0; k < ARRAY_LEN(widths); k++) *widths[k] = (uint32_t)div_up(*widths[k], ranks);
	}
}

void spec_release(struct spec *s)
{
	uint32_t i;

	for (i = 0; i < s->n_ropes; i++) free(s->ropes[i].freqs);
	free(s->layers);
	*s = (struct spec){0};
}
