/* operatorcmd.c - see operatorcmd.h. */
#include "sluice/operatorcmd.h"

#include "common/child.h"
#include "proto/limits.h"
#include "sluice/cmdopts.h"
#include "sluice/operator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct operatorcmd {
	const char *name, *help;
	const char *words[2]; /* what is no flag */
	int n_words;
	struct operator_where where;
};

/* EXIT_OK; *done: nothing is left to do. */
static int operatorcmd_parse(struct operatorcmd *c, int argc, char **argv, bool *done)
{
	struct errbuf err = {{0}};

	*done = true;
	for (int i = 1; i < argc; i++) {
		int rc;

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			printf("%s\noptions:\n" OPERATOR_FLAGS_HELP "\nexit codes: 0 done, 1 the mesh was not found or could not do it, 2 bad options\n",
			       c->help);
			return EXIT_OK;
		}
		rc = operator_flag(&c->where, argc, argv, &i, &err);
		if (rc == ST_OK) continue;
		if (rc == ST_INVALID) return cmdopts_fail(c->name, EXIT_USAGE, "%s", err.text);
		if (strncmp(argv[i], "--", 2) == 0) return cmdopts_fail(c->name, EXIT_USAGE, "unknown option %s; see sluice %s --help", argv[i], c->name);
		if (c->n_words == (int)ARRAY_LEN(c->words)) return cmdopts_fail(c->name, EXIT_USAGE, "too many words; see sluice %s --help", c->name);
		c->words[c->n_words++] = argv[i];
	}
	*done = false;
	return EXIT_OK;
}

static void say_progress(void *ctx, const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

/* EXIT_OK: done, and said. fields: taken. */
static int operatorcmd_ask(const struct operatorcmd *c, json_t *fields)
{
	const struct operator_events events = {NULL, say_progress};
	struct errbuf err = {{0}};
	struct operator o;
	json_t *answer = NULL;
	int rc = operator_open(&o, &c->where, &err);

	if (rc == ST_OK) {
		rc = operator_ask(&o, c->name, fields, &events, &answer, &err);
		operator_close(&o);
	}
	json_decref(fields);
	if (rc != ST_OK) return cmdopts_fail(c->name, EXIT_FAILED, "%s", err.text);
	if (json_is_string(json_object_get(answer, "text"))) say_progress(NULL, json_string_value(json_object_get(answer, "text")));
	json_decref(answer);
	return EXIT_OK;
}

int scalecmd_main(int argc, char **argv)
{
	struct operatorcmd c = {.name = "scale",
				.help = "usage: sluice scale frontends K [options]\n\n"
					"Changes how many frontend processes a running mesh has, without a failed request. It returns when all K serve; those\n"
					"that go have handed over their idle connections and finished their answers (--drain-timeout cuts them).\n\n"
					"example:\n  sluice scale frontends 8\n"};
	char *end;
	bool done;
	long n;
	int rc = operatorcmd_parse(&c, argc, argv, &done);

	if (done) return rc;
	if (c.n_words != 2 || strcmp(c.words[0], "frontends") != 0)
		return cmdopts_fail("scale", EXIT_USAGE, "expected `frontends K`; see sluice scale --help");
	n = strtol(c.words[1], &end, 10);
	if (end == c.words[1] || *end || n < 1 || n > LIMIT_FRONTENDS)
		return cmdopts_fail("scale", EXIT_USAGE, "the number of frontends must be from 1 to %d, but is %s", LIMIT_FRONTENDS, c.words[1]);
	return operatorcmd_ask(&c, json_pack("{s:I}", "frontends", (json_int_t)n));
}

static int plaincmd(struct operatorcmd *c, int argc, char **argv)
{
	bool done;
	int rc = operatorcmd_parse(c, argc, argv, &done);

	if (done) return rc;
	if (c->n_words) return cmdopts_fail(c->name, EXIT_USAGE, "unexpected word %s; see sluice %s --help", c->words[0], c->name);
	return operatorcmd_ask(c, NULL);
}

int reloadcmd_main(int argc, char **argv)
{
	struct operatorcmd c = {.name = "reload",
				.help = "usage: sluice reload [options]\n\n"
					"Has a running mesh use what is on disk now, without a failed request: API keys, certificate, chat template, and the programs\n"
					"(sluice-frontend, -executor, -worker-*; the supervisor itself goes on). Frontends are replaced one by one, then the executor,\n"
					"then the workers; streams pause meanwhile and go on where they were. When a program cannot start, the reload ends with an\n"
					"error and what ran before goes on. (kill -HUP reads keys and certificate only.)\n\n"
					"example:\n  sluice reload\n"};

	return plaincmd(&c, argc, argv);
}

int draincmd_main(int argc, char **argv)
{
	struct operatorcmd c = {.name = "drain",
				.help = "usage: sluice drain [options]\n\n"
					"Ends a running mesh as SIGTERM does: running requests get the seconds of --drain-timeout. It returns when the mesh has ended.\n\n"
					"example:\n  sluice drain\n"};

	return plaincmd(&c, argc, argv);
}
