/* Weights in device memory: every row is what the checkpoint says, whatever the threads; views stay where they lie; the
 * process never holds a file's pages and their copies together; what is not finite ends the load with file, tensor and
 * place. */
#include "worker/weights.h"

#include "common/mem.h"
#include "tests/support/golden.h"
#include "tests/support/test_file.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct model {
	struct ckpt *c;
	struct spec s;
	struct kdev *dev;
	struct weights w;
	uint64_t done, total;
	uint32_t n_calls;
	bool went_back;
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct model *m = ctx;

	m->went_back |= done < m->done || done > total;
	m->done = done;
	m->total = total;
	m->n_calls++;
}

static void model_open(struct model *m, const char *path, enum kact act)
{
	struct kdev_opts opts = {.level_max = KLEVEL_AVX512, .act = act, .n_threads = 1, .scratch_bytes = MIB};
	struct errbuf err = {0};

	*m = (struct model){0};
	if (ckpt_open(&m->c, path, &err) != ST_OK || spec_read(&m->s, m->c, &(struct spec_opts){0}, &err) != ST_OK ||
	    kdev_open_cpu(&m->dev, &opts, &err) != ST_OK)
		fail_msg("%s", err.text);
}

static int model_load(struct model *m, struct wsrc_rank rank, uint32_t n_threads, struct errbuf *err)
{
	return weights_load(&m->w, m->dev, &m->s, m->c, rank, n_threads, on_progress, m, err);
}

static void model_close(struct model *m)
{
	weights_release(&m->w);
	kdev_close(m->dev);
	spec_release(&m->s);
	ckpt_close(m->c);
}

/* ---- rows ---- */

static struct wsrc source(const struct model *m, enum spec_role role, uint32_t layer, struct wsrc_rank rank,
			  uint32_t ix)
{
	struct errbuf err = {0};
	struct wsrc w;

	if (wsrc_find(&w, &m->s, m->c, role, layer, wsrc_share_ix(&m->s, role, layer, rank, ix), &err) != ST_OK ||
	    wsrc_shard(&w, &m->s, role, layer, rank, &err) != ST_OK)
		fail_msg("%s", err.text);
	w.dequant = kdequant_row;
	return w;
}

/* The device's own reader of rows against rows of the source put into a matrix by themselves. */
static void expect_matrix(struct model *m, const struct kmat *mat, const struct wsrc *src)
{
	const struct kops *ops = kdev_ops(m->dev);
	size_t bytes = ops->mat_bytes(m->dev, src->type, src->rows, src->cols),
	       floats = (size_t)src->rows * src->cols * sizeof(float);
	void *rows = mem_array(uint8_t, src->rows * ggtype_row_bytes(src->type, src->cols)),
	     *memory = kdev_alloc(m->dev, bytes);
	float *got = kdev_alloc(m->dev, floats), *want = kdev_alloc(m->dev, floats);
	uint32_t *ids = mem_array(uint32_t, src->rows);
	struct errbuf err = {0};
	struct kmat plain;

	assert_int_equal(mat->rows, src->rows);
	assert_int_equal(mat->cols, src->cols);
	assert_int_equal(mat->type, src->type);
	assert_int_equal(wsrc_rows(src, 0, src->rows, rows, &err), ST_OK);
	ops->mat_init(m->dev, &plain, memory, src->type, src->rows, src->cols);
	ops->mat_put(m->dev, &plain, 0, src->rows, rows);
	for (uint32_t i = 0; i < src->rows; i++) ids[i] = i;
	ops->embed(m->dev, got, mat, ids, src->rows, 1);
	ops->embed(m->dev, want, &plain, ids, src->rows, 1);
	assert_int_equal(kdev_sync(m->dev), ST_OK);
	assert_memory_equal(got, want, floats);
	free(ids);
	free(rows);
	kdev_release(m->dev, got, floats);
	kdev_release(m->dev, want, floats);
	kdev_release(m->dev, memory, bytes);
}

static void expect_vectors(struct model *m, const float *vec, enum spec_role role, uint32_t layer,
			   struct wsrc_rank rank, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct wsrc src = source(m, role, layer, rank, i);
		uint32_t len = src.rows * src.cols;
		float *want = mem_array(float, len), *got = mem_array(float, len);
		struct errbuf err = {0};

		assert_int_equal(wsrc_floats(&src, want, &err), ST_OK);
		kdev_download(m->dev, got, vec + (size_t)i * len, len * sizeof(float));
		assert_int_equal(kdev_sync(m->dev), ST_OK);
		assert_memory_equal(got, want, len * sizeof(float));
		free(want);
		free(got);
	}
}

