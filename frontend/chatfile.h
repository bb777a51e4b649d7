/* chatfile.h - --chat-template: the operator's own template instead of the model's. */
#ifndef SLUICE_CHATFILE_H
#define SLUICE_CHATFILE_H

#include "common/base.h"
#include "common/errbuf.h"

struct chat;

#define CHATFILE_BYTES_MAX (4 * MIB) /* the largest published template has some tens of KiB */

/* value: path of a file, or, as with vLLM, the template itself, recognised by its braces. Replaces *chat; err names the file. */
int chatfile_apply(struct chat **chat, const char *value, struct errbuf *err) MUST_CHECK;

#endif
