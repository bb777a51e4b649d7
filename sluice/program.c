/* program.c - see program.h. */
#include "sluice/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int program_find(char *out, size_t cap, const char *name, struct errbuf *err)
{
	const char *dir = getenv("SLUICE_BIN_DIR");
	char self[512], *slash;
	ssize_t n;

	if (!dir || !dir[0]) {
		n = readlink("/proc/self/exe", self, sizeof(self) - 1);
		if (n <= 0)
			return err_set(err, ST_IO, "cannot find this program's folder: %s; set SLUICE_BIN_DIR",
				       strerror(errno));
		self[n] = 0;
		slash = strrchr(self, '/');
		if (slash) *slash = 0;
		dir = self;
	}
	if (snprintf(out, cap, "%s/sluice-%s", dir, name) >= (int)cap)
		return err_set(err, ST_INVALID, "the program's path is too long");
	if (access(out, X_OK) != 0) return err_set(err, ST_NOT_FOUND, "%s is missing or not executable", out);
	return ST_OK;
}

const char *program_worker(uint32_t device)
{
	static const char *const names[] = {[DEVICE_AUTO] = "worker-cpu",
					    [DEVICE_CPU] = "worker-cpu",
					    [DEVICE_CUDA] = "worker-cuda",
					    [DEVICE_NULL] = "worker-null"};

	return names[device];
}
