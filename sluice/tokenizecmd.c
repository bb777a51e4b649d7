/* tokenizecmd.c - `sluice tokenize`: a text's tokens as the server sees them, one a line, or as JSON. */
#include "sluice/tokenizecmd.h"

#include "common/child.h"
#include "common/strbuf.h"
#include "sluice/client.h"
#include "sluice/cmdopts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZE_TEXT_MAX (64 * MIB)

struct tokenize_opts {
	struct cmdserver server;
	bool ids, count, json, chat, no_special;
};

static const struct cmdopt tokenize_rows[] = {
	{"ids", CMDOPT_SWITCH, offsetof(struct tokenize_opts, ids), 0, 0, NULL, "print the ids only, in one line"},
	{"count", CMDOPT_SWITCH, offsetof(struct tokenize_opts, count), 0, 0, NULL, "print the number of tokens only"},
	{"json", CMDOPT_SWITCH, offsetof(struct tokenize_opts, json), 0, 0, NULL, "print the server's answer as it is"},
	{"chat", CMDOPT_SWITCH, offsetof(struct tokenize_opts, chat), 0, 0, NULL, "as a user's message, rendered by the chat template"},
	{"no-special", CMDOPT_SWITCH, offsetof(struct tokenize_opts, no_special), 0, 0, NULL, "without the tokens that the model wants in front (BOS)"},
};

static const struct cmdopts tokenize_cmdopts = {
	.name = "tokenize",
	.usage = "tokenize [options] [TEXT]",
	.intro = "Without TEXT, or with `-`, it is read from standard input. Prints an id and its text a line.",
	.rows = tokenize_rows,
	.n_rows = ARRAY_LEN(tokenize_rows),
	.examples = "  sluice tokenize \"Hello, world\"\n"
		    "  sluice tokenize --count < article.txt\n"
		    "  sluice tokenize --chat --ids \"Hi!\"\n",
};

static json_t *tokenize_body(const struct tokenize_opts *o, const char *text)
{
	json_t *body;

	if (o->chat) body = json_pack("{s:s, s:[{s:s, s:s}]}", "model", o->server.model, "messages", "role", "user", "content", text);
	else body = json_pack("{s:s, s:s}", "model", o->server.model, "prompt", text);
	if (body && o->no_special) json_object_set_new(body, "add_special_tokens", json_false());
	if (body && !o->count && !o->ids) json_object_set_new(body, "return_token_strs", json_true());
	return body;
}

static void tokenize_print(const struct tokenize_opts *o, const json_t *answer)
{
	const json_t *ids = json_object_get(answer, "tokens"), *texts = json_object_get(answer, "token_strs");
	size_t i, n = json_array_size(ids);

	if (o->count) {
		printf("%zu\n", n);
		return;
	}
	for (i = 0; i < n; i++) {
		json_t *text = json_array_get(texts, i);
		char *quoted = json_is_string(text) ? json_dumps(text, JSON_ENCODE_ANY) : NULL;

		if (o->ids) printf("%s%lld", i ? " " : "", (long long)json_integer_value(json_array_get(ids, i)));
		else printf("%7lld  %s\n", (long long)json_integer_value(json_array_get(ids, i)), quoted ? quoted : "");
		free(quoted);
	}
	if (o->ids) putchar('\n');
}

static int tokenize_run(struct client *c, const struct tokenize_opts *o, const char *text)
{
	json_t *body = tokenize_body(o, text), *answer;
	struct errbuf err = {{0}};
	char *dump;
	int rc;

	if (!body) return cmdopts_fail("tokenize", EXIT_USAGE, "TEXT is not valid UTF-8");
	rc = client_post(c, "/tokenize", body, &answer, &err);
	json_decref(body);
	if (rc != ST_OK) return cmdopts_fail("tokenize", EXIT_FAILED, "%s", err.text);
	if (o->json) {
		dump = json_dumps(answer, JSON_COMPACT);
		puts(dump ? dump : "");
		free(dump);
	} else {
		tokenize_print(o, answer);
	}
	json_decref(answer);
	return EXIT_OK;
}

int tokenizecmd_main(int argc, char **argv)
{
	struct tokenize_opts o = {0};
	struct client *c;
	json_t *models;
	char *text;
	bool help;
	int rc = cmdopts_parse(&tokenize_cmdopts, &o, argc, argv, &text, &help);

	if (rc == EXIT_OK && !help && (!text || strcmp(text, "-") == 0)) {
		free(text);
		text = cmdopts_stdin("tokenize", TOKENIZE_TEXT_MAX);
		if (!text) rc = EXIT_USAGE;
	}
	if (rc == EXIT_OK && !help) rc = cmdopts_open("tokenize", &o.server, &c, &models);
	if (rc == EXIT_OK && !help) {
		rc = tokenize_run(c, &o, text);
		json_decref(models);
		client_close(c);
	}
	free(text);
	return rc;
}
