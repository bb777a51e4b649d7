/* main_sluice-frontend.c - a frontend process. */
#include "frontend/front.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	struct errbuf err = {{0}};
	struct boot boot;
	int exit_code;

	if (boot_was_asked(argc, argv)) return EXIT_OK;
	if (boot_receive(&boot, "frontend", &err) != ST_OK) {
		fprintf(stderr, "sluice-frontend: error: %s\n", err.text);
		boot_send_failed(EXIT_FAILED, err.text);
		return EXIT_FAILED;
	}
	exit_code = front_run(&boot);
	boot_release(&boot);
	return exit_code;
}
