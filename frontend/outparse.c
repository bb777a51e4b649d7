/* outparse.c - see outparse.h.
 *
 * One state says where in the output we are. Plain text is handled in bulk: it is searched for the markers that mean something here,
 * and what might be the beginning of one, or blanks that may turn out to stand in front of a call, stay in `held`. Calls are read a
 * byte at a time (calljson.c). `tail` is the raw text since the last certain point: it becomes text when a call turns out to be none. */
#include "frontend/outparse.h"

#include "common/mem.h"
#include "frontend/calljson.h"

#include <stdlib.h>
#include <string.h>

#define OUTPARSE_MAX (48 * MIB)
#define OUTPARSE_NAME_MAX 256 /* bytes of a function's name that is written without quotes */

#define THINK_BEGIN "<think>"
#define THINK_END "</think>"
#define HERMES_BEGIN "<tool_call>"
#define HERMES_END "</tool_call>"
#define LLAMA_TAG "<|python_tag|>"
#define MISTRAL_CALLS "[TOOL_CALLS]"
#define MISTRAL_ARGS "[ARGS]"
#define MISTRAL_CALL_ID "[CALL_ID]"
#define DS_CALLS_BEGIN "<\xef\xbd\x9ctool\xe2\x96\x81" "calls\xe2\x96\x81" "begin\xef\xbd\x9c>"
#define DS_CALLS_END "<\xef\xbd\x9ctool\xe2\x96\x81" "calls\xe2\x96\x81" "end\xef\xbd\x9c>"
#define DS_CALL_BEGIN "<\xef\xbd\x9ctool\xe2\x96\x81" "call\xe2\x96\x81" "begin\xef\xbd\x9c>"
#define DS_CALL_END "<\xef\xbd\x9ctool\xe2\x96\x81" "call\xe2\x96\x81" "end\xef\xbd\x9c>"
#define DS_SEP "<\xef\xbd\x9ctool\xe2\x96\x81" "sep\xef\xbd\x9c>"

enum outparse_state {
	S_START,     /* nothing but blanks so far: reasoning or a bare call may begin */
	S_REASONING,
	S_ANSWER,    /* behind the reasoning: as S_START, without a beginning of reasoning */
	S_TEXT,
	S_CALL,      /* an object with name and arguments */
	S_BEHIND,    /* behind such an object: what the format wants there */
	S_MISTRAL,   /* behind [TOOL_CALLS] */
	S_DS_CALLS,  /* between DeepSeek's calls */
	S_NAME,      /* a bare name, up to a separator */
	S_ARGS,      /* bare arguments, a JSON value */
	S_NAMED      /* everything is the arguments of the one function */
};

struct outparse {
	struct outparse_config cfg;
	enum outparse_state state;
	struct strbuf held;
	struct strbuf tail;
	struct strbuf name;    /* S_NAME */
	struct calljson call;
	struct jsonval value;  /* S_ARGS */
	bool has_call, in_list, args_begun, muted;
	bool trim;             /* line breaks at the beginning of this part are left out */
	uint32_t n_calls;
};

struct outparse *outparse_new(const struct outparse_config *cfg)
{
	struct outparse *p = mem_new(struct outparse);

	p->cfg = *cfg;
	p->cfg.named = cfg->named ? mem_strdup(cfg->named) : NULL;
	strbuf_init(&p->held, OUTPARSE_MAX);
	strbuf_init(&p->tail, OUTPARSE_MAX);
	strbuf_init(&p->name, OUTPARSE_MAX);
	p->state = cfg->in_reasoning && cfg->reasoning ? S_REASONING : S_START;
	p->trim = p->state == S_REASONING;
	return p;
}

void outparse_free(struct outparse *p)
{
	if (!p) return;
	free((char *)p->cfg.named);
	strbuf_release(&p->held);
	strbuf_release(&p->tail);
	strbuf_release(&p->name);
	if (p->has_call) calljson_release(&p->call);
	free(p);
}

/* ---- calls ---- */

static uint64_t next_random(struct outparse *p)
{
	return p->cfg.random + 0x9e3779b97f4a7c15ull * ++p->n_calls;
}

static bool next_is_muted(const struct outparse *p, const struct pieces *out)
{
	return p->cfg.calls_max && out->n_calls >= p->cfg.calls_max;
}

