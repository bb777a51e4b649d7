/* fuzz_gguf.c - any bytes as a model file: opening must refuse them or leave everything in them readable.
 *
 * Seeds: corpus/gguf. Build by hand (clang):
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -D_GNU_SOURCE tests/fuzz/fuzz_gguf.c tests/support/gguf_touch.c \
 *     common/{errbuf,ggtype,gguf,gguf_read,gguf_split,gguf_walk,log,mem,modelshape,quote,status,strbuf,utf8}.c -lxxhash -lm */
#include "model/gguf.h"
#include "tests/support/gguf_touch.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1; /* one file in memory, rewritten each time */
	struct errbuf err;
	struct gguf *g;
	char path[32];

	if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (gguf_open(&g, path, &err) != ST_OK) {
		CHECK(err.text[0]);
		return 0;
	}
	gguf_touch(g);
	gguf_close(g);
	return 0;
}
