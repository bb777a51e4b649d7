/* Shares of tensor-parallel ranks: of every weight of every golden checkpoint, the shares put together are the whole; a
 * size that cannot be is refused with those that can; and what a rank does not have is not touched. */
#include "model/wsrc.h"

#include "common/float8.h"
#include "common/half.h"
#include "common/mem.h"
#include "kernels/kernels.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

struct model {
	const char *name;
	struct ckpt *c;
	struct spec s;
};

/* A weight in f32, (rows, cols). */
struct grid {
	uint32_t rows, cols;
	float *x;
	struct wsrc w;
};

static void decode_row(enum ggtype type, const uint8_t *row, float *out, uint64_t cols)
{
	if (type != GGTYPE_F8_B32 && type != GGTYPE_Q4_Z) {
		assert_int_equal(kdequant_row(type, row, out, cols), ST_OK);
		return;
	}
	for (uint64_t c = 0; c < cols; c++) {
		uint64_t i = c % 32;
		const uint8_t *block = row + c / 32 * ggtype_info(type)->block_bytes;

		if (type == GGTYPE_F8_B32) {
			float d;

			memcpy(&d, block, 4);
			out[c] = d * float8_to_f32(block[4 + i]);
		} else {
			out[c] = half_load(block) *
				 ((float)(block[4 + i % 16] >> (i < 16 ? 0 : 4) & 15) + half_load(block + 2));
		}
	}
}

static struct grid decode(const struct wsrc *w, enum spec_role role)
{
	struct grid g = {w->rows, w->cols, mem_array(float, (size_t)w->rows * w->cols), *w};
	size_t bytes = ggtype_row_bytes(w->type, w->cols);
	uint8_t *rows = mem_array(uint8_t, w->rows * bytes);
	enum spec_form form = spec_role_form(role);
	struct errbuf err = {0};

	if (form == SPEC_VEC || form == SPEC_VECS) {
		if (wsrc_floats(w, g.x, &err) != ST_OK) fail_msg("%s", err.text);
		g.rows = 1; /* a column is a vector like any other */
		g.cols = w->rows * w->cols;
	} else {
		if (wsrc_rows(w, 0, w->rows, rows, &err) != ST_OK) fail_msg("%s", err.text);
		for (uint32_t r = 0; r < w->rows; r++)
			decode_row(w->type, rows + r * bytes, g.x + (size_t)r * w->cols, w->cols);
	}
	free(rows);
	return g;
}

static int take(const struct model *m, struct wsrc *w, enum spec_role role, uint32_t layer, struct wsrc_rank rank,
		uint32_t ix, struct errbuf *err)
{
	struct errbuf find_err = {0};

	if (wsrc_find(w, &m->s, m->c, role, layer, wsrc_share_ix(&m->s, role, layer, rank, ix), &find_err) != ST_OK)
		fail_msg("%s: %s", m->name, find_err.text);
	w->dequant = kdequant_row;
	return wsrc_shard(w, &m->s, role, layer, rank, err);
}

static void expect_part(const struct model *m, enum spec_role role, uint32_t layer, const struct grid *part,
			const struct grid *all, uint32_t row, uint32_t col, uint32_t part_row, uint32_t rows)
{
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t c = 0; c < part->cols; c++) {
			float got = part->x[(size_t)(part_row + r) * part->cols + c],
			      want = all->x[(size_t)(row + r) * all->cols + col + c];

			if (got != want)
				fail_msg("%s, layer %u, %s: row %u, column %u: %g, expected %g", m->name, layer,
					 spec_role_name(role), r, c, (double)got, (double)want);
		}
}

