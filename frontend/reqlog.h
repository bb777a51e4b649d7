/* reqlog.h - a request's log line (--enable-log-requests). Pure. */
#ifndef SLUICE_REQLOG_H
#define SLUICE_REQLOG_H

#include "frontend/story.h"

/* Whether the story is worth a line: what probes and scrapes ask all the time is only when it goes wrong. */
bool reqlog_wants(const struct story *s);
/* Into buf; returns the length, a whole line. model: as it is served. */
size_t reqlog_line(const struct story *s, const char *model, char *buf, size_t cap);
/* What a line may take, with so many bytes of prompt and answer each. */
size_t reqlog_cap(size_t text_max);

#endif
