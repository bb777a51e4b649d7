/* toolspec.h - the tools of a chat request: checked, and what tool_choice demands as a JSON schema. */
#ifndef SLUICE_TOOLSPEC_H
#define SLUICE_TOOLSPEC_H

#include "common/base.h"
#include "frontend/apierr.h"

#include <jansson.h>

enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED, TOOL_CHOICE_NAMED };

#define TOOLSPEC_TOOLS_MAX 1024
#define TOOLSPEC_NAME_MAX 256 /* bytes; OpenAI allows 64 */

/* Borrows from the request. */
struct toolspec {
	const json_t *tools; /* array of {"type":"function","function":{...}}, not empty; NULL: none */
	enum tool_choice choice;
	const char *named;   /* NAMED */
	bool parallel;       /* parallel_tool_calls, true by default */
};

/* Reads tools, tool_choice and parallel_tool_calls of a body. False: e is set. */
bool toolspec_read(struct toolspec *t, const json_t *body, struct apierr *e) MUST_CHECK;
/* What the output must be: NULL for none and auto; for required an array of {"name", "parameters"}; for a named one its
 * parameters. A new reference. */
json_t *toolspec_schema(const struct toolspec *t);

#endif