/* Where the share of this rank lies in the whole; rows of a vector are its elements. */
static void expect_share(const struct model *m, enum spec_role role, uint32_t layer, struct wsrc_rank k,
			 const struct grid *part, const struct grid *all)
{
	const struct spec_layer *y = layer < m->s.n_layers ? &m->s.layers[layer] : NULL;
	bool vector = spec_role_form(role) == SPEC_VEC || spec_role_form(role) == SPEC_VECS;
	uint32_t all_n = vector ? all->cols : all->rows, n = all_n / k.size, at = k.rank * n, group;

	switch (role == SPEC_K_B || role == SPEC_V_B || role == SPEC_D_CONV ? SPEC_WHOLE : spec_role_shard(role)) {
	case SPEC_WHOLE:
		n = all_n;
		at = 0;
		break;
	case SPEC_COLS:
		assert_int_equal(part->rows, all->rows);
		assert_int_equal(part->cols, all->cols / k.size);
		expect_part(m, role, layer, part, all, 0, k.rank * part->cols, 0, part->rows);
		return;
	case SPEC_KV:
		if (k.size > y->kv_heads) {
			group = k.size / y->kv_heads;
			n = all_n / y->kv_heads;
			at = k.rank / group * n;
		}
		break;
	case SPEC_ROWS:
		if (role == SPEC_D_QKV) {
			uint32_t qk = y->dk_heads * y->dk_dim, v = y->dv_heads * y->dv_dim;
			uint32_t q = k.size > y->dk_heads ? y->dk_dim : qk / k.size, q_at = k.rank * q;

			if (k.size > y->dk_heads) q_at = k.rank / (k.size / y->dk_heads) * q;
			assert_int_equal(part->rows, 2 * q + v / k.size);
			expect_part(m, role, layer, part, all, q_at, 0, 0, q);
			expect_part(m, role, layer, part, all, qk + q_at, 0, q, q);
			expect_part(m, role, layer, part, all, 2 * qk + k.rank * (v / k.size), 0, 2 * q, v / k.size);
			return;
		}
		break;
	case SPEC_VOCAB:
		n = (m->s.n_tokens + k.size - 1) / k.size;
		at = k.rank * n;
		assert_int_equal(part->rows, n);
		for (uint32_t r = 0; r < n; r++) {
			if (at + r < m->s.n_tokens)
				expect_part(m, role, layer, part, all, at + r, 0, r, 1);
			else
				for (uint32_t c = 0; c < part->cols; c++)
					assert_true(part->x[(size_t)r * part->cols + c] == 0);
		}
		return;
	}
	assert_int_equal(vector ? part->cols : part->rows, n);
	expect_part(m, role, layer, part, all, vector ? 0 : at, vector ? at : 0, 0, part->rows);
}

/* A refusal lists what works: this size is not among them, and those that are do. */
static void expect_refusal(const struct model *m, enum spec_role role, uint32_t layer, uint32_t size, const char *text)
{
	const char *list = strstr(text, "these can: ");
	char *end;

	if (!list) fail_msg("%s: %s", m->name, text);
	list += strlen("these can: ");
	assert_true(*list == '1');
	for (;; list = end + 2) {
		uint32_t n = (uint32_t)strtoul(list, &end, 10);
		struct errbuf err = {0};
		struct wsrc w;

		assert_int_not_equal(n, size);
		if (take(m, &w, role, layer, (struct wsrc_rank){n - 1, n}, 0, &err) != ST_OK)
			fail_msg("%u: %s", n, err.text);
		if (*end != ',') break;
	}
}

/* Sum of bytes over ranks is the whole's where each has its own part. */
static bool bytes_add_up(const struct wsrc *w, enum spec_role role)
{
	enum spec_shard how = spec_role_shard(role);

	return w->code == WSRC_PLAIN && !w->transposed && (how == SPEC_ROWS || how == SPEC_COLS || how == SPEC_VOCAB) &&
	       role != SPEC_K_B && role != SPEC_V_B && role != SPEC_D_CONV && role != SPEC_D_QKV;
}

