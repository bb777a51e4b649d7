/* main_sluice-frontend.c - a frontend process. */
#include "frontend/front.h"

#include <malloc.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	struct errbuf err = {{0}};
	struct boot boot;
	int exit_code;

	if (boot_was_asked(argc, argv)) return EXIT_OK;
	/* A large request's memory goes back to the system when it is done; by default glibc would learn to keep it. */
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	mallopt(M_TRIM_THRESHOLD, 256 * 1024);
	/* The loop has an arena of its own, apart from those of the threads (libuv's four, ZeroMQ's two), and whoever frees merges at
	 * once: otherwise the loop's next call would have to tidy up the million pieces of a request that a thread has freed. */
	mallopt(M_ARENA_MAX, 8);
	mallopt(M_MXFAST, 0);
	if (boot_receive(&boot, "frontend", &err) != ST_OK) {
		fprintf(stderr, "sluice-frontend: error: %s\n", err.text);
		boot_send_failed(EXIT_FAILED, err.text);
		return EXIT_FAILED;
	}
	exit_code = front_run(&boot);
	boot_release(&boot);
	return exit_code;
}
