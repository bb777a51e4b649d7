/* ggtype.c - see ggtype.h. */
#include "common/ggtype.h"

#define GGTYPE_AS_INFO(name, number, len, bytes) {#name, number, len, bytes},
static const struct ggtype_info infos[] = {GGTYPES(GGTYPE_AS_INFO)};
#undef GGTYPE_AS_INFO

const struct ggtype_info *ggtype_info(uint32_t number)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(infos); i++)
		if (infos[i].number == number) return &infos[i];
	return NULL;
}

size_t ggtype_row_bytes(enum ggtype type, uint64_t cols)
{
	const struct ggtype_info *t = ggtype_info(type);

	CHECK(t && cols % t->block_len == 0);
	return (size_t)(cols / t->block_len) * t->block_bytes;
}
