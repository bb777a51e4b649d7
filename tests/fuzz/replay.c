/* replay.c - runs a fuzz target once over the files of its corpus, without libFuzzer: any compiler, any build.
 *
 *   replay_NAME PATH...      files, and folders of files; with none, tests/fuzz/corpus/NAME
 *
 * What a fuzzer found is kept in the corpus, so each run of the tests repeats it. */
#include "common/mem.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data;
	struct stat st;

	if (!f || fstat(fileno(f), &st) != 0) {
		fprintf(stderr, "cannot read %s\n", path);
		if (f) fclose(f);
		return -1;
	}
	data = mem_array(uint8_t, (size_t)st.st_size); /* exactly the bytes, so that a sanitizer sees their end */
	if (fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
		fprintf(stderr, "%s changed while it was read\n", path);
		free(data);
		fclose(f);
		return -1;
	}
	fclose(f);
	LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
	free(data);
	return 1;
}

static int replay_path(const char *path)
{
	struct dirent *e;
	struct stat st;
	int n = 0;
	DIR *d;

	if (stat(path, &st) != 0) return 0;
	if (!S_ISDIR(st.st_mode)) return replay_file(path);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		char file[1024];
		int rc;

		if (e->d_name[0] == '.') continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		rc = replay_path(file);
		if (rc < 0) {
			closedir(d);
			return rc;
		}
		n += rc;
	}
	if (d) closedir(d);
	return n;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/');
	char folder[256];
	int n = 0, i, rc;

	name = name ? name + 1 : argv[0];
	if (strncmp(name, "replay_", 7) == 0) name += 7;
	snprintf(folder, sizeof(folder), "tests/fuzz/corpus/%s", name);
	for (i = 1; i < argc || (argc == 1 && i == 1); i++) {
		rc = replay_path(argc == 1 ? folder : argv[i]);
		if (rc < 0) return 1;
		n += rc;
	}
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	printf("%s: %d files\n", name, n);
	return 0;
}
