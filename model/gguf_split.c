/* gguf_split.c - refuses a part of a split model with words that help: which part it is, and which one is missing. */
#include "model/gguf_impl.h"
#include "common/quote.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The name that part `no` (from 1) of this file's series has; false when the file is not named as part of `count`. */
static bool gguf_split_name(const struct gguf *g, uint64_t no, uint64_t count, uint64_t own, char *out, size_t out_len)
{
	char suffix[64];
	size_t len = strlen(g->path), suffix_len;
	int n;

	snprintf(suffix, sizeof(suffix), "-%05llu-of-%05llu.gguf", (unsigned long long)own, (unsigned long long)count);
	suffix_len = strlen(suffix);
	if (len < suffix_len || strcmp(g->path + len - suffix_len, suffix) != 0) return false;
	n = snprintf(out, out_len, "%.*s-%05llu-of-%05llu.gguf", (int)(len - suffix_len), g->path,
		     (unsigned long long)no, (unsigned long long)count);
	return n > 0 && (size_t)n < out_len;
}

static int refuse_part(const struct gguf *g, uint64_t no, uint64_t count, struct errbuf *err)
{
	char part[4096];
	uint64_t i;

	if (!gguf_split_name(g, 1, count, no + 1, part, sizeof(part)))
		return err_set(err, ST_CORRUPT,
			       "split.count is %llu and split.no %llu, but the file is not named "
			       "\"...-%05llu-of-%05llu.gguf\"",
			       (unsigned long long)count, (unsigned long long)no, (unsigned long long)no + 1,
			       (unsigned long long)count);
	for (i = 1; i <= count; i++) {
		const char *base;

		if (!gguf_split_name(g, i, count, no + 1, part, sizeof(part))) break;
		base = strrchr(part, '/') ? strrchr(part, '/') + 1 : part;
		if (access(part, F_OK) != 0)
			return err_set(err, ST_NOT_FOUND, "part %llu of %llu of a split model; part %s is missing",
				       (unsigned long long)no + 1, (unsigned long long)count,
				       quote_short(base, strlen(base)).text);
	}
	return err_set(err, ST_UNSUPPORTED,
		       "part %llu of %llu of a split model; a whole one is needed: join the parts with "
		       "llama-gguf-split --merge",
		       (unsigned long long)no + 1, (unsigned long long)count);
}

int gguf_read_split(struct gguf *g, struct errbuf *err)
{
	uint64_t no, count, tensors;
	int rc = gguf_get_u64_or(g, "split.count", 0, UINT16_MAX, 0, &count, err);

	if (rc == ST_OK) rc = gguf_get_u64_or(g, "split.no", 0, UINT16_MAX, 0, &no, err);
	if (rc == ST_OK) rc = gguf_get_u64_or(g, "split.tensors.count", 0, INT32_MAX, 0, &tensors, err);
	if (rc != ST_OK) return rc;
	g->split = (struct gguf_split){(uint32_t)no, (uint32_t)max_u64(count, 1), tensors};
	return count > 1 && g->refuse_parts ? refuse_part(g, no, count, err) : ST_OK;
}
