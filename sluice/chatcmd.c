/* chatcmd.c - `sluice chat`: one question, or a conversation, streamed to the terminal.
 *
 * What the server sends is shown as text: control characters are replaced, so that an answer cannot drive the terminal. */
#include "sluice/chatcmd.h"

#include "common/child.h"
#include "common/mem.h"
#include "sluice/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat_opts {
	const char *url, *model, *system, *api_key;
	long max_tokens;
	double temperature;
	bool has_temperature, print_model, help;
	char *question; /* owned; NULL: a conversation */
};

static void chat_help(void)
{
	printf("usage: sluice chat [options] [MESSAGE]\n"
	       "\n"
	       "With MESSAGE: asks once and streams the answer. Without: a conversation; /reset forgets it, /exit or Ctrl-D ends it.\n"
	       "\n"
	       "options:\n"
	       "  --url URL          the server [http://127.0.0.1:8000, or SLUICE_URL]\n"
	       "  --model NAME       default: the first that the server lists\n"
	       "  --system TEXT      system message\n"
	       "  --max-tokens N     tokens of an answer at most\n"
	       "  --temperature T    0: always the likeliest token\n"
	       "  --api-key KEY      default: OPENAI_API_KEY\n"
	       "  --print-model      print the served model's name and exit\n"
	       "\n"
	       "examples:\n"
	       "  sluice chat \"What is a sluice?\"\n"
	       "  sluice chat --url http://127.0.0.1:8080 --system \"Answer in French.\"\n"
	       "\n"
	       "exit codes: 0 good, 1 the server could not be asked or refused, 2 bad options\n");
}

static int chat_usage(const char *what, const char *arg)
{
	fprintf(stderr, "sluice chat: error: %s %s; see sluice chat --help\n", what, arg);
	return EXIT_USAGE;
}

static int chat_number(const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	return end != text && *end == 0 && *out >= 0 && *out <= 1e9 ? EXIT_OK : EXIT_USAGE;
}

/* The value flags. Returns false when `flag` is none of them. */
static bool chat_flag(struct chat_opts *o, const char *flag, const char *value, int *rc)
{
	double v = 0;

	*rc = EXIT_OK;
	if (strcmp(flag, "--url") == 0) o->url = value;
	else if (strcmp(flag, "--model") == 0) o->model = value;
	else if (strcmp(flag, "--system") == 0) o->system = value;
	else if (strcmp(flag, "--api-key") == 0) o->api_key = value;
	else if (strcmp(flag, "--max-tokens") == 0 || strcmp(flag, "--temperature") == 0) {
		*rc = chat_number(value ? value : "", &v);
		if (strcmp(flag, "--max-tokens") == 0) o->max_tokens = (long)v;
		else o->temperature = v;
		o->has_temperature = o->has_temperature || strcmp(flag, "--temperature") == 0;
	} else return false;
	if (!value) *rc = EXIT_USAGE;
	return true;
}

static int chat_parse(struct chat_opts *o, int argc, char **argv)
{
	struct strbuf question;
	int rc;

	strbuf_init(&question, 1 << 20);
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			o->help = true;
		} else if (strcmp(argv[i], "--print-model") == 0) {
			o->print_model = true;
		} else if (chat_flag(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &rc)) {
			if (rc != EXIT_OK) {
				strbuf_release(&question);
				return chat_usage("bad or missing value of", argv[i]);
			}
			i++;
		} else if (strncmp(argv[i], "--", 2) == 0) {
			strbuf_release(&question);
			return chat_usage("unknown option", argv[i]);
		} else {
			if (question.len) strbuf_putc(&question, ' ');
			strbuf_puts(&question, argv[i]);
		}
	}
	if (question.len) o->question = strbuf_take(&question);
	strbuf_release(&question);
	return EXIT_OK;
}

/* ---- one answer ---- */

struct chat_answer {
	struct strbuf text;
	struct errbuf err;
};

static void chat_show(const char *s)
{
	for (; *s; s++) putchar((unsigned char)*s < ' ' && *s != '\n' && *s != '\t' ? '?' : *s);
	fflush(stdout);
}

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
	chat_show(part);
	return true;
}

/* Asks with all messages so far; appends the answer to them. */
static int chat_ask(struct client *c, const struct chat_opts *o, json_t *messages)
{
	json_t *body = json_pack("{s:s, s:O, s:b}", "model", o->model, "messages", messages, "stream", 1);
	struct chat_answer a = {.err = {{0}}};
	int rc;

	strbuf_init(&a.text, 16u << 20);
	if (o->max_tokens > 0) json_object_set_new(body, "max_tokens", json_integer(o->max_tokens));
	if (o->has_temperature) json_object_set_new(body, "temperature", json_real(o->temperature));
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

	if (tty) printf("Talking to %s. /reset forgets, /exit ends.\n", o->model);
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

/* The first model of the server's list; NULL and a message when there is none. The string lives in *models. */
static const char *chat_first_model(struct client *c, json_t **models)
{
	struct errbuf err = {{0}};
	const char *name;

	if (client_get(c, "/v1/models", models, &err) != ST_OK) {
		fprintf(stderr, "sluice chat: error: %s\n", err.text);
		return NULL;
	}
	name = json_string_value(json_object_get(json_array_get(json_object_get(*models, "data"), 0), "id"));
	if (!name) fprintf(stderr, "sluice chat: error: the server lists no model\n");
	return name;
}

static int chat_run(struct client *c, struct chat_opts *o)
{
	json_t *models = NULL, *messages;
	int rc = EXIT_OK;

	if (!o->model) o->model = chat_first_model(c, &models);
	if (!o->model) {
		rc = EXIT_FAILED;
	} else if (o->print_model) {
		printf("%s\n", o->model);
	} else if (o->question) {
		messages = chat_new_messages(o);
		if (json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", o->question)) != 0)
			rc = chat_usage("not valid UTF-8:", "MESSAGE");
		else rc = chat_ask(c, o, messages);
		json_decref(messages);
	} else {
		chat_converse(c, o);
	}
	json_decref(models);
	return rc;
}

int chatcmd_main(int argc, char **argv)
{
	const char *url = getenv("SLUICE_URL");
	struct chat_opts o = {.url = url && url[0] ? url : "http://127.0.0.1:8000", .api_key = getenv("OPENAI_API_KEY")};
	struct errbuf err = {{0}};
	struct client *c;
	int rc = chat_parse(&o, argc - 1, argv + 1);

	if (rc != EXIT_OK) return rc;
	if (o.help) {
		chat_help();
		free(o.question);
		return EXIT_OK;
	}
	if (client_open(&c, o.url, o.api_key, &err) != ST_OK) {
		fprintf(stderr, "sluice chat: error: %s\n", err.text);
		free(o.question);
		return EXIT_FAILED;
	}
	rc = chat_run(c, &o);
	client_close(c);
	free(o.question);
	return rc;
}
