/* hubbar.c - see hubbar.h. */
#include "sluice/hubbar.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WIDTH       30
#define BAR_EVERY   (200 * NS_PER_MS)
#define LINES_EVERY (10 * NS_PER_S)
#define BEAT_EVERY  (2 * NS_PER_S)

const char *hubbar_bytes(uint64_t bytes, char *out)
{
	static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
	double v = (double)bytes / 1000;
	size_t i = 0;

	if (bytes < 1000) {
		snprintf(out, 16, "%u B", (unsigned)bytes);
		return out;
	}
	while (v >= 999.5 && i + 1 < ARRAY_LEN(units)) {
		v /= 1000;
		i++;
	}
	snprintf(out, 16, v < 9.95 ? "%.1f %s" : "%.0f %s", v, units[i]);
	return out;
}

void hubbar_init(struct hubbar *b, bool wanted, void (*say)(const char *line), uint64_t now)
{
	*b = (struct hubbar){.has_bar = wanted && isatty(STDERR_FILENO),
			     .say = say,
			     .began_ns = now,
			     .shown_ns = now,
			     .beat_ns = now};
}

void hubbar_clear(struct hubbar *b)
{
	if (b->shown) fputs("\r\033[K", stderr);
	b->shown = false;
}

void hubbar_note(struct hubbar *b, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	hubbar_clear(b);
	b->say(line);
}

void hubbar_show(struct hubbar *b, const struct hubbar_state *s, uint64_t now)
{
	uint64_t since = now - b->began_ns;
	double share = s->total ? (double)s->done / (double)s->total : 0,
	       rate = since ? ((double)s->done - (double)b->began_bytes) * 1e9 / (double)since : 0;
	char text[200], done[16], total[16], per_s[16], bar[WIDTH + 1];

	bool is_due = now - b->shown_ns >= (b->has_bar ? BAR_EVERY : LINES_EVERY),
	     beats = b->beat && now - b->beat_ns >= BEAT_EVERY;

	if (!is_due && !beats) return;
	snprintf(text, sizeof(text), "%3d%%  %s of %s, %s/s, %zu of %zu files", (int)(share * 100),
		 hubbar_bytes(s->done, done), hubbar_bytes(s->total, total),
		 hubbar_bytes((uint64_t)(rate > 0 ? rate : 0), per_s), s->n_done, s->n);
	if (beats) {
		b->beat_ns = now;
		b->beat(text);
	}
	if (!is_due) return;
	b->shown_ns = now;
	if (!b->has_bar) {
		b->say(text);
		return;
	}
	memset(bar, '.', WIDTH);
	memset(bar, '#', (size_t)(share * WIDTH));
	bar[WIDTH] = 0;
	fprintf(stderr, "\r\033[K[%s] %s", bar, text);
	b->shown = true;
}