/* Returns false when the size is refused. */
static bool check_role(const struct model *m, enum spec_role role, uint32_t layer, uint32_t size)
{
	struct wsrc_rank one = {0, 1}, k = {0, size};
	uint32_t n = spec_role_shape(&m->s, role, layer).n, share;
	struct errbuf err = {0};
	char *seen = mem_array(char, n);

	if (wsrc_share(&share, &m->s, role, layer, k, &err) != ST_OK) {
		expect_refusal(m, role, layer, size, err.text);
		free(seen);
		return false;
	}
	for (uint32_t ix = 0; ix < share; ix++) {
		struct grid all = {0};
		uint64_t sum = 0;

		for (k.rank = 0; k.rank < size; k.rank++) {
			uint32_t at = wsrc_share_ix(&m->s, role, layer, k, ix);
			struct grid part;
			struct wsrc w;

			if (take(m, &w, role, layer, k, ix, &err) != ST_OK) {
				expect_refusal(m, role, layer, size, err.text);
				free(all.x);
				free(seen);
				return false;
			}
			seen[at] = 1;
			part = decode(&w, role);
			sum += wsrc_file_bytes(&w);
			if (!all.x || at != wsrc_share_ix(&m->s, role, layer, (struct wsrc_rank){0, size}, ix)) {
				free(all.x);
				assert_int_equal(take(m, &w, role, layer, one, at, &err), ST_OK);
				all = decode(&w, role);
			}
			expect_share(m, role, layer, k, &part, &all);
			free(part.x);
		}
		if (bytes_add_up(&all.w, role)) assert_int_equal(sum, wsrc_file_bytes(&all.w));
		free(all.x);
	}
	for (uint32_t i = 0; i < n; i++) assert_true(seen[i]);
	free(seen);
	return true;
}

static void check_model(const char *name)
{
	struct model m = {.name = name};
	char relpath[200], path[300];
	struct errbuf err = {0};
	uint32_t refused = 0;

	snprintf(relpath, sizeof(relpath), "tiny/%s", name);
	if (!golden_folder(relpath, path, sizeof(path))) return;
	if (ckpt_open(&m.c, path, &err) != ST_OK) fail_msg("%s", err.text);
	if (spec_read(&m.s, m.c, &(struct spec_opts){0}, &err) != ST_OK) fail_msg("%s", err.text);
	for (uint32_t layer = 0; layer <= m.s.n_layers; layer++)
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) {
			if ((spec_role_scope(role) == SPEC_MODEL) != (layer == m.s.n_layers) ||
			    !spec_has(&m.s, role, layer))
				continue;
			for (uint32_t size = 1; size <= 8; size *= 2) refused += !check_role(&m, role, layer, size);
		}
	/* Only GGUF's blocks are in the way of a size. */
	if (refused && !m.s.from_gguf) fail_msg("%s: %u refused", name, refused);
	if (strcmp(name, "gguf-llama") == 0) assert_true(refused > 0);
	spec_release(&m.s);
	ckpt_close(m.c);
}

static void shares_put_together_are_the_whole(void **state)
{
	static const char *const names[] = {"deepseek-v2", "deepseek-v3", "gemma2",     "gemma3",        "gguf-gemma3",
					    "gguf-llama",  "gguf-qwen2",  "gguf-qwen3", "gguf-qwen3moe", "gpt-oss",
					    "llama",       "llama-gptq",  "mistral",    "mixtral",       "phi3",
					    "qwen2",       "qwen2-awq",   "qwen3",      "qwen3-fp8",     "qwen3-moe",
					    "qwen3-next",  "qwen3.5"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) check_model(names[i]);
}