static void call_begin(struct outparse *p, bool needs_args, const struct pieces *out)
{
	if (p->has_call) calljson_release(&p->call);
	calljson_init(&p->call, needs_args, next_is_muted(p, out), next_random(p));
	p->has_call = true;
	p->state = S_CALL;
}

static void tail_to_text(struct outparse *p, struct pieces *out)
{
	pieces_text(out, p->tail.data, p->tail.len);
	strbuf_reset(&p->tail);
	p->state = S_TEXT;
}

/* A function's name that stands without quotes is whole. */
static bool name_is_read(struct outparse *p, struct pieces *out)
{
	size_t from = 0, len = p->name.len;

	while (from < len && calljson_is_blank(p->name.data[from])) from++;
	while (len > from && calljson_is_blank(p->name.data[len - 1])) len--;
	if (len == from) return false;
	p->muted = next_is_muted(p, out) || !pieces_call(out, p->name.data + from, len - from, next_random(p));
	strbuf_reset(&p->tail);
	strbuf_reset(&p->name);
	jsonval_init(&p->value);
	p->args_begun = false;
	p->state = S_ARGS;
	return true;
}

/* Where the output goes on when a call has ended. */
static void call_is_read(struct outparse *p)
{
	strbuf_reset(&p->tail);
	switch (p->cfg.tools) {
	case OUTPARSE_TOOLS_DEEPSEEK:
		p->state = S_DS_CALLS;
		break;
	case OUTPARSE_TOOLS_MISTRAL:
		p->state = p->in_list ? S_BEHIND : S_TEXT;
		break;
	default:
		p->state = S_BEHIND;
		break;
	}
}

static void feed_call(struct outparse *p, char c, struct pieces *out)
{
	enum calljson_state s = calljson_feed(&p->call, c, out);
	bool begun = p->call.begun;

	if (!begun) strbuf_putc(&p->tail, c);
	else strbuf_reset(&p->tail);
	if (s == CALLJSON_MORE) return;
	calljson_release(&p->call);
	p->has_call = false;
	if (s == CALLJSON_DONE || begun) call_is_read(p);
	else tail_to_text(p, out);
}

static bool ends_with(const struct strbuf *s, const char *marker)
{
	size_t n = strlen(marker);

	return s->len >= n && memcmp(s->data + s->len - n, marker, n) == 0;
}

/* Behind a call: its end marker, a separator and the next one, or the end of the list; anything else is text again. */
static void feed_behind(struct outparse *p, char c, struct pieces *out)
{
	size_t n = p->tail.len;

	if (p->cfg.tools == OUTPARSE_TOOLS_HERMES) {
		if (n == 0 && calljson_is_blank(c)) return;
		strbuf_putc(&p->tail, c);
		if (ends_with(&p->tail, HERMES_END)) {
			strbuf_reset(&p->tail);
			p->state = S_TEXT;
			p->trim = true;
		} else if (n >= strlen(HERMES_END) || c != HERMES_END[n]) {
			tail_to_text(p, out); /* the model forgot its marker */
		}
		return;
	}
	if (c == '{') {
		call_begin(p, p->cfg.tools == OUTPARSE_TOOLS_LLAMA3, out);
		feed_call(p, c, out);
		return;
	}
	strbuf_putc(&p->tail, c);
	if (calljson_is_blank(c) || c == ',' || (c == ';' && p->cfg.tools == OUTPARSE_TOOLS_LLAMA3)) return;
	if (c == ']' && p->in_list) {
		p->in_list = false;
		strbuf_reset(&p->tail);
		p->state = S_TEXT;
		p->trim = true;
	} else {
		tail_to_text(p, out);
	}
}

/* Behind [TOOL_CALLS]: a list of objects, or name[ARGS]{...}. */
static void feed_mistral(struct outparse *p, char c, struct pieces *out)
{
	strbuf_putc(&p->tail, c);
	if (calljson_is_blank(c)) return;
	if (c == '[') {
		p->in_list = true;
		p->state = S_BEHIND;
		return;
	}
	if (c == '{') {
		call_begin(p, false, out);
		calljson_feed(&p->call, c, out);
		return;
	}
	strbuf_putc(&p->name, c);
	p->state = S_NAME;
}

