/* jinja.h - the part of Jinja2 that chat templates use, as transformers runs it (ImmutableSandboxedEnvironment, trim_blocks,
 * lstrip_blocks, loopcontrols, the `generation` tag, tojson without HTML escaping, raise_exception, strftime_now).
 *
 * Nothing in a template or its input is trusted: parsing and rendering are bounded in depth, steps, memory and output,
 * and whatever cannot be rendered is an error with a text, never a crash.
 *
 * Every byte of the output knows where it came from: text of the template itself, or text out of the context (a user's
 * message). Strings carry this through concatenation, slices, filters and methods, so the tokenizer can recognise control
 * tokens in the template's own text only. Values that the render call marks as trusted (bos_token, ...) count as template. */
#ifndef SLUICE_JINJA_H
#define SLUICE_JINJA_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/strbuf.h"

#include <jansson.h>

struct jinja; /* a compiled template; immutable, any number of renders */

struct jinja_limits {
	uint64_t steps_max;   /* evaluated nodes and loop turns */
	size_t output_max;    /* bytes */
	size_t memory_max;    /* bytes that a render may hold at a time */
	uint32_t depth_max;   /* nesting of expressions, blocks and calls */
};

extern const struct jinja_limits JINJA_LIMITS_DEFAULT;

/* A stretch of the output with one origin. */
struct jinja_span {
	size_t len;
	bool is_input;
};

struct jinja_out {
	struct strbuf text;
	struct jinja_span *spans; /* owned; lengths add up to text.len */
	size_t n_spans, cap_spans;
};

void jinja_out_init(struct jinja_out *o);
void jinja_out_release(struct jinja_out *o);

/* Compiles. ST_INVALID: err says line and what was expected. ST_LIMIT: too deep or too large. */
int jinja_compile(struct jinja **out, const char *text, size_t len, struct errbuf *err) MUST_CHECK;
void jinja_free(struct jinja *t);

/* Renders with the variables of `context` (an object; strings in it are input) and of `trusted` (an object or NULL; its strings
 * count as template text; wins over context). now_s: the clock of strftime_now, seconds since 1970, UTC local time.
 * ST_INVALID: err holds the message; *raised is true when the template itself raised it (then the text is exactly the
 * template's message). ST_LIMIT: a bound was reached, named in err. */
int jinja_render(const struct jinja *t, json_t *context, json_t *trusted, int64_t now_s, const struct jinja_limits *limits,
		 struct jinja_out *out, bool *raised, struct errbuf *err) MUST_CHECK;

#endif
