/* hubbar.h - how far a download is: a bar where a person looks on, a line now and then where not. */
#ifndef SLUICE_HUBBAR_H
#define SLUICE_HUBBAR_H

#include "common/base.h"

struct hubbar {
	bool has_bar;                    /* stderr is a terminal, and progress is wanted */
	void (*say)(const char *line);   /* whole lines, without "\n" */
	void (*beat)(const char *state); /* every two seconds, for whoever waits for the end; NULL: nobody */
	bool shown;
	uint64_t began_ns, shown_ns, beat_ns;
	uint64_t began_bytes; /* what was there at the beginning, for the rate */
};

struct hubbar_state {
	uint64_t done, total; /* bytes */
	size_t n_done, n;     /* files */
};

void hubbar_init(struct hubbar *b, bool wanted, void (*say)(const char *line), uint64_t now);
/* A line of its own. */
void hubbar_note(struct hubbar *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void hubbar_show(struct hubbar *b, const struct hubbar_state *s, uint64_t now);
/* Takes the bar away. */
void hubbar_clear(struct hubbar *b);

/* "1.2 GB", in powers of 1000, as hubs show sizes. out: at least 16 bytes. */
const char *hubbar_bytes(uint64_t bytes, char *out);

#endif
