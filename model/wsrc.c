/* wsrc.c - see wsrc.h: rows of weights from where they lie in a checkpoint's tensors.
 *
 * A row of a weight is found by its piece. Plain rows are copied (or shown where they lie), transposed ones are
 * collected in tiles, codes are unpacked by wsrc_code.c; everything that is given out has been looked at for NaN and
 * infinity (wsrc_check.c). */
#include "model/wsrc_impl.h"

#include "common/half.h"
#include "common/mem.h"

#include <math.h>
#include <string.h>

#define WSRC_TILE 32 /* rows and columns that are transposed together: a cache line or two each */

static uint64_t wsrc_piece_place(const struct wsrc_piece *p, uint64_t row)
{
	return p->first + row / p->run * p->step + row % p->run;
}

/* The piece that holds the row; *row becomes its number in it. */
static const struct wsrc_piece *wsrc_piece_of(const struct wsrc *w, uint32_t *row)
{
	uint32_t i = 0;

	while (i < w->n_pieces && *row >= w->pieces[i].rows) *row -= w->pieces[i++].rows;
	CHECK(i < w->n_pieces);
	return &w->pieces[i];
}

uint64_t wsrc_row_place(const struct wsrc *w, uint32_t row)
{
	const struct wsrc_piece *p = wsrc_piece_of(w, &row);

	return (w->transposed ? 0 : w->at) + wsrc_piece_place(p, row);
}

void wsrc_elem_place(const struct wsrc *w, uint32_t row, uint32_t col, uint64_t *tensor_row, uint64_t *tensor_col)
{
	uint64_t place = wsrc_row_place(w, row);

	*tensor_row = w->transposed ? w->at + w->col_first + col : place;
	*tensor_col = w->transposed ? place : w->col_first + col;
}

bool wsrc_type_is_float(uint32_t type)
{
	return type == GGTYPE_F32 || type == GGTYPE_F16 || type == GGTYPE_BF16;
}

float wsrc_float_at(const struct ckpt_tensor *t, uint64_t ix)
{
	float f;

	if (t->type == GGTYPE_F16) return half_load(t->data + ix * 2);
	if (t->type == GGTYPE_BF16) return half_bf16_to_f32(half_load_u16(t->data + ix * 2));
	CHECK(t->type == GGTYPE_F32);
	memcpy(&f, t->data + ix * 4, 4);
	return f;
}

/* Rows of whole 32-column blocks, none of which belongs to two scales. */
static bool wsrc_fits_blocks(const struct wsrc *w)
{
	return w->cols % 32 == 0 && w->col_first % 32 == 0 &&
	       (w->block_cols % 32 == 0 || w->block_cols >= w->tensor_cols);
}

void wsrc_settle(struct wsrc *w)
{
	bool fits = !w->transposed && wsrc_fits_blocks(w);

	w->type = GGTYPE_F32;
	switch (w->code) {
	case WSRC_PLAIN:
		if (!w->transposed || wsrc_type_is_float(w->t->type)) w->type = (enum ggtype)w->t->type;
		break;
	case WSRC_FP8:
		if (fits) w->type = GGTYPE_F8_B32;
		break;
	case WSRC_GPTQ:
		if (fits && wsrc_order_is_plain(w) && wsrc_scales_are_halves(w))
			w->type = wsrc_zeros_are_8(w) ? GGTYPE_Q4_0 : GGTYPE_Q4_Z;
		break;
	case WSRC_AWQ:
		if (fits && wsrc_scales_are_halves(w)) w->type = GGTYPE_Q4_Z;
		break;
	case WSRC_MXFP4:
		if (fits) w->type = GGTYPE_MXFP4;
		break;
	}
}

/* ---- rows ---- */

/* Bytes of the tensor's row before the weight's first column. */
static uint64_t wsrc_col_at(const struct wsrc *w)
{
	return ggtype_row_bytes((enum ggtype)w->t->type, w->col_first);
}