static void expect_role(struct model *m, enum spec_role role, uint32_t layer, struct wsrc_rank rank)
{
	const struct weights_layer *y = &m->w.layers[layer];
	enum spec_form form = spec_role_form(role);
	struct errbuf err = {0};
	uint32_t n;

	if ((spec_role_scope(role) == SPEC_MODEL) != (layer == m->s.n_layers) || !spec_has(&m->s, role, layer)) {
		assert_null(y->mat[role].data);
		assert_null(y->each[role]);
		assert_null(y->vec[role]);
		return;
	}
	assert_int_equal(wsrc_share(&n, &m->s, role, layer, rank, &err), ST_OK);
	if (form == SPEC_VEC || form == SPEC_VECS) {
		expect_vectors(m, y->vec[role], role, layer, rank, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct wsrc src = source(m, role, layer, rank, i);

		expect_matrix(m, form == SPEC_EACH ? &y->each[role][i] : &y->mat[role], &src);
	}
}

static void load_and_compare(const char *name, enum kact act, struct wsrc_rank rank, uint32_t n_threads)
{
	struct model m;
	char relpath[100], path[300];
	struct errbuf err = {0};
	uint64_t viewed;
	size_t bytes;

	snprintf(relpath, sizeof(relpath), "tiny/%s", name);
	if (!golden_folder(relpath, path, sizeof(path))) return;
	model_open(&m, path, act);
	if (weights_bytes(m.dev, &m.s, m.c, rank, &bytes, &viewed, &err) != ST_OK ||
	    model_load(&m, rank, n_threads, &err) != ST_OK)
		fail_msg("%s: %s", name, err.text);
	assert_int_equal(bytes, m.w.arena_bytes);
	assert_int_equal(viewed, m.w.viewed_bytes);
	assert_true(m.total > 0 && m.done == m.total && m.n_calls >= 1 && !m.went_back);
	for (uint32_t layer = 0; layer <= m.s.n_layers; layer++)
		for (int role = 0; role < SPEC_ROLE_COUNT; role++) expect_role(&m, role, layer, rank);
	model_close(&m);
}

static void every_row_is_what_the_checkpoint_says(void **state)
{
	static const char *const names[] = {"gguf-llama", "gguf-qwen3moe", "qwen2",       "phi3",       "gemma3",
					    "gpt-oss",    "deepseek-v2",   "deepseek-v3", "qwen3-next", "qwen3.5",
					    "llama-gptq", "qwen2-awq",     "qwen3-fp8",   "mixtral"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		load_and_compare(names[i], KACT_Q8, (struct wsrc_rank){0, 1}, 3);
		load_and_compare(names[i], KACT_F32, (struct wsrc_rank){0, 1}, 1);
		if (strncmp(names[i], "gguf", 4) != 0) load_and_compare(names[i], KACT_Q8, (struct wsrc_rank){1, 2}, 2);
	}
}

/* ---- a file of some size ---- */

static char *large_file(enum ggtype type)
{
	char *path = test_file_temp(type == GGTYPE_F32 ? "large-f32.gguf" : "large.gguf");
	struct tiny_llama t;

	tiny_llama_init(&t);
	t.dim = 512;
	t.heads = 8;
	t.kv_heads = 8;
	t.ffn = 2048;
	t.mat_type = t.embed_type = type;
	t.tied = true;
	tiny_llama_save(&t, path);
	return path;
}

static uint64_t status_bytes(const char *file, const char *field)
{
	char line[200];
	uint64_t kib = UINT64_MAX;
	FILE *f = fopen(file, "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, field, strlen(field)) == 0) kib = strtoull(line + strlen(field), NULL, 10);
	fclose(f);
	assert_true(kib != UINT64_MAX);
	return kib * KIB;
}

/* The highest resident size between two points in time, the checkpoint being open all the while. */
static void pages_and_copies_are_never_held_together(void **state)
{
	struct model m;
	struct errbuf err = {0};
	uint64_t before, peak, after, file;
	char *path;
	FILE *f;

#ifdef SLUICE_SAN
	skip(); /* a sanitizer's own memory grows with what is touched */
#endif
	path = large_file(GGTYPE_F32);
	model_open(&m, path, KACT_Q8);
	f = fopen("/proc/self/clear_refs", "w");
	if (!f || fputs("5", f) < 0 || fclose(f) != 0) {
		model_close(&m);
		free(path);
		skip();
	}
	before = status_bytes("/proc/self/status", "VmRSS:");
	file = ckpt_bytes(m.c);
	assert_int_equal(model_load(&m, (struct wsrc_rank){0, 1}, 2, &err), ST_OK);
	peak = status_bytes("/proc/self/status", "VmHWM:");
	after = status_bytes("/proc/self/status", "VmRSS:");
	assert_true(m.w.viewed_bytes == 0 && m.w.arena_bytes > 30 * MIB && file > 30 * MIB);
	/* The arena takes huge pages: up to one more. */
	if (peak > before + m.w.arena_bytes + 6 * MIB || after > before + m.w.arena_bytes + 3 * MIB)
		fail_msg("resident: %llu before, %llu at most, %llu after; weights %zu", (unsigned long long)before,
			 (unsigned long long)peak, (unsigned long long)after, m.w.arena_bytes);
	model_close(&m);
	free(path);
}

/* With dequantized products the plain rows are used where they lie: nothing but vectors is copied. */
static void views_lie_in_the_file(void **state)
{
	char *path = large_file(GGTYPE_Q8_0);
	struct model m;
	struct errbuf err = {0};
	const struct ckpt_tensor *t;

	model_open(&m, path, KACT_F32);
	assert_int_equal(model_load(&m, (struct wsrc_rank){0, 1}, 2, &err), ST_OK);
	t = ckpt_find(m.c, "blk.1.ffn_up.weight");
	assert_ptr_equal(m.w.layers[1].mat[SPEC_UP].data, t->data);
	assert_true(m.w.viewed_bytes > 5 * MIB && m.w.arena_bytes < 64 * KIB);
	assert_int_equal(m.total, m.w.viewed_bytes);
	model_close(&m);
	free(path);
}

static void the_arena_does_not_depend_on_threads(void **state)
{
	char *path = large_file(GGTYPE_Q8_0), *first = NULL;
	struct errbuf err = {0};

	for (uint32_t n = 1; n <= 4; n++) {
		struct model m;
		char *copy;

		model_open(&m, path, KACT_Q8);
		assert_int_equal(model_load(&m, (struct wsrc_rank){0, 1}, n, &err), ST_OK);
		copy = mem_array(char, m.w.arena_bytes);
		kdev_download(m.dev, copy, m.w.arena, m.w.arena_bytes);
		assert_int_equal(kdev_sync(m.dev), ST_OK);
		if (first) assert_memory_equal(first, copy, m.w.arena_bytes);
		if (first)
			free(copy);
		else
			first = copy;
		model_close(&m);
	}
	free(first);
	free(path);
}

/* ---- errors ---- */

static void one_bad_number(enum ggtype type, const char *tensor, uint64_t at, const void *bytes, size_t n,
			   const char *want)
{
	char *path = test_file_temp("bad.gguf");
	struct gguf_writer g;
	struct tiny_llama t;

	tiny_llama_init(&t);
	t.mat_type = type;
	gguf_writer_init(&g);
	tiny_llama_fill(&g, &t);
	memcpy(gguf_writer_find_tensor(&g, tensor)->data + at, bytes, n);
	gguf_writer_save(&g, path);
	gguf_writer_release(&g);
	for (int act = 0; act < 2; act++)
		for (uint32_t threads = 1; threads <= 3; threads += 2) {
			struct errbuf err = {0};
			struct model m;

			model_open(&m, path, act ? KACT_Q8 : KACT_F32);
			assert_int_equal(model_load(&m, (struct wsrc_rank){0, 1}, threads, &err), ST_INVALID);
			if (!strstr(err.text, "bad.gguf: tensor ") || !strstr(err.text, want))
				fail_msg("%s; expected %s", err.text, want);
			model_close(&m);
		}
	free(path);
}

static void numbers_that_are_not_finite_end_the_load(void **state)
{
	static const uint8_t half_nan[2] = {0, 0x7e}, half_inf[2] = {0, 0xfc}, float_nan[4] = {1, 0, 0x80, 0x7f},
			     float_inf[4] = {0, 0, 0x80, 0xff};

	one_bad_number(GGTYPE_Q8_0, "blk.1.ffn_up.weight", 17 * 2 * 34 + 34, half_nan, 2,
		       "blk.1.ffn_up.weight: a scale of row 17, block 1 (columns from 32 on) is not finite");
	one_bad_number(GGTYPE_Q4_1, "blk.0.attn_k.weight", 2, half_inf, 2,
		       "blk.0.attn_k.weight: a scale of row 0, block 0");
	one_bad_number(GGTYPE_F16, "blk.0.attn_q.weight", (3 * 64 + 5) * 2, half_nan, 2,
		       "blk.0.attn_q.weight: row 3, column 5 is not finite");
	one_bad_number(GGTYPE_F32, "blk.0.ffn_down.weight", (63 * 128 + 127) * 4, float_nan, 4,
		       "blk.0.ffn_down.weight: row 63, column 127");
	one_bad_number(GGTYPE_F32, "blk.1.attn_norm.weight", 9 * 4, float_inf, 4,
		       "blk.1.attn_norm.weight: element 9 is not finite");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_and_copies_are_never_held_together),
		cmocka_unit_test(every_row_is_what_the_checkpoint_says),
		cmocka_unit_test(views_lie_in_the_file),
		cmocka_unit_test(the_arena_does_not_depend_on_threads),
		cmocka_unit_test(numbers_that_are_not_finite_end_the_load),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
