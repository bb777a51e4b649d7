/* completecmd.c - `sluice complete`: a text, continued by the model, streamed to the terminal. */
#include "sluice/completecmd.h"

#include "common/child.h"
#include "common/strbuf.h"
#include "sluice/client.h"
#include "sluice/cmdopts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPLETE_TEXT_MAX (64 * MIB)

struct complete_opts {
	struct cmdserver server;
	int64_t max_tokens;
	double temperature, top_p; /* NaN: not given */
	int64_t seed;              /* -1: not given */
	const char *stop, *regex, *schema;
	bool echo;
};

static const struct cmdopt complete_rows[] = {
	{"max-tokens", CMDOPT_COUNT, offsetof(struct complete_opts, max_tokens), 1, 1e9, "N", "tokens to add at most [128]"},
	{"temperature", CMDOPT_NUMBER, offsetof(struct complete_opts, temperature), 0, 100, "T", "0: always the likeliest token"},
	{"top-p", CMDOPT_NUMBER, offsetof(struct complete_opts, top_p), 1e-9, 1, "P", "draw from the likeliest tokens that together have this probability"},
	{"seed", CMDOPT_COUNT, offsetof(struct complete_opts, seed), 0, 9e15, "N", "the same seed draws the same tokens"},
	{"stop", CMDOPT_TEXT, offsetof(struct complete_opts, stop), 0, 0, "TEXT", "end before this text"},
	{"guided-regex", CMDOPT_TEXT, offsetof(struct complete_opts, regex), 0, 0, "REGEX", "allow only texts that match"},
	{"guided-json", CMDOPT_TEXT, offsetof(struct complete_opts, schema), 0, 0, "SCHEMA", "allow only JSON of this schema"},
	{"echo", CMDOPT_SWITCH, offsetof(struct complete_opts, echo), 0, 0, NULL, "print the prompt in front of its continuation"},
};

static const struct cmdopts complete_cmdopts = {
	.name = "complete",
	.usage = "complete [options] PROMPT",
	.intro = "Without PROMPT, or with `-`, it is read from standard input.",
	.rows = complete_rows,
	.n_rows = ARRAY_LEN(complete_rows),
	.examples = "  sluice complete \"Once upon a time\"\n"
		    "  sluice complete --temperature 0 --guided-regex \"[0-9]+\" \"The year of the first moon landing: \"\n"
		    "  sluice complete --max-tokens 64 < article.txt\n",
};

static bool on_complete_event(void *ctx, json_t *event)
{
	struct errbuf *err = ctx;
	const char *error = json_string_value(json_object_get(json_object_get(event, "error"), "message"));
	const char *part = json_string_value(json_object_get(json_array_get(json_object_get(event, "choices"), 0), "text"));

	if (error) {
		err_set(err, ST_IO, "%s", error);
		return false;
	}
	if (part) client_show(part);
	return true;
}

/* NULL and a line on stderr when an option is no JSON or no UTF-8. */
static json_t *complete_body(const struct complete_opts *o, const char *prompt)
{
	json_t *body = json_pack("{s:s, s:s, s:I, s:b}", "model", o->server.model, "prompt", prompt, "max_tokens", (json_int_t)o->max_tokens, "stream", 1);
	json_error_t e;
	json_t *schema;

	if (!body) {
		cmdopts_fail("complete", EXIT_USAGE, "PROMPT is not valid UTF-8");
		return NULL;
	}
	if (!isnan(o->temperature)) json_object_set_new(body, "temperature", json_real(o->temperature));
	if (!isnan(o->top_p)) json_object_set_new(body, "top_p", json_real(o->top_p));
	if (o->seed >= 0) json_object_set_new(body, "seed", json_integer(o->seed));
	if (o->stop) json_object_set_new(body, "stop", json_string(o->stop));
	if (o->regex) json_object_set_new(body, "guided_regex", json_string(o->regex));
	if (!o->schema) return body;
	schema = json_loads(o->schema, JSON_DECODE_ANY, &e);
	if (!schema) {
		cmdopts_fail("complete", EXIT_USAGE, "--guided-json is not JSON (column %d): %s", e.column, e.text);
		json_decref(body);
		return NULL;
	}
	json_object_set_new(body, "guided_json", schema);
	return body;
}

static int complete_run(struct client *c, const struct complete_opts *o, const char *prompt)
{
	json_t *body = complete_body(o, prompt);
	struct errbuf err = {{0}}, said = {{0}};
	int rc;

	if (!body) return EXIT_USAGE;
	if (o->echo) client_show(prompt);
	rc = client_stream(c, "/v1/completions", body, on_complete_event, &said, &err);
	putchar('\n');
	json_decref(body);
	if (rc != ST_OK) return cmdopts_fail("complete", EXIT_FAILED, "%s", err.text);
	return said.text[0] ? cmdopts_fail("complete", EXIT_FAILED, "%s", said.text) : EXIT_OK;
}

int completecmd_main(int argc, char **argv)
{
	struct complete_opts o = {.max_tokens = 128, .temperature = NAN, .top_p = NAN, .seed = -1};
	struct client *c;
	json_t *models;
	char *prompt;
	bool help;
	int rc = cmdopts_parse(&complete_cmdopts, &o, argc, argv, &prompt, &help);

	if (rc == EXIT_OK && !help && (!prompt || strcmp(prompt, "-") == 0)) {
		free(prompt);
		prompt = cmdopts_stdin("complete", COMPLETE_TEXT_MAX);
		if (!prompt) rc = EXIT_USAGE;
	}
	if (rc == EXIT_OK && !help) rc = cmdopts_open("complete", &o.server, &c, &models);
	if (rc == EXIT_OK && !help) {
		rc = complete_run(c, &o, prompt);
		json_decref(models);
		client_close(c);
	}
	free(prompt);
	return rc;
}
