/* main_sluice-worker-null.c - the worker process that does all but the arithmetic: for capacity planning and tests. */
#include "worker/workerproc.h"

int main(void)
{
	return workerproc_run(true);
}
