/* fuzz_logline.c - any bytes in a log line: it is one line within its buffer, in JSON a JSON object with all keys once, in text without
 * a byte that a terminal obeys.
 *
 * Bytes 0 and 1: format, and how much room there is. The rest are texts, ended by 0xfe. Seeds: corpus/logline. */
#include "common/logline.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP_MIN 512
#define KEYS_MAX 10

static void check_json(const char *line, size_t len)
{
	json_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

	CHECK(json_is_object(root) && json_is_string(json_object_get(root, "msg")));
	json_decref(root);
}

static void check_bytes(const char *s, size_t len)
{
	CHECK(utf8_valid_len(s, len) == len);
	for (size_t i = 0; i < len; i++) CHECK((unsigned char)s[i] >= 0x20 && s[i] != 0x7f);
	for (size_t i = 0; i + 1 < len; i++) CHECK(memcmp(s + i, "\xc2\x9b", 2) != 0); /* CSI in one character */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char key[] = "key0";
	const char *p = (const char *)data + 2, *end = (const char *)data + size, *next;
	size_t cap, len, from;
	struct logline l;
	char *line;
	int n = 0;

	if (size < 2) return 0;
	cap = CAP_MIN + data[1] * (size_t)(data[0] >> 1);
	line = mem_array(char, cap);
	log_init("fuzz", LOG_ERROR);
	log_use_json(data[0] & 1);
	/* A message in text is as whoever logs wrote it; only values are escaped. */
	next = memchr(p, 0xfe, (size_t)(end - p));
	len = (size_t)((next ? next : end) - p);
	logline_begin(&l, line, cap, LOG_INFO, data[0] & 1 ? p : "request", data[0] & 1 ? len : 7);
	from = l.is_json ? 0 : l.len;
	for (p += len; p < end && n < KEYS_MAX; p += len) {
		p++;
		next = memchr(p, 0xfe, (size_t)(end - p));
		len = (size_t)((next ? next : end) - p);
		key[3] = (char)('0' + n++);
		if (len == 8) logline_ms(&l, key, *(const uint8_t *)p * UINT64_C(0x0101010101010101));
		else logline_text(&l, key, p, len);
	}
	len = logline_end(&l);
	CHECK(len <= cap && line[len - 1] == '\n');
	if (l.is_json) check_json(line, len);
	check_bytes(line + from, len - 1 - from);
	free(line);
	return 0;
}