static void wsrc_copy_rows(const struct wsrc *w, uint32_t row, uint32_t n, uint8_t *out)
{
	size_t tensor_bytes = ggtype_row_bytes((enum ggtype)w->t->type, w->tensor_cols),
	       bytes = ggtype_row_bytes(w->type, w->cols);

	for (uint32_t i = 0; i < n; i++)
		memcpy(out + i * bytes, w->t->data + wsrc_row_place(w, row + i) * tensor_bytes + wsrc_col_at(w), bytes);
}

/* Columns of the tensor become rows, by square tiles that are turned in a buffer: lines of both sides, which often lie
 * a power of two apart and push each other out of the cache, are touched once. */
#define WSRC_TRANSPOSE(name, elem)                                                                                \
	static void name(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out, uint32_t col)      \
	{                                                                                                         \
		uint32_t n_cols = min_u32(WSRC_TILE, w->cols - col);                                              \
		elem tile[WSRC_TILE][WSRC_TILE];                                                                  \
                                                                                                                  \
		for (uint32_t c = 0; c < n_cols; c++) {                                                           \
			const uint8_t *line =                                                                     \
				w->t->data + (w->at + w->col_first + col + c) * w->tensor_cols * sizeof(elem);    \
                                                                                                                  \
			for (uint32_t i = 0; i < n; i++)                                                          \
				memcpy(&tile[i][c], line + from[i] * sizeof(elem), sizeof(elem));                 \
		}                                                                                                 \
		for (uint32_t i = 0; i < n; i++)                                                                  \
			memcpy(out + ((size_t)i * w->cols + col) * sizeof(elem), tile[i], n_cols * sizeof(elem)); \
	}
WSRC_TRANSPOSE(wsrc_transpose_16, uint16_t)
WSRC_TRANSPOSE(wsrc_transpose_32, uint32_t)

static void wsrc_transpose(const struct wsrc *w, uint32_t n, const uint64_t *from, uint8_t *out)
{
	size_t row_bytes = ggtype_row_bytes(w->type, w->cols);

	for (uint32_t col = 0; col < w->cols; col += WSRC_TILE) {
		for (uint32_t i = 0; i < n; i += WSRC_TILE) {
			if (w->type == GGTYPE_F32)
				wsrc_transpose_32(w, min_u32(WSRC_TILE, n - i), from + i, out + i * row_bytes, col);
			else
				wsrc_transpose_16(w, min_u32(WSRC_TILE, n - i), from + i, out + i * row_bytes, col);
		}
	}
}

/* Whether the tensor's own row, a column of the weight, has only finite scales. */
static int wsrc_check_line(const struct wsrc *w, const uint8_t *line, uint64_t tensor_row, struct errbuf *err)
{
	uint64_t block;

	if (!wsrc_find_bad((enum ggtype)w->t->type, line, w->tensor_cols, &block)) return ST_OK;
	return err_set(err, ST_INVALID, "tensor %.*s: the scale of row %llu, block %llu is not finite",
		       (int)w->t->name.len, w->t->name.s, (unsigned long long)tensor_row, (unsigned long long)block);
}

/* Rows in F32 out of columns of codes or blocks: each of the tensor's rows is read whole. */
static int wsrc_transpose_decoded(const struct wsrc *w, uint32_t row, uint32_t n, float *out, struct errbuf *err)
{
	float *line = mem_array(float, w->tensor_cols);
	int rc = ST_OK;

	for (uint32_t c = 0; c < w->cols && rc == ST_OK; c++) {
		uint64_t tensor_row = w->at + w->col_first + c;

		if (w->code == WSRC_PLAIN) {
			const uint8_t *at =
				w->t->data + tensor_row * ggtype_row_bytes((enum ggtype)w->t->type, w->tensor_cols);

			CHECK(w->dequant != NULL);
			rc = wsrc_check_line(w, at, tensor_row, err);
			if (rc == ST_OK) rc = w->dequant((enum ggtype)w->t->type, at, line, w->tensor_cols);
		} else {
			wsrc_code_line(w, tensor_row, 0, w->tensor_cols, line);
		}
		for (uint32_t i = 0; i < n && rc == ST_OK; i++)
			out[(size_t)i * w->cols + c] = line[wsrc_row_place(w, row + i)];
	}
	free(line);
	return rc;
}

