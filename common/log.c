/* log.c - see log.h. */
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
	char name[32];
	enum log_level level;
} log_state = {"sluice", LOG_INFO};

static const char *const log_names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

void log_init(const char *name, enum log_level level)
{
	snprintf(log_state.name, sizeof(log_state.name), "%s", name);
	log_state.level = level;
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
	/* A terminal may show the supervisor's progress bar, whoever logs: a line takes its place. */
	static const char clear[] = "\r\033[K";
	char line[2048]; /* longer lines are cut: a log line is for a person */
	struct tm tm;
	time_t now = time(NULL);
	size_t n, stamp;
	int rc;

	localtime_r(&now, &tm);
	n = (size_t)snprintf(line, sizeof(line), "%s%s ", isatty(STDERR_FILENO) ? clear : "", log_names[level]);
	stamp = strftime(line + n, sizeof(line) - n, "%m-%d %H:%M:%S ", &tm);
	n += stamp;
	n += (size_t)snprintf(line + n, sizeof(line) - n, "[%s] ", log_state.name);
	rc = vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	if (rc > 0) n += (size_t)rc;
	if (n > sizeof(line) - 2) n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0) return; /* nowhere left to report to */
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
