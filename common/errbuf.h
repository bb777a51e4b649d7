/* errbuf.h - one human-readable error, carried next to a status code.
 *
 * Used only where a person acts on the text: options, model files, templates, start-up, a request's 400.
 * The first error set is kept: an outer layer that adds context uses err_prefix(). */
#ifndef SLUICE_ERRBUF_H
#define SLUICE_ERRBUF_H

#include "common/base.h"
#include "common/status.h"

struct errbuf {
	char text[768]; /* UTF-8, always terminated; "" when nothing was set */
};

/* Formats a text, cuts it at a character's border when too long, and returns rc, so that a caller writes
 * `return err_set(err, ST_INVALID, "...")`. err may be NULL. */
int err_set(struct errbuf *err, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "prefix: " in front of the text. Returns rc. err may be NULL. */
int err_prefix(struct errbuf *err, int rc, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
