/* quote.h - makes bytes from files and requests safe to show to a person: in a terminal, a log line or an error text.
 *
 * Control characters (C0, DEL, C1), line separators and bidirectional overrides become \n, \t, \xNN or \u{NNNN};
 * ill-formed UTF-8 becomes \xNN; a backslash is doubled. Everything else stays as it is. */
#ifndef SLUICE_QUOTE_H
#define SLUICE_QUOTE_H

#include "common/base.h"

struct strbuf;

/* A short quotation for an error text: at most `sizeof(text)` bytes, cut with "..." at a character's border. */
struct quote {
	char text[100]; /* terminated */
};

struct quote quote_short(const char *s, size_t len);

/* A path as error texts show it: escaped, and its last name alone when it is long. free() it. */
char *quote_path(const char *path);

/* Appends the escaped text; with keep_lines, "\n" and "\t" stay as they are (for a template shown as a whole). */
void quote_append(struct strbuf *out, const char *s, size_t len, bool keep_lines);

#endif
