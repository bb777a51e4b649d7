/* logline.h - builds one log line with keys, in the format of the process (log.h), in memory of the caller.
 *
 * text: `LEVEL MM-DD HH:MM:SS [name] message key=value key="a value"`
 * json: `{"ts":"2026-11-30T18:30:26.123Z","level":"info","process":"frontend 0","pid":17,"msg":"message","key":value}`
 *
 * Always one whole line: what does not fit is cut within a value or left out, never the end. */
#ifndef SLUICE_LOGLINE_H
#define SLUICE_LOGLINE_H

#include "common/log.h"

/* As much as a pipe takes in one piece (PIPE_BUF), so lines of many processes do not mix. */
#define LOGLINE_BYTES 4096

struct logline {
	char *data;  /* borrowed */
	size_t len, cap;
	bool is_json;
};

/* cap >= 512 */
void logline_begin(struct logline *l, char *data, size_t cap, enum log_level level, const char *msg, size_t msg_len);
/* Keys are plain words. Ill-formed UTF-8 becomes U+FFFD; control characters and what turns the direction of text are
 * escaped, in both formats. */
void logline_text(struct logline *l, const char *key, const char *s, size_t len);
void logline_u64(struct logline *l, const char *key, uint64_t v);
/* Milliseconds with three digits behind the point. */
void logline_ms(struct logline *l, const char *key, uint64_t ns);
/* Ends it; returns its length. */
size_t logline_end(struct logline *l);

#endif
