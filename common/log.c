/* log.c - see log.h. */
#include "common/log.h"

#include "common/logline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	char name[32];
	enum log_level level;
	bool is_json;
} log_state = {.name = "sluice", .level = LOG_INFO};

void log_init(const char *name, enum log_level level)
{
	snprintf(log_state.name, sizeof(log_state.name), "%s", name);
	log_state.level = level;
}

void log_use_json(bool on)
{
	log_state.is_json = on;
}

bool log_is_json(void)
{
	return log_state.is_json;
}

const char *log_name(void)
{
	return log_state.name;
}

bool log_enabled(enum log_level level)
{
	return level >= log_state.level;
}

bool log_level_parse(const char *word, enum log_level *out)
{
	static const char *const words[] = {"debug", "info", "warning", "error"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(word, words[i]) != 0) continue;
		*out = (enum log_level)i;
		return true;
	}
	return false;
}

static void log_line(enum log_level level, const char *fmt, va_list ap)
{
	char text[2048], line[LOGLINE_BYTES]; /* longer lines are cut: a log line is for a person */
	struct logline l;
	int rc = vsnprintf(text, sizeof(text), fmt, ap);

	logline_begin(&l, line, sizeof(line), level, text, rc < 0 ? 0 : min_size((size_t)rc, sizeof(text) - 1));
	if (write(STDERR_FILENO, line, logline_end(&l)) < 0) return; /* nowhere left to report to */
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!log_enabled(level)) return;
	va_start(ap, fmt);
	log_line(level, fmt, ap);
	va_end(ap);
}

void log_fatal(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(LOG_ERROR, fmt, ap);
	va_end(ap);
	abort();
}

void check_failed(const char *cond, const char *file, int line)
{
	log_fatal("internal error: CHECK(%s) failed at %s:%d; please report this line", cond, file, line);
}
