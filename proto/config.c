/* config.c - see config.h: everything here walks the one table of config.def. */
#include "proto/config.h"

#include "common/log.h"
#include "common/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum opt_kind { OPT_STR, OPT_U32, OPT_AUTO, OPT_LEN, OPT_SIZE, OPT_TIME, OPT_F64, OPT_BOOL, OPT_WORD };

#define OPT_METAVAR_MAX 128

struct opt {
	enum opt_kind kind;
	size_t offset;
	const char *flag, *alias, *def;
	double min, max;
	const char *metavar, *group, *help;
};

#define CONFIG_AS_ROW(kind, field, flag, alias, def, min, max, metavar, group, help) \
	{OPT_##kind, offsetof(struct config, field), flag, alias, def, min, max, metavar, group, help},
static const struct opt opts[] = {CONFIG(CONFIG_AS_ROW)};
#undef CONFIG_AS_ROW

static void *opt_field(const struct config *c, const struct opt *o)
{
	return (char *)c + o->offset;
}

/* `_` and `-` are the same in a flag, as in vLLM. */
static bool flag_is(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if ((*a == '_' ? '-' : *a) != (*b == '_' ? '-' : *b)) return false;
	return *a == *b;
}

static const struct opt *opt_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(opts); i++)
		if (flag_is(name, opts[i].flag) || (opts[i].alias[0] && flag_is(name, opts[i].alias))) return &opts[i];
	return NULL;
}

/* ---- values ---- */

static int bad_value(const struct opt *o, const char *value, const char *wanted, struct errbuf *err)
{
	return err_set(err, ST_INVALID, "--%s %s: expected %s", o->flag, value[0] ? value : "\"\"", wanted);
}

/* K, Ki and KiB are 1024, k and kB 1000; a fraction of a byte is dropped. Returns what follows. */
static char *parse_suffix(char *end, bool bytes, double *v)
{
	static const char letters[] = "KMGT";
	const char *p = *end ? strchr(letters, *end >= 'a' ? *end - 32 : *end) : NULL;

	if (p) {
		double step = *end >= 'a' && end[1] != 'i' ? 1000 : 1024;

		for (; p >= letters; p--) *v *= step;
		*v = floor(*v + 1e-6); /* 25.6k is 25600 */
		end += end[1] == 'i' ? 2 : 1;
	}
	return bytes && (*end == 'B' || *end == 'b') ? end + 1 : end;
}

static int parse_number(const struct opt *o, const char *value, bool whole, double *out, struct errbuf *err)
{
	char wanted[96], *end;
	double v;

	snprintf(wanted, sizeof(wanted), "%s from %.15g to %.15g%s", whole ? "a whole number" : "a number", o->min, o->max,
		 o->kind == OPT_AUTO || o->kind == OPT_LEN || o->kind == OPT_SIZE ? ", or auto" : "");
	errno = 0;
	v = strtod(value, &end);
	if (end == value || errno || !isfinite(v)) return bad_value(o, value, wanted, err);
	if (o->kind == OPT_SIZE || o->kind == OPT_LEN) end = parse_suffix(end, o->kind == OPT_SIZE, &v);
	if (*end || (whole && v != floor(v)) || !(v >= o->min && v <= o->max)) return bad_value(o, value, wanted, err);
	*out = v;
	return ST_OK;
}

static int parse_bool(const struct opt *o, const char *value, bool *out, struct errbuf *err)
{
	static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no", "off"};

	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
			*out = strcasecmp(value, yes[i]) == 0;
			return ST_OK;
		}
	}
	return bad_value(o, value, "true or false", err);
}

/* Whether value is a spelling of the word at p (until `|`). */
static bool word_is(const char *p, const char *value)
{
	size_t n = strlen(value);

	for (;;) {
		size_t len = strcspn(p, "|=");

		if (len == n && strncmp(p, value, n) == 0) return true;
		if (p[len] != '=') return false;
		p += len + 1;
	}
}

