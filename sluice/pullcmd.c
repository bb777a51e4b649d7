/* pullcmd.c - the command line of `sluice pull`. What it says while it works goes to stderr; stdout gets the path
 * alone. */
#include "sluice/pullcmd.h"

#include "common/child.h"
#include "common/quote.h"
#include "sluice/hub.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char pull_help[] =
	"usage: sluice pull MODEL [options]\n"
	"\n"
	"Fetches a model from a Hugging Face hub into the cache that huggingface_hub, transformers and vLLM share, and "
	"prints the\n"
	"path to serve. What is there already is not fetched again; a download that was interrupted goes on where it "
	"stopped. Every file's\n"
	"checksum is compared.\n"
	"\n"
	"MODEL is one of\n"
	"  ORG/NAME             config, tokenizer and safetensors; of a repository of GGUF files its Q4_K_M, else its "
	"first\n"
	"  ORG/NAME:QUANT       the GGUF file of that quantization, with all its parts\n"
	"  ORG/NAME/FILE.gguf   that file\n"
	"each with @REVISION (a branch, tag or commit) behind it, or not: then main.\n"
	"\n"
	"options:\n"
	"      --cache-dir DIR   the cache [$HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub]\n"
	"      --no-progress     no bar, also on a terminal\n"
	"  -h, --help            this text\n"
	"\n"
	"variables:\n"
	"  HF_ENDPOINT           another hub than https://huggingface.co\n"
	"  HF_TOKEN              for private and gated models; or the file $HF_HOME/token. Only the hub gets it\n"
	"  HF_HUB_OFFLINE=1      ask nobody: only what the cache has\n"
	"  HF_HUB_DOWNLOAD_TIMEOUT  seconds without data after which a connection is given up and made again [30]\n"
	"  https_proxy, no_proxy, SSL_CERT_FILE  as usual\n"
	"\n"
	"examples:\n"
	"  sluice pull Qwen/Qwen3-0.6B\n"
	"  sluice pull ggml-org/gemma-3-4b-it-GGUF:Q8_0\n"
	"  sluice serve $(sluice pull org/name@v1.0)\n"
	"  sluice serve Qwen/Qwen3-0.6B        (fetches it first when it is not there)\n"
	"\n"
	"exit codes: 0 good, 1 not fetched (the last line says why), 2 bad options\n";

static void say(const char *line)
{
	fprintf(stderr, "%s\n", line);
}

static int usage_error(const char *what, const char *word)
{
	fprintf(stderr, "sluice pull: error: %s%s%s; see `sluice pull --help`\n", what, word ? ": " : "",
		word ? quote_short(word, strlen(word)).text : "");
	return EXIT_USAGE;
}

static int pull_run(const char *model, bool progress)
{
	struct hub_opts o = {.may_fetch = true, .progress = progress, .say = say};
	struct hub_found found;
	struct hubname name;
	struct errbuf err = {{0}};

	if (hubname_parse(&name, model, &err) != ST_OK) {
		fprintf(stderr, "sluice pull: error: %s\n", err.text);
		return EXIT_USAGE;
	}
	if (hub_pull(&found, &name, &o, &err) != ST_OK) {
		fprintf(stderr, "sluice pull: error: %s\n", err.text);
		return EXIT_FAILED;
	}
	printf("%s\n", found.path);
	hub_found_release(&found);
	if (fflush(stdout) == 0) return EXIT_OK;
	fprintf(stderr, "sluice pull: error: the path cannot be printed: %s\n", strerror(errno));
	return EXIT_FAILED;
}

int pullcmd_main(int argc, char **argv)
{
	enum { CACHE_DIR = 1000, NO_PROGRESS };
	static const struct option options[] = {
		{"cache-dir", required_argument, NULL, CACHE_DIR},
		{"no-progress", no_argument, NULL, NO_PROGRESS},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool progress = true;
	int option;

	opterr = 0; /* our own texts */
	while ((option = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		switch (option) {
		case CACHE_DIR:
			setenv("HF_HUB_CACHE", optarg, 1);
			break;
		case NO_PROGRESS:
			progress = false;
			break;
		case 'h':
			return fputs(pull_help, stdout) < 0 || fflush(stdout) != 0 ? EXIT_FAILED : EXIT_OK;
		case ':':
			return usage_error("a value is missing", argv[optind - 1]);
		default:
			return usage_error("unknown option", argv[optind - 1]);
		}
	}
	if (optind == argc) return usage_error("no model is given", NULL);
	if (optind + 1 < argc) return usage_error("more than one model is given", argv[optind + 1]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file that may not become larger is an error of its own */
	return pull_run(argv[optind], progress);
}