static void sizes_that_cannot_be_are_refused_with_those_that_can(void **state)
{
	struct spec_layer y = {
		.mixer = SPEC_ATTENTION, .heads = 12, .kv_heads = 4, .k_dim = 8, .v_dim = 8, .ffn = 96 * 5};
	struct spec s = {.n_layers = 1, .dim = 96, .layers = &y, .vocab = 10, .n_tokens = 10};
	struct ckpt_tensor t = {.name = {"o", 1}, .type = GGTYPE_Q8_0};
	struct wsrc w = {.t = &t,
			 .type = GGTYPE_Q8_0,
			 .rows = 96,
			 .cols = 96,
			 .tensor_rows = 96,
			 .tensor_cols = 96,
			 .pieces = {{96, 0, 96, 96}},
			 .n_pieces = 1};
	struct errbuf err = {0};

	assert_int_equal(wsrc_shard(&w, &s, SPEC_Q, 0, (struct wsrc_rank){0, 5}, &err), ST_INVALID);
	assert_string_equal(err.text,
			    "layer 0, Q: 12 heads cannot be shared by 5 ranks; up to 64 these can: 1, 2, 3, 4, 6, 12");
	err.text[0] = 0;
	assert_int_equal(wsrc_shard(&w, &s, SPEC_K, 0, (struct wsrc_rank){0, 3}, &err), ST_INVALID);
	assert_string_equal(err.text, "layer 0, K: 12 heads with their KV heads cannot be shared by 3 ranks; up to 64 "
				      "these can: 1, 2, 4, 12");
	err.text[0] = 0;
	assert_int_equal(wsrc_shard(&w, &s, SPEC_O, 0, (struct wsrc_rank){0, 2}, &err), ST_INVALID);
	assert_string_equal(
		err.text,
		"tensor o: 96 columns of Q8_0, in blocks of 32, cannot be shared by 2 ranks; up to 64 these can: 1, 3");
	err.text[0] = 0;
	assert_int_equal(wsrc_shard(&w, &s, SPEC_GATE, 0, (struct wsrc_rank){0, 7}, &err), ST_INVALID);
	assert_non_null(strstr(err.text, "480 feed-forward rows cannot be shared by 7 ranks"));
}

/* A matrix of whole pages, all of which but the rank's are made unreadable. */
static void a_rank_touches_its_own_bytes_alone(void **state)
{
	struct spec_layer y = {.mixer = SPEC_ATTENTION, .heads = 8, .kv_heads = 8, .k_dim = 8, .v_dim = 1024};
	struct spec s = {.n_layers = 1, .dim = 64, .layers = &y};
	uint32_t rows = 64, cols = 8192, size = 8;
	size_t bytes = (size_t)rows * cols * 4, part = bytes / size;
	float *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	      *out = mem_array(float, part / 4);
	struct ckpt_tensor t = {.name = {"t", 1}, .type = GGTYPE_F32, .data = (const uint8_t *)data, .bytes = bytes};
	struct errbuf err = {0};

	assert_true(data != MAP_FAILED);
	for (size_t i = 0; i < bytes / 4; i++) data[i] = (float)i;
	for (int by_cols = 0; by_cols < 2; by_cols++)
		for (uint32_t rank = 0; rank < size; rank++) {
			struct wsrc w = {.t = &t,
					 .type = GGTYPE_F32,
					 .rows = rows,
					 .cols = cols,
					 .tensor_rows = rows,
					 .tensor_cols = cols,
					 .pieces = {{rows, 0, rows, rows}},
					 .n_pieces = 1};
			uint32_t from = rank * cols / size;

			assert_int_equal(mprotect(data, bytes, PROT_NONE), 0);
			for (uint32_t r = 0; by_cols && r < rows; r++)
				assert_int_equal(mprotect(data + (size_t)r * cols + from, cols * 4 / size, PROT_READ),
						 0);
			if (!by_cols) assert_int_equal(mprotect((char *)data + rank * part, part, PROT_READ), 0);
			assert_int_equal(
				wsrc_shard(&w, &s, by_cols ? SPEC_O : SPEC_Q, 0, (struct wsrc_rank){rank, size}, &err),
				ST_OK);
			assert_int_equal(wsrc_file_bytes(&w), part);
			assert_int_equal(wsrc_rows(&w, 0, w.rows, out, &err), ST_OK);
			assert_true(out[5] == (float)(by_cols ? from + 5 : rank * part / 4 + 5));
		}
	munmap(data, bytes);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_put_together_are_the_whole),
		cmocka_unit_test(sizes_that_cannot_be_are_refused_with_those_that_can),
		cmocka_unit_test(a_rank_touches_its_own_bytes_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
