/* tokbench.c - how fast a tokenizer turns a text into ids, on one thread.
 *
 * Usage: tokbench TOKENIZER TEXT ROUNDS: TOKENIZER is a tokenizer.json, a folder with one, or a model file. Prints a line
 * of JSON: processor seconds of each round, and a hash of the ids, so that two tokenizers can be seen to agree. */
#include "model/gguf.h"
#include "common/mem.h"
#include "frontend/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Processor time: what else the machine does is not counted. */
static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static char *read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t cap = 0, n;

	*len = 0;
	if (!f) return NULL;
	do {
		mem_reserve(text, cap, *len + 65536);
		n = fread(text + *len, 1, 65536, f);
		*len += n;
	} while (n > 0);
	fclose(f);
	return text;
}

static int load(struct tokenizer **t, const char *path, struct errbuf *err)
{
	struct gguf *g;
	int rc;

	if (!strstr(path, ".gguf")) return tokenizer_from_json(t, path, err);
	rc = gguf_open(&g, path, err);
	if (rc == ST_OK) rc = tokenizer_from_gguf(t, g, err);
	gguf_close(g);
	return rc;
}

int main(int argc, char **argv)
{
	struct errbuf err = {0};
	struct tokenizer *t;
	size_t len, n_ids = 0;
	uint64_t hash = 0;
	double start;
	char *text;
	int rounds = argc == 4 ? atoi(argv[3]) : 0;

	if (rounds < 1 || !(text = read_file(argv[2], &len))) {
		fprintf(stderr, "usage: tokbench TOKENIZER TEXT ROUNDS\n");
		return 2;
	}
	start = cpu_s();
	if (load(&t, argv[1], &err) != ST_OK) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	printf("{\"load_s\": %.4f, \"seconds\": [", cpu_s() - start);
	for (int i = 0; i < rounds; i++) {
		struct token_vec v;

		token_vec_init(&v, SIZE_MAX);
		start = cpu_s();
		tokenizer_encode(t, text, len, true, &v);
		printf("%s%.5f", i ? ", " : "", cpu_s() - start);
		n_ids = v.len;
		hash = 0;
		for (size_t k = 0; k < v.len; k++) hash = (hash * 31 + v.ids[k]) & 0xffffffffffff;
		token_vec_release(&v);
	}
	printf("], \"bytes\": %zu, \"ids\": %zu, \"hash\": %llu}\n", len, n_ids, (unsigned long long)hash);
	tokenizer_free(t);
	free(text);
	return 0;
}
