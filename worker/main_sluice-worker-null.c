/* main_sluice-worker-null.c - the worker process that does all but the arithmetic: for capacity planning and tests. */
#include "proto/boot.h"
#include "worker/planproc.h"
#include "worker/workerproc.h"

int main(int argc, char **argv)
{
	const bool null_device = true;

	if (boot_was_asked(argc, argv)) return EXIT_OK;
	if (planproc_is_asked(argc, argv)) return planproc_run(argc, argv, null_device);
	return workerproc_run(null_device);
}
