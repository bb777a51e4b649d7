/* masktrie.c - see masktrie.h. Tokens are sorted by their bytes; then each node is met in order. */
#include "worker/masktrie.h"

#include "common/mem.h"

#include <string.h>

static int token_compare(const void *a, const void *b, void *ctx)
{
	uint32_t a_id = *(const uint32_t *)a, b_id = *(const uint32_t *)b;
	size_t a_len, b_len;
	const char *a_bytes = tokbytes_of(ctx, a_id, &a_len), *b_bytes = tokbytes_of(ctx, b_id, &b_len);
	int c = memcmp(a_bytes, b_bytes, min_size(a_len, b_len));

	if (c) return c;
	return a_len != b_len ? (a_len > b_len) - (a_len < b_len) : (a_id > b_id) - (a_id < b_id);
}

static void masktrie_sort(struct masktrie *t, struct tokbytes *tokens)
{
	t->ids = mem_array(uint32_t, tokens->n);
	for (uint32_t i = 0; i < tokens->n; i++) {
		size_t len;

		tokbytes_of(tokens, i, &len);
		if (len == 0 || len > MASKTRIE_LEN_MAX) continue;
		if (tokens->kinds[i] == TOKBYTES_PLAIN || tokens->kinds[i] == TOKBYTES_ADDED) t->ids[t->n_ids++] = i;
	}
	qsort_r(t->ids, t->n_ids, sizeof(*t->ids), token_compare, tokens);
}

/* The nodes from depth `from` on of path[0..n] are complete. */
static void masktrie_close(struct masktrie *t, const uint32_t *path, size_t from, size_t n)
{
	for (size_t d = n + 1; d-- > from;) {
		struct masktrie_node *node = &t->nodes[path[d]];

		node->skip = t->n;
		if (d > 0) {
			struct masktrie_node *up = &t->nodes[path[d - 1]];

			if (up->deepest < node->deepest) up->deepest = node->deepest;
		}
	}
}

void masktrie_init(struct masktrie *t, const struct tokbytes *tokens)
{
	uint32_t path[MASKTRIE_LEN_MAX + 1] = {0};
	size_t path_len = 0, cap = 0;
	const char *last = "";

	*t = (struct masktrie){0};
	masktrie_sort(t, (struct tokbytes *)tokens);
	mem_reserve(t->nodes, cap, (size_t)t->n_ids + 2);
	t->nodes[t->n++] = (struct masktrie_node){0};
	for (uint32_t i = 0; i < t->n_ids; i++) {
		size_t len, common = 0;
		const char *s = tokbytes_of(tokens, t->ids[i], &len);

		while (common < path_len && common < len && s[common] == last[common]) common++;
		masktrie_close(t, path, common + 1, path_len);
		for (path_len = common; path_len < len;) {
			mem_reserve(t->nodes, cap, (size_t)t->n + 2);
			t->nodes[t->n] = (struct masktrie_node){.tokens = i,
								.byte = (uint8_t)s[path_len],
								.depth = (uint16_t)(path_len + 1),
								.deepest = (uint16_t)(path_len + 1)};
			path[++path_len] = t->n++;
		}
		last = s;
		t->depth_max = max_u32(t->depth_max, (uint32_t)len);
	}
	masktrie_close(t, path, 0, path_len);
	t->nodes[t->n] = (struct masktrie_node){.tokens = t->n_ids};
}

void masktrie_release(struct masktrie *t)
{
	free(t->nodes);
	free(t->ids);
	*t = (struct masktrie){0};
}

size_t masktrie_bytes(const struct masktrie *t)
{
	return (size_t)t->n * sizeof(*t->nodes) + (size_t)t->n_ids * sizeof(*t->ids);
}
