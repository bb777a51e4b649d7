/* serve.h - `sluice serve`: the supervisor. */
#ifndef SLUICE_SERVE_H
#define SLUICE_SERVE_H

/* argv[0] is the word "serve". Returns the exit code: EXIT_OK after a stop by signal, EXIT_USAGE, EXIT_FAILED, or
 * the code that a child asked for. */
int serve_main(int argc, char **argv);

#endif
