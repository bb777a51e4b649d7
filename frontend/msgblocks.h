/* msgblocks.h - the conversation of Anthropic's Messages API: turns made of content blocks. */
#ifndef SLUICE_MSGBLOCKS_H
#define SLUICE_MSGBLOCKS_H

#include "common/base.h"
#include "frontend/chatbody.h"

/* Appends what `system` and `messages` of the body say. False: c->e names the place. */
bool msgblocks_read(struct chatbody *c, const json_t *body);

#endif
