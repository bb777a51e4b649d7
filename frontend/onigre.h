/* onigre.h - regular expressions as tokenizer.json spells them, matched by PCRE2.
 *
 * Inside the tokenizer only; the one door to PCRE2. tokenizer.json means the Ruby syntax of the Oniguruma library. What the
 * two spell alike is taken over, white space (\s) is spelled out, and what means something else in each of them is
 * refused by name, so that an expression never silently cuts other words.
 *
 * A compiled expression is immutable: any number of threads, each with a match of its own. Expressions are not trusted: a
 * search that takes too many steps gives up (ONIGRE_GAVE_UP). */
#ifndef SLUICE_ONIGRE_H
#define SLUICE_ONIGRE_H

#include "common/base.h"
#include "common/errbuf.h"

#define ONIGRE_LEN_MAX 16384 /* bytes of an expression; the longest published ones have about 500 */

struct onigre;
struct strbuf;

/* Unicode's White_Space as the inside of a class. PCRE2's own \s counts U+180E too. */
#define ONIGRE_SPACE "\\p{Z}\\x{9}-\\x{d}\\x{85}"

/* Appends PCRE2's spelling. ST_UNSUPPORTED: err says what is not known, and where. */
int onigre_translate(const char *s, size_t len, struct strbuf *out, struct errbuf *err) MUST_CHECK;
/* Compiles PCRE2's spelling. */
int onigre_new(struct onigre **out, const char *pcre, size_t len, struct errbuf *err) MUST_CHECK;
void onigre_free(struct onigre *re);

enum onigre_result { ONIGRE_FOUND, ONIGRE_NONE, ONIGRE_GAVE_UP };

/* Memory of one search after the other in one thread. */
struct onigre_match;
struct onigre_match *onigre_match_new(void);
void onigre_match_free(struct onigre_match *m);

/* The first match at or after `at` in well-formed text; it may be empty. */
enum onigre_result onigre_find(const struct onigre *re, struct onigre_match *m, const char *text, size_t len, size_t at,
			       size_t *from, size_t *to);

#endif
