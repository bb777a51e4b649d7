/* utf8.h - checking and repairing UTF-8 (Unicode 15, table 3-7: no surrogates, no overlong forms). */
#ifndef SLUICE_UTF8_H
#define SLUICE_UTF8_H

#include "common/base.h"

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Length of the longest prefix of s[0..len) that is whole, well-formed UTF-8. */
size_t utf8_valid_len(const char *s, size_t len);

/* Classifies the bytes at s[0..len), len > 0: returns the length of the well-formed character there (1 to 4), or
 * minus the length of the maximal ill-formed subpart (-1 to -3), which a repair replaces by one U+FFFD. When the
 * bytes are a proper prefix of a character that ends with the input, *cut is set to true (else false). */
int utf8_next(const char *s, size_t len, bool *cut);

/* Decodes the well-formed character at s. Returns its length; the code point goes to *cp. */
int utf8_decode(const char *s, uint32_t *cp);

/* Writes cp (a valid scalar value) to out[4]; returns the number of bytes. */
int utf8_encode(uint32_t cp, char *out);

#endif
