/* test_sim.c - runs seeds of the simulated mesh.
 *
 *   test_sim [--seeds N] [--from S]     N seeds from S on (200 from 1); every tenth runs twice and must do the same
 *   test_sim --seed S [-v]              one seed; -v prints what happens
 *
 * Prints how often each kind of event happened, and fails unless each that matters did so often enough. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char repeat[256]; /* how to see the running seed again */

/* Also for a CHECK in the code under test. */
static void on_abort(int sig)
{
	(void)!write(STDERR_FILENO, repeat, strlen(repeat));
	signal(sig, SIG_DFL);
	raise(sig);
}

static uint64_t run(const char *program, uint64_t seed, bool verbose, struct sim_counts *counts)
{
	snprintf(repeat, sizeof(repeat), "seed %" PRIu64 " failed; again: %s --seed %" PRIu64 " -v\n", seed, program,
		 seed);
	return sim_run(seed, verbose, counts);
}

static bool report_line(const char *name, uint64_t n, uint64_t at_least)
{
	printf("  %-26s %10" PRIu64, name, n);
	if (n < at_least) printf("   too rare, at least %" PRIu64, at_least);
	printf("\n");
	return n >= at_least;
}

/* True when all have happened often enough; few seeds cannot be asked for that. */
static bool report(const struct sim_counts *c, bool demand)
{
	bool ok = true;

#define PRINT(name, at_least) ok &= report_line(#name, c->name, demand ? at_least : 0);
	SIM_COUNTS(PRINT)
#undef PRINT
	return ok;
}

static bool number(const char *text, uint64_t *out)
{
	char *end;

	*out = strtoull(text, &end, 10);
	return *text && !*end;
}

int main(int argc, char **argv)
{
	uint64_t from = 1, n = 200, again;
	struct sim_counts counts = {0}, other = {0};
	bool verbose = false, one = false, ok;

	for (int i = 1; i < argc; i++) {
		bool last = i + 1 == argc;

		if (!strcmp(argv[i], "-v")) {
			verbose = true;
		} else if (!strcmp(argv[i], "--seeds") && !last && number(argv[i + 1], &n)) {
			i++;
		} else if (!strcmp(argv[i], "--from") && !last && number(argv[i + 1], &from)) {
			i++;
		} else if (!strcmp(argv[i], "--seed") && !last && number(argv[i + 1], &from)) {
			one = true;
			n = 1;
			i++;
		} else {
			fprintf(stderr, "usage: %s [--seeds N] [--from S] | --seed S [-v]\n", argv[0]);
			return 2;
		}
	}
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
	for (uint64_t seed = from; seed < from + n; seed++) {
		uint64_t trace = run(argv[0], seed, verbose, &counts);

		if (seed % 10 != 0 && !one) continue;
		again = run(argv[0], seed, false, &other);
		if (again != trace) {
			fprintf(stderr, "seed %" PRIu64 " does not do the same twice\n", seed);
			return 1;
		}
	}
	printf("%" PRIu64 " seeds from %" PRIu64 "\n", n, from);
	ok = report(&counts, n >= 100);
	return ok ? 0 : 1;
}