/* What people are shown: without the other spellings. */
static const char *opt_metavar(const struct opt *o, char out[OPT_METAVAR_MAX])
{
	size_t n = 0;

	if (o->kind != OPT_WORD) return o->metavar;
	for (const char *p = o->metavar; *p; p++) {
		if (*p == '=') p += strcspn(p, "|");
		if (!*p) break;
		CHECK(n + 1 < OPT_METAVAR_MAX);
		out[n++] = *p;
	}
	out[n] = 0;
	return out;
}

static int parse_word(const struct opt *o, const char *value, uint32_t *out, struct errbuf *err)
{
	const char *p = o->metavar;
	char wanted[OPT_METAVAR_MAX + 8], metavar[OPT_METAVAR_MAX];

	for (uint32_t ix = 0; *p; ix++) {
		size_t n = strcspn(p, "|");

		if (word_is(p, value)) {
			*out = ix;
			return ST_OK;
		}
		p += n + (p[n] == '|');
	}
	snprintf(wanted, sizeof(wanted), "one of %s", opt_metavar(o, metavar));
	return bad_value(o, value, wanted, err);
}

static int opt_set(struct config *c, const struct opt *o, const char *value, struct errbuf *err)
{
	void *field = opt_field(c, o);
	double v = 0;
	int rc;

	switch (o->kind) {
	case OPT_STR:
		if (strlen(value) > o->max)
			return err_set(err, ST_INVALID, "--%s: %zu bytes, at most %.0f are allowed", o->flag, strlen(value), o->max);
		free(*(char **)field);
		*(char **)field = mem_strdup(value);
		return ST_OK;
	case OPT_BOOL:
		return parse_bool(o, value, field, err);
	case OPT_WORD:
		return parse_word(o, value, field, err);
	case OPT_AUTO:
	case OPT_SIZE:
		if (strcmp(value, "auto") == 0 && strcmp(o->def, "auto") != 0 && o->kind == OPT_SIZE)
			return bad_value(o, value, "a size", err);
		if (strcmp(value, "auto") == 0) break;
		rc = parse_number(o, value, true, &v, err);
		if (rc != ST_OK) return rc;
		break;
	case OPT_LEN:
		if (!value[0] || strcmp(value, "auto") == 0 || strcmp(value, "-1") == 0) {
			v = value[0] ? CONFIG_LEN_AUTO : 0;
			break;
		}
		/* fall through */
	default:
		rc = parse_number(o, value, o->kind != OPT_F64 && o->kind != OPT_TIME, &v, err);
		if (rc != ST_OK) return rc;
	}
	if (o->kind == OPT_U32 || o->kind == OPT_AUTO || o->kind == OPT_LEN) *(uint32_t *)field = (uint32_t)v;
	if (o->kind == OPT_SIZE) *(uint64_t *)field = (uint64_t)v;
	if (o->kind == OPT_TIME) *(uint64_t *)field = (uint64_t)(v * 1e9);
	if (o->kind == OPT_F64) *(double *)field = v;
	return ST_OK;
}

void config_init(struct config *c)
{
	struct errbuf err;

	memset(c, 0, sizeof(*c));
	for (size_t i = 0; i < ARRAY_LEN(opts); i++) CHECK(opt_set(c, &opts[i], opts[i].def, &err) == ST_OK);
}

void config_release(struct config *c)
{
	for (size_t i = 0; i < ARRAY_LEN(opts); i++)
		if (opts[i].kind == OPT_STR) free(*(char **)opt_field(c, &opts[i]));
	memset(c, 0, sizeof(*c));
}

int config_set(struct config *c, const char *name, const char *value, struct errbuf *err)
{
	const struct opt *o = opt_find(name);

	if (!o) return err_set(err, ST_NOT_FOUND, "unknown option --%s", name);
	return opt_set(c, o, value, err);
}

/* ---- environment ---- */

