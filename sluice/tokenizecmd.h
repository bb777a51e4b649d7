/* tokenizecmd.h - `sluice tokenize`: show a text's tokens as the server sees them. */
#ifndef SLUICE_TOKENIZECMD_H
#define SLUICE_TOKENIZECMD_H

/* argv[0] is the word "tokenize". Returns the exit code. */
int tokenizecmd_main(int argc, char **argv);

#endif
