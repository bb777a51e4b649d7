/* mask.c - see mask.h.
 *
 * Owns the grammars and the sequences. A sequence's place is exact (maskplace.h) and its own; what is shared and kept
 * is only how the vocabulary goes through a grammar (maskdfa.h), so it can be thrown away at any time. Grammars are
 * kept after their last sequence until memory is needed; the ones that were not used for the longest time lose theirs
 * first. */
#include "worker/mask.h"

#include "common/list.h"
#include "common/map.h"
#include "common/mem.h"
#include "proto/gram.h"
#include "worker/maskdfa.h"
#include "worker/maskfill.h"

#include <string.h>
#include <xxhash.h>

struct mask_grammar {
	struct list_link link; /* masks.grammars */
	uint32_t n_seqs;
	uint64_t hash;
	void *wire; /* as it came, to tell it from others of the same hash */
	size_t wire_len, bytes;
	struct gram *gram;
	struct maskdfa dfa;
};

struct masks {
	struct tokbytes *tokens;
	struct masktrie trie;
	size_t bytes_max, bytes; /* of all grammars */
	struct list grammars;    /* the one used last comes first */
	struct map by_hash;      /* those that were the first of their hash */
	struct maskfill_scratch scratch;
	uint64_t n_fills, n_walks;
};

struct mask_seq {
	struct mask_grammar *grammar;
	struct maskframes frames;
	struct maskplace place;
	uint32_t compact_at; /* frames at which unused ones are looked for */
	bool is_dead;
};

struct masks *masks_new(struct tokbytes *t, size_t bytes_max)
{
	struct masks *m = mem_new(struct masks);

	m->tokens = t;
	m->bytes_max = bytes_max;
	masktrie_init(&m->trie, t);
	list_init(&m->grammars);
	map_init(&m->by_hash);
	return m;
}

/* ---- grammars ---- */

/* Brings the bytes up to date after anything was done with the grammar. */
static void grammar_count(struct masks *m, struct mask_grammar *g)
{
	const struct gram *gram = g->gram;
	size_t bytes = sizeof(*g) + g->wire_len + maskdfa_bytes(&g->dfa);

	bytes += gram->n_states * (4 * sizeof(uint32_t) + 1) + gram->n_edges * sizeof(*gram->edges);
	bytes += gram->n_rules * sizeof(uint32_t) + gram->n_calls * sizeof(*gram->calls);
	m->bytes += bytes - g->bytes;
	g->bytes = bytes;
}

static void grammar_free(struct masks *m, struct mask_grammar *g)
{
	CHECK(g->n_seqs == 0);
	list_remove(&m->grammars, &g->link);
	if (map_get(&m->by_hash, g->hash) == g) map_remove(&m->by_hash, g->hash);
	m->bytes -= g->bytes;
	maskdfa_release(&g->dfa);
	gram_free(g->gram);
	free(g->wire);
	free(g);
}

/* Throws away what is kept, the longest unused first, until it fits again. */
static void masks_trim(struct masks *m)
{
	for (struct list_link *e = m->grammars.head.prev; m->bytes > m->bytes_max && e != &m->grammars.head;) {
		struct mask_grammar *g = CONTAINER_OF(e, struct mask_grammar, link);

		e = e->prev;
		if (g->n_seqs == 0) {
			grammar_free(m, g);
		} else {
			maskdfa_reset(&g->dfa);
			grammar_count(m, g);
		}
	}
}

static void grammar_use(struct masks *m, struct mask_grammar *g)
{
	list_remove(&m->grammars, &g->link);
	list_push_front(&m->grammars, &g->link);
}

static int grammar_get(struct masks *m, const void *data, size_t len, struct mask_grammar **out, struct errbuf *err)
{
	uint64_t hash = XXH3_64bits(data, len);
	struct mask_grammar *g = map_get(&m->by_hash, hash);
	struct gram *gram;
	int rc;

	if (g && g->wire_len == len && memcmp(g->wire, data, len) == 0) {
		grammar_use(m, g);
		*out = g;
		return ST_OK;
	}
	rc = gram_load(&gram, data, len, err);
	if (rc != ST_OK) return rc;
	*out = mem_new(struct mask_grammar);
	**out = (struct mask_grammar){.hash = hash, .wire = mem_dup(data, len, 1), .wire_len = len, .gram = gram};
	maskdfa_init(&(*out)->dfa, gram, &m->trie, m->tokens->n);
	list_push_front(&m->grammars, &(*out)->link);
	if (!g) map_put(&m->by_hash, hash, *out);
	grammar_count(m, *out);
	return ST_OK;
}

void masks_free(struct masks *m)
{
	if (!m) return;
	LIST_EACH(&m->grammars, e, next) grammar_free(m, CONTAINER_OF(e, struct mask_grammar, link));
	map_release(&m->by_hash);
	maskfill_scratch_release(&m->scratch);
	masktrie_release(&m->trie);
	tokbytes_free(m->tokens);
	free(m);
}

void masks_stats(const struct masks *m, struct mask_stats *out)
{
	*out = (struct mask_stats){
		.n_grammars = m->grammars.len, .n_fills = m->n_fills, .n_walks = m->n_walks, .bytes = m->bytes};
}

/* ---- sequences ---- */

#define COMPACT_FRAMES 64 /* so few are never worth it */

static void seq_compact(struct mask_seq *s)
{
	if (s->frames.n < s->compact_at) return;
	maskplace_compact(&s->place, &s->frames);
	s->compact_at = max_u32(COMPACT_FRAMES, 2 * s->frames.n);
}

