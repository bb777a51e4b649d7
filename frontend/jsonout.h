/* jsonout.h - pieces of JSON, written by hand: the tokens' fast path. */
#ifndef SLUICE_JSONOUT_H
#define SLUICE_JSONOUT_H

#include "common/base.h"
#include "common/strbuf.h"

/* The inside of a string, escaped; ill-formed UTF-8 becomes U+FFFD. */
void jsonout_escape(struct strbuf *out, const char *s, size_t len);
/* The same with quotes around it. */
void jsonout_string(struct strbuf *out, const char *s, size_t len);
void jsonout_text(struct strbuf *out, const char *s); /* terminated; NULL writes null */
/* Shortest of %.9g; what is not a finite number becomes -9999.0, vLLM's stand-in for a probability of 0. */
void jsonout_f32(struct strbuf *out, float v);

#endif
