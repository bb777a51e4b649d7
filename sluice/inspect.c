/* inspect.c - the command line of `sluice inspect`: opens the checkpoint, collects what is in it, lets a printer show
 * it.
 *
 * The text goes to stdout, faults to stderr. A file that is no GGUF has nothing to show; one whose shape cannot be
 * served is shown as far as it goes, with the reason. Nothing here reads the weights, so it takes milliseconds at any
 * size. */
#include "sluice/inspect.h"

#include "model/preflight.h"
#include "proto/config.h"
#include "proto/limits.h"
#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/hub.h"
#include "sluice/inspect_info.h"
#include "sluice/inspect_memory.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSPECT_OUT_MAX (256 * MIB) /* a line for each of a million tensors */

enum inspect_exit { INSPECT_OK = 0, INSPECT_BAD = 1, INSPECT_USAGE = 2 };

struct inspect_args {
	bool json, tensors, metadata, template, check, memory;
	uint32_t tp;          /* --tensor-parallel-size */
	struct config config; /* for the options that are those of serve */
	const char *path;
};

static const char inspect_help[] =
	"Usage: sluice inspect [OPTIONS] MODEL\n"
	"\n"
	"Shows what is in a model and whether it can be served. MODEL is a GGUF file (of a split one the first part), "
	"a\n"
	"folder with config.json and safetensors, or a hub's ORG/NAME that `sluice pull` has fetched. Reads no "
	"weights.\n"
	"\n"
	"Options:\n"
	"      --json              one JSON object instead of text\n"
	"      --tensors           also every tensor: name, type, shape, bytes\n"
	"      --metadata          also every key of the metadata (arrays: their first elements), or of config.json\n"
	"      --template          only the chat template\n"
	"      --check             only check: \"ok\", or the reason on stderr\n"
	"      --memory            only the plan of the memory, as a table (with --json too); exit code 1 when it does "
	"not fit\n"
	"  -h, --help              this text\n"
	"\n"
	"Options of `sluice serve` that are taken here too, and with --memory their variables:\n"
	"  --max-model-len, --hf-overrides, --kv-cache-dtype, --max-num-seqs, --max-num-batched-tokens, "
	"--activations,\n"
	"  --gpu-memory-utilization, --kv-cache-memory-bytes, --num-gpu-blocks-override, --device, --tokenizer, "
	"--kernels;\n"
	"  and --tensor-parallel-size N: what one of N ranks would plan\n"
	"\n"
	"Exit codes: 0 the model can be served, 1 it cannot, 2 wrong usage.\n"
	"\n"
	"Examples:\n"
	"  sluice inspect models/SmolLM2-135M-Instruct.Q4_1.gguf\n"
	"  sluice inspect --tensors model.gguf | grep Q6_K\n"
	"  sluice inspect --json Qwen2.5-0.5B-Instruct/ | jq .kv_cache\n"
	"  sluice inspect --memory --max-model-len 32K --kv-cache-dtype fp8 model.gguf\n"
	"  sluice inspect --check model.gguf && sluice serve model.gguf\n";

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

static int inspect_show_template(const struct inspect_info *info)
{
	struct gguf_str s = info->tok.chat_template;
	struct strbuf out;
	int rc;

	if (!s.s) {
		fprintf(stderr, "sluice inspect: %s: %s\n", ckpt_shown_path(info->c),
			info->tok.why.text[0] ? info->tok.why.text : "there is no chat template");
		return INSPECT_BAD;
	}
	strbuf_init(&out, INSPECT_OUT_MAX);
	quote_append(&out, s.s, s.len, true);
	if (out.len == 0 || out.data[out.len - 1] != '\n') strbuf_putc(&out, '\n');
	rc = inspect_write(&out);
	strbuf_release(&out);
	return rc;
}

