/* respitems.h - the input of the Responses API: a text, or items of a conversation. */
#ifndef SLUICE_RESPITEMS_H
#define SLUICE_RESPITEMS_H

#include "common/base.h"
#include "frontend/chatbody.h"

/* Appends the messages that `input` stands for. False: c->e names the item. */
bool respitems_read(struct chatbody *c, json_t *input);

#endif
