/* pieces.c - see pieces.h. */
#include "frontend/pieces.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_TEXT_MAX (48 * MIB) /* the longest answers stay far below; see CONN_OUT_MAX */

void pieces_init(struct pieces *p)
{
	memset(p, 0, sizeof(*p));
}

void pieces_release(struct pieces *p)
{
	pieces_reset(p);
	free(p->list);
	p->list = NULL;
	p->cap = 0;
}

void pieces_reset(struct pieces *p)
{
	size_t i;

	for (i = 0; i < p->n; i++) strbuf_release(&p->list[i].text);
	p->n = 0;
}

static struct piece *pieces_new(struct pieces *p, enum piece_kind kind)
{
	struct piece *x;

	mem_reserve(p->list, p->cap, p->n + 1);
	x = &p->list[p->n++];
	memset(x, 0, sizeof(*x));
	x->kind = kind;
	strbuf_init(&x->text, PIECE_TEXT_MAX);
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
	size_t i, n = 0;

	for (i = 0; i < p->n; i++) {
		if (p->list[i].kind == kind) strbuf_release(&p->list[i].text);
		else p->list[n++] = p->list[i];
	}
	p->n = n;
}

size_t pieces_bytes(const struct pieces *p)
{
	size_t i, n = 0;

	for (i = 0; i < p->n; i++) n += p->list[i].text.len;
	return n;
}
