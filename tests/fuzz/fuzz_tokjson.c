/* fuzz_tokjson.c - any bytes as a tokenizer.json: it is refused with words, or becomes a tokenizer that keeps its promises.
 *
 * Checked of a tokenizer: what the worker reads of the same file stands for the same bytes; every id is in the vocabulary, without leave no control token comes out, twice the same ids, and
 * decoding gives well-formed text. */
#include "common/mem.h"
#include "common/strbuf.h"
#include "common/utf8.h"
#include "frontend/tokenizer.h"
#include "model/tokbytes_json.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const struct tokenizer *t, const char *text, bool special)
{
	struct token_vec v, again;
	struct strbuf out;
	struct detok d;

	token_vec_init(&v, 100000);
	token_vec_init(&again, 100000);
	tokenizer_encode(t, text, strlen(text), special, &v);
	tokenizer_encode(t, text, strlen(text), special, &again);
	CHECK(v.len == again.len && v.overflow == again.overflow);
	CHECK(v.len == 0 || memcmp(v.ids, again.ids, v.len * sizeof(*v.ids)) == 0);
	strbuf_init(&out, SIZE_MAX / 4);
	detok_init_start(&d);
	for (size_t i = 0; i < v.len; i++) {
		CHECK(v.ids[i] < tokenizer_vocab_size(t));
		detok_push(&d, t, v.ids[i], false, &out);
	}
	detok_finish(&d, &out);
	CHECK(utf8_valid_len(out.data ? out.data : "", out.len) == out.len);
	strbuf_release(&out);
	token_vec_release(&v);
	token_vec_release(&again);
}

/* Constrained decoding reads the vocabulary by itself. */
static void check_bytes(const struct tokenizer *t, const char *path)
{
	struct errbuf err = {0};
	struct tokbytes *b;
	size_t len, len_b;

	if (tokbytes_from_json(&b, path, &err) != ST_OK) {
		CHECK(err.text[0] && !b && !t);
		return;
	}
	CHECK(!t || b->n == tokenizer_vocab_size(t));
	for (uint32_t i = 0; t && i < b->n; i++) {
		const char *s = tokenizer_bytes(t, i, &len), *s_b = tokbytes_of(b, i, &len_b);

		CHECK(len == len_b && memcmp(s, s_b, len) == 0);
		CHECK(tokenizer_is_special(t, i) == (b->kinds[i] == TOKBYTES_SPECIAL));
	}
	tokbytes_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const texts[] = {
		"",
		" ",
		"Hello world, it's the 1234th thing\n\n  <s> the<x> \xe2\x96\x81the",
		"\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80 cafe\xcc\x81 \xef\xac\x81 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};
	static int fd = -1; /* one file in memory, rewritten each time */
	struct errbuf err = {0};
	struct tokenizer *t;
	char path[32];
	size_t n;

	if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (tokenizer_from_json(&t, path, &err) != ST_OK) {
		CHECK(err.text[0] && !t);
		check_bytes(NULL, path);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		check_text(t, texts[i], true);
		check_text(t, texts[i], false);
	}
	check_bytes(t, path);
	tokenizer_stop_ids(t, &n);
	(void)!tokenizer_fit(t, tokenizer_vocab_size(t) / 2, "model", &err);
	tokenizer_free(t);
	return 0;
}
