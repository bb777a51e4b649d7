/* cmdopts.h - the command lines of the operator's tools: one table a tool gives parsing and --help.
 *
 * Flags are `--flag VALUE` or `--flag=VALUE`; what is no flag is joined with blanks into one text. `--` ends the flags. Every tool that
 * asks a server begins its options with a struct cmdserver, whose flags are known to all of them. */
#ifndef SLUICE_CMDOPTS_H
#define SLUICE_CMDOPTS_H

#include "common/base.h"
#include "common/errbuf.h"

#include <jansson.h>

struct client;

struct cmdserver {
	const char *url;     /* SLUICE_URL, else http://127.0.0.1:8000 */
	const char *model;   /* NULL: the first that the server lists */
	const char *api_key; /* OPENAI_API_KEY */
	const char *cacert;
};

enum cmdopt_kind {
	CMDOPT_TEXT,   /* const char * */
	CMDOPT_COUNT,  /* int64_t */
	CMDOPT_NUMBER, /* double; "inf" is a number */
	CMDOPT_SWITCH  /* bool: set */
};

struct cmdopt {
	const char *flag; /* without dashes */
	enum cmdopt_kind kind;
	size_t at; /* in the tool's options */
	double lo, hi;
	const char *metavar, *help;
};

struct cmdopts {
	const char *name;     /* "chat" */
	const char *usage;    /* behind "usage: sluice " */
	const char *intro;    /* NULL: none */
	const struct cmdopt *rows;
	size_t n_rows;
	const char *examples; /* lines */
};

/* Fills opts (a struct whose first member is a struct cmdserver) and *text (owned by the caller; NULL when there was none). Returns
 * EXIT_OK, or EXIT_USAGE after a line on stderr; *help: --help was printed, there is nothing more to do. */
int cmdopts_parse(const struct cmdopts *o, void *opts, int argc, char **argv, char **text, bool *help);

/* Opens the server, and finds the model's name when none was given: server->model points into *models then. EXIT_OK, or EXIT_FAILED
 * after a line on stderr. */
int cmdopts_open(const char *name, struct cmdserver *server, struct client **out, json_t **models);

/* All of standard input, to be freed; NULL after a line on stderr when it is longer than len_max or holds a zero byte. */
char *cmdopts_stdin(const char *name, size_t len_max);

/* "sluice NAME: error: ..." on stderr; returns code. */
int cmdopts_fail(const char *name, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