static void wsrc_chunk(const struct wsrc *w, uint32_t row, uint32_t n, uint8_t *out)
{
	uint64_t from[WSRC_ROWS_MAX];

	for (uint32_t i = 0; i < n; i++) from[i] = wsrc_row_place(w, row + i);
	if (w->code != WSRC_PLAIN)
		wsrc_unpack(w, n, from, out);
	else
		wsrc_transpose(w, n, from, out);
}

int wsrc_rows(const struct wsrc *w, uint32_t row, uint32_t n, void *out, struct errbuf *err)
{
	size_t bytes = ggtype_row_bytes(w->type, w->cols);
	uint32_t last = w->rows - w->rows_pad, n_real = row < last ? min_u32(n, last - row) : 0;
	bool decoded = wsrc_wants_all(w);
	int rc = wsrc_check_order(w, err);

	CHECK(row <= w->rows && n <= w->rows - row && w->map == WSRC_AS_IS);
	if (rc != ST_OK) return rc;
	memset((uint8_t *)out + n_real * bytes, 0, (n - n_real) * bytes); /* zero scales are zeros in every type */
	if (decoded) {
		rc = wsrc_transpose_decoded(w, row, n_real, out, err);
	} else if (w->code == WSRC_PLAIN && !w->transposed) {
		wsrc_copy_rows(w, row, n_real, out);
	} else {
		for (uint32_t i = 0; i < n_real; i += WSRC_ROWS_MAX)
			wsrc_chunk(w, row + i, min_u32(n_real - i, WSRC_ROWS_MAX), (uint8_t *)out + i * bytes);
	}
	return rc == ST_OK ? wsrc_check(w, row, n_real, out, err) : rc;
}

const void *wsrc_direct(const struct wsrc *w, uint32_t row, uint32_t n)
{
	uint32_t in_piece = row;
	const struct wsrc_piece *p;

	CHECK(row <= w->rows && n <= w->rows - row);
	if (w->code != WSRC_PLAIN || w->transposed || w->map != WSRC_AS_IS || w->cols != w->tensor_cols || n == 0)
		return NULL;
	if (row + n > w->rows - w->rows_pad) return NULL;
	p = wsrc_piece_of(w, &in_piece);
	if (n > p->rows - in_piece || (p->run != p->step && in_piece % p->run + n > p->run)) return NULL;
	return w->t->data + wsrc_row_place(w, row) * ggtype_row_bytes(w->type, w->cols);
}

/* ---- vectors ---- */

static float wsrc_map_value(enum wsrc_map map, float x)
{
	switch (map) {
	case WSRC_PLUS_ONE:
		return x + 1;
	case WSRC_NEG_EXP:
		return (float)-exp((double)x);
	case WSRC_AS_IS:
		break;
	}
	return x;
}

int wsrc_floats(const struct wsrc *w, float *out, struct errbuf *err)
{
	CHECK(w->code == WSRC_PLAIN && wsrc_type_is_float(w->t->type) && w->rows_pad == 0);
	for (uint32_t r = 0; r < w->rows; r++) {
		for (uint32_t c = 0; c < w->cols; c++) {
			uint64_t tensor_row, tensor_col;
			float x;

			wsrc_elem_place(w, r, c, &tensor_row, &tensor_col);
			x = wsrc_map_value(w->map, wsrc_float_at(w->t, tensor_row * w->tensor_cols + tensor_col));
			if (!isfinite(x))
				return err_set(err, ST_INVALID, "tensor %.*s: element %llu is not finite%s",
					       (int)w->t->name.len, w->t->name.s,
					       (unsigned long long)(tensor_row * w->tensor_cols + tensor_col),
					       w->map == WSRC_NEG_EXP ? ", or its exponential" : "");
			*out++ = x;
		}
	}
	return ST_OK;
}