static int inspect_show(const struct inspect_info *info, const struct inspect_args *args, const struct errbuf *err)
{
	struct strbuf out;
	int rc;

	strbuf_init(&out, INSPECT_OUT_MAX);
	if (args->json)
		inspect_json(info, &out);
	else
		inspect_text(info, &out);
	rc = inspect_write(&out);
	strbuf_release(&out);
	if (rc != INSPECT_OK) return rc;
	return info->spec_rc == ST_OK ? INSPECT_OK : inspect_fail(err);
}

/* The table goes out also when it does not fit: it says what is missing. */
static int inspect_show_memory(const struct inspect_info *info, const char *path, const struct inspect_args *args)
{
	struct inspect_memory *m = mem_new(struct inspect_memory);
	struct errbuf err = {""};
	struct strbuf out;
	int rc = inspect_memory_plan(m, &args->config, path, &info->spec, args->tp, &err);

	strbuf_init(&out, INSPECT_OUT_MAX);
	if (rc == ST_OK) {
		if (args->json)
			inspect_json_memory(m, &out);
		else
			kvplan_table(&out, &info->spec, &m->plan);
		rc = inspect_write(&out);
		if (rc == INSPECT_OK && m->rc != ST_OK) rc = inspect_fail(&m->why);
	} else {
		rc = inspect_fail(&err);
	}
	strbuf_release(&out);
	free(m);
	return rc;
}

static int inspect_model(const char *path, const struct inspect_args *args, const struct spec_opts *opts)
{
	struct inspect_info info = {.want_tensors = args->tensors, .want_metadata = args->metadata};
	struct errbuf err = {""};
	struct ckpt *c = NULL;
	int rc;

	if (args->check) {
		if (preflight_check(path, opts, NULL, &err) != ST_OK) return inspect_fail(&err);
		printf("ok\n");
		return fflush(stdout) == 0 ? INSPECT_OK : INSPECT_BAD;
	}
	if (ckpt_open(&c, path, &err) != ST_OK) return inspect_fail(&err);
	inspect_collect(&info, c, opts, &err);
	if (args->template)
		rc = inspect_show_template(&info);
	else if (args->memory)
		rc = info.spec_rc == ST_OK ? inspect_show_memory(&info, path, args) : inspect_fail(&err);
	else
		rc = inspect_show(&info, args, &err);
	inspect_release(&info);
	ckpt_close(c);
	return rc;
}

static int inspect_run(struct inspect_args *args)
{
	struct hub_opts hub = {.may_fetch = false};
	struct spec_opts opts = {
		.model_len_max = args->config.max_model_len == CONFIG_LEN_AUTO ? 0 : args->config.max_model_len};
	struct hub_found found = {0};
	struct errbuf err = {""};
	json_t *overrides = NULL;
	int rc = preflight_overrides(&overrides, args->config.hf_overrides, &err);

	if (rc != ST_OK) {
		fprintf(stderr, "sluice inspect: %s\n", err.text);
		return INSPECT_USAGE;
	}
	opts.overrides = overrides;
	rc = hub_resolve(&found, args->path, &hub, &err);
	rc = rc == ST_OK ? inspect_model(found.path, args, &opts) : inspect_fail(&err);
	hub_found_release(&found);
	json_decref(overrides);
	return rc;
}

static int inspect_usage(const char *what, const char *word)
{
	fprintf(stderr, "sluice inspect: %s%s%s; see `sluice inspect --help`\n", what, word ? ": " : "",
		word ? quote_short(word, strlen(word)).text : "");
	return INSPECT_USAGE;
}

enum { JSON = 1000, TENSORS, METADATA, TEMPLATE, CHECK_ONLY, MEMORY, RANKS, SERVE_OPTION };

