/* spec_touch.c - see spec_touch.h. */
#include "tests/support/spec_touch.h"

#include "common/mem.h"
#include "model/wsrc.h"

#include <string.h>

#define BYTES_MAX ((size_t)1 << 20) /* longer rows and vectors are found, not read */

static int no_dequant(enum ggtype type, const void *row, float *out, uint64_t cols)
{
	memset(out, 0, cols * sizeof(*out));
	return ST_OK;
}

static void read_row(const struct wsrc *w, uint32_t row)
{
	size_t bytes = ggtype_row_bytes(w->type, w->cols);
	struct errbuf err = {0};
	uint8_t *out;

	if (bytes > BYTES_MAX) return;
	out = mem_array(uint8_t, bytes);
	if (wsrc_rows(w, row, 1, out, &err) != ST_OK) CHECK(err.text[0]);
	free(out);
}

static void read_some(struct wsrc *w, enum spec_role role)
{
	enum spec_form form = spec_role_form(role);
	uint64_t n = (uint64_t)w->rows * w->cols;
	struct errbuf err = {0};
	float *out;

	w->dequant = no_dequant;
	if (n == 0) return;
	if (form == SPEC_MAT || form == SPEC_EACH) {
		read_row(w, 0);
		read_row(w, w->rows - 1);
	} else if (n * sizeof(*out) <= BYTES_MAX) {
		out = mem_array(float, n);
		if (wsrc_floats(w, out, &err) != ST_OK) CHECK(err.text[0]);
		free(out);
	}
}

/* The last rank of groups of several sizes. */
static void touch_rank(const struct spec *s, enum spec_role role, uint32_t layer, const struct wsrc *whole)
{
	static const uint32_t sizes[] = {2, 3, 4, 8, 16};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct errbuf err = {0};
		struct wsrc w = *whole;
		uint64_t from, bytes;

		if (wsrc_shard(&w, s, role, layer, (struct wsrc_rank){sizes[i] - 1, sizes[i]}, &err) != ST_OK) {
			CHECK(err.text[0]);
			continue;
		}
		read_some(&w, role);
		wsrc_span(&w, 0, w.rows, &from, &bytes);
		CHECK(from <= w.t->bytes && bytes <= w.t->bytes - from);
	}
}

static void touch_one(const struct spec *s, const struct ckpt *c, enum spec_role role, uint32_t layer, uint32_t ix)
{
	struct spec_shape shape = spec_role_shape(s, role, layer);
	struct errbuf err = {0};
	struct wsrc w;

	CHECK(wsrc_find(&w, s, c, role, layer, ix, &err) == ST_OK);
	CHECK((uint64_t)w.rows * w.cols == (uint64_t)shape.rows * shape.cols);
	read_some(&w, role);
	CHECK(wsrc_file_bytes(&w) <= ckpt_bytes(c));
	touch_rank(s, role, layer, &w);
}

static void touch_role(const struct spec *s, const struct ckpt *c, enum spec_role role, uint32_t layer)
{
	struct spec_shape shape;

	if (!spec_has(s, role, layer)) return;
	shape = spec_role_shape(s, role, layer);
	CHECK(shape.n >= 1 && shape.rows >= 1 && shape.cols >= 1);
	touch_one(s, c, role, layer, 0);
	if (shape.n > 1) touch_one(s, c, role, layer, shape.n - 1);
}

static void check_layer(const struct spec *s, const struct spec_layer *y)
{
	CHECK(y->rope < (int32_t)s->n_ropes);
	CHECK(y->ffn <= SPEC_FFN_MAX && y->expert_ffn <= SPEC_FFN_MAX && y->shared_ffn <= SPEC_FFN_MAX);
	CHECK(y->n_experts <= SPEC_EXPERTS_MAX && y->n_used <= y->n_experts && (y->n_experts != 0) == (y->n_used != 0));
	if (SPEC_IS_DELTA(y)) {
		CHECK(y->dk_heads && y->dk_heads <= SPEC_HEADS_MAX && y->dv_heads % y->dk_heads == 0 &&
		      y->dv_heads <= SPEC_HEADS_MAX);
		CHECK(y->dk_dim && y->dv_dim && y->conv_width && spec_layer_state_floats(y) > 0);
		return;
	}
	CHECK(y->heads && y->heads <= SPEC_HEADS_MAX && y->kv_heads && y->heads % y->kv_heads == 0);
	CHECK(y->k_dim && y->k_dim <= SPEC_HEAD_DIM_MAX && y->v_dim && y->v_dim <= SPEC_HEAD_DIM_MAX);
	if (y->rope >= 0) CHECK(s->ropes[y->rope].dims <= y->k_dim && s->ropes[y->rope].dims % 2 == 0);
	if (SPEC_IS_MLA(y)) CHECK(y->kv_lora && y->nope_dim < y->k_dim && y->kv_heads == y->heads);
}

void spec_touch(const struct spec *s, const struct ckpt *c)
{
	CHECK(s->family && s->n_layers >= 1 && s->n_layers <= SPEC_LAYERS_MAX && s->dim >= 1 && s->dim <= SPEC_DIM_MAX);
	CHECK(s->vocab >= 1 && s->vocab <= SPEC_VOCAB_MAX && s->n_tokens <= s->vocab && s->context_len >= 1 &&
	      s->n_ropes <= SPEC_ROPES_MAX);
	CHECK(s->eps > 0 && s->weight_bytes <= ckpt_bytes(c));
	for (uint32_t r = 0; r < s->n_ropes; r++)
		for (uint32_t i = 0; i < s->ropes[r].dims / 2; i++)
			CHECK(s->ropes[r].freqs[i] == s->ropes[r].freqs[i]); /* no NaN */
	for (uint32_t layer = 0; layer < s->n_layers; layer++) check_layer(s, &s->layers[layer]);
	for (int role = 0; role < SPEC_ROLE_COUNT; role++) {
		uint32_t n = spec_role_scope((enum spec_role)role) == SPEC_MODEL ? 1 : s->n_layers;

		for (uint32_t layer = 0; layer < n; layer++) touch_role(s, c, (enum spec_role)role, layer);
	}
}
