/* inspect.c - the command line of `sluice inspect`: opens the file, collects what is in it, lets a printer show it.
 *
 * The text goes to stdout, faults to stderr. A file that is no GGUF has nothing to show; one whose shape cannot be
 * served is shown as far as it goes, with the reason. Nothing here reads the weights, so it takes milliseconds at any
 * size. */
#include "sluice/inspect.h"

#include "model/preflight.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/inspect_info.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSPECT_OUT_MAX (256 * MIB) /* a line for each of a million tensors */

enum inspect_exit { INSPECT_OK = 0, INSPECT_BAD = 1, INSPECT_USAGE = 2 };

struct inspect_args {
	bool json, tensors, metadata, template, check;
	const char *path;
};

static const char inspect_help[] = "Usage: sluice inspect [OPTIONS] MODEL\n"
				   "\n"
				   "Shows what is in a model file and whether it can be served. Reads no weights.\n"
				   "\n"
				   "Options:\n"
				   "      --json      one JSON object instead of text\n"
				   "      --tensors   also every tensor: name, type, shape, bytes\n"
				   "      --metadata  also every key of the metadata (arrays: their first elements)\n"
				   "      --template  only the chat template\n"
				   "      --check     only check: \"ok\", or the reason on stderr\n"
				   "  -h, --help      this text\n"
				   "\n"
				   "Exit codes: 0 the model can be served, 1 it cannot, 2 wrong usage.\n"
				   "\n"
				   "Examples:\n"
				   "  sluice inspect models/SmolLM2-135M-Instruct.Q4_1.gguf\n"
				   "  sluice inspect --tensors model.gguf | grep Q6_K\n"
				   "  sluice inspect --json model.gguf | jq .kv_cache\n"
				   "  sluice inspect --check model.gguf && sluice serve model.gguf\n";

/* ---- collecting ---- */

static struct gguf_str inspect_str(const struct gguf *g, const char *key)
{
	struct gguf_str s = {NULL, 0};

	return gguf_get_str(g, key, &s, NULL) == ST_OK ? s : (struct gguf_str){NULL, 0};
}

static uint64_t inspect_array_len(const struct gguf *g, const char *key)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	return kv && kv->kind == GGUF_ARR ? kv->n : 0;
}

static struct inspect_type *inspect_type_of(struct inspect_info *info, enum ggtype type)
{
	size_t i;

	for (i = 0; i < info->n_types; i++)
		if (info->types[i].type == type) return &info->types[i];
	CHECK(info->n_types < INSPECT_TYPES_MAX);
	info->types[info->n_types].type = type;
	return &info->types[info->n_types++];
}

