/* tinymodel.c - writes the random model of tests/support/tiny_llama.h for tests of whole servers.
 *
 *   tinymodel FILE [CONTEXT [LAYERS [DIM [ROWS]]]]
 *
 * CONTEXT sets how long a stream can be, LAYERS and DIM how slow, ROWS makes room for a
 * vocabulary of so many tokens, and leaves the file without one of its own. The same numbers give the same file. */
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_llama.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	struct tiny_llama t;
	struct gguf_writer w;

	if (argc < 2 || argc > 6) {
		fprintf(stderr, "usage: %s FILE [CONTEXT [LAYERS [DIM [ROWS]]]]\n", argv[0]);
		return 2;
	}
	tiny_llama_init(&t);
	t.context = argc > 2 ? (uint32_t)atoi(argv[2]) : 4096;
	if (argc > 3) t.layers = (uint32_t)atoi(argv[3]);
	if (argc > 4) {
		t.dim = (uint32_t)atoi(argv[4]); /* a multiple of 64 */
		t.ffn = 2 * t.dim;
		t.heads = t.dim / 16;
		t.kv_heads = t.heads / 2;
	}
	if (argc > 5) t.vocab = (uint32_t)atoi(argv[5]);
	gguf_writer_init(&w);
	tiny_llama_fill(&w, &t);
	if (argc > 5) gguf_writer_drop(&w, "tokenizer.ggml.tokens");
	gguf_writer_save(&w, argv[1]);
	gguf_writer_release(&w);
	return 0;
}