static bool variable_is(const char *var, size_t len, const char *flag)
{
	for (size_t i = 0; i < len; i++) {
		char c = flag[i];

		if (!c) return false;
		if (c == '-') c = '_';
		if (c >= 'a' && c <= 'z') c = (char)(c - 32);
		if (c != var[i]) return false;
	}
	return flag[len] == 0;
}

static const struct opt *opt_find_variable(const char *var, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(opts); i++)
		if (variable_is(var, len, opts[i].flag) || (opts[i].alias[0] && variable_is(var, len, opts[i].alias))) return &opts[i];
	return NULL;
}

int config_from_env(struct config *c, struct errbuf *err)
{
	static const char prefix[] = "SLUICE_";
	/* Variables that other tools of ours read; not options of the mesh. */
	static const char *const others[] = {"SHARED", "BIN_DIR", "URL", "TEST_SEED"};

	for (char **e = environ; *e; e++) {
		const char *name = *e + sizeof(prefix) - 1, *eq = strchr(*e, '=');
		const struct opt *o;
		bool known = false;
		int rc;

		if (!eq || strncmp(*e, prefix, sizeof(prefix) - 1) != 0) continue;
		o = opt_find_variable(name, (size_t)(eq - name));
		if (o) {
			rc = opt_set(c, o, eq + 1, err);
			if (rc != ST_OK) return err_prefix(err, rc, "environment variable %.*s", (int)(eq - *e), *e);
			continue;
		}
		for (size_t i = 0; i < ARRAY_LEN(others); i++)
			known = known || (strlen(others[i]) == (size_t)(eq - name) && strncmp(name, others[i], (size_t)(eq - name)) == 0);
		if (!known) log_warning("environment variable %.*s is no option of Sluice and has no effect", (int)(eq - *e), *e);
	}
	return ST_OK;
}

/* ---- command line ---- */

/* Levenshtein distance of two short strings, for "did you mean". */
static size_t distance(const char *a, const char *b)
{
	size_t n = strlen(b), row[64];

	if (n >= ARRAY_LEN(row) || strlen(a) >= ARRAY_LEN(row)) return 99;
	for (size_t j = 0; j <= n; j++) row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diag = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t up = row[j], best = diag + (a[i - 1] != b[j - 1]);

			best = min_size(best, min_size(up, row[j - 1]) + 1);
			diag = up;
			row[j] = best;
		}
	}
	return row[n];
}

static int unknown_flag(const char *flag, struct errbuf *err)
{
	const char *best = NULL;
	size_t best_d = 4; /* further away is no help */

	for (size_t i = 0; i < ARRAY_LEN(opts); i++) {
		size_t d = distance(flag, opts[i].flag);

		if (d < best_d) {
			best_d = d;
			best = opts[i].flag;
		}
	}
	if (best) return err_set(err, ST_INVALID, "unknown option --%s; did you mean --%s?", flag, best);
	return err_set(err, ST_INVALID, "unknown option --%s; `sluice serve --help` lists all", flag);
}

static int arg_flag(struct config *c, const char *arg, const char *next, bool *used_next, struct errbuf *err)
{
	const char *eq = strchr(arg, '=');
	char name[64], metavar[OPT_METAVAR_MAX];
	size_t len = eq ? (size_t)(eq - arg) : strlen(arg);
	const struct opt *o;

	*used_next = false;
	if (len >= sizeof(name)) return unknown_flag(arg, err);
	memcpy(name, arg, len);
	name[len] = 0;
	o = opt_find(name);
	if (!o && strncmp(name, "no-", 3) == 0) {
		o = opt_find(name + 3);
		if (o && o->kind == OPT_BOOL && !eq) return opt_set(c, o, "false", err);
		o = NULL;
	}
	if (!o) return unknown_flag(name, err);
	if (eq) return opt_set(c, o, eq + 1, err);
	if (o->kind == OPT_BOOL) return opt_set(c, o, "true", err);
	if (!next) return err_set(err, ST_INVALID, "--%s needs a value (%s)", o->flag, opt_metavar(o, metavar));
	*used_next = true;
	return opt_set(c, o, next, err);
}

