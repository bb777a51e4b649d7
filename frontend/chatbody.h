/* chatbody.h - builds the body of /v1/chat/completions that asks what a request of another API asks.
 *
 * The other API's items go in one after the other. What belongs to one turn of the assistant (reasoning, text, tool calls) becomes one
 * message, because that is how templates know it. Values are shared with the request, not copied. The first mistake stays in e, and
 * chatbody_finish() then returns NULL. Needs no thread of its own; touches nothing but its arguments. */
#ifndef SLUICE_CHATBODY_H
#define SLUICE_CHATBODY_H

#include "common/base.h"
#include "frontend/apierr.h"

#include <jansson.h>

#define CHATBODY_WHERE_MAX 64 /* a place in the request: `input[12].content[3].text` */

struct chatbody {
	json_t *body;      /* owned */
	json_t *messages;  /* in body */
	json_t *turn;      /* in messages: the assistant's message that may still grow; NULL: none */
	json_t *reasoning; /* owned: a text for the next turn, or NULL */
	struct apierr *e;
};

void chatbody_init(struct chatbody *c, struct apierr *e);
/* The body, a new reference, or NULL when e is set. c is released. */
json_t *chatbody_finish(struct chatbody *c);

/* Each takes the reference. */
void chatbody_set(struct chatbody *c, const char *name, json_t *value);
void chatbody_say(struct chatbody *c, const char *role, json_t *content);
void chatbody_assistant(struct chatbody *c, json_t *content);
void chatbody_reasoning(struct chatbody *c, json_t *text);
/* A call of the assistant's turn; arguments: an object, or a string that holds one. id and name are shared. */
void chatbody_call(struct chatbody *c, json_t *id, json_t *name, json_t *arguments);
void chatbody_result(struct chatbody *c, json_t *id, json_t *content);

/* Parameters that mean the same in both APIs. names ends with a NULL. */
void chatbody_copy(struct chatbody *c, const json_t *from, const char *const *names);
/* More variables for the template; what the client says in chat_template_kwargs goes first. */
void chatbody_kwarg(struct chatbody *c, const char *name, json_t *value);

/* One function for `tools`, from an object with name, description, strict and a schema under that name. A new reference, or NULL and e
 * set in the words of the client, who has no `function` in between. */
json_t *chatbody_tool(const json_t *tool, const char *schema, const char *where, struct apierr *e);

/* A content of texts: a string, or a list of {"type": one of types, "text"} (types ends with a NULL; a refusal's text is under
 * "refusal"). A new reference, or NULL and e set. where: the content's place in the request. */
json_t *chatbody_texts(json_t *content, const char *const *types, const char *where, struct apierr *e);
/* The list of chat's parts that was gathered, as short as it can be said: one part is just its text. Takes it. */
json_t *chatbody_join(json_t *parts);
json_t *chatbody_part(json_t *text);

/* Places in the request, below another one. */
void chatbody_at(char out[CHATBODY_WHERE_MAX], const char *where, const char *name);
void chatbody_at_ix(char out[CHATBODY_WHERE_MAX], const char *where, size_t ix);

/* Members of a request's objects: the string (shared), or NULL and e set. */
json_t *chatbody_string(const json_t *object, const char *name, const char *where, struct apierr *e);
/* Absent and null are false. */
bool chatbody_has(const json_t *object, const char *name);

#endif
