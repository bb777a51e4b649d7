/* stopstr.c - see stopstr.h.
 *
 * Invariant: `held` is the longest end of the text that begins a stop string. Stop strings are whole UTF-8, so what is released
 * ends at a character's border when the text comes in whole characters. */
#include "frontend/stopstr.h"

#include "common/mem.h"

#include <string.h>

void stopstr_init(struct stopstr *s, bool keep)
{
	*s = (struct stopstr){.keep = keep};
	strbuf_init(&s->held, SIZE_MAX / 2); /* bounded by the longest stop string and one piece */
}

void stopstr_release(struct stopstr *s)
{
	size_t i;

	for (i = 0; i < s->n; i++) {
		free(s->list[i].text);
		free(s->list[i].fail);
	}
	free(s->list);
	strbuf_release(&s->held);
	*s = (struct stopstr){0};
}

void stopstr_add(struct stopstr *s, const char *text, size_t len)
{
	struct stopstr_one *one;
	uint32_t i, k = 0;

	CHECK(len > 0 && len < UINT32_MAX);
	s->list = mem_realloc(s->list, s->n + 1, sizeof(*s->list));
	one = &s->list[s->n++];
	*one = (struct stopstr_one){.text = mem_strndup(text, len), .len = (uint32_t)len, .fail = mem_array(uint32_t, len)};
	for (i = 1; i < one->len; i++) {
		while (k > 0 && text[i] != text[k]) k = one->fail[k - 1];
		if (text[i] == text[k]) k++;
		one->fail[i] = k;
	}
}

static uint32_t one_next(const struct stopstr_one *one, char c)
{
	uint32_t k = one->state;

	if (k == one->len) k = one->fail[k - 1];
	while (k > 0 && one->text[k] != c) k = one->fail[k - 1];
	return one->text[k] == c ? k + 1 : k;
}

/* Follows one byte in all automata; the longest complete string, or -1. */
static int step(struct stopstr *s, char c)
{
	int found = -1;
	size_t i;

	for (i = 0; i < s->n; i++) {
		struct stopstr_one *one = &s->list[i];

		one->state = one_next(one, c);
		if (one->state == one->len && (found < 0 || one->len > s->list[found].len)) found = (int)i;
	}
	return found;
}

int stopstr_push(struct stopstr *s, const char *text, size_t len, bool armed, struct strbuf *out)
{
	size_t i, keep = 0;
	int found;

	if (s->n == 0) {
		strbuf_append(out, text, len);
		return -1;
	}
	for (i = 0; i < len; i++) {
		found = step(s, text[i]);
		strbuf_putc(&s->held, text[i]);
		if (found < 0 || !armed) continue;
		strbuf_append(out, s->held.data, s->held.len - (s->keep ? 0 : s->list[found].len));
		strbuf_reset(&s->held);
		return found;
	}
	for (i = 0; i < s->n; i++) keep = max_size(keep, s->list[i].state == s->list[i].len ? s->list[i].fail[s->list[i].len - 1]
											    : s->list[i].state);
	strbuf_append(out, s->held.data, s->held.len - keep);
	if (s->held.len > keep) memmove(s->held.data, s->held.data + s->held.len - keep, keep);
	s->held.len = keep;
	return -1;
}

void stopstr_finish(struct stopstr *s, struct strbuf *out)
{
	strbuf_append(out, s->held.data, s->held.len);
	strbuf_reset(&s->held);
}
