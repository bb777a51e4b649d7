/* slab.h - memory for many objects of one size, close together.
 *
 * Loops that go through thousands of objects spend much of their time on translating addresses when each object lies in a page of its own,
 * most of all in a virtual machine. Chunks here are as large as huge pages and ask the kernel for them. They are kept until the slab is
 * released: it holds as much as there ever was at a time, which is its owner's to bound. */
#ifndef SLUICE_SLAB_H
#define SLUICE_SLAB_H

#include "common/base.h"

struct slab {
	size_t size; /* of an object, a multiple of SLAB_ALIGN */
	void **free; /* (n_free) a stack: the last one given is the next one taken */
	size_t n_free, free_cap;
	void **chunks;
	size_t n_chunks, chunks_cap;
};

#define SLAB_ALIGN 64 /* a cache line */

/* Objects of at most SLAB_OBJECT_MAX bytes. */
#define SLAB_OBJECT_MAX 65536

void slab_init(struct slab *s, size_t size);
/* All objects go with it. */
void slab_release(struct slab *s);

/* Zeroed memory, aligned to SLAB_ALIGN; aborts when out of memory. */
void *slab_take(struct slab *s);
void slab_give(struct slab *s, void *object);

#endif
