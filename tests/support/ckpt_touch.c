/* ckpt_touch.c - see ckpt_touch.h. */
#include "tests/support/ckpt_touch.h"

#include "common/mem.h"
#include "tests/support/gguf_touch.h"

#include <string.h>

static uint64_t tensor_touch(const struct ckpt *c, const struct ckpt_tensor *t)
{
	const struct ggtype_info *info = ggtype_info(t->type);
	char *name = mem_strndup(t->name.s, t->name.len);
	uint64_t sum = 0, n = 1;

	CHECK(t->n_dims <= CKPT_DIMS_MAX && t->file < ckpt_file_count(c));
	CHECK(strcmp(ckpt_type_name(t->type), "unknown") != 0);
	for (uint32_t d = 0; d < t->n_dims; d++) n *= t->dims[d];
	if (info) CHECK(t->bytes == n / info->block_len * info->block_bytes);
	if (strlen(name) == t->name.len) CHECK(ckpt_find(c, name) == t);
	ckpt_will_need(t);
	for (uint64_t i = 0; i < t->bytes; i++) sum += t->data[i];
	ckpt_drop(t, 0, t->bytes);
	if (t->bytes) sum += t->data[t->bytes - 1];
	free(name);
	return sum;
}

uint64_t ckpt_touch(const struct ckpt *c)
{
	uint64_t sum = strlen(ckpt_path(c)) + strlen(ckpt_shown_path(c)) + ckpt_bytes(c);

	CHECK((ckpt_gguf(c) == NULL) == (ckpt_config(c) != NULL));
	if (ckpt_gguf(c)) sum += gguf_touch(ckpt_gguf(c));
	if (ckpt_config(c)) CHECK(json_is_object(ckpt_config(c)));
	for (size_t i = 0; i < ckpt_file_count(c); i++) sum += strlen(ckpt_file_name(c, i));
	for (size_t i = 0; i < ckpt_tensor_count(c); i++) sum += tensor_touch(c, ckpt_tensor_at(c, i));
	CHECK(!ckpt_find(c, "no such tensor"));
	return sum;
}