static void cut(struct strbuf *s, const char *marker)
{
	s->len -= strlen(marker);
	s->data[s->len] = 0;
}

static void feed_name(struct outparse *p, char c, struct pieces *out)
{
	bool is_whole = false, opens = false;
	char *at;

	strbuf_putc(&p->tail, c);
	strbuf_putc(&p->name, c);
	if (p->cfg.tools == OUTPARSE_TOOLS_MISTRAL) {
		opens = c == '{';
		if (opens) p->name.data[--p->name.len] = 0;
		else if (ends_with(&p->name, MISTRAL_ARGS)) cut(&p->name, MISTRAL_ARGS), is_whole = true;
		if ((is_whole || opens) && (at = strstr(p->name.data, MISTRAL_CALL_ID)) != NULL) {
			*at = 0;
			p->name.len = (size_t)(at - p->name.data);
		}
		is_whole |= opens;
	} else if (ends_with(&p->name, "function" DS_SEP)) {
		strbuf_reset(&p->name); /* V3: function, separator, name, line break */
	} else if (ends_with(&p->name, DS_SEP)) {
		cut(&p->name, DS_SEP);
		is_whole = true;
	} else {
		is_whole = c == '\n';
	}
	if (is_whole && name_is_read(p, out)) {
		if (!opens) return;
		p->args_begun = true;
		if (!p->muted) pieces_args(out, &c, 1);
		jsonval_feed(&p->value, c);
	} else if (p->name.len > OUTPARSE_NAME_MAX || is_whole) {
		strbuf_reset(&p->name);
		tail_to_text(p, out);
	}
}

/* Arguments that stand alone; a fence (```json) in front of them is skipped. */
static void feed_args(struct outparse *p, char c, struct pieces *out)
{
	enum jsonval_end end;

	if (!p->args_begun) {
		p->args_begun = c == '{' || c == '[';
		if (!p->args_begun) return;
	}
	end = jsonval_feed(&p->value, c);
	if (!p->muted) pieces_args(out, &c, 1);
	if (end == JSONVAL_LAST) call_is_read(p);
}

/* DeepSeek: markers between calls; everything else there (fences, line breaks) means nothing. */
static void feed_ds_calls(struct outparse *p, char c, struct pieces *out)
{
	strbuf_putc(&p->tail, c);
	if (ends_with(&p->tail, DS_CALL_BEGIN)) {
		strbuf_reset(&p->tail);
		strbuf_puts(&p->tail, DS_CALL_BEGIN);
		p->state = S_NAME;
	} else if (ends_with(&p->tail, DS_CALLS_END)) {
		strbuf_reset(&p->tail);
		p->state = S_TEXT;
		p->trim = true;
	}
}

static void feed_byte(struct outparse *p, char c, struct pieces *out)
{
	switch (p->state) {
	case S_CALL:
		feed_call(p, c, out);
		break;
	case S_BEHIND:
		feed_behind(p, c, out);
		break;
	case S_MISTRAL:
		feed_mistral(p, c, out);
		break;
	case S_DS_CALLS:
		feed_ds_calls(p, c, out);
		break;
	case S_NAME:
		feed_name(p, c, out);
		break;
	default: /* S_ARGS */
		feed_args(p, c, out);
		break;
	}
}

/* ---- text and reasoning ---- */

/* What is certain goes out. Reasoning that was asked for is never mixed with text. */
static void emit(struct outparse *p, const char *s, size_t len, struct pieces *out)
{
	while (p->trim && len > 0 && calljson_is_blank(*s)) s++, len--;
	if (len == 0) return;
	p->trim = false;
	if (p->state == S_REASONING) pieces_reasoning(out, s, len);
	else pieces_text(out, s, len);
}

/* Markers that mean something in this state; NULL ends the list. */
static const char *marker_of(const struct outparse *p)
{
	if (p->state == S_REASONING) return THINK_END;
	switch (p->cfg.tools) {
	case OUTPARSE_TOOLS_HERMES:
		return HERMES_BEGIN;
	case OUTPARSE_TOOLS_LLAMA3:
		return LLAMA_TAG;
	case OUTPARSE_TOOLS_MISTRAL:
		return MISTRAL_CALLS;
	case OUTPARSE_TOOLS_DEEPSEEK:
		return DS_CALLS_BEGIN;
	default:
		return NULL;
	}
}