static const struct option inspect_options[] = {
	{"json", no_argument, NULL, JSON},
	{"tensors", no_argument, NULL, TENSORS},
	{"metadata", no_argument, NULL, METADATA},
	{"template", no_argument, NULL, TEMPLATE},
	{"check", no_argument, NULL, CHECK_ONLY},
	{"memory", no_argument, NULL, MEMORY},
	{"tensor-parallel-size", required_argument, NULL, RANKS},
	{"max-model-len", required_argument, NULL, SERVE_OPTION},
	{"hf-overrides", required_argument, NULL, SERVE_OPTION},
	{"kv-cache-dtype", required_argument, NULL, SERVE_OPTION},
	{"max-num-seqs", required_argument, NULL, SERVE_OPTION},
	{"max-num-batched-tokens", required_argument, NULL, SERVE_OPTION},
	{"activations", required_argument, NULL, SERVE_OPTION},
	{"gpu-memory-utilization", required_argument, NULL, SERVE_OPTION},
	{"kv-cache-memory-bytes", required_argument, NULL, SERVE_OPTION},
	{"num-gpu-blocks-override", required_argument, NULL, SERVE_OPTION},
	{"device", required_argument, NULL, SERVE_OPTION},
	{"tokenizer", required_argument, NULL, SERVE_OPTION},
	{"kernels", required_argument, NULL, SERVE_OPTION},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* False: *code is how it ends. */
static bool inspect_option(struct inspect_args *args, int option, int ix, const char *word, int *code)
{
	struct errbuf err = {""};
	char *end;

	switch (option) {
	case JSON:
		args->json = true;
		return true;
	case TENSORS:
		args->tensors = true;
		return true;
	case METADATA:
		args->metadata = true;
		return true;
	case TEMPLATE:
		args->template = true;
		return true;
	case CHECK_ONLY:
		args->check = true;
		return true;
	case MEMORY:
		args->memory = true;
		return true;
	case RANKS:
		args->tp = (uint32_t)strtoul(optarg, &end, 10);
		if (!*end && args->tp >= 1 && args->tp <= LIMIT_WORKERS) return true;
		*code = inspect_usage("--tensor-parallel-size takes a number of ranks from 1 to 64, not", optarg);
		return false;
	case SERVE_OPTION:
		if (config_set(&args->config, inspect_options[ix].name, optarg, &err) == ST_OK) return true;
		fprintf(stderr, "sluice inspect: %s\n", err.text);
		*code = INSPECT_USAGE;
		return false;
	case 'h':
		*code = fputs(inspect_help, stdout) < 0 || fflush(stdout) != 0 ? INSPECT_BAD : INSPECT_OK;
		return false;
	case ':':
		*code = inspect_usage("this option needs a value", word);
		return false;
	default:
		*code = inspect_usage("unknown option", word);
		return false;
	}
}

static int inspect_parse_and_run(struct inspect_args *args, int argc, char **argv)
{
	int option, ix = 0, code;

	opterr = 0; /* our own texts */
	optind = 0; /* the word before "inspect" has been read by another getopt, perhaps */
	while ((option = getopt_long(argc, argv, ":h", inspect_options, &ix)) != -1)
		if (!inspect_option(args, option, ix, argv[optind - 1], &code)) return code;
	if (optind == argc) return inspect_usage("no model is given", NULL);
	if (optind + 1 < argc) return inspect_usage("more than one model is given", argv[optind + 1]);
	if (args->check + args->template + (args->json || args->tensors || args->metadata || args->memory) > 1)
		return inspect_usage("--check and --template go alone", NULL);
	if (args->memory && (args->tensors || args->metadata))
		return inspect_usage("--memory goes alone, or with --json", NULL);
	args->path = argv[optind];
	return inspect_run(args);
}

static bool inspect_wants_memory(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--memory") == 0) return true;
	return false;
}

int inspect_main(int argc, char **argv)
{
	struct inspect_args args = {.tp = 1};
	struct errbuf err = {""};
	int code = INSPECT_USAGE;

	config_init(&args.config);
	/* What a server here would be started with, flags win; asked for first, since they are set in this order. */
	if (inspect_wants_memory(argc, argv) && config_from_env(&args.config, &err) != ST_OK)
		fprintf(stderr, "sluice inspect: %s\n", err.text);
	else
		code = inspect_parse_and_run(&args, argc, argv);
	config_release(&args.config);
	return code;
}