int config_from_args(struct config *c, int argc, char **argv, bool *help, struct errbuf *err)
{
	bool have_model = false, only_positional = false;

	*help = false;
	for (int i = 0; i < argc; i++) {
		const char *arg = argv[i];
		bool used_next = false;
		int rc;

		if (!only_positional && arg[0] == '-' && arg[1]) {
			if (strcmp(arg, "--") == 0) {
				only_positional = true;
				continue;
			}
			if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
				*help = true;
				return ST_OK;
			}
			rc = arg_flag(c, arg + (arg[1] == '-' ? 2 : 1), i + 1 < argc ? argv[i + 1] : NULL, &used_next, err);
			if (rc != ST_OK) return rc;
			i += used_next;
			continue;
		}
		if (have_model) return err_set(err, ST_INVALID, "unexpected argument %s: the model is %s already", arg, c->model);
		rc = config_set(c, "model", arg, err);
		if (rc != ST_OK) return rc;
		have_model = true;
	}
	return ST_OK;
}

/* ---- texts ---- */

static void opt_variable(const struct opt *o, char *out, size_t cap)
{
	size_t n = (size_t)snprintf(out, cap, "SLUICE_%s", o->flag);

	for (size_t i = 7; i < n && i < cap; i++) {
		if (out[i] == '-') out[i] = '_';
		else if (out[i] >= 'a' && out[i] <= 'z') out[i] = (char)(out[i] - 32);
	}
}

#define HELP_COLUMN 34 /* where the explanations begin: right of most flags with their value */
#define HELP_WIDTH 100

/* One word at column *at, or on the next line when it would pass HELP_WIDTH. */
static void help_word(FILE *out, const char *word, int len, int *at)
{
	if (*at > HELP_COLUMN && *at + 1 + len > HELP_WIDTH) {
		fprintf(out, "\n%*s", HELP_COLUMN, "");
		*at = HELP_COLUMN;
	}
	*at += fprintf(out, "%s%.*s", *at > HELP_COLUMN ? " " : "", len, word);
}

/* "  -p, --port N" and its explanation beside it, or below when it is long. */
static void help_option(FILE *out, const struct opt *o)
{
	bool is_letter = o->alias[0] && !o->alias[1], is_bool = o->kind == OPT_BOOL;
	char var[64], extra[96], metavar[OPT_METAVAR_MAX];
	int at;

	at = fprintf(out, "  %c%c%s", is_letter ? '-' : ' ', is_letter ? o->alias[0] : ' ', is_letter ? ", " : "  ");
	at += fprintf(out, "--%s%s", is_bool ? "[no-]" : "", o->flag);
	if (o->alias[0] && !is_letter) at += fprintf(out, ", --%s", o->alias);
	if (!is_bool) at += fprintf(out, " %s", opt_metavar(o, metavar));
	if (at + 2 > HELP_COLUMN) {
		fputc('\n', out);
		at = 0;
	}
	fprintf(out, "%*s", HELP_COLUMN - at, "");
	at = HELP_COLUMN;
	for (const char *p = o->help; *p; p += strspn(p, " ")) {
		int n = (int)strcspn(p, " ");

		help_word(out, p, n, &at);
		p += n;
	}
	if (o->def[0]) help_word(out, extra, snprintf(extra, sizeof(extra), "(default: %s)", o->def), &at);
	opt_variable(o, var, sizeof(var));
	help_word(out, extra, snprintf(extra, sizeof(extra), "[%s]", var), &at);
	fputc('\n', out);
}

void config_help(FILE *out)
{
	const char *group = "";

	for (size_t i = 0; i < ARRAY_LEN(opts); i++) {
		if (strcmp(group, opts[i].group) != 0) fprintf(out, "\n%s:\n", opts[i].group);
		group = opts[i].group;
		help_option(out, &opts[i]);
	}
}

