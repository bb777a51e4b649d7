/* gguf_touch.c - see gguf_touch.h. */
#include "tests/support/gguf_touch.h"

#include "common/mem.h"

#include <string.h>

static uint64_t gguf_touch_bytes(const void *data, uint64_t len)
{
	const uint8_t *p = data;
	uint64_t sum = len, i;

	for (i = 0; i < len; i++) sum = sum * 31 + p[i];
	return sum;
}

static uint64_t gguf_touch_elements(const struct gguf_kv *kv)
{
	enum gguf_kind kind = kv->kind == GGUF_ARR ? kv->elem_kind : kv->kind;
	uint64_t sum = 0, pos = 0, n = 0, i;
	struct gguf_str s;

	if (kind == GGUF_STR) {
		for (; gguf_array_next_str(kv, &pos, &s); n++) sum += gguf_touch_bytes(s.s, s.len);
		CHECK(n == kv->n && pos == kv->bytes);
		return sum;
	}
	for (i = 0; i < kv->n; i++) {
		double d = gguf_array_f64(kv, i);

		sum += gguf_array_u64(kv, i) + (uint64_t)gguf_array_i64(kv, i) + (d > 0);
	}
	return sum;
}

/* Every accessor on every key: each must answer or refuse. */
static uint64_t gguf_touch_typed(const struct gguf *g, const char *key)
{
	const struct gguf_kv *arr = NULL;
	struct gguf_str s = {"", 0};
	struct errbuf err;
	uint64_t u = 0, sum = 0;
	double d = 0;
	bool b = false;
	int kind;

	sum += (uint64_t)gguf_get_u64(g, key, 0, UINT64_MAX, &u, &err) + u;
	sum += (uint64_t)gguf_get_u64_or(g, key, 1, 100, 7, &u, &err) + u;
	sum += (uint64_t)gguf_get_f64(g, key, -1, 1, &d, &err) + (d > 0);
	sum += (uint64_t)gguf_get_f64_or(g, key, -1, 1, 0.5, &d, &err) + (d > 0);
	sum += (uint64_t)gguf_get_bool_or(g, key, true, &b, &err) + b;
	if (gguf_get_str(g, key, &s, &err) == ST_OK) sum += gguf_touch_bytes(s.s, s.len);
	for (kind = 0; kind < GGUF_KIND_COUNT; kind++)
		if (gguf_get_array(g, key, (enum gguf_kind)kind, &arr, &err) == ST_OK) sum += arr->n;
	return sum;
}

uint64_t gguf_touch(const struct gguf *g)
{
	uint64_t sum = gguf_version(g), room;
	const uint8_t *data = gguf_data(g, &room);
	char *name;
	size_t i;

	for (i = 0; i < gguf_kv_count(g); i++) {
		const struct gguf_kv *kv = gguf_kv_at(g, i);

		name = mem_strndup(kv->key.s, kv->key.len);
		CHECK(gguf_find(g, name) == kv);
		sum += gguf_touch_elements(kv) + gguf_touch_typed(g, name);
		free(name);
	}
	for (i = 0; i < gguf_tensor_count(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);

		name = mem_strndup(t->name.s, t->name.len);
		CHECK(gguf_find_tensor(g, name) == t);
		CHECK(t->data >= data && t->bytes <= room && (uint64_t)(t->data - data) <= room - t->bytes);
		sum += gguf_touch_bytes(t->data, t->bytes);
		free(name);
	}
	return sum;
}