/* Length of the longest end of s that a marker begins with. */
static size_t partial_len(const char *s, size_t len, const char *marker)
{
	size_t n = min_size(len, strlen(marker) - 1);

	while (n > 0 && memcmp(s + len - n, marker, n) != 0) n--;
	return n;
}

static void marker_found(struct outparse *p, const char *marker, struct pieces *out)
{
	if (p->state == S_REASONING) {
		p->state = S_ANSWER;
		p->trim = true;
		return;
	}
	strbuf_reset(&p->tail);
	strbuf_puts(&p->tail, marker);
	p->in_list = false;
	if (p->cfg.tools == OUTPARSE_TOOLS_MISTRAL) p->state = S_MISTRAL;
	else if (p->cfg.tools == OUTPARSE_TOOLS_DEEPSEEK) p->state = S_DS_CALLS;
	else call_begin(p, false, out);
}

/* Handles text up to a marker; returns how many bytes of s are done with. What is left is held. */
static size_t feed_text(struct outparse *p, const char *s, size_t len, struct pieces *out)
{
	const char *marker = marker_of(p), *at = NULL;
	size_t n = len, keep = 0;

	if (marker) at = memmem(s, len, marker, strlen(marker));
	if (at) {
		n = (size_t)(at - s);
		/* Blanks in front of a call, or at the end of reasoning, say nothing. */
		while (n > 0 && calljson_is_blank(s[n - 1])) n--;
		emit(p, s, n, out);
		marker_found(p, marker, out);
		return (size_t)(at - s) + strlen(marker);
	}
	if (marker) {
		keep = partial_len(s, len, marker);
		while (keep < len && calljson_is_blank(s[len - keep - 1])) keep++;
	}
	emit(p, s, len - keep, out);
	return len - keep;
}

/* At the beginning of the output, or of the answer behind the reasoning: what is it? Returns the bytes that are done with; the state
 * changes unless more is needed to tell. */
static size_t feed_start(struct outparse *p, const char *s, size_t len, struct pieces *out)
{
	bool may_think = p->state == S_START && p->cfg.reasoning;
	size_t n = 0, think = strlen(THINK_BEGIN);

	while (n < len && calljson_is_blank(s[n])) n++;
	if (n == len) return 0;
	if (may_think && memcmp(s + n, THINK_BEGIN, min_size(len - n, think)) == 0) {
		if (len - n < think) return 0;
		p->state = S_REASONING;
		p->trim = true;
		return n + think;
	}
	if (p->cfg.named) {
		p->muted = !pieces_call(out, p->cfg.named, strlen(p->cfg.named), next_random(p));
		p->state = S_NAMED;
		return n;
	}
	if (p->cfg.tools == OUTPARSE_TOOLS_JSON && s[n] == '[') {
		p->in_list = true;
		strbuf_append(&p->tail, s, n + 1);
		p->state = S_BEHIND;
		return n + 1;
	}
	if (p->cfg.tools == OUTPARSE_TOOLS_LLAMA3 && s[n] == '{') {
		strbuf_append(&p->tail, s, n);
		call_begin(p, true, out);
		return n;
	}
	p->state = S_TEXT;
	return 0;
}

/* True while the state can do something with what is held. */
static bool outparse_step(struct outparse *p, const char **s, size_t *len, struct pieces *out)
{
	size_t n = 0;

	if (*len == 0) return false;
	switch (p->state) {
	case S_START:
	case S_ANSWER: {
		enum outparse_state before = p->state;

		n = feed_start(p, *s, *len, out);
		*s += n;
		*len -= n;
		return p->state != before;
	}
	case S_REASONING:
	case S_TEXT: {
		enum outparse_state before = p->state;

		n = feed_text(p, *s, *len, out);
		*s += n;
		*len -= n;
		return p->state != before;
	}
	case S_NAMED:
		if (!p->muted) pieces_args(out, *s, *len);
		*len = 0;
		return false;
	default:
		feed_byte(p, **s, out);
		(*s)++;
		(*len)--;
		return true;
	}
}

