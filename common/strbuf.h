/* strbuf.h - a growing byte string with a bound.
 *
 * Reaching the bound is not an accident: further appends are ignored and `overflow` stays true, so a builder checks
 * once at its end. The data is always terminated by a zero byte that is not counted in len. */
#ifndef SLUICE_STRBUF_H
#define SLUICE_STRBUF_H

#include "common/base.h"

#include <string.h>

struct strbuf {
	char *data;     /* owned; NULL until the first append */
	size_t len;     /* bytes, without the terminator */
	size_t cap;     /* allocated bytes */
	size_t len_max; /* bound of len */
	bool overflow;  /* an append did not fit under len_max */
};

void strbuf_init(struct strbuf *s, size_t len_max);
void strbuf_release(struct strbuf *s);

/* Empties it and keeps the memory. */
void strbuf_reset(struct strbuf *s);

/* Makes room for `more` bytes at once, for who knows how long it will be. False, and overflow set, when the bound does not allow it. */
bool strbuf_reserve(struct strbuf *s, size_t more);

/* strbuf_append() where there is no room yet, or no more. */
void strbuf_append_slow(struct strbuf *s, const void *data, size_t len);

/* Inline, because what a frontend does is mostly this: with a constant text it becomes a comparison and a few stores. */
static inline void strbuf_append(struct strbuf *s, const void *data, size_t len)
{
	/* Also when cap and len are 0: then there is no memory. */
	if (__builtin_expect(s->cap - s->len <= len || len > s->len_max - s->len || s->overflow, 0)) {
		strbuf_append_slow(s, data, len);
		return;
	}
	if (len) memcpy(s->data + s->len, data, len);
	s->len += len;
	s->data[s->len] = 0;
}

static inline void strbuf_puts(struct strbuf *s, const char *text)
{
	strbuf_append(s, text, strlen(text));
}

static inline void strbuf_putc(struct strbuf *s, char c)
{
	strbuf_append(s, &c, 1);
}

/* In decimal, without a format string. */
void strbuf_put_u64(struct strbuf *s, uint64_t v);
void strbuf_printf(struct strbuf *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Takes the memory out (free() it); the strbuf is empty afterwards. Never NULL. */
char *strbuf_take(struct strbuf *s);

#endif
