/* cmdopts.c - see cmdopts.h. */
#include "sluice/cmdopts.h"

#include "common/child.h"
#include "common/strbuf.h"
#include "sluice/client.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CMDOPTS_TEXT_MAX (16 * MIB)

static const struct cmdopt server_rows[] = {
	{"url", CMDOPT_TEXT, offsetof(struct cmdserver, url), 0, 0, "URL", "the server, or unix:PATH [http://127.0.0.1:8000, or SLUICE_URL]"},
	{"model", CMDOPT_TEXT, offsetof(struct cmdserver, model), 0, 0, "NAME", "default: the first that the server lists"},
	{"api-key", CMDOPT_TEXT, offsetof(struct cmdserver, api_key), 0, 0, "KEY", "default: OPENAI_API_KEY"},
	{"cacert", CMDOPT_TEXT, offsetof(struct cmdserver, cacert), 0, 0, "FILE", "PEM certificates to trust instead of the system's"},
};

int cmdopts_fail(const char *name, int code, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sluice %s: error: ", name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return code;
}

static void help_rows(const struct cmdopt *rows, size_t n)
{
	char flag[64];
	size_t i;

	for (i = 0; i < n; i++) {
		snprintf(flag, sizeof(flag), "--%s%s%s", rows[i].flag, rows[i].metavar ? " " : "", rows[i].metavar ? rows[i].metavar : "");
		printf("  %-26s %s\n", flag, rows[i].help);
	}
}

static void print_help(const struct cmdopts *o)
{
	printf("usage: sluice %s\n", o->usage);
	if (o->intro) printf("\n%s\n", o->intro);
	printf("\noptions:\n");
	help_rows(server_rows, ARRAY_LEN(server_rows));
	help_rows(o->rows, o->n_rows);
	printf("\nexamples:\n%s\nexit codes: 0 good, 1 the server could not be asked or refused, 2 bad options\n", o->examples);
}

static const struct cmdopt *find(const struct cmdopt *rows, size_t n, const char *flag, size_t len)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (strlen(rows[i].flag) == len && memcmp(rows[i].flag, flag, len) == 0) return &rows[i];
	return NULL;
}

/* False: the value is not what the row wants. */
static bool set(const struct cmdopt *row, void *opts, const char *value)
{
	char *at = (char *)opts + row->at, *end;
	double v;

	if (row->kind == CMDOPT_TEXT) {
		*(const char **)(void *)at = value;
		return true;
	}
	v = strtod(value, &end);
	if (end == value || *end || !(v >= row->lo && v <= row->hi)) return false;
	if (row->kind == CMDOPT_COUNT) {
		if (v != floor(v)) return false;
		*(int64_t *)(void *)at = (int64_t)v;
	} else {
		*(double *)(void *)at = v;
	}
	return true;
}

static int bad_value(const struct cmdopts *o, const struct cmdopt *row, const char *value)
{
	if (!value) return cmdopts_fail(o->name, EXIT_USAGE, "--%s needs a value (%s); see sluice %s --help", row->flag, row->metavar, o->name);
	return cmdopts_fail(o->name, EXIT_USAGE, "--%s must be a %snumber from %g to %g, but is %s", row->flag,
			    row->kind == CMDOPT_COUNT ? "whole " : "", row->lo, row->hi, value);
}

/* One flag; *i moves over a value of its own. */
static int parse_flag(const struct cmdopts *o, void *opts, int argc, char **argv, int *i)
{
	const char *flag = argv[*i] + 2, *value = strchr(flag, '=');
	size_t len = value ? (size_t)(value - flag) : strlen(flag);
	const struct cmdopt *row = find(server_rows, ARRAY_LEN(server_rows), flag, len);

	if (!row) row = find(o->rows, o->n_rows, flag, len);
	if (!row) return cmdopts_fail(o->name, EXIT_USAGE, "unknown option %s; see sluice %s --help", argv[*i], o->name);
	if (row->kind == CMDOPT_SWITCH) {
		if (value) return cmdopts_fail(o->name, EXIT_USAGE, "--%s takes no value", row->flag);
		*(bool *)(void *)((char *)opts + row->at) = true;
		return EXIT_OK;
	}
	if (value) value++;
	else if (*i + 1 < argc) value = argv[++*i];
	return value && set(row, opts, value) ? EXIT_OK : bad_value(o, row, value);
}

int cmdopts_parse(const struct cmdopts *o, void *opts, int argc, char **argv, char **text, bool *help)
{
	const char *url = getenv("SLUICE_URL");
	struct cmdserver *server = opts;
	struct strbuf words;
	bool flags = true;
	int i, rc = EXIT_OK;

	server->url = url && url[0] ? url : "http://127.0.0.1:8000";
	server->api_key = getenv("OPENAI_API_KEY");
	*text = NULL;
	*help = false;
	strbuf_init(&words, CMDOPTS_TEXT_MAX);
	for (i = 1; i < argc && rc == EXIT_OK && !*help; i++) {
		if (flags && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
			*help = true;
		} else if (flags && strcmp(argv[i], "--") == 0) {
			flags = false;
		} else if (flags && strncmp(argv[i], "--", 2) == 0) {
			rc = parse_flag(o, opts, argc, argv, &i);
		} else {
			if (words.len) strbuf_putc(&words, ' ');
			strbuf_puts(&words, argv[i]);
		}
	}
	if (*help) print_help(o);
	else if (rc == EXIT_OK && words.len) *text = strbuf_take(&words);
	strbuf_release(&words);
	return rc;
}

char *cmdopts_stdin(const char *name, size_t len_max)
{
	struct strbuf text;
	char buf[65536];
	size_t n;

	strbuf_init(&text, len_max);
	while ((n = fread(buf, 1, sizeof(buf), stdin)) > 0) strbuf_append(&text, buf, n);
	if (!text.overflow && !(text.len && memchr(text.data, 0, text.len))) return strbuf_take(&text);
	if (text.overflow) cmdopts_fail(name, EXIT_USAGE, "the text on standard input is longer than %zu bytes", len_max);
	else cmdopts_fail(name, EXIT_USAGE, "the text on standard input holds a zero byte");
	strbuf_release(&text);
	return NULL;
}

int cmdopts_open(const char *name, struct cmdserver *server, struct client **out, json_t **models)
{
	struct errbuf err = {{0}};

	*models = NULL;
	*out = NULL;
	if (client_open(out, server->url, server->api_key, server->cacert, &err) != ST_OK) return cmdopts_fail(name, EXIT_FAILED, "%s", err.text);
	if (server->model) return EXIT_OK;
	if (client_get(*out, "/v1/models", models, &err) != ST_OK) {
		cmdopts_fail(name, EXIT_FAILED, "%s", err.text);
	} else {
		server->model = json_string_value(json_object_get(json_array_get(json_object_get(*models, "data"), 0), "id"));
		if (server->model) return EXIT_OK;
		cmdopts_fail(name, EXIT_FAILED, "the server lists no model");
	}
	json_decref(*models);
	client_close(*out);
	*models = NULL;
	*out = NULL;
	return EXIT_FAILED;
}