void outparse_push(struct outparse *p, const char *s, size_t len, struct pieces *out)
{
	const char *at;
	size_t left;

	strbuf_append(&p->held, s, len);
	at = p->held.data;
	left = p->held.len;
	while (outparse_step(p, &at, &left, out)) continue;
	if (left && at != p->held.data) memmove(p->held.data, at, left);
	p->held.len = left;
	if (p->held.data) p->held.data[left] = 0;
}

/* Control tokens that belong to a format; those of others stay hidden. */
static bool is_marker_of(const struct outparse *p, const char *name)
{
	static const char *const lists[][7] = {
		[OUTPARSE_TOOLS_HERMES] = {HERMES_BEGIN, HERMES_END},
		[OUTPARSE_TOOLS_LLAMA3] = {LLAMA_TAG},
		[OUTPARSE_TOOLS_MISTRAL] = {MISTRAL_CALLS, MISTRAL_ARGS, MISTRAL_CALL_ID},
		[OUTPARSE_TOOLS_DEEPSEEK] = {DS_CALLS_BEGIN, DS_CALLS_END, DS_CALL_BEGIN, DS_CALL_END, DS_SEP},
		[OUTPARSE_TOOLS_JSON] = {NULL},
	};
	const char *const *m;

	if (p->cfg.reasoning && (strcmp(name, THINK_BEGIN) == 0 || strcmp(name, THINK_END) == 0)) return true;
	for (m = lists[p->cfg.tools]; *m; m++)
		if (strcmp(*m, name) == 0) return true;
	return false;
}

bool outparse_special(struct outparse *p, const char *name, size_t len, struct pieces *out)
{
	char text[64];

	if (len >= sizeof(text)) return false; /* longer than every marker */
	memcpy(text, name, len);
	text[len] = 0;
	if (!is_marker_of(p, text)) return false;
	outparse_push(p, text, len, out);
	return true;
}

void outparse_finish(struct outparse *p, struct pieces *out)
{
	if (p->state == S_START || p->state == S_ANSWER) p->state = S_TEXT;
	if (p->state == S_TEXT || p->state == S_REASONING) {
		size_t n = p->held.len;

		/* Blanks at the end of an answer with calls stood between them. */
		while (n > 0 && out->n_calls > 0 && calljson_is_blank(p->held.data[n - 1])) n--;
		emit(p, p->held.data, n, out);
	} else if (p->tail.len > 0 && p->state != S_DS_CALLS && !(p->state == S_BEHIND && out->n_calls > 0)) {
		tail_to_text(p, out);
	}
	strbuf_reset(&p->held);
	strbuf_reset(&p->tail);
}

/* ---- what a template says about its model ---- */

static bool mentions(const char *s, size_t len, const char *word)
{
	return len > 0 && memmem(s, len, word, strlen(word)) != NULL;
}

enum outparse_tools outparse_tools_of(const char *template_text, size_t len)
{
	/* The more peculiar markers first; a template without a place for tools has none of them. */
	if (mentions(template_text, len, "tool\xe2\x96\x81" "call")) return OUTPARSE_TOOLS_DEEPSEEK;
	if (mentions(template_text, len, MISTRAL_CALLS)) return OUTPARSE_TOOLS_MISTRAL;
	if (mentions(template_text, len, HERMES_BEGIN)) return OUTPARSE_TOOLS_HERMES;
	if (mentions(template_text, len, "<|start_header_id|>") && mentions(template_text, len, "tools") &&
	    mentions(template_text, len, "parameters"))
		return OUTPARSE_TOOLS_LLAMA3;
	return OUTPARSE_TOOLS_NONE;
}

enum outparse_reasoning outparse_reasoning_of(const char *template_text, size_t len)
{
	return mentions(template_text, len, THINK_END) ? OUTPARSE_REASONING_THINK : OUTPARSE_REASONING_NONE;
}

bool outparse_ends_in_reasoning(const char *prompt, size_t len)
{
	size_t n = strlen(THINK_BEGIN);

	while (len > 0 && calljson_is_blank(prompt[len - 1])) len--;
	return len >= n && memcmp(prompt + len - n, THINK_BEGIN, n) == 0;
}
