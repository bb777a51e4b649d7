/* chatmsg.h - the messages of a chat request: checked, and brought into the one form that chat templates know.
 *
 * Roles: developer becomes system, function becomes tool. Content: a text, or a list of text parts (input_text, output_text and
 * refusal are texts too); null where the assistant said nothing. Arguments of tool calls: the object that their text holds, as vLLM
 * does. null is "not given". Everything else is a 400 that names the place: what is neither checked nor known to a template
 * would be left out without a word. */
#ifndef SLUICE_CHATMSG_H
#define SLUICE_CHATMSG_H

#include "common/base.h"
#include "frontend/apierr.h"

#include <jansson.h>

#define CHATMSG_MAX 16384 /* messages of one request */

/* A new list; what need not be changed is shared with the given one. NULL: e is set. Any thread. */
json_t *chatmsg_read(const json_t *messages, struct apierr *e) MUST_CHECK;

#endif
