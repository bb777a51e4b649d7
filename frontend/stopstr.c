/* stopstr.c - see stopstr.h.
 *
 * Invariant: `held` is the longest end of the text that begins a stop string. Stop strings are whole UTF-8, so what is released
 * ends at a character's border when the text comes in whole characters. */
#include "frontend/stopstr.h"

#include "common/mem.h"

#include <string.h>

void stopstr_set_init(struct stopstr_set *s, bool keep)
{
	*s = (struct stopstr_set){.keep = keep};
}

void stopstr_set_release(struct stopstr_set *s)
{
	size_t i;

	for (i = 0; i < s->n; i++) {
		free(s->list[i].text);
		free(s->list[i].fail);
	}
	free(s->list);
	*s = (struct stopstr_set){0};
}

void stopstr_set_add(struct stopstr_set *s, const char *text, size_t len)
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

void stopstr_init(struct stopstr *s, const struct stopstr_set *set)
{
	*s = (struct stopstr){.set = set, .states = set->n ? mem_array(uint32_t, set->n) : NULL};
	strbuf_init(&s->held, SIZE_MAX / 2); /* bounded by the longest stop string and one piece */
}

void stopstr_release(struct stopstr *s)
{
	free(s->states);
	strbuf_release(&s->held);
	*s = (struct stopstr){0};
}

static uint32_t one_next(const struct stopstr_one *one, uint32_t k, char c)
{
	if (k == one->len) k = one->fail[k - 1];
	while (k > 0 && one->text[k] != c) k = one->fail[k - 1];
	return one->text[k] == c ? k + 1 : k;
}

/* Follows one byte in all automata; the longest complete string, or -1. */
static int step(struct stopstr *s, char c)
{
	const struct stopstr_one *list = s->set->list;
	int found = -1;
	size_t i;

	for (i = 0; i < s->set->n; i++) {
		s->states[i] = one_next(&list[i], s->states[i], c);
		if (s->states[i] == list[i].len && (found < 0 || list[i].len > list[found].len)) found = (int)i;
	}
	return found;
}

/* Bytes that may still become a stop string. */
static size_t n_open(const struct stopstr *s)
{
	size_t i, n = 0;

	for (i = 0; i < s->set->n; i++) {
		const struct stopstr_one *one = &s->set->list[i];

		n = max_size(n, s->states[i] == one->len ? one->fail[one->len - 1] : s->states[i]);
	}
	return n;
}

int stopstr_push(struct stopstr *s, const char *text, size_t len, bool armed, struct strbuf *out)
{
	size_t i, keep;
	int found;

	if (s->set->n == 0) {
		strbuf_append(out, text, len);
		return -1;
	}
	for (i = 0; i < len; i++) {
		found = step(s, text[i]);
		strbuf_putc(&s->held, text[i]);
		if (found < 0 || !armed) continue;
		strbuf_append(out, s->held.data, s->held.len - (s->set->keep ? 0 : s->set->list[found].len));
		strbuf_reset(&s->held);
		return found;
	}
	keep = n_open(s);
	strbuf_append(out, s->held.data, s->held.len - keep);
	if (s->held.len > keep) memmove(s->held.data, s->held.data + s->held.len - keep, keep);
	s->held.len = keep;
	return -1;
}

void stopstr_flush(struct stopstr *s, struct strbuf *out)
{
	strbuf_append(out, s->held.data, s->held.len);
	strbuf_reset(&s->held);
	if (s->set->n) memset(s->states, 0, s->set->n * sizeof(*s->states));
}
