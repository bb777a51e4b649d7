/* outparse.h - takes a model's raw output apart while it streams: reasoning, text, tool calls.
 *
 * Bytes go in as they come (after stop strings), pieces come out as early as they are certain: text that might still become a marker
 * is held back, a function's name is passed on when it is whole, arguments as they come, exactly as the model wrote them where they
 * are valid JSON. What looks like a call and turns out to be none is text. Pure; every buffer is bounded by what was pushed. */
#ifndef SLUICE_OUTPARSE_H
#define SLUICE_OUTPARSE_H

#include "common/base.h"
#include "common/strbuf.h"
#include "frontend/pieces.h"

enum outparse_tools {
	OUTPARSE_TOOLS_NONE,
	OUTPARSE_TOOLS_HERMES,   /* <tool_call>{"name":..., "arguments":{...}}</tool_call>: Hermes, Qwen */
	OUTPARSE_TOOLS_LLAMA3,   /* {"name":..., "parameters":{...}}; after <|python_tag|> or alone; `;` between several */
	OUTPARSE_TOOLS_MISTRAL,  /* [TOOL_CALLS][{"name":..., "arguments":{...}}, ...] and [TOOL_CALLS]name[ARGS]{...} */
	OUTPARSE_TOOLS_DEEPSEEK, /* <|tool calls begin|>... with a fenced or a bare JSON (V3, V3.1) */
	OUTPARSE_TOOLS_JSON      /* the whole output is [{"name":..., "parameters":{...}}, ...], forced by a grammar: required */
};

enum outparse_reasoning {
	OUTPARSE_REASONING_NONE,
	OUTPARSE_REASONING_THINK /* <think> ... </think> */
};

struct outparse_config {
	enum outparse_tools tools;
	enum outparse_reasoning reasoning;
	bool in_reasoning;  /* the prompt ends inside: only the end marker comes */
	const char *named;  /* tool_choice with a function: the whole output is its arguments. Borrowed; NULL: no */
	uint32_t calls_max; /* 1: parallel_tool_calls is false (later calls are dropped); 0: no limit */
	uint64_t random;    /* for the ids of calls */
};

struct outparse;

struct outparse *outparse_new(const struct outparse_config *cfg); /* copies */
void outparse_free(struct outparse *p);
void outparse_push(struct outparse *p, const char *s, size_t len, struct pieces *out);
/* A control token's name, which is not part of the text that the client may see. True: it was a marker and is dealt with. */
bool outparse_special(struct outparse *p, const char *name, size_t len, struct pieces *out);
/* At the end of the output; what was held back becomes what it is. */
void outparse_finish(struct outparse *p, struct pieces *out);

/* What a chat template says about its model (auto of --tool-call-parser and --reasoning-parser). */
enum outparse_tools outparse_tools_of(const char *template_text, size_t len);
enum outparse_reasoning outparse_reasoning_of(const char *template_text, size_t len);
/* Does a rendered prompt end inside a reasoning block? */
bool outparse_ends_in_reasoning(const char *prompt, size_t len);

#endif
