/* log.h - log lines on standard error, one write() each, so that lines of many processes never mix.
 *
 * Format: `LEVEL MM-DD HH:MM:SS [name] text`, or a JSON object (logline.h). A line says what happened and, when a person should act,
 * what to do. The data path does not log per request at info unless it is asked to; it counts. */
#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H

#include "common/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

/* name: "supervisor", "frontend 0", ...; copied. Before the call, lines carry the name "sluice". */
void log_init(const char *name, enum log_level level);
/* Lines are JSON objects from now on, or text. */
void log_use_json(bool on);
bool log_is_json(void);
const char *log_name(void);
bool log_enabled(enum log_level level);

/* Parses debug|info|warning|error. False when the word is none of them. */
bool log_level_parse(const char *word, enum log_level *out);

void log_write(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Logs an error and aborts. */
NORETURN void log_fatal(const char *fmt, ...) PRINTF_LIKE(1, 2);

#define log_debug(...)                                                     \
	do {                                                               \
		if (log_enabled(LOG_DEBUG)) log_write(LOG_DEBUG, __VA_ARGS__); \
	} while (0)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
