/* jsonbig_dump.c - see jsonbig_dump.h. */
#include "frontend/jsonbig_dump.h"

#include "common/jsonbig.h"
#include "frontend/jsonout.h"

static int on_dumped(const char *data, size_t len, void *to)
{
	strbuf_append(to, data, len);
	return 0;
}

/* Recursion is bounded by what jsonread() lets in. */
void jsonbig_dump(const json_t *j, struct strbuf *out)
{
	json_t *value;
	const char *key;
	size_t i, n = 0;

	if (jsonbig_digits(j)) {
		strbuf_puts(out, jsonbig_digits(j));
	} else if (json_is_object(j)) {
		strbuf_putc(out, '{');
		json_object_foreach((json_t *)j, key, value) {
			if (n++) strbuf_putc(out, ',');
			jsonout_text(out, key);
			strbuf_putc(out, ':');
			jsonbig_dump(value, out);
		}
		strbuf_putc(out, '}');
	} else if (json_is_array(j)) {
		strbuf_putc(out, '[');
		json_array_foreach(j, i, value) {
			if (i) strbuf_putc(out, ',');
			jsonbig_dump(value, out);
		}
		strbuf_putc(out, ']');
	} else {
		json_dump_callback(j, on_dumped, out, JSON_COMPACT | JSON_ENCODE_ANY);
	}
}
