/* strbuf.h - a growing byte string with a bound.
 *
 * Reaching the bound is not an accident: further appends are ignored and `overflow` stays true, so a builder checks
 * once at its end. The data is always terminated by a zero byte that is not counted in len. */
#ifndef SLUICE_STRBUF_H
#define SLUICE_STRBUF_H

#include "common/base.h"

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

void strbuf_append(struct strbuf *s, const void *data, size_t len);
void strbuf_puts(struct strbuf *s, const char *text);
void strbuf_putc(struct strbuf *s, char c);
void strbuf_printf(struct strbuf *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Takes the memory out (free() it); the strbuf is empty afterwards. Never NULL. */
char *strbuf_take(struct strbuf *s);

#endif
