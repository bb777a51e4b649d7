/* main_sluice-worker-cpu.c - the worker process on the CPU. */
#include "worker/workerproc.h"

int main(void)
{
	return workerproc_run(false);
}
