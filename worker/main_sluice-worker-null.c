/* main_sluice-worker-null.c - the worker process that does all but the arithmetic: for capacity planning and tests. */
#include "worker/planproc.h"
#include "worker/workerproc.h"

int main(int argc, char **argv)
{
	const bool null_device = true;

	if (planproc_is_asked(argc, argv)) return planproc_run(argc, argv, null_device);
	return workerproc_run(null_device);
}
