/* detok.c - token ids back to text, a token at a time; see tokenizer.h.
 *
 * A token's bytes may begin or end inside a character. What may still become a character (at most three bytes) waits in
 * `pending`; everything else is passed on at once, ill-formed bytes as U+FFFD. The text is the same, however it is cut
 * into tokens, as if all bytes had been repaired together. */
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"

#include <string.h>

void detok_init(struct detok *d)
{
	*d = (struct detok){0};
}

void detok_init_start(struct detok *d)
{
	*d = (struct detok){.at_start = true};
}

static void detok_put_ill_formed(struct strbuf *out)
{
	strbuf_append(out, UTF8_REPLACEMENT, 3);
}

/* Completes the held-back character with bytes of s; returns how many it took. */
static size_t detok_complete(struct detok *d, const char *s, size_t len, struct strbuf *out)
{
	size_t taken = 0;

	while (d->n_pending > 0 && taken < len) {
		bool cut;
		int n;

		d->pending[d->n_pending] = s[taken];
		n = utf8_next(d->pending, d->n_pending + 1u, &cut);
		if (n < 0 && !cut) { /* the new byte does not continue it, and is looked at again on its own */
			detok_put_ill_formed(out);
			d->n_pending = 0;
			return taken;
		}
		taken++;
		d->n_pending++;
		if (n > 0) {
			strbuf_append(out, d->pending, (size_t)n);
			d->n_pending = 0;
		}
	}
	return taken;
}

void detok_push(struct detok *d, const struct tokenizer *t, uint32_t id, bool skip_special, struct strbuf *out)
{
	size_t len, at;
	const char *s = tokenizer_bytes(t, id, &len);

	if (skip_special && tokenizer_is_special(t, id)) return;
	if (d->at_start && len > 0) {
		bool drop = tokenizer_strip_first(t) && s[0] == ' ';

		d->at_start = false;
		s += drop;
		len -= drop;
	}
	at = detok_complete(d, s, len, out);
	while (at < len) {
		size_t whole = utf8_valid_len(s + at, len - at);
		bool cut;
		int n;

		strbuf_append(out, s + at, whole);
		at += whole;
		if (at == len) break;
		n = utf8_next(s + at, len - at, &cut);
		if (cut) {
			d->n_pending = (uint8_t)(len - at);
			memcpy(d->pending, s + at, len - at);
			break;
		}
		detok_put_ill_formed(out);
		at += (size_t)-n;
	}
}

void detok_finish(struct detok *d, struct strbuf *out)
{
	if (d->n_pending > 0) detok_put_ill_formed(out);
	d->n_pending = 0;
}
