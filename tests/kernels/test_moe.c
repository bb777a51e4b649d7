/* test_moe.c - the experts' products against one product a row, products side by side, and the weighted sum of experts.
 */
#include "tests/kernels/ops_check.h"

#define EXPERTS_MAX 16

static struct rig_level levels[KLEVEL_COUNT];
static uint32_t n_levels;

struct experts_case {
	uint32_t n, n_experts, cols, ld_x, n_outs, rows[4], starts[EXPERTS_MAX + 1];
	enum ggtype types[4];
	uint8_t *w[4]; /* (n_experts) matrices each */
	float *x, *bias[4];
};

static struct experts_case experts_case_new(struct rig_rng *g)
{
	struct experts_case c = {
		.n_experts = rig_range(g, 1, 12), .cols = ops_cols(g, 6), .n_outs = rig_range(g, 1, 3)};

	for (uint32_t e = 0; e < c.n_experts; e++)
		c.starts[e + 1] =
			c.starts[e] + (rig_u32(g) & 1 ? 0 : rig_range(g, 1, 9)); /* half of them have no rows */
	if (c.starts[c.n_experts] == 0) c.starts[c.n_experts] = 1;
	c.n = c.starts[c.n_experts];
	c.ld_x = c.cols + 8 * (rig_u32(g) & 1);
	c.x = rig_floats(g, (size_t)c.n * c.ld_x);
	for (uint32_t i = 0; i < c.n_outs; i++) {
		c.types[i] = ops_mat_type(g, c.cols);
		c.rows[i] = rig_range(g, 1, 70);
		c.w[i] = ops_rows(g, c.types[i], c.n_experts * c.rows[i], c.cols);
		c.bias[i] = rig_u32(g) & 1 ? rig_floats(g, (size_t)c.n_experts * c.rows[i]) : NULL;
	}
	return c;
}

static void experts_case_free(struct experts_case *c)
{
	for (uint32_t i = 0; i < c->n_outs; i++) {
		free(c->w[i]);
		free(c->bias[i]);
	}
	free(c->x);
}

/* One call, or (alone) an ordinary product of each row by itself. out[i] (n, rows + 3). */
static void experts_run(struct kdev *d, const struct experts_case *c, bool alone, float **out)
{
	const struct kops *k = kdev_ops(d);
	struct rig_buf x = rig_buf_of(d, c->x, (size_t)c->n * c->ld_x), y[4], bias[4] = {{0}};
	struct kmat m[4][EXPERTS_MAX];
	struct kexpert_out o[4];
	uint32_t *starts = kdev_alloc(d, sizeof(c->starts));

	memcpy(starts, c->starts, sizeof(c->starts));
	for (uint32_t i = 0; i < c->n_outs; i++) {
		size_t bytes = c->rows[i] * ggtype_row_bytes(c->types[i], c->cols);

		for (uint32_t e = 0; e < c->n_experts; e++)
			m[i][e] = rig_mat(d, c->types[i], c->rows[i], c->cols, c->w[i] + e * bytes);
		y[i] = rig_buf_new(d, (size_t)c->n * (c->rows[i] + 3));
		if (c->bias[i]) bias[i] = rig_buf_of(d, c->bias[i], (size_t)c->n_experts * c->rows[i]);
		o[i] = (struct kexpert_out){
			.w = m[i], .out = y[i].data, .ld_out = c->rows[i] + 3, .bias = bias[i].data};
	}
	if (!alone) k->matmul_experts(d, x.data, c->ld_x, c->n, starts, c->n_experts, o, c->n_outs);
	for (uint32_t e = 0; e < c->n_experts && alone; e++) {
		for (uint32_t row = c->starts[e]; row < c->starts[e + 1]; row++) {
			for (uint32_t i = 0; i < c->n_outs; i++) {
				struct kmat_out one = {.w = &m[i][e],
						       .out = y[i].data + (size_t)row * (c->rows[i] + 3),
						       .bias = c->bias[i] ? bias[i].data + (size_t)e * c->rows[i]
									  : NULL};

				k->matmul(d, x.data + (size_t)row * c->ld_x, c->ld_x, 1, &one, 1);
			}
		}
	}
	assert_int_equal(kdev_sync(d), ST_OK);
	for (uint32_t i = 0; i < c->n_outs; i++) {
		out[i] = rig_buf_take(&y[i]);
		if (c->bias[i]) free(rig_buf_take(&bias[i]));
		for (uint32_t e = 0; e < c->n_experts; e++) kdev_release(d, m[i][e].data, m[i][e].bytes);
	}
	free(rig_buf_take(&x));
	kdev_release(d, starts, sizeof(c->starts));
}

static void experts_products_are_those_of_their_rows(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 120; seed++) {
			struct rig_rng g = {seed};
			struct experts_case c = experts_case_new(&g);
			enum kact act = seed % 4 ? KACT_Q8 : KACT_F32;
			size_t scratch = seed % 3 ? cpu_xq_stride(c.cols) * rig_range(&g, 1, c.n) : rig_u32(&g) % 4096;
			struct kdev *d = rig_open(&levels[l], act, rig_range(&g, 1, 4), scratch);
			float *got[4], *want[4];

			experts_run(d, &c, false, got);
			experts_run(d, &c, true, want);
			for (uint32_t i = 0; i < c.n_outs; i++) {
				rig_expect_same_bits(got[i], want[i], (size_t)c.n * (c.rows[i] + 3), levels[l].name);
				free(got[i]);
				free(want[i]);
			}
			experts_case_free(&c);
			kdev_close(d);
		}
	}
}

