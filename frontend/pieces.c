/* pieces.c - see pieces.h. */
#include "frontend/pieces.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_KEEP     256        /* bytes that an empty piece may keep */
#define PIECE_TEXT_MAX (48 * MIB) /* the longest answers stay far below; see CONN_OUT_MAX */

void pieces_init(struct pieces *p)
{
	memset(p, 0, sizeof(*p));
}

void pieces_release(struct pieces *p)
{
	size_t i;

	for (i = 0; i < p->n_made; i++) strbuf_release(&p->list[i].text);
	free(p->list);
	*p = (struct pieces){.n_calls = p->n_calls};
}

/* Most streams say one short piece a step: it takes no memory anew. */
static void piece_empty(struct piece *x)
{
	if (x->text.cap > PIECE_KEEP) strbuf_release(&x->text);
	else strbuf_reset(&x->text);
}

void pieces_reset(struct pieces *p)
{
	size_t i;

	for (i = 0; i < p->n; i++) piece_empty(&p->list[i]);
	p->n = 0;
}

static struct piece *pieces_new(struct pieces *p, enum piece_kind kind)
{
	struct piece *x;

	if (p->n == p->n_made) {
		if (p->n == p->cap) p->list = mem_realloc(p->list, p->cap = max_size(1, 2 * p->cap), sizeof(*p->list));
		x = &p->list[p->n_made++];
		*x = (struct piece){0};
		strbuf_init(&x->text, PIECE_TEXT_MAX);
	}
	x = &p->list[p->n++];
	x->kind = kind;
	x->call = 0;
	x->id[0] = 0;
	return x;
}

static void pieces_append(struct pieces *p, enum piece_kind kind, const char *s, size_t len)
{
	struct piece *last = p->n ? &p->list[p->n - 1] : NULL;

	if (len == 0) return;
	if (!last || last->kind != kind) last = pieces_new(p, kind);
	strbuf_append(&last->text, s, len);
}

void pieces_text(struct pieces *p, const char *s, size_t len)
{
	pieces_append(p, PIECE_TEXT, s, len);
}

void pieces_reasoning(struct pieces *p, const char *s, size_t len)
{
	pieces_append(p, PIECE_REASONING, s, len);
}

bool pieces_call(struct pieces *p, const char *name, size_t len, uint64_t random)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	struct piece *x;
	int i;

	if (p->n_calls >= PIECES_CALLS_MAX) return false;
	x = pieces_new(p, PIECE_CALL);
	x->call = p->n_calls++;
	strbuf_append(&x->text, name, len);
	memcpy(x->id, "call_", 5);
	for (i = 5; i < PIECES_ID_LEN; i++) {
		/* splitmix64's step, so that each character sees all of the seed */
		random = (random + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
		x->id[i] = digits[(random >> 33) % (sizeof(digits) - 1)];
	}
	return true;
}

void pieces_args(struct pieces *p, const char *s, size_t len)
{
	struct piece *last = p->n ? &p->list[p->n - 1] : NULL;

	if (len == 0 || p->n_calls == 0) return;
	if (!last || last->kind != PIECE_ARGS || last->call != p->n_calls - 1) {
		last = pieces_new(p, PIECE_ARGS);
		last->call = p->n_calls - 1;
	}
	strbuf_append(&last->text, s, len);
}

void pieces_drop(struct pieces *p, enum piece_kind kind)
{
	struct piece swap;
	size_t i, n = 0;

	for (i = 0; i < p->n; i++) {
		if (p->list[i].kind == kind) {
			piece_empty(&p->list[i]);
			continue;
		}
		swap = p->list[n];
		p->list[n++] = p->list[i];
		p->list[i] = swap;
	}
	p->n = n;
}

size_t pieces_bytes(const struct pieces *p)
{
	size_t i, n = 0;

	for (i = 0; i < p->n; i++) n += p->list[i].text.len;
	return n;
}