/* False: the token does not go on with what the grammar allows. */
static bool seq_read(struct masks *m, struct mask_seq *s, uint32_t token)
{
	size_t len;
	const char *bytes;

	if (token >= m->tokens->n) return false;
	bytes = tokbytes_of(m->tokens, token, &len);
	/* Where the output may end, a control token is taken for the one that ended it. */
	if (m->tokens->kinds[token] == TOKBYTES_SPECIAL || m->tokens->kinds[token] == TOKBYTES_UNUSED)
		return s->place.ends;
	if (len == 0 || len > MASKTRIE_LEN_MAX) return false;
	for (size_t i = 0; i < len; i++) {
		maskplace_read(&s->place, s->place.ways, s->place.n, &s->frames, &m->scratch.place, (uint8_t)bytes[i]);
		if (s->place.n == 0 && (i + 1 < len || !s->place.ends)) return false;
	}
	seq_compact(s);
	return true;
}

int masks_start(struct masks *m, const void *grammar, size_t len, const uint32_t *output, uint32_t n_output,
		struct mask_seq **out, struct errbuf *err)
{
	struct mask_grammar *g;
	struct mask_seq *s;
	int rc = grammar_get(m, grammar, len, &g, err);

	*out = NULL;
	if (rc != ST_OK) return rc;
	s = mem_new(struct mask_seq);
	s->grammar = g;
	s->compact_at = COMPACT_FRAMES;
	g->n_seqs++;
	maskframes_init(&s->frames, g->gram);
	maskplace_start(&s->place, &s->frames, &m->scratch.place);
	if (s->place.too_much)
		rc = err_set(err, ST_LIMIT, "the grammar begins in more than %d ways", MASKPLACE_WAYS_MAX);
	for (uint32_t i = 0; i < n_output && rc == ST_OK; i++)
		if (!seq_read(m, s, output[i]))
			rc = err_set(err, ST_CORRUPT, "output token %u, %u, is not what the grammar allows", i,
				     output[i]);
	masks_trim(m);
	if (rc == ST_OK)
		*out = s;
	else
		masks_end(m, s);
	return rc;
}

void masks_end(struct masks *m, struct mask_seq *s)
{
	s->grammar->n_seqs--;
	maskframes_release(&s->frames);
	maskplace_release(&s->place);
	free(s);
}

void mask_append(struct masks *m, struct mask_seq *s, uint32_t token)
{
	s->is_dead = s->is_dead || !seq_read(m, s, token);
}

/* ---- masks ---- */

/* Written out: the compiler's own is a call where a processor may lack the instruction. */
static uint32_t bits_count(const uint64_t *bits, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t x = bits[i];

		x -= x >> 1 & 0x5555555555555555ull;
		x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
		x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0Full;
		sum += x * 0x0101010101010101ull >> 56;
	}
	return (uint32_t)sum;
}

static bool bits_any(const uint64_t *bits, size_t n)
{
	uint64_t any = 0;

	for (size_t i = 0; i < n; i++) any |= bits[i];
	return any != 0;
}

/* What the end may cost behind the next token. Each byte takes one token at most; another is kept for the stop id where there is room,
 * so that clients see a whole answer and not one that was cut. When the end is out of reach already, the rest is as good as any. */
static uint32_t mask_cost_max(uint32_t cost, uint32_t n_left, bool has_stop)
{
	if (has_stop && n_left > 1 && cost < n_left) return n_left - 2;
	return n_left > 0 && cost <= n_left ? n_left - 1 : UINT32_MAX;
}

static bool mask_fill_text(struct masks *m, struct mask_seq *s, uint32_t n_left, bool has_stop, uint64_t *bits)
{
	size_t n = mask_words(m->tokens->n);
	uint32_t cost = maskplace_cost(&s->place, &s->frames);
	uint32_t cost_max = mask_cost_max(cost, n_left, has_stop);
	struct maskdfa *d = &s->grammar->dfa;

	memset(bits, 0, n * sizeof(*bits));
	if (s->is_dead) return false;
	if (!maskfill_run(d, &m->scratch, &s->frames, &s->place, cost_max, bits)) return false;
	/* A vocabulary without some byte may have no token for the shortest way. */
	if (cost_max != UINT32_MAX && !s->place.ends && !bits_any(bits, n))
		return maskfill_run(d, &m->scratch, &s->frames, &s->place, UINT32_MAX, bits);
	return true;
}

uint32_t mask_fill(struct masks *m, struct mask_seq *s, const uint32_t *stop_ids, uint32_t n_stop, uint32_t n_left,
		   uint64_t *bits, bool *may_go_on)
{
	size_t n_words = mask_words(m->tokens->n);
	bool ends = s->place.ends && !s->is_dead;

	m->n_fills++;
	m->n_walks -= s->grammar->dfa.n_walks;
	grammar_use(m, s->grammar);
	if (!mask_fill_text(m, s, n_left, n_stop > 0, bits)) {
		memset(bits, 0, n_words * sizeof(*bits));
		ends = false;
	}
	m->n_walks += s->grammar->dfa.n_walks;
	grammar_count(m, s->grammar);
	masks_trim(m);
	/* Stop ids end the output: they are for where it may end, and nowhere else. */
	for (uint32_t i = 0; i < n_stop; i++)
		if (stop_ids[i] < m->tokens->n) bits[stop_ids[i] / 64] &= ~(1ull << stop_ids[i] % 64);
	*may_go_on = bits_any(bits, n_words);
	for (uint32_t i = 0; i < n_stop && ends; i++)
		if (stop_ids[i] < m->tokens->n) bits[stop_ids[i] / 64] |= 1ull << stop_ids[i] % 64;
	return bits_count(bits, n_words);
}
