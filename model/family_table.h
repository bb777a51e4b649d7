/* family_table.h - the list of families. A new one is a name here, and a struct family of this name in a file of its
 * own. */
#ifndef SLUICE_FAMILY_TABLE_H
#define SLUICE_FAMILY_TABLE_H

#include "model/family_impl.h"

#define FAMILIES(F)    \
	F(llama)       \
	F(mistral)     \
	F(mixtral)     \
	F(qwen2)       \
	F(qwen2_moe)   \
	F(qwen3)       \
	F(qwen3_moe)   \
	F(qwen3_next)  \
	F(qwen3_5)     \
	F(qwen3_5_moe) \
	F(gemma2)      \
	F(gemma3)      \
	F(phi3)        \
	F(deepseek_v2) \
	F(deepseek_v3) \
	F(gpt_oss)     \
	F(smollm3)

#define FAMILY_AS_DECLARATION(name) extern const struct family family_##name;
FAMILIES(FAMILY_AS_DECLARATION)
#undef FAMILY_AS_DECLARATION

/* Fills r->s from r->c by the family that it names; family_release() afterwards, also after an error (r->rc). */
void family_read(struct family_reading *r, const struct spec_opts *opts);
void family_release(struct family_reading *r);

#endif
