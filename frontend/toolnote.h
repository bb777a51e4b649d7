/* toolnote.h - tools for a chat template that has no place for them: they are told in words, and calls and results become text.
 *
 * The words are those that Hermes and Qwen models are trained with, so calls come back in a shape that outparse.h knows
 * (OUTPARSE_TOOLS_HERMES). All of it is a message's text, in which nothing can become a control token. */
#ifndef SLUICE_TOOLNOTE_H
#define SLUICE_TOOLNOTE_H

#include "common/base.h"

#include <jansson.h>

enum toolnote_place {
	TOOLNOTE_SYSTEM, /* at the end of the first system message, which is made when there is none */
	TOOLNOTE_USER    /* in front of the first user message: for templates that refuse a system message */
};

/* A changed copy of checked messages (chatmsg.h). A new reference. */
json_t *toolnote_messages(const json_t *messages, const json_t *tools, enum toolnote_place place);

#endif
