/* mask.h - constrained decoding at the worker: which tokens a sequence's grammar allows next.
 *
 * A grammar (proto/gram.h) is loaded once for all sequences that bring the same bytes. Walks are made deterministic
 * lazily; the allowed tokens of a place in the grammar are found by walking the vocabulary's trie once and are kept, so
 * that a place that comes again (inside a string, say) costs a copy. All memory is bounded: caches are thrown away when
 * full, and only cost time.
 *
 * A sequence's place follows from its grammar and output tokens alone, so preemption and replay give the same masks.
 *
 * Control tokens are never allowed, except the stop ids where the output may end. When few output tokens are left, only
 * tokens are allowed after which the output can still end in time, so an answer is whole unless its limit was too small
 * from the start. */
#ifndef SLUICE_MASK_H
#define SLUICE_MASK_H

#include "common/base.h"
#include "common/errbuf.h"
#include "model/tokbytes.h"

struct masks;    /* of one engine */
struct mask_seq; /* one sequence's place */

struct mask_stats {
	uint64_t n_grammars, n_fills, n_walks; /* walks: through some of the vocabulary, that no cache had */
	size_t bytes;
};

/* Takes t. bytes_max: of all caches together. */
struct masks *masks_new(struct tokbytes *t, size_t bytes_max);
void masks_free(struct masks *m);
void masks_stats(const struct masks *m, struct mask_stats *out);

static inline size_t mask_words(uint32_t vocab)
{
	return ((size_t)vocab + 63) / 64;
}

/* A sequence with n_output output tokens already. The grammar is not kept. ST_CORRUPT: bad grammar bytes, or output
 * tokens that it does not allow. ST_LIMIT. */
int masks_start(struct masks *m, const void *grammar, size_t len, const uint32_t *output, uint32_t n_output,
		struct mask_seq **out, struct errbuf *err) MUST_CHECK;
void masks_end(struct masks *m, struct mask_seq *s);

/* The token that was drawn. One that the grammar does not allow makes the place a dead end: nothing more is allowed. A
 * stop id at a place where the output may end changes nothing. */
void mask_append(struct masks *m, struct mask_seq *s, uint32_t token);

/* Writes the allowed tokens, a bit each (bits: mask_words(vocab)). n_left: output tokens that may still be drawn, this
 * one included. Returns the number of allowed tokens, 0 at a dead end. *may_go_on: more than the stop ids is allowed.
 */
uint32_t mask_fill(struct masks *m, struct mask_seq *s, const uint32_t *stop_ids, uint32_t n_stop, uint32_t n_left,
		   uint64_t *bits, bool *may_go_on);

#endif
