/* list.h - intrusive doubly linked list. The list owns nothing; the element embeds its link.
 *
 * An unlinked link has next == NULL, so "is it on a list?" is a question without side effects. */
#ifndef SLUICE_LIST_H
#define SLUICE_LIST_H

#include "common/base.h"

struct list_link {
	struct list_link *prev, *next;
};

struct list {
	struct list_link head;
	size_t len;
};

static inline void list_init(struct list *l)
{
	l->head.prev = l->head.next = &l->head;
	l->len = 0;
}

static inline bool list_is_linked(const struct list_link *e)
{
	return e->next != NULL;
}

static inline void list_insert_before(struct list *l, struct list_link *at, struct list_link *e)
{
	CHECK(!list_is_linked(e));
	e->prev = at->prev;
	e->next = at;
	at->prev->next = e;
	at->prev = e;
	l->len++;
}

static inline void list_push_back(struct list *l, struct list_link *e)
{
	list_insert_before(l, &l->head, e);
}

static inline void list_push_front(struct list *l, struct list_link *e)
{
	list_insert_before(l, l->head.next, e);
}

static inline void list_remove(struct list *l, struct list_link *e)
{
	CHECK(list_is_linked(e) && l->len > 0);
	e->prev->next = e->next;
	e->next->prev = e->prev;
	e->prev = e->next = NULL;
	l->len--;
}

static inline struct list_link *list_first(const struct list *l)
{
	return l->head.next == &l->head ? NULL : l->head.next;
}

static inline struct list_link *list_last(const struct list *l)
{
	return l->head.prev == &l->head ? NULL : l->head.prev;
}

static inline struct list_link *list_pop_front(struct list *l)
{
	struct list_link *e = list_first(l);

	if (e) list_remove(l, e);
	return e;
}

/* Walks the list; the current element may be removed inside the loop. */
#define LIST_EACH(l, it, nx)                                                                 \
	for (struct list_link *it = (l)->head.next, *nx = it->next; it != &(l)->head; it = nx, nx = it->next)

#endif
