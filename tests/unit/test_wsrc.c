/* Rows of weights out of tensors: pieces, stacks, transposed ones and the codes of quantized checkpoints, each against
 * a plain loop over elements, and the unpacked values of the golden checkpoints. Scales that are not finite are refused
 * with their place. */
#include "model/wsrc.h"

#include "common/float8.h"
#include "common/half.h"
#include "common/mem.h"
#include "common/splitmix.h"
#include "kernels/kernels.h"
#include "tests/support/golden.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)(splitmix_next(&seed) % n);
}

static struct ckpt_tensor tensor(const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
				 const void *data, uint64_t bytes)
{
	struct ckpt_tensor t = {
		.name = {name, strlen(name)}, .type = type, .n_dims = n_dims, .data = data, .bytes = bytes};

	memcpy(t.dims, dims, n_dims * sizeof(*dims));
	return t;
}

#define TENSOR(name, type, data, bytes, ...) \
	tensor(name, type, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__}, data, bytes)

static struct wsrc plain(const struct ckpt_tensor *t, uint32_t rows, uint32_t cols)
{
	struct wsrc w = {.t = t,
			 .rows = rows,
			 .cols = cols,
			 .pieces = {{rows, 0, rows, rows}},
			 .n_pieces = 1,
			 .tensor_rows = rows,
			 .tensor_cols = cols,
			 .dequant = kdequant_row};

	return w;
}

/* Our own blocks by hand, the others by the kernels' oracle. */
static void decode_row(enum ggtype type, const uint8_t *row, float *out, uint64_t cols)
{
	for (uint64_t c = 0; c < cols; c++) {
		uint64_t b = c / 32, i = c % 32;
		const uint8_t *block = row + b * ggtype_info(type)->block_bytes;

		if (type == GGTYPE_F8_B32) {
			float d;

			memcpy(&d, block, 4);
			out[c] = d * float8_to_f32(block[4 + i]);
		} else if (type == GGTYPE_Q4_Z) {
			uint8_t byte = block[4 + i % 16];

			out[c] = half_load(block) * ((float)(i < 16 ? byte & 15 : byte >> 4) + half_load(block + 2));
		} else {
			if (c == 0) assert_int_equal(kdequant_row(type, row, out, cols), ST_OK);
			break;
		}
	}
}

/* The weight in f32, asked for in chunks of `step` rows. */
static float *decode_all(const struct wsrc *w, uint32_t step)
{
	size_t bytes = ggtype_row_bytes(w->type, w->cols);
	float *out = mem_array(float, (size_t)w->rows * w->cols);
	uint8_t *rows = mem_array(uint8_t, step * bytes);
	struct errbuf err = {0};

	for (uint32_t r = 0, n; r < w->rows; r += n) {
		n = min_u32(step, w->rows - r);
		if (wsrc_rows(w, r, n, rows, &err) != ST_OK) fail_msg("%s", err.text);
		for (uint32_t i = 0; i < n; i++)
			decode_row(w->type, rows + i * bytes, out + (size_t)(r + i) * w->cols, w->cols);
	}
	free(rows);
	return out;
}

static void expect_floats(const float *got, const float *want, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (got[i] != want[i]) fail_msg("element %zu: %.9g, expected %.9g", i, (double)got[i], (double)want[i]);
}

/* ---- golden checkpoints ---- */

static const struct ckpt_tensor *need(const struct ckpt *c, const char *base, const char *part)
{
	char name[200];
	const struct ckpt_tensor *t;

	snprintf(name, sizeof(name), "%s.%s", base, part);
	t = ckpt_find(c, name);
	if (!t) fail_msg("no tensor %s", name);
	return t;
}

static struct wsrc golden_source(const struct ckpt *c, const char *folder, const char *base, uint32_t rows,
				 uint32_t cols)
{
	struct wsrc w = plain(NULL, rows, cols);

	if (strstr(folder, "fp8")) {
		w.code = WSRC_FP8;
		w.t = need(c, base, "weight");
		w.scales = need(c, base, "weight_scale_inv");
		w.block_rows = w.block_cols = 128;
	} else {
		w.code = strstr(folder, "awq") ? WSRC_AWQ : WSRC_GPTQ;
		w.t = need(c, base, "qweight");
		w.scales = need(c, base, "scales");
		w.zeros = need(c, base, "qzeros");
		w.zeros_minus_one = w.code == WSRC_GPTQ;
		if (w.code == WSRC_GPTQ) w.order = need(c, base, "g_idx");
		w.block_cols = 32;
	}
	wsrc_settle(&w);
	return w;
}

static void expect_near(double got, double want, double tolerance, const char *what, const char *name)
{
	if (fabs(got - want) > tolerance) fail_msg("%s of %s: %.9g, expected %.9g", what, name, got, want);
}

