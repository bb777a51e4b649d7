/* main_sluice.c - the command: finds the subcommand and runs it. */
#include "common/child.h"
#include "sluice/benchcmd.h"
#include "sluice/chatcmd.h"
#include "sluice/completecmd.h"
#include "sluice/inspect.h"
#include "sluice/operatorcmd.h"
#include "sluice/pullcmd.h"
#include "sluice/serve.h"
#include "sluice/tokenizecmd.h"
#include "sluice/topcmd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int version_main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--help") == 0) printf("usage: sluice version\n\nPrints the version and exits.\n\nexample:\n  sluice version\n");
	else printf("sluice %s\n", SLUICE_VERSION);
	return EXIT_OK;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{"serve", serve_main, "serve a model over an OpenAI-compatible HTTP API"},
	{"scale", scalecmd_main, "change how many frontends a running mesh has"},
	{"reload", reloadcmd_main, "have a running mesh use new programs, keys and templates"},
	{"drain", draincmd_main, "end a running mesh when its requests are done"},
	{"top", topcmd_main, "watch a running mesh in the terminal"},
	{"pull", pullcmd_main, "fetch a model from a Hugging Face hub"},
	{"chat", chatcmd_main, "talk to a server in the terminal"},
	{"complete", completecmd_main, "have a server continue a text"},
	{"tokenize", tokenizecmd_main, "show a text's tokens as the server sees them"},
	{"bench", benchcmd_main, "measure a server under load"},
	{"inspect", inspect_main, "show what is in a model, and what memory it takes"},
	{"version", version_main, "print the version"},
};

static void usage(FILE *out)
{
	fprintf(out, "usage: sluice COMMAND [options]\n\ncommands:\n");
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].help);
	fprintf(out, "\n`sluice COMMAND --help` explains a command.\n\nexample:\n  sluice serve model.gguf --port 8000\n");
}

/* Whoever starts us with a standard descriptor closed would get our sockets there, and writes of others into them. */
static void stdio_open(void)
{
	int fd;

	do fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO) close(fd);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	stdio_open();
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (strcmp(name, commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
		usage(stdout);
		return EXIT_OK;
	}
	if (strcmp(name, "--version") == 0) return version_main(0, NULL);
	if (name[0]) fprintf(stderr, "sluice: error: unknown command %s\n\n", name);
	usage(stderr);
	return EXIT_USAGE;
}
