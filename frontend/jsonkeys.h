/* jsonkeys.h - looks up many names in an object that has few keys: nearly all answers are no, and cost next to nothing.
 *
 * A filter of the keys stands before jansson's table, which costs a hash of the name for each question. Used where a table of
 * parameters is read: a request gives a handful of a hundred. The object must not change meanwhile. */
#ifndef SLUICE_JSONKEYS_H
#define SLUICE_JSONKEYS_H

#include "common/base.h"

#include <jansson.h>
#include <string.h>

struct jsonkeys {
	const json_t *object;
	uint64_t has[4]; /* a bit each for the ends and the length of a key */
};

#define JSONKEYS_MIX(first, last, n) (((first) * 31u + (last) * 7u + (unsigned)(n)) & 255)
/* Of a string literal: a constant. */
#define JSONKEYS_BIT(name) JSONKEYS_MIX((unsigned char)(name)[0], (unsigned char)(name)[sizeof(name) - 2], sizeof(name) - 1)

static inline unsigned jsonkeys_bit(const char *name)
{
	size_t n = strlen(name);

	return n ? JSONKEYS_MIX((unsigned char)name[0], (unsigned char)name[n - 1], n) : 0;
}

static inline void jsonkeys_init(struct jsonkeys *k, const json_t *object)
{
	const char *key;
	json_t *value;

	*k = (struct jsonkeys){.object = object};
	json_object_foreach((json_t *)object, key, value)
	{
		unsigned bit = jsonkeys_bit(key);

		k->has[bit / 64] |= 1ull << (bit % 64);
	}
}

/* NULL when the object does not have it. bit: the name's. */
static inline json_t *jsonkeys_get(const struct jsonkeys *k, const char *name, unsigned bit)
{
	return k->has[bit / 64] >> (bit % 64) & 1 ? json_object_get(k->object, name) : NULL;
}

#endif
