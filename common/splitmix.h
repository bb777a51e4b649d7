/* splitmix.h - splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): a small generator of random
 * numbers that follow from their seed. Not for secrets. */
#ifndef SLUICE_SPLITMIX_H
#define SLUICE_SPLITMIX_H

#include <stdint.h>

/* The finaliser: every bit of x changes about half of the result's. */
static inline uint64_t splitmix_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* The next number; moves the state on. */
static inline uint64_t splitmix_next(uint64_t *state)
{
	return splitmix_mix(*state += 0x9e3779b97f4a7c15ull);
}

#endif
