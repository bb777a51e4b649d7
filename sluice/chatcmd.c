/* chatcmd.c - `sluice chat`: one question, or a conversation, streamed to the terminal.
 *
 * What the server sends is shown as text: control characters are replaced, so that an answer cannot drive the terminal. */
#include "sluice/chatcmd.h"

#include "common/child.h"
#include "common/strbuf.h"
#include "sluice/client.h"
#include "sluice/cmdopts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat_opts {
	struct cmdserver server;
	const char *system;
	int64_t max_tokens; /* 0: not given */
	double temperature; /* NaN: not given */
	bool print_model;
};

static const struct cmdopt chat_rows[] = {
	{"system", CMDOPT_TEXT, offsetof(struct chat_opts, system), 0, 0, "TEXT", "system message"},
	{"max-tokens", CMDOPT_COUNT, offsetof(struct chat_opts, max_tokens), 1, 1e9, "N", "tokens of an answer at most"},
	{"temperature", CMDOPT_NUMBER, offsetof(struct chat_opts, temperature), 0, 100, "T", "0: always the likeliest token"},
	{"print-model", CMDOPT_SWITCH, offsetof(struct chat_opts, print_model), 0, 0, NULL, "print the served model's name and exit"},
};

static const struct cmdopts chat_cmdopts = {
	.name = "chat",
	.usage = "chat [options] [MESSAGE]",
	.intro = "With MESSAGE: asks once and streams the answer. Without: a conversation; /reset forgets it, /exit or Ctrl-D ends it.",
	.rows = chat_rows,
	.n_rows = ARRAY_LEN(chat_rows),
	.examples = "  sluice chat \"What is a sluice?\"\n"
		    "  sluice chat --url http://127.0.0.1:8080 --system \"Answer in French.\"\n",
};

/* ---- one answer ---- */

struct chat_answer {
	struct strbuf text;
	struct errbuf err;
};

static bool on_chat_event(void *ctx, json_t *event)
{
	struct chat_answer *a = ctx;
	const char *error = json_string_value(json_object_get(json_object_get(event, "error"), "message"));
	json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
	const char *part = json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));

	if (error) {
		err_set(&a->err, ST_IO, "%s", error);
		return false;
	}
	if (!part) return true;
	strbuf_puts(&a->text, part);
	client_show(part);
	return true;
}

/* Asks with all messages so far; appends the answer to them. */
static int chat_ask(struct client *c, const struct chat_opts *o, json_t *messages)
{
	json_t *body = json_pack("{s:s, s:O, s:b}", "model", o->server.model, "messages", messages, "stream", 1);
	struct chat_answer a = {.err = {{0}}};
	int rc;

	strbuf_init(&a.text, 16u << 20);
	if (o->max_tokens > 0) json_object_set_new(body, "max_tokens", json_integer(o->max_tokens));
	if (!isnan(o->temperature)) json_object_set_new(body, "temperature", json_real(o->temperature));
	rc = client_stream(c, "/v1/chat/completions", body, on_chat_event, &a, &a.err);
	if (a.text.len) putchar('\n');
	if (rc != ST_OK || a.err.text[0]) fprintf(stderr, "sluice chat: error: %s\n", a.err.text);
	else json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "assistant", "content", a.text.data ? a.text.data : ""));
	rc = rc != ST_OK || a.err.text[0] ? EXIT_FAILED : EXIT_OK;
	strbuf_release(&a.text);
	json_decref(body);
	return rc;
}

static json_t *chat_new_messages(const struct chat_opts *o)
{
	json_t *messages = json_array();

	if (o->system) json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", o->system));
	return messages;
}

static void chat_converse(struct client *c, const struct chat_opts *o)
{
	json_t *messages = chat_new_messages(o);
	bool tty = isatty(STDIN_FILENO);
	char *line = NULL;
	size_t cap = 0;

	if (tty) printf("Talking to %s. /reset forgets, /exit ends.\n", o->server.model);
	for (;;) {
		ssize_t n;

		if (tty) fputs("> ", stdout);
		fflush(stdout);
		n = getline(&line, &cap, stdin);
		if (n < 0) break;
		while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
		if (strcmp(line, "/exit") == 0) break;
		if (strcmp(line, "/reset") == 0) {
			json_decref(messages);
			messages = chat_new_messages(o);
			continue;
		}
		if (n == 0) continue;
		if (json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", line)) != 0) {
			fprintf(stderr, "sluice chat: error: the line is not valid UTF-8\n");
			continue;
		}
		if (chat_ask(c, o, messages) != EXIT_OK) json_array_remove(messages, json_array_size(messages) - 1);
	}
	if (tty) putchar('\n');
	free(line);
	json_decref(messages);
}

static int chat_run(struct client *c, struct chat_opts *o, const char *question)
{
	json_t *messages;
	int rc = EXIT_OK;

	if (o->print_model) {
		printf("%s\n", o->server.model);
	} else if (question) {
		messages = chat_new_messages(o);
		if (json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", question)) != 0)
			rc = cmdopts_fail("chat", EXIT_USAGE, "MESSAGE is not valid UTF-8");
		else rc = chat_ask(c, o, messages);
		json_decref(messages);
	} else {
		chat_converse(c, o);
	}
	return rc;
}

int chatcmd_main(int argc, char **argv)
{
	struct chat_opts o = {.temperature = NAN};
	struct client *c;
	json_t *models;
	char *question;
	bool help;
	int rc = cmdopts_parse(&chat_cmdopts, &o, argc, argv, &question, &help);

	if (rc == EXIT_OK && !help) rc = cmdopts_open("chat", &o.server, &c, &models);
	if (rc == EXIT_OK && !help) {
		rc = chat_run(c, &o, question);
		json_decref(models);
		client_close(c);
	}
	free(question);
	return rc;
}