/* ---- bytes ---- */

/* Blocks of `size` that [from, from + n) touches. */
static uint64_t wsrc_blocks(uint64_t from, uint64_t n, uint64_t size)
{
	return n ? (from + n - 1) / size - from / size + 1 : 0;
}

bool wsrc_wants_all(const struct wsrc *w)
{
	return w->transposed && (w->code != WSRC_PLAIN || !wsrc_type_is_float(w->t->type));
}

/* Bytes of a row of the tensor: of codes, of w->t's. */
static uint64_t wsrc_line_bytes(const struct wsrc *w)
{
	switch (w->code) {
	case WSRC_PLAIN:
		return ggtype_row_bytes((enum ggtype)w->t->type, w->tensor_cols);
	case WSRC_MXFP4:
	case WSRC_GPTQ:
	case WSRC_AWQ:
		return w->tensor_cols / 2;
	case WSRC_FP8:
		break;
	}
	return w->tensor_cols;
}

void wsrc_span(const struct wsrc *w, uint32_t row, uint32_t n, uint64_t *from, uint64_t *bytes)
{
	uint64_t low = w->at, high = w->at + w->tensor_rows, line = wsrc_line_bytes(w);
	uint32_t last = w->rows - w->rows_pad;

	n = row < last ? min_u32(n, last - row) : 0;
	if (n == 0) {
		*from = *bytes = 0;
		return;
	}
	if (w->code == WSRC_GPTQ || w->code == WSRC_AWQ) {
		*from = 0;
		*bytes = w->t->bytes;
		return;
	}
	if (!w->transposed) {
		low = UINT64_MAX;
		high = 0;
		for (uint32_t r = row; r < row + n; r++) {
			low = min_u64(low, wsrc_row_place(w, r));
			high = max_u64(high, wsrc_row_place(w, r) + 1);
		}
	}
	*from = min_u64(low * line, w->t->bytes);
	*bytes = min_u64((high - low) * line, w->t->bytes - *from);
}

/* Rows of blocks of scales that the weight's rows belong to, each counted when it is entered. */
static uint64_t wsrc_scale_rows(const struct wsrc *w)
{
	uint64_t n = 0, last = UINT64_MAX;

	if (w->transposed) return wsrc_blocks(w->at + w->col_first, w->cols, w->block_rows);
	for (uint32_t r = 0; r < w->rows - w->rows_pad; r++) {
		uint64_t block = wsrc_row_place(w, r) / w->block_rows;

		n += block != last;
		last = block;
	}
	return n;
}

static uint64_t wsrc_scale_bytes(const struct wsrc *w)
{
	return w->scales->type == GGTYPE_F32 ? 4 : w->scales->type == CKPT_F8_E8M0 ? 1 : 2;
}

uint64_t wsrc_file_bytes(const struct wsrc *w)
{
	uint64_t rows = w->rows - w->rows_pad, cols = w->cols, first = w->col_first, groups;

	/* Rows that are decoded to become columns are read whole. */
	if (wsrc_wants_all(w)) {
		rows = w->cols;
		cols = w->tensor_cols;
		first = 0;
	}
	switch (w->code) {
	case WSRC_PLAIN:
		return rows * ggtype_row_bytes((enum ggtype)w->t->type, cols);
	case WSRC_FP8:
		return rows * cols + wsrc_scale_rows(w) * wsrc_blocks(first, cols, w->block_cols) * wsrc_scale_bytes(w);
	case WSRC_MXFP4:
		return rows * cols / 32 * 17;
	case WSRC_GPTQ:
	case WSRC_AWQ:
		groups = wsrc_blocks(first, cols, w->block_cols);
		return rows * cols / 2 + groups * rows * wsrc_scale_bytes(w) + (w->zeros ? groups * rows / 2 : 0) +
		       (w->order ? cols * 4 : 0);
	}
	return 0;
}
