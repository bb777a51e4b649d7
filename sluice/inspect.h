/* inspect.h - `sluice inspect MODEL`: what is in a model file, and whether it can be served. */
#ifndef SLUICE_INSPECT_H
#define SLUICE_INSPECT_H

/* argv[0] is the word "inspect". Returns the exit code: 0 the model can be served, 1 it cannot (the reason is on
 * stderr), 2 wrong usage. */
int inspect_main(int argc, char **argv);

#endif
