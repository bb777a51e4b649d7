/* main_sluice-executor.c - the executor process. */
#include "executor/edge.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	struct errbuf err = {{0}};
	struct boot boot;
	int exit_code;

	if (boot_was_asked(argc, argv)) return EXIT_OK;
	if (boot_receive(&boot, "executor", &err) != ST_OK) {
		fprintf(stderr, "sluice-executor: error: %s\n", err.text);
		boot_send_failed(EXIT_FAILED, err.text);
		return EXIT_FAILED;
	}
	exit_code = edge_run(&boot);
	boot_release(&boot);
	return exit_code;
}
