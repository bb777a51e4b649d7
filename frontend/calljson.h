/* calljson.h - reads one tool call, written as a JSON object, while it streams: {"name": "f", "arguments": {...}}.
 *
 * Inside outparse only. The call is passed on as soon as its name is whole and its arguments begin; then the arguments follow byte for
 * byte. Until then the raw bytes are kept, so that what turns out to be no call can still become text. Keys may come in any
 * order; "parameters" is another word for "arguments"; other keys are skipped. */
#ifndef SLUICE_CALLJSON_H
#define SLUICE_CALLJSON_H

#include "common/base.h"
#include "common/strbuf.h"
#include "frontend/pieces.h"

/* White space as JSON has it. */
static inline bool calljson_is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* One JSON value of any kind, recognised by its brackets and quotes alone. */
struct jsonval {
	uint32_t depth;
	bool begun, in_string, escaped, is_scalar;
};

enum jsonval_end {
	JSONVAL_MORE,  /* the byte belongs to the value */
	JSONVAL_LAST,  /* it is the value's last one */
	JSONVAL_BEHIND /* it is the first one behind a number or word */
};

void jsonval_init(struct jsonval *v);
enum jsonval_end jsonval_feed(struct jsonval *v, char c);

enum calljson_state { CALLJSON_MORE, CALLJSON_DONE, CALLJSON_BAD };

struct calljson {
	int at;             /* where in the object; see calljson.c */
	bool needs_args;    /* an object without arguments is no call */
	bool muted;         /* reads it, and passes nothing on */
	bool has_name, has_args, begun; /* begun: pieces_call() was made */
	int key;            /* whose value is being read */
	uint64_t random;
	struct jsonval value;
	struct strbuf raw;  /* all bytes until begun */
	struct strbuf word; /* the key or the name that is being read, with its quotes */
	struct strbuf name;
	struct strbuf args; /* arguments that came before the name, or that are a string */
};

void calljson_init(struct calljson *c, bool needs_args, bool muted, uint64_t random);
void calljson_release(struct calljson *c);
/* After CALLJSON_DONE and CALLJSON_BAD nothing more is fed. BAD: not begun, the raw bytes are text; or begun, and the call ends as it is. */
enum calljson_state calljson_feed(struct calljson *c, char byte, struct pieces *out);

#endif
