/* ebnfc.h - grammars in llama.cpp's GBNF, which the EBNF of xgrammar and vLLM shares, to a grammar of ours.
 *
 *   root ::= greeting (", " name){1,3} "!"      # a comment
 *   greeting ::= "Hello" | "Hi"
 *   name ::= [A-Z] [a-z\u00e0-\u00ff]* | .
 *
 * A rule ends where the next one begins. Literals may have either kind of quotes and the escapes \n \r \t \\ \" \' \[ \] \- \^ \xHH
 * \uHHHH \UHHHHHHHH. What is wrong is said with its line: syntax, a rule that is missing or there twice, one that begins with itself,
 * one that never ends. */
#ifndef SLUICE_EBNFC_H
#define SLUICE_EBNFC_H

#include "frontend/gramctx.h"

/* Puts the text's rule "root" into the rule `body`; on failure g has failed. */
void ebnfc_compile(struct gramctx *g, const char *text, size_t len, uint32_t body);

#endif