static void expect_golden(const json_t *want, const float *x, uint32_t rows, uint32_t cols, const char *name)
{
	json_t *first = json_object_get(want, "row0_first16"), *last = json_object_get(want, "last_row_last8");
	size_t n = (size_t)rows * cols;
	double sum = 0, sumsq = 0;

	for (size_t i = 0; i < json_array_size(first); i++)
		expect_near(x[i], json_number_value(json_array_get(first, i)), 1e-7 * fabs((double)x[i]) + 1e-9,
			    "the first row", name);
	for (size_t i = 0; i < 8; i++)
		expect_near(x[n - 8 + i], json_number_value(json_array_get(last, i)),
			    1e-7 * fabs((double)x[n - 8 + i]) + 1e-9, "the last row", name);
	for (size_t i = 0; i < n; i++) {
		sum += x[i];
		sumsq += (double)x[i] * x[i];
	}
	expect_near(sum, json_number_value(json_object_get(want, "sum")), 1e-6 * sqrt(sumsq * (double)n) + 1e-6,
		    "the sum", name);
	expect_near(sumsq, json_number_value(json_object_get(want, "sumsq")), 1e-6 * sumsq, "the sum of squares", name);
}

static void golden_checkpoint(const char *folder, enum ggtype type)
{
	char path[300], folder_path[300];
	json_t *info, *all, *want;
	struct ckpt *c;
	struct errbuf err = {0};
	const char *name;
	int n = 0;

	snprintf(path, sizeof(path), "tiny/%s/info.json", folder);
	info = golden_json(path);
	assert_non_null(info);
	snprintf(path, sizeof(path), "tiny/%s", folder);
	assert_true(golden_folder(path, folder_path, sizeof(folder_path)));
	if (ckpt_open(&c, folder_path, &err) != ST_OK) fail_msg("%s", err.text);
	all = json_object_get(info, "dequantized");
	json_object_foreach(all, name, want)
	{
		uint32_t rows = (uint32_t)json_integer_value(json_array_get(json_object_get(want, "shape"), 0));
		uint32_t cols = (uint32_t)json_integer_value(json_array_get(json_object_get(want, "shape"), 1));
		char *base = mem_strndup(name, strlen(name) - strlen(".weight"));
		struct wsrc w = golden_source(c, folder, base, rows, cols);
		float *x = decode_all(&w, 48), *y;

		assert_int_equal(w.type, type);
		expect_golden(want, x, rows, cols, name);
		w.type = GGTYPE_F32;
		y = decode_all(&w, 7);
		expect_floats(y, x, (size_t)rows * cols);
		free(x);
		free(y);
		free(base);
		n++;
	}
	assert_true(n > 0);
	ckpt_close(c);
	json_decref(info);
}

static void golden_values_of_quantized_checkpoints(void **state)
{
	golden_checkpoint("qwen3-fp8", GGTYPE_F8_B32);
	golden_checkpoint("llama-gptq", GGTYPE_Q4_0);
	golden_checkpoint("qwen2-awq", GGTYPE_Q4_Z);
}

/* ---- plain rows ---- */

static float *random_floats(size_t n)
{
	float *x = mem_array(float, n);

	for (size_t i = 0; i < n; i++) x[i] = (float)rnd(2000) / 64 - 15;
	return x;
}

static void plain_rows_lie_where_they_are(void **state)
{
	float *data = random_floats(40 * 64), *x;
	struct ckpt_tensor t = TENSOR("t", GGTYPE_F32, data, 40 * 64 * 4, 40, 64);
	struct wsrc w = plain(&t, 40, 64);

	wsrc_settle(&w);
	assert_int_equal(w.type, GGTYPE_F32);
	assert_ptr_equal(wsrc_direct(&w, 0, 40), data);
	assert_ptr_equal(wsrc_direct(&w, 7, 3), data + 7 * 64);
	assert_int_equal(wsrc_file_bytes(&w), 40 * 64 * 4);
	x = decode_all(&w, 16);
	expect_floats(x, data, 40 * 64);
	free(x);
	w.col_first = 32;
	w.cols = 32;
	assert_null(wsrc_direct(&w, 0, 40));
	assert_int_equal(wsrc_file_bytes(&w), 40 * 32 * 4);
	x = decode_all(&w, 16);
	for (int r = 0; r < 40; r++) expect_floats(x + r * 32, data + r * 64 + 32, 32);
	free(x);
	free(data);
}

