/* story.c - see story.h. */
#include "frontend/story.h"

#include "common/utf8.h"

void story_text(struct strbuf *b, size_t max, const void *text, size_t len)
{
	if (!b->data) strbuf_init(b, max);
	if (b->len < max) strbuf_append(b, text, min_size(len, max - b->len));
}

size_t story_text_len(const struct strbuf *b)
{
	bool cut = false;
	size_t i = 0;
	int n;

	/* Only what is cut off at the end is left out: a wrong byte in the middle is shown as one. */
	while (i < b->len) {
		n = utf8_next(b->data + i, b->len - i, &cut);
		if (cut) return i;
		i += (size_t)(n > 0 ? n : -n);
	}
	return i;
}
