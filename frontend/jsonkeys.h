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

static inline unsigned jsonkeys_bit(const char *name, size_t n)
{
	return n ? ((unsigned char)name[0] * 31u + (unsigned char)name[n - 1] * 7u + (unsigned)n) & 255 : 0;
}

static inline void jsonkeys_init(struct jsonkeys *k, const json_t *object)
{
	const char *key;
	json_t *value;

	*k = (struct jsonkeys){.object = object};
	json_object_foreach((json_t *)object, key, value)
	{
		unsigned bit = jsonkeys_bit(key, strlen(key));

		k->has[bit / 64] |= 1ull << (bit % 64);
	}
}

/* NULL when the object does not have it. The name has n bytes. */
static inline json_t *jsonkeys_get(const struct jsonkeys *k, const char *name, size_t n)
{
	unsigned bit = jsonkeys_bit(name, n);

	return k->has[bit / 64] >> (bit % 64) & 1 ? json_object_get(k->object, name) : NULL;
}

#endif