static int inspect_compare_types(const void *a, const void *b)
{
	const struct inspect_type *x = a, *y = b;

	return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

static void inspect_collect(struct inspect_info *info, const struct gguf *g)
{
	size_t i;

	info->g = g;
	for (i = 0; i < gguf_tensor_count(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		struct inspect_type *sum = inspect_type_of(info, t->type);
		uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];

		sum->tensors++;
		sum->params += n;
		sum->bytes += t->bytes;
		info->params += n;
		info->bytes += t->bytes;
	}
	qsort(info->types, info->n_types, sizeof(info->types[0]), inspect_compare_types);
	info->arch = inspect_str(g, "general.architecture");
	info->name = inspect_str(g, "general.name");
	info->tok_kind = inspect_str(g, "tokenizer.ggml.model");
	info->tok_pre = inspect_str(g, "tokenizer.ggml.pre");
	info->chat_template = inspect_str(g, "tokenizer.chat_template");
	info->n_tokens = inspect_array_len(g, "tokenizer.ggml.tokens");
	info->n_merges = inspect_array_len(g, "tokenizer.ggml.merges");
}

/* ---- running ---- */

static int inspect_fail(const struct errbuf *err)
{
	fprintf(stderr, "sluice inspect: %s\n", err->text);
	return INSPECT_BAD;
}

/* A closed or full stdout must not look like success. */
static int inspect_write(const struct strbuf *out)
{
	if (out->overflow) {
		fprintf(stderr, "sluice inspect: the output is too long\n");
		return INSPECT_BAD;
	}
	if (fwrite(out->data, 1, out->len, stdout) != out->len || fflush(stdout) != 0) {
		fprintf(stderr, "sluice inspect: cannot write: %s\n", strerror(errno));
		return INSPECT_BAD;
	}
	return INSPECT_OK;
}

static int inspect_show_template(const struct gguf *g)
{
	struct errbuf err = {""};
	struct gguf_str s;
	struct strbuf out;
	int rc;

	if (gguf_get_str(g, "tokenizer.chat_template", &s, &err) != ST_OK) return inspect_fail(&err);
	strbuf_init(&out, INSPECT_OUT_MAX);
	quote_append(&out, s.s, s.len, true);
	if (out.len == 0 || out.data[out.len - 1] != '\n') strbuf_putc(&out, '\n');
	rc = inspect_write(&out);
	strbuf_release(&out);
	return rc;
}

static int inspect_show(const struct gguf *g, const struct inspect_args *args)
{
	struct inspect_info info = {.want_tensors = args->tensors, .want_metadata = args->metadata};
	struct errbuf err = {""};
	struct strbuf out;
	int rc;

	inspect_collect(&info, g);
	info.shape_rc = modelshape_read(&info.shape, g, &err);
	info.reason = err.text;
	strbuf_init(&out, INSPECT_OUT_MAX);
	if (args->json)
		inspect_json(&info, &out);
	else
		inspect_text(&info, &out);
	rc = inspect_write(&out);
	strbuf_release(&out);
	if (rc != INSPECT_OK) return rc;
	return info.shape_rc == ST_OK ? INSPECT_OK : inspect_fail(&err);
}

static int inspect_run(const struct inspect_args *args)
{
	struct errbuf err = {""};
	struct gguf *g = NULL;
	int rc;

	if (args->check) {
		if (preflight_check(args->path, &err) != ST_OK) return inspect_fail(&err);
		printf("ok\n");
		return fflush(stdout) == 0 ? INSPECT_OK : INSPECT_BAD;
	}
	if (gguf_open(&g, args->path, &err) != ST_OK) return inspect_fail(&err);
	rc = args->template ? inspect_show_template(g) : inspect_show(g, args);
	gguf_close(g);
	return rc;
}

static int inspect_usage(const char *what, const char *word)
{
	fprintf(stderr, "sluice inspect: %s%s%s; see `sluice inspect --help`\n", what, word ? ": " : "",
		word ? quote_short(word, strlen(word)).text : "");
	return INSPECT_USAGE;
}

int inspect_main(int argc, char **argv)
{
	enum { JSON = 1000, TENSORS, METADATA, TEMPLATE, CHECK_ONLY };
	static const struct option options[] = {
		{"json", no_argument, NULL, JSON},
		{"tensors", no_argument, NULL, TENSORS},
		{"metadata", no_argument, NULL, METADATA},
		{"template", no_argument, NULL, TEMPLATE},
		{"check", no_argument, NULL, CHECK_ONLY},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct inspect_args args = {0};
	int option;

	opterr = 0; /* our own texts */
	optind = 0; /* the word before "inspect" has been read by another getopt, perhaps */
	while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (option == JSON)
			args.json = true;
		else if (option == TENSORS)
			args.tensors = true;
		else if (option == METADATA)
			args.metadata = true;
		else if (option == TEMPLATE)
			args.template = true;
		else if (option == CHECK_ONLY)
			args.check = true;
		else if (option == 'h')
			return fputs(inspect_help, stdout) < 0 || fflush(stdout) != 0 ? INSPECT_BAD : INSPECT_OK;
		else
			return inspect_usage("unknown option", argv[optind - 1]);
	}
	if (optind == argc) return inspect_usage("no model is given", NULL);
	if (optind + 1 < argc) return inspect_usage("more than one model is given", argv[optind + 1]);
	if (args.check + args.template + (args.json || args.tensors || args.metadata) > 1)
		return inspect_usage("--check and --template go alone", NULL);
	args.path = argv[optind];
	return inspect_run(&args);
}