/* Three pieces of a stack's second tensor: as q, k, v of a delta net lie in groups of heads. */
static void pieces_are_rows_in_order(void **state)
{
	float *data = random_floats(2 * 24 * 32), *x;
	struct ckpt_tensor t = TENSOR("t", GGTYPE_F32, data, 2 * 24 * 32 * 4, 2, 24, 32);
	struct wsrc w = plain(&t, 24, 32);
	uint32_t want[] = {0, 1, 12, 13, 2, 14, 3, 4, 5, 15, 16, 17};

	w.at = 24;
	w.rows = 12;
	w.n_pieces = 3;
	w.pieces[0] = (struct wsrc_piece){4, 0, 2, 12};
	w.pieces[1] = (struct wsrc_piece){2, 2, 1, 12};
	w.pieces[2] = (struct wsrc_piece){6, 3, 3, 12};
	wsrc_settle(&w);
	x = decode_all(&w, 5);
	for (int r = 0; r < 12; r++) expect_floats(x + r * 32, data + (24 + want[r]) * 32, 32);
	assert_ptr_equal(wsrc_direct(&w, 0, 2), data + 24 * 32);
	assert_null(wsrc_direct(&w, 0, 3));
	assert_null(wsrc_direct(&w, 3, 2));
	assert_ptr_equal(wsrc_direct(&w, 9, 3), data + (24 + 15) * 32);
	free(x);
	w.rows_pad = 3;
	w.rows += 3;
	x = decode_all(&w, 4);
	for (int i = 12 * 32; i < 15 * 32; i++) assert_true(x[i] == 0);
	assert_null(wsrc_direct(&w, 9, 4));
	assert_int_equal(wsrc_file_bytes(&w), 12 * 32 * 4);
	free(x);
	free(data);
}

/* gpt-oss: experts (in, out) whose output columns are gate and up in turn. */
static void transposed_columns_become_rows(void **state)
{
	uint32_t n_in = 70, n_out = 2 * 90;
	float *data = random_floats(3 * (size_t)n_in * n_out);
	uint16_t *half = mem_array(uint16_t, 3 * (size_t)n_in * n_out);

	for (size_t i = 0; i < 3 * (size_t)n_in * n_out; i++) half[i] = half_bf16_from_f32(data[i]);
	for (int as_half = 0; as_half < 2; as_half++) {
		struct ckpt_tensor t = TENSOR("t", as_half ? GGTYPE_BF16 : GGTYPE_F32, as_half ? (void *)half : data, 0,
					      3, n_in, n_out);
		struct wsrc w = plain(&t, 90, n_in);
		float *x;

		w.transposed = true;
		w.at = 2 * n_in;
		w.tensor_rows = n_in;
		w.tensor_cols = n_out;
		w.pieces[0] = (struct wsrc_piece){90, 1, 1, 2};
		w.col_first = 6; /* a rank's share of the inputs */
		w.cols = 64;
		wsrc_settle(&w);
		assert_int_equal(w.type, t.type);
		x = decode_all(&w, 50);
		for (uint32_t r = 0; r < 90; r++)
			for (uint32_t c = 0; c < 64; c++) {
				float want = data[((size_t)2 * n_in + 6 + c) * n_out + 1 + 2 * r];

				if (as_half) want = half_bf16_to_f32(half_bf16_from_f32(want));
				assert_true(x[r * 64 + c] == want);
			}
		free(x);
	}
	free(half);
	free(data);
}

/* A head's keys out of kv_b_proj (heads * (nope + v), lora), as K_B wants them: (lora, nope). */
static void transposed_blocks_are_dequantized(void **state)
{
	uint32_t nope = 20, v = 12, lora = 256, head = 1;
	float *data = random_floats((size_t)2 * (nope + v) * lora), *want = mem_array(float, lora), *x;
	size_t row_bytes = ggtype_row_bytes(GGTYPE_Q8_0, lora);
	uint8_t *rows = mem_array(uint8_t, 2 * (nope + v) * row_bytes);
	struct ckpt_tensor t = TENSOR("kv_b", GGTYPE_Q8_0, rows, 0, 2 * (nope + v), lora);
	struct wsrc w = plain(&t, lora, nope);
	struct errbuf err = {0};

	for (uint32_t r = 0; r < 2 * (nope + v); r++)
		assert_int_equal(kquant_row(GGTYPE_Q8_0, data + (size_t)r * lora, rows + r * row_bytes, lora), ST_OK);
	w.transposed = true;
	w.at = head * (nope + v);
	w.tensor_rows = nope;
	w.tensor_cols = lora;
	wsrc_settle(&w);
	assert_int_equal(w.type, GGTYPE_F32);
	assert_int_equal(wsrc_file_bytes(&w), nope * row_bytes);
	x = decode_all(&w, 100);
	for (uint32_t c = 0; c < nope; c++) {
		decode_row(GGTYPE_Q8_0, rows + (head * (nope + v) + c) * row_bytes, want, lora);
		for (uint32_t r = 0; r < lora; r++) assert_true(x[r * nope + c] == want[r]);
	}
	rows[(head * (nope + v) + 5) * row_bytes + 3 * 34 + 1] = 0x7c;
	assert_int_equal(wsrc_rows(&w, 0, lora, x, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "kv_b: the scale of row 37, block 3 is not finite"));
	free(x);
	free(want);
	free(rows);
	free(data);
}

/* ---- codes ---- */

