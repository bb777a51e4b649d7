/* calljson.c - see calljson.h. */
#include "frontend/calljson.h"

#include <jansson.h>
#include <string.h>

#define CALLJSON_MAX (16 * MIB) /* nothing of one answer is longer */

enum { AT_OPEN, AT_KEY_OR_END, AT_KEY, AT_COLON, AT_VALUE, AT_BEHIND };
enum { KEY_OTHER, KEY_NAME, KEY_ARGS };

void jsonval_init(struct jsonval *v)
{
	memset(v, 0, sizeof(*v));
}

enum jsonval_end jsonval_feed(struct jsonval *v, char c)
{
	if (v->in_string) {
		if (v->escaped) v->escaped = false;
		else if (c == '\\') v->escaped = true;
		else if (c == '"') v->in_string = false;
		return v->in_string || v->depth > 0 ? JSONVAL_MORE : JSONVAL_LAST;
	}
	if (v->is_scalar) return c == ',' || c == '}' || c == ']' || calljson_is_blank(c) ? JSONVAL_BEHIND : JSONVAL_MORE;
	if (c == '"') {
		v->in_string = true;
	} else if (c == '{' || c == '[') {
		v->depth++;
	} else if (c == '}' || c == ']') {
		if (v->depth <= 1) return JSONVAL_LAST;
		v->depth--;
	} else if (!v->begun) {
		v->is_scalar = true;
	}
	v->begun = true;
	return JSONVAL_MORE;
}

void calljson_init(struct calljson *c, bool needs_args, bool muted, uint64_t random)
{
	memset(c, 0, sizeof(*c));
	c->at = AT_OPEN;
	c->needs_args = needs_args;
	c->muted = muted;
	c->random = random;
	strbuf_init(&c->raw, CALLJSON_MAX);
	strbuf_init(&c->word, CALLJSON_MAX);
	strbuf_init(&c->name, CALLJSON_MAX);
	strbuf_init(&c->args, CALLJSON_MAX);
}

void calljson_release(struct calljson *c)
{
	strbuf_release(&c->raw);
	strbuf_release(&c->word);
	strbuf_release(&c->name);
	strbuf_release(&c->args);
}

