/* strbuf.c - see strbuf.h. */
#include "common/strbuf.h"

#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STRBUF_FIRST 64 /* bytes of the first allocation; the next ones double */

void strbuf_init(struct strbuf *s, size_t len_max)
{
	*s = (struct strbuf){.len_max = len_max};
}

void strbuf_release(struct strbuf *s)
{
	free(s->data);
	*s = (struct strbuf){.len_max = s->len_max};
}

void strbuf_reset(struct strbuf *s)
{
	s->len = 0;
	s->overflow = false;
	if (s->data) s->data[0] = 0;
}

/* Room for `more` bytes and the terminator. False, and overflow set, when the bound does not allow it. */
static bool strbuf_room(struct strbuf *s, size_t more)
{
	if (s->overflow || more > s->len_max - s->len) {
		s->overflow = true;
		return false;
	}
	if (s->len + more < s->cap) return true;
	if (s->cap == 0) s->data = mem_realloc(NULL, s->cap = max_size(STRBUF_FIRST, s->len + more + 1), 1);
	else mem_reserve(s->data, s->cap, s->len + more + 1);
	return true;
}

bool strbuf_reserve(struct strbuf *s, size_t more)
{
	return strbuf_room(s, more);
}

void strbuf_append_slow(struct strbuf *s, const void *data, size_t len)
{
	if (!strbuf_room(s, len)) return;
	if (len) memcpy(s->data + s->len, data, len);
	s->len += len;
	s->data[s->len] = 0;
}

void strbuf_put_u64(struct strbuf *s, uint64_t v)
{
	char buf[20];
	size_t n = sizeof(buf);

	do {
		buf[--n] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	strbuf_append(s, buf + n, sizeof(buf) - n);
}

void strbuf_printf(struct strbuf *s, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	CHECK(n >= 0);
	if (!strbuf_room(s, (size_t)n)) return;
	va_start(ap, fmt);
	vsnprintf(s->data + s->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	s->len += (size_t)n;
}

char *strbuf_take(struct strbuf *s)
{
	char *data = s->data ? s->data : mem_strndup("", 0);

	*s = (struct strbuf){.len_max = s->len_max};
	return data;
}