void config_document(struct strbuf *out)
{
	strbuf_puts(out, "| flag | variable | default | meaning |\n| --- | --- | --- | --- |\n");
	for (size_t i = 0; i < ARRAY_LEN(opts); i++) {
		const struct opt *o = &opts[i];
		char var[64], metavar[OPT_METAVAR_MAX];

		opt_variable(o, var, sizeof(var));
		strbuf_printf(out, "| `--%s%s`%s%s%s | `%s` | %s | %s", o->kind == OPT_BOOL ? "[no-]" : "", o->flag,
			      o->alias[0] ? (o->alias[1] ? ", `--" : ", `-") : "", o->alias, o->alias[0] ? "`" : "", var,
			      o->def[0] ? o->def : "", o->help);
		if (o->kind == OPT_WORD) {
			strbuf_puts(out, " (");
			for (const char *p = opt_metavar(o, metavar); *p; p++) {
				if (*p == '|') strbuf_puts(out, ", ");
				else strbuf_putc(out, *p);
			}
			strbuf_putc(out, ')');
		}
		strbuf_puts(out, " |\n");
	}
}

/* ---- boot message ---- */

static void opt_print(const struct config *c, const struct opt *o, struct strbuf *out)
{
	const void *field = opt_field(c, o);
	const char *p = o->metavar;

	switch (o->kind) {
	case OPT_STR:
		strbuf_puts(out, *(char *const *)field);
		break;
	case OPT_BOOL:
		strbuf_puts(out, *(const bool *)field ? "true" : "false");
		break;
	case OPT_U32:
		strbuf_printf(out, "%u", *(const uint32_t *)field);
		break;
	case OPT_AUTO:
		if (*(const uint32_t *)field) strbuf_printf(out, "%u", *(const uint32_t *)field);
		else strbuf_puts(out, "auto");
		break;
	case OPT_LEN:
		if (*(const uint32_t *)field == CONFIG_LEN_AUTO) strbuf_puts(out, "auto");
		else if (*(const uint32_t *)field) strbuf_printf(out, "%u", *(const uint32_t *)field);
		break;
	case OPT_SIZE:
		if (*(const uint64_t *)field) strbuf_printf(out, "%llu", (unsigned long long)*(const uint64_t *)field);
		else strbuf_puts(out, "auto");
		break;
	case OPT_TIME:
		strbuf_printf(out, "%.17g", (double)*(const uint64_t *)field / 1e9);
		break;
	case OPT_F64:
		strbuf_printf(out, "%.17g", *(const double *)field);
		break;
	case OPT_WORD:
		for (uint32_t ix = *(const uint32_t *)field; ix > 0; ix--) p += strcspn(p, "|") + 1;
		strbuf_append(out, p, strcspn(p, "|="));
		break;
	}
}

void config_print(const struct config *c, const char *name, struct strbuf *out)
{
	const struct opt *o = opt_find(name);

	CHECK(o);
	opt_print(c, o, out);
}

void config_pack(const struct config *c, struct strbuf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(opts); i++) {
		strbuf_puts(out, opts[i].flag);
		strbuf_putc(out, '=');
		opt_print(c, &opts[i], out);
		strbuf_putc(out, 0);
	}
}

int config_unpack(struct config *c, const void *data, size_t len, struct errbuf *err)
{
	const char *p = data, *end = p + len;

	while (p < end) {
		const char *zero = memchr(p, 0, (size_t)(end - p)), *eq;
		char name[64];
		int rc;

		eq = zero ? memchr(p, '=', (size_t)(zero - p)) : NULL;
		if (!eq || (size_t)(eq - p) >= sizeof(name)) return err_set(err, ST_CORRUPT, "boot message: bad option list");
		memcpy(name, p, (size_t)(eq - p));
		name[eq - p] = 0;
		rc = config_set(c, name, eq + 1, err);
		if (rc != ST_OK) return err_prefix(err, rc, "boot message");
		p = zero + 1;
	}
	return ST_OK;
}