static void fp8_keeps_the_scale_of_its_block(void **state)
{
	uint32_t rows = 150, cols = 224, lines = 3, width = 4; /* blocks of 64 x 64, the last ones cut */
	uint8_t *codes = mem_array(uint8_t, rows * cols);
	float *scales = random_floats(lines * width), *x;
	struct ckpt_tensor t = TENSOR("w", GGTYPE_F8_E4M3, codes, rows * cols, rows, cols);
	struct ckpt_tensor s = TENSOR("s", GGTYPE_F32, scales, 0, lines, width);
	struct errbuf err = {0};

	for (uint32_t i = 0; i < rows * cols; i++) {
		codes[i] = (uint8_t)rnd(256);
		if ((codes[i] & 0x7f) == 0x7f) codes[i] = 0;
	}
	for (int share = 0; share < 4; share++) { /* whole; rows; columns in blocks; columns that cut blocks */
		struct wsrc w = plain(&t, rows, cols);

		w.code = WSRC_FP8;
		w.scales = &s;
		w.block_rows = w.block_cols = 64;
		if (share == 1) w.rows = 50, w.pieces[0] = (struct wsrc_piece){50, 41, 50, 50};
		if (share == 2) w.cols = 96, w.col_first = 96;
		if (share == 3) w.cols = 56, w.col_first = 112;
		wsrc_settle(&w);
		assert_int_equal(w.type, share == 3 ? GGTYPE_F32 : GGTYPE_F8_B32);
		x = decode_all(&w, 33);
		for (uint32_t r = 0; r < w.rows; r++)
			for (uint32_t c = 0; c < w.cols; c++) {
				uint64_t tr = w.pieces[0].first + r, tc = w.col_first + c;

				assert_true(x[r * w.cols + c] ==
					    scales[tr / 64 * width + tc / 64] * float8_to_f32(codes[tr * cols + tc]));
			}
		free(x);
	}
	struct wsrc w = plain(&t, rows, cols);
	uint8_t *out = mem_array(uint8_t, rows * ggtype_row_bytes(GGTYPE_F8_B32, cols));

	w.code = WSRC_FP8;
	w.scales = &s;
	w.block_rows = w.block_cols = 64;
	wsrc_settle(&w);
	codes[77 * cols + 100] = 0xff;
	assert_int_equal(wsrc_rows(&w, 64, 64, out, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor w: row 77, column 100 is not finite");
	codes[77 * cols + 100] = 0;
	scales[2 * width + 1] = INFINITY;
	assert_int_equal(wsrc_rows(&w, 0, 128, out, &err), ST_OK);
	err.text[0] = 0;
	assert_int_equal(wsrc_rows(&w, 0, rows, out, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor s: the scale at row 2, column 1 is not finite");
	free(out);
	free(scales);
	free(codes);
}

/* GPTQ and AWQ tensors made of codes, zeros and scales by the formats' own words. */
struct four {
	uint32_t rows, cols, group, n_groups;
	uint8_t *q, *z; /* (rows, cols), (groups, rows) */
	uint32_t *gidx; /* (cols) */
	uint32_t *qweight, *qzeros;
	uint16_t *scales; /* (groups, rows) */
	struct ckpt_tensor t, s, zt, o;
};

static void four_init(struct four *f, bool awq, bool minus_one, uint32_t rows, uint32_t cols, uint32_t group, int zero)
{
	static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

	*f = (struct four){.rows = rows, .cols = cols, .group = group, .n_groups = cols / group};
	f->q = mem_array(uint8_t, (size_t)rows * cols);
	f->z = mem_array(uint8_t, (size_t)rows * f->n_groups);
	f->gidx = mem_array(uint32_t, cols);
	f->qweight = mem_array(uint32_t, (size_t)rows * cols / 8);
	f->qzeros = mem_array(uint32_t, (size_t)rows * f->n_groups / 8);
	f->scales = mem_array(uint16_t, (size_t)rows * f->n_groups);
	for (uint32_t i = 0; i < rows * f->n_groups; i++) {
		f->z[i] = (uint8_t)(zero >= 0 ? (uint32_t)zero : rnd(16));
		f->scales[i] = half_from_f32((float)(1 + rnd(500)) / 512);
	}
	for (uint32_t c = 0; c < cols; c++) f->gidx[c] = c / group;
	for (uint32_t i = 0; i < rows * cols; i++) {
		uint32_t r = i / cols, c = i % cols;

		f->q[i] = (uint8_t)rnd(16);
		if (!awq) f->qweight[c / 8 * rows + r] |= (uint32_t)f->q[i] << (4 * (c % 8));
	}
	for (uint32_t c = 0; awq && c < cols; c++)
		for (uint32_t r = 0; r < rows; r += 8)
			for (int i = 0; i < 8; i++)
				f->qweight[c * (rows / 8) + r / 8] |= (uint32_t)f->q[(r + awq_order[i]) * cols + c]
								      << (4 * i);
	for (uint32_t g = 0; g < f->n_groups; g++)
		for (uint32_t r = 0; r < rows; r += 8)
			for (int i = 0; i < 8; i++) {
				uint32_t z = f->z[g * rows + r + (awq ? awq_order[i] : i)];

				f->qzeros[g * (rows / 8) + r / 8] |= (minus_one ? (z - 1) & 15 : z) << (4 * i);
			}
	f->t = awq ? TENSOR("w.qweight", GGTYPE_I32, f->qweight, 0, cols, rows / 8)
		   : TENSOR("w.qweight", GGTYPE_I32, f->qweight, 0, cols / 8, rows);
	f->zt = TENSOR("w.qzeros", GGTYPE_I32, f->qzeros, (uint64_t)f->n_groups * rows / 2, f->n_groups, rows / 8);
	f->s = TENSOR("w.scales", GGTYPE_F16, f->scales, 0, f->n_groups, rows);
	f->o = TENSOR("w.g_idx", GGTYPE_I32, f->gidx, 0, cols);
}

static struct wsrc four_source(const struct four *f, enum wsrc_code code, bool minus_one)
{
	struct wsrc w = plain(&f->t, f->rows, f->cols);

	w.code = code;
	w.scales = &f->s;
	w.zeros = &f->zt;
	if (code == WSRC_GPTQ) w.order = &f->o;
	w.block_cols = f->group;
	w.zeros_minus_one = minus_one;
	return w;
}

static float four_value(const struct four *f, uint64_t tensor_row, uint64_t tensor_col)
{
	uint64_t at = f->gidx[tensor_col] * f->rows + tensor_row;

	return half_to_f32(f->scales[at]) * (float)((int)f->q[tensor_row * f->cols + tensor_col] - (int)f->z[at]);
}

static void four_expect(const struct four *f, const struct wsrc *w)
{
	float *x = decode_all(w, 29);

	for (uint32_t r = 0; r < w->rows; r++)
		for (uint32_t c = 0; c < w->cols; c++) {
			const struct wsrc_piece *p = &w->pieces[0];
			uint64_t tr = p->first + r / p->run * p->step + r % p->run;
			float want = four_value(f, tr, w->col_first + c);

			if (x[r * w->cols + c] != want)
				fail_msg("row %u, column %u: %g, expected %g", r, c, (double)x[r * w->cols + c],
					 (double)want);
		}
	free(x);
}

static void four_release(struct four *f)
{
	free(f->q);
	free(f->z);
	free(f->gidx);
	free(f->qweight);
	free(f->qzeros);
	free(f->scales);
}

static void gptq_and_awq_words_become_blocks(void **state)
{
	for (int k = 0; k < 3; k++) { /* v1, v2, AWQ */
		enum wsrc_code code = k == 2 ? WSRC_AWQ : WSRC_GPTQ;
		struct four f;
		struct wsrc w;

		four_init(&f, k == 2, k == 0, 72, 256, 64, -1);
		w = four_source(&f, code, k == 0);
		wsrc_settle(&w);
		assert_int_equal(w.type, GGTYPE_Q4_Z);
		four_expect(&f, &w);
		/* Parts of a fused tensor, and a rank's columns in and out of blocks. */
		w.rows = 21;
		w.pieces[0] = (struct wsrc_piece){21, 5, 3, 9};
		four_expect(&f, &w);
		w.cols = 96;
		w.col_first = 128;
		wsrc_settle(&w);
		assert_int_equal(w.type, GGTYPE_Q4_Z);
		four_expect(&f, &w);
		w.cols = 20;
		w.col_first = 100;
		wsrc_settle(&w);
		assert_int_equal(w.type, GGTYPE_F32);
		four_expect(&f, &w);
		four_release(&f);

		/* One zero for all. */
		four_init(&f, k == 2, k == 0, 40, 128, 128, 8);
		w = four_source(&f, code, k == 0);
		wsrc_settle(&w);
		assert_int_equal(w.type, k == 2 ? GGTYPE_Q4_Z : GGTYPE_Q4_0);
		four_expect(&f, &w);
		if (k < 2) {
			w.zeros = w.order = NULL;
			wsrc_settle(&w);
			assert_int_equal(w.type, GGTYPE_Q4_0);
			four_expect(&f, &w);
		}
		four_release(&f);
	}
}

/* kv_b_proj (heads * (nope + v), lora) in 4 bits: a head's keys are turned, its values are not. */
static void heads_of_four_bits_come_out_of_the_whole(void **state)
{
	uint32_t nope = 16, v = 24, lora = 128, both = nope + v;

	for (int k = 0; k < 2; k++) {
		struct four f;
		struct wsrc w;
		float *x;

		four_init(&f, k == 1, k == 0, 3 * both, lora, 32, -1);
		for (uint32_t head = 0; head < 3; head++) {
			w = four_source(&f, k ? WSRC_AWQ : WSRC_GPTQ, k == 0);
			w.transposed = true;
			w.at = head * both;
			w.rows = lora;
			w.cols = nope;
			w.pieces[0] = (struct wsrc_piece){lora, 0, lora, lora};
			wsrc_settle(&w);
			assert_int_equal(w.type, GGTYPE_F32);
			x = decode_all(&w, lora);
			for (uint32_t r = 0; r < lora; r++)
				for (uint32_t c = 0; c < nope; c++)
					assert_true(x[r * nope + c] == four_value(&f, head * both + c, r));
			free(x);
			w = four_source(&f, k ? WSRC_AWQ : WSRC_GPTQ, k == 0);
			w.at = head * both + nope;
			w.rows = v;
			w.pieces[0] = (struct wsrc_piece){v, 0, v, v};
			wsrc_settle(&w);
			assert_int_equal(w.type, GGTYPE_Q4_Z);
			x = decode_all(&w, 7);
			for (uint32_t r = 0; r < v; r++)
				for (uint32_t c = 0; c < lora; c++)
					assert_true(x[r * lora + c] == four_value(&f, head * both + nope + r, c));
			free(x);
		}
		four_release(&f);
	}
}

/* BF16 and F32 scales: blocks have half scales, so those that are no halves make it F32. */
static void scales_of_other_types_stay_exact(void **state)
{
	for (int k = 0; k < 4; k++) {
		enum wsrc_code code = k % 2 ? WSRC_AWQ : WSRC_GPTQ;
		enum ggtype type = k / 2 ? GGTYPE_F32 : GGTYPE_BF16;
		uint32_t n, bits[64 * 4];
		uint16_t words[64 * 4];
		struct errbuf err = {0};
		struct four f;
		struct wsrc w;
		float *x;

		four_init(&f, k % 2, false, 64, 256, 64, -1);
		n = f.rows * f.n_groups;
		for (uint32_t i = 0; i < n; i++) {
			f.scales[i] &= 0xfff8; /* as many digits as BF16 has */
			bits[i] = half_f32_bits(half_to_f32(f.scales[i]));
			words[i] = (uint16_t)(bits[i] >> 16);
		}
		f.s = TENSOR("w.scales", type, type == GGTYPE_F32 ? (void *)bits : (void *)words, 0, f.n_groups,
			     f.rows);
		w = four_source(&f, code, false);
		wsrc_settle(&w);
		assert_int_equal(w.type, GGTYPE_Q4_Z);
		four_expect(&f, &w);
		bits[7] = 0x2edbe6ff & 0xffff0000; /* about 1e-10 */
		words[7] = 0x2edb;
		wsrc_settle(&w);
		assert_int_equal(w.type, GGTYPE_F32);
		x = decode_all(&w, 64);
		for (uint32_t c = 0; c < 64; c++)
			assert_true(x[7 * w.cols + c] ==
				    half_bits_f32(0x2edb0000) * (float)((int)f.q[7 * f.cols + c] - (int)f.z[7]));
		free(x);
		bits[9] = 0x7fc00000;
		words[9] = 0x7fc0;
		wsrc_settle(&w);
		x = mem_array(float, (size_t)w.rows *w.cols);
		assert_int_equal(wsrc_rows(&w, 0, w.rows, x, &err), ST_INVALID);
		assert_string_equal(err.text, "tensor w.scales: the scale at row 0, column 9 is not finite");
		free(x);
		four_release(&f);
	}
}

static void gptq_in_another_order_is_f32(void **state)
{
	struct errbuf err = {0};
	struct four f;
	struct wsrc w;
	float out[64];

	four_init(&f, false, true, 16, 64, 32, -1);
	for (uint32_t c = 0; c < 64; c++) f.gidx[c] = c % 2;
	w = four_source(&f, WSRC_GPTQ, true);
	wsrc_settle(&w);
	assert_int_equal(w.type, GGTYPE_F32);
	four_expect(&f, &w);
	f.gidx[9] = 2;
	assert_int_equal(wsrc_rows(&w, 0, 1, out, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor w.g_idx: column 9 has group 2, but there are 2");
	f.gidx[9] = (uint32_t)-1;
	err.text[0] = 0;
	assert_int_equal(wsrc_rows(&w, 0, 1, out, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor w.g_idx: column 9 has group -1, but there are 2");
	for (uint32_t c = 0; c < 64; c++) f.gidx[c] = c / 32;
	f.scales[16 + 3] = 0x7e00;
	wsrc_settle(&w);
	err.text[0] = 0;
	uint8_t rows[16 * 40];
	assert_int_equal(wsrc_rows(&w, 0, 16, rows, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor w.scales: the scale at row 1, column 3 is not finite");
	four_release(&f);
}

/* transformers' order: the low nibble of byte i is element 2i. */
static void mxfp4_nibbles_change_places(void **state)
{
	static const float values[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
	uint32_t rows = 36, cols = 96;
	uint8_t *blocks = mem_array(uint8_t, 2 * rows * cols / 2), *scales = mem_array(uint8_t, 2 * rows * cols / 32);
	struct ckpt_tensor t = TENSOR("b", CKPT_U8, blocks, 0, 2, rows, cols / 32, 16);
	struct ckpt_tensor s = TENSOR("s", CKPT_U8, scales, 0, 2, rows, cols / 32);
	struct wsrc w = plain(&t, rows, cols);
	struct errbuf err = {0};

	for (uint32_t i = 0; i < rows * cols; i++) blocks[i] = (uint8_t)rnd(256);
	for (uint32_t i = 0; i < 2 * rows * cols / 32; i++) scales[i] = (uint8_t)(120 + rnd(14));
	w.code = WSRC_MXFP4;
	w.scales = &s;
	w.at = rows;
	w.rows = rows / 2;
	w.pieces[0] = (struct wsrc_piece){rows / 2, 1, 1, 2}; /* `up` of gate and up in turn */
	w.cols = 64;
	w.col_first = 32;
	wsrc_settle(&w);
	assert_int_equal(w.type, GGTYPE_MXFP4);
	for (int as_f32 = 0; as_f32 < 2; as_f32++) {
		float *x = decode_all(&w, 7);

		for (uint32_t r = 0; r < w.rows; r++)
			for (uint32_t c = 0; c < w.cols; c++) {
				uint32_t at = (rows + 1 + 2 * r) * cols + 32 + c;
				float want =
					ldexpf(values[blocks[at / 2] >> (at % 2 ? 4 : 0) & 15], scales[at / 32] - 127);

				assert_true(x[r * w.cols + c] == want);
			}
		free(x);
		w.type = GGTYPE_F32;
	}
	w.type = GGTYPE_MXFP4;
	scales[(rows + 7) * 3 + 2] = 0xff;
	uint8_t out[18 * 34];
	assert_int_equal(wsrc_rows(&w, 0, w.rows, out, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor s: the scale at row 43, column 2 is not finite");
	free(blocks);
	free(scales);
}

/* ---- vectors ---- */

static void vectors_are_mapped_floats(void **state)
{
	float data[12] = {0, 1, -2, .5f, 3, 4, 5, 6, 7, 8, 100, -.25f}, out[12];
	struct ckpt_tensor t = TENSOR("v", GGTYPE_F32, data, sizeof(data), 2, 6);
	struct wsrc w = plain(&t, 1, 6);
	struct errbuf err = {0};

	w.at = 1;
	assert_int_equal(wsrc_floats(&w, out, &err), ST_OK);
	expect_floats(out, data + 6, 6);
	w.map = WSRC_PLUS_ONE;
	assert_int_equal(wsrc_floats(&w, out, &err), ST_OK);
	assert_true(out[5] == .75f);
	/* Every other element of a stack's row: the row is seen transposed. */
	w = plain(&t, 3, 1);
	w.transposed = true;
	w.at = 0;
	w.tensor_rows = 1;
	w.tensor_cols = 6;
	w.pieces[0] = (struct wsrc_piece){3, 1, 1, 2};
	assert_int_equal(wsrc_floats(&w, out, &err), ST_OK);
	assert_true(out[0] == 1 && out[1] == .5f && out[2] == 4);
	w = plain(&t, 1, 6);
	w.map = WSRC_NEG_EXP;
	assert_int_equal(wsrc_floats(&w, out, &err), ST_OK);
	assert_true(out[0] == -1 && fabsf(out[1] + 2.7182817f) < 1e-6f);
	w.at = 1;
	assert_int_equal(wsrc_floats(&w, out, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor v: element 10 is not finite, or its exponential");
	data[3] = NAN;
	w.map = WSRC_AS_IS;
	w.at = 0;
	err.text[0] = 0;
	assert_int_equal(wsrc_floats(&w, out, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor v: element 3 is not finite");
}

/* ---- what is not finite ---- */

static bool any_bad(const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (!isfinite(x[i])) return true;
	return false;
}

/* Random blocks, each with a scale out of a few special ones somewhere: refused when a value of theirs is not finite,
 * and only then. */
static void scales_that_are_not_finite_are_found(void **state)
{
#define AS_TYPE(name, number, len, bytes) GGTYPE_##name,
	static const enum ggtype types[] = {GGTYPES(AS_TYPE)};
#undef AS_TYPE
	int n_types = 0;

	for (size_t k = 0; k < ARRAY_LEN(types); k++) {
		enum ggtype type = types[k];
		const struct ggtype_info *info = ggtype_info(type);
		uint32_t cols = 5 * info->block_len, n_bad = 0, n_good = 0;
		bool ours = type == GGTYPE_F8_B32 || type == GGTYPE_Q4_Z;
		uint8_t *row = mem_array(uint8_t, 3 * ggtype_row_bytes(type, cols));
		float *x = mem_array(float, 3 * cols);
		struct ckpt_tensor t = TENSOR("t", type, row, 0, 3, cols);
		struct wsrc w = plain(&t, 3, cols);

		if (!kdequant_supported(type) && !ours) {
			free(row);
			free(x);
			continue;
		}
		n_types++;
		w.type = type;
		for (int round = 0; round < 4000; round++) {
			size_t bytes = 3 * ggtype_row_bytes(type, cols), row_bytes = ggtype_row_bytes(type, cols);
			struct errbuf err = {0};
			bool bad = false;
			int rc;

			for (size_t i = 0; i < bytes; i++)
				row[i] = (uint8_t)(type == GGTYPE_NVFP4 || ours ? rnd(126) : rnd(256) & 0xbb);
			for (size_t i = 3; type == GGTYPE_F8_B32 && i < bytes; i += 36) row[i] &= 0x3f;
			/* 0x7c00 and 0x7f80 in any place; exponents are otherwise kept below all ones by the mask
			 * above. */
			if (rnd(2)) {
				size_t at = rnd((uint32_t)bytes - 1), block = info->block_bytes;

				/* Mostly at a block's ends, where scales are. */
				if (block >= 8 && rnd(4))
					at = rnd((uint32_t)(bytes / block)) * block +
					     (rnd(2) ? rnd(4) : block - 2 - rnd(4));
				row[at] = (uint8_t)(rnd(2) ? 0x80 : 0);
				row[at + 1] = (uint8_t)(rnd(2) ? 0x7f : 0xfc);
			}
			if (type == GGTYPE_IQ1_M && rnd(4) == 0) { /* the exponent in the high nibbles of two words */
				uint8_t *scales = row + rnd(15) * info->block_bytes + 48;

				scales[5] |= 0xc0;
				scales[7] |= (uint8_t)(0x70 >> (rnd(4) == 0));
			}
			for (uint32_t r = 0; r < 3; r++) decode_row(type, row + r * row_bytes, x + r * cols, cols);
			bad = any_bad(x, 3 * cols);
			/* No scale of float8 codes may take the largest of them out of range. */
			for (size_t i = 0; type == GGTYPE_F8_B32 && i < bytes; i += 36) {
				float scale;

				memcpy(&scale, row + i, 4);
				bad |= !(fabsf(scale) <= FLT_MAX / 448);
			}
			/* ggml reads NVFP4's NaN as 0, and MXFP4's as a large scale. */
			for (size_t i = 0; type == GGTYPE_NVFP4 && i < bytes; i++)
				bad |= i % 36 < 4 && (row[i] & 0x7f) == 0x7f;
			for (size_t i = 0; type == GGTYPE_MXFP4 && i < bytes; i += 17) bad |= row[i] == 0xff;
			rc = wsrc_check(&w, 0, 3, row, &err);
			if ((rc != ST_OK) != bad)
				fail_msg("%s: %s, but its values are %s", info->name, rc ? err.text : "accepted",
					 bad ? "not finite" : "finite");
			if (bad) assert_non_null(strstr(err.text, "tensor t: "));
			n_bad += bad;
			n_good += !bad;
		}
		if (n_good < 100 || (n_bad < 10 && type != GGTYPE_MXFP4))
			fail_msg("%s: %u bad, %u good", info->name, n_bad, n_good);
		free(row);
		free(x);
	}
	assert_true(n_types >= 24);
}

static void the_place_is_named(void **state)
{
	uint8_t row[4 * 3 * 20] = {0};
	struct ckpt_tensor t = TENSOR("blk.0.x", GGTYPE_Q4_1, row, 0, 4, 96);
	struct wsrc w = plain(&t, 4, 96);
	struct errbuf err = {0};

	wsrc_settle(&w);
	assert_int_equal(wsrc_check(&w, 0, 4, row, &err), ST_OK);
	row[2 * 60 + 20 + 3] = 0x7c; /* m of row 2, block 1 */
	assert_int_equal(wsrc_check(&w, 0, 4, row, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor blk.0.x: a scale of row 2, block 1 (columns from 32 on) is not finite");
	err.text[0] = 0;
	assert_int_equal(wsrc_check(&w, 2, 1, row + 120, &err), ST_INVALID);
	assert_string_equal(err.text, "tensor blk.0.x: a scale of row 2, block 1 (columns from 32 on) is not finite");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_values_of_quantized_checkpoints),
		cmocka_unit_test(plain_rows_lie_where_they_are),
		cmocka_unit_test(pieces_are_rows_in_order),
		cmocka_unit_test(transposed_columns_become_rows),
		cmocka_unit_test(transposed_blocks_are_dequantized),
		cmocka_unit_test(fp8_keeps_the_scale_of_its_block),
		cmocka_unit_test(gptq_and_awq_words_become_blocks),
		cmocka_unit_test(heads_of_four_bits_come_out_of_the_whole),
		cmocka_unit_test(scales_of_other_types_stay_exact),
		cmocka_unit_test(gptq_in_another_order_is_f32),
		cmocka_unit_test(mxfp4_nibbles_change_places),
		cmocka_unit_test(vectors_are_mapped_floats),
		cmocka_unit_test(scales_that_are_not_finite_are_found),
		cmocka_unit_test(the_place_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