static void products_of_each_are_those_of_one(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 80; seed++) {
			struct rig_rng g = {seed};
			uint32_t n = rig_range(&g, 1, 9), mats = rig_range(&g, 1, 6), cols = ops_cols(&g, 4);
			enum ggtype type = ops_mat_type(&g, cols);
			uint32_t rows = rig_range(&g, 1, 50), ld_x = mats * (cols + 8), ld_out = mats * (rows + 1);
			struct kdev *d = rig_open(&levels[l], KACT_Q8, rig_range(&g, 1, 3), 0);
			uint8_t *w = ops_rows(&g, type, mats * rows, cols);
			float *hx = rig_floats(&g, (size_t)n * ld_x), *dense = malloc(cols * sizeof(float)), *got;
			struct rig_buf x = rig_buf_of(d, hx, (size_t)n * ld_x), y = rig_buf_new(d, (size_t)n * ld_out);
			size_t row_bytes = ggtype_row_bytes(type, cols);
			struct kmat m[6];

			for (uint32_t i = 0; i < mats; i++)
				m[i] = rig_mat(d, type, rows, cols, w + i * rows * row_bytes);
			kdev_ops(d)->matmul_each(d, x.data, ld_x, cols + 8, n, m, mats, y.data, ld_out, rows + 1);
			got = rig_buf_take(&y);
			for (uint32_t i = 0; i < mats; i++) {
				for (uint32_t r = 0; r < rows; r++) {
					assert_int_equal(
						kdequant_row(type, w + (i * rows + r) * row_bytes, dense, cols), ST_OK);
					for (uint32_t t = 0; t < n; t++) {
						const float *in = hx + (size_t)t * ld_x + i * (cols + 8);
						double sum = 0, size = 0,
						       v = got[(size_t)t * ld_out + i * (rows + 1) + r];

						for (uint32_t c = 0; c < cols; c++) {
							sum += (double)dense[c] * in[c];
							size += fabs((double)dense[c] * in[c]);
						}
						if (!(fabs(v - sum) <= 1e-6 * size))
							fail_msg("%s %s: %.9g, want %.9g", levels[l].name,
								 ggtype_info(type)->name, v, sum);
					}
				}
			}
			for (uint32_t t = 0; t < n; t++) { /* between the outputs nothing is written */
				uint32_t bits;

				memcpy(&bits, &got[(size_t)t * ld_out + rows], 4);
				assert_int_equal(bits, RIG_GUARD_BITS);
			}
			for (uint32_t i = 0; i < mats; i++) kdev_release(d, m[i].data, m[i].bytes);
			free(rig_buf_take(&x));
			free(got);
			free(dense);
			free(hx);
			free(w);
			kdev_close(d);
		}
	}
}

static void combining_adds_weighted_rows(void **state)
{
	for (uint32_t l = 0; l < n_levels; l++) {
		for (uint64_t seed = 1; seed <= 60; seed++) {
			struct rig_rng g = {seed};
			uint32_t n = rig_range(&g, 1, 30), k = rig_range(&g, 1, 9), dim = rig_range(&g, 1, 90);
			struct kdev *d = rig_open(&levels[l], KACT_Q8, rig_range(&g, 1, 3), 0);
			float *hx = rig_floats(&g, (size_t)n * dim), *hy = rig_floats(&g, (size_t)n * k * dim);
			float *hw = rig_floats(&g, (size_t)n * k), *want = malloc((size_t)n * dim * 4), *got, *again;
			struct rig_buf x = rig_buf_of(d, hx, (size_t)n * dim), x2 = rig_buf_of(d, hx, (size_t)n * dim);
			struct rig_buf y = rig_buf_of(d, hy, (size_t)n * k * dim), w = rig_buf_of(d, hw, (size_t)n * k);
			uint32_t *places = kdev_alloc(d, (size_t)n * k * 4);

			for (uint32_t i = 0; i < n * k; i++) places[i] = rig_u32(&g) % (n * k);
			for (uint32_t i = 0; i < n; i++) {
				for (uint32_t c = 0; c < dim; c++) {
					double sum = hx[(size_t)i * dim + c];

					for (uint32_t j = 0; j < k; j++)
						sum += (double)hw[i * k + j] * hy[(size_t)places[i * k + j] * dim + c];
					want[(size_t)i * dim + c] = (float)sum;
				}
			}
			kdev_ops(d)->combine(d, x.data, y.data, w.data, places, n, k, dim);
			for (uint32_t i = 0; i < n; i++)
				kdev_ops(d)->combine(d, x2.data + (size_t)i * dim, y.data, w.data + i * k,
						     places + i * k, 1, k, dim);
			got = rig_buf_take(&x);
			again = rig_buf_take(&x2);
			rig_expect_close(got, want, n, dim, 2e-5f, levels[l].name);
			rig_expect_same_bits(again, got, (size_t)n * dim, levels[l].name);
			free(rig_buf_take(&y));
			free(rig_buf_take(&w));
			kdev_release(d, places, (size_t)n * k * 4);
			free(hx);
			free(hy);
			free(hw);
			free(want);
			free(got);
			free(again);
			kdev_close(d);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(experts_products_are_those_of_their_rows),
		cmocka_unit_test(products_of_each_are_those_of_one),
		cmocka_unit_test(combining_adds_weighted_rows),
	};

	n_levels = rig_levels(levels);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