/* The text that a JSON string stands for; false when it is none. */
static bool unquote(const struct strbuf *quoted, struct strbuf *out)
{
	json_t *j = json_loadb(quoted->data, quoted->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	bool ok = json_is_string(j);

	if (ok) strbuf_append(out, json_string_value(j), json_string_length(j));
	json_decref(j);
	return ok;
}

static void begin(struct calljson *c, struct pieces *out)
{
	if (!c->muted && !pieces_call(out, c->name.data ? c->name.data : "", c->name.len, c->random)) c->muted = true;
	c->begun = true;
	strbuf_release(&c->raw);
}

static void put_args(struct calljson *c, const char *s, size_t len, struct pieces *out)
{
	if (!c->muted) pieces_args(out, s, len);
}

static enum calljson_state key_is_read(struct calljson *c)
{
	struct strbuf key;

	strbuf_init(&key, CALLJSON_MAX);
	if (!unquote(&c->word, &key)) {
		strbuf_release(&key);
		return CALLJSON_BAD;
	}
	c->key = KEY_OTHER;
	if (key.len == 4 && memcmp(key.data, "name", 4) == 0) c->key = KEY_NAME;
	if ((key.len == 9 && memcmp(key.data, "arguments", 9) == 0) || (key.len == 10 && memcmp(key.data, "parameters", 10) == 0)) c->key = KEY_ARGS;
	strbuf_release(&key);
	strbuf_reset(&c->word);
	c->at = AT_COLON;
	return CALLJSON_MORE;
}

/* A value has ended. */
static enum calljson_state value_is_read(struct calljson *c, struct pieces *out)
{
	struct strbuf text;

	c->at = AT_BEHIND;
	if (c->key == KEY_NAME) {
		if (c->has_name || !unquote(&c->word, &c->name) || c->name.len == 0) return CALLJSON_BAD;
		c->has_name = true;
	} else if (c->key == KEY_ARGS) {
		c->has_args = true;
		/* Some models write the arguments as a text that holds JSON. */
		if (c->args.len && c->args.data[0] == '"') {
			strbuf_init(&text, CALLJSON_MAX);
			if (!unquote(&c->args, &text)) strbuf_append(&text, c->args.data, c->args.len);
			strbuf_reset(&c->args);
			strbuf_append(&c->args, text.data, text.len);
			strbuf_release(&text);
		}
	}
	strbuf_reset(&c->word);
	if (c->has_name && c->has_args && c->args.len) {
		if (!c->begun) begin(c, out);
		put_args(c, c->args.data, c->args.len, out);
		strbuf_reset(&c->args);
	}
	return CALLJSON_MORE;
}

static enum calljson_state object_is_read(struct calljson *c, struct pieces *out)
{
	if (c->begun) return CALLJSON_DONE;
	if (!c->has_name || (c->needs_args && !c->has_args)) return CALLJSON_BAD;
	begin(c, out);
	put_args(c, "{}", 2, out);
	return CALLJSON_DONE;
}

/* A byte of the value of a key. */
static void value_byte(struct calljson *c, char byte, struct pieces *out)
{
	if (c->key == KEY_NAME) {
		strbuf_putc(&c->word, byte);
	} else if (c->key == KEY_ARGS) {
		if (c->has_name && c->args.len == 0 && byte != '"' && !c->begun) begin(c, out);
		if (c->begun) put_args(c, &byte, 1, out);
		else strbuf_putc(&c->args, byte);
	}
}

static enum calljson_state feed_value(struct calljson *c, char byte, struct pieces *out)
{
	enum jsonval_end end;

	if (!c->value.begun && calljson_is_blank(byte)) return CALLJSON_MORE;
	if (!c->value.begun && (byte == ',' || byte == '}' || byte == ']' || byte == ':')) return CALLJSON_BAD;
	if (c->key == KEY_ARGS && !c->value.begun && c->begun) return CALLJSON_BAD; /* a second time */
	end = jsonval_feed(&c->value, byte);
	if (end != JSONVAL_BEHIND) value_byte(c, byte, out);
	if (end == JSONVAL_MORE) return CALLJSON_MORE;
	if (value_is_read(c, out) == CALLJSON_BAD) return CALLJSON_BAD;
	if (end == JSONVAL_LAST || calljson_is_blank(byte)) return CALLJSON_MORE;
	if (byte == '}') return object_is_read(c, out);
	c->at = AT_KEY_OR_END;
	return byte == ',' ? CALLJSON_MORE : CALLJSON_BAD;
}

static enum calljson_state feed_key(struct calljson *c, char byte)
{
	bool escaped = c->value.escaped;

	strbuf_putc(&c->word, byte);
	c->value.escaped = !escaped && byte == '\\';
	return byte == '"' && !escaped ? key_is_read(c) : CALLJSON_MORE;
}

enum calljson_state calljson_feed(struct calljson *c, char byte, struct pieces *out)
{
	if (!c->begun) strbuf_putc(&c->raw, byte);
	if (c->at == AT_VALUE) return feed_value(c, byte, out);
	if (c->at == AT_KEY) return feed_key(c, byte);
	if (calljson_is_blank(byte)) return CALLJSON_MORE;
	switch (c->at) {
	case AT_OPEN:
		c->at = AT_KEY_OR_END;
		return byte == '{' ? CALLJSON_MORE : CALLJSON_BAD;
	case AT_KEY_OR_END:
		if (byte == '}') return object_is_read(c, out);
		if (byte != '"') return CALLJSON_BAD;
		jsonval_init(&c->value);
		strbuf_putc(&c->word, byte);
		c->at = AT_KEY;
		return CALLJSON_MORE;
	case AT_COLON:
		jsonval_init(&c->value);
		c->at = AT_VALUE;
		return byte == ':' ? CALLJSON_MORE : CALLJSON_BAD;
	default: /* AT_BEHIND */
		if (byte == '}') return object_is_read(c, out);
		c->at = AT_KEY_OR_END;
		return byte == ',' ? CALLJSON_MORE : CALLJSON_BAD;
	}
}
