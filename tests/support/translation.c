/* translation.c - see translation.h. */
#include "tests/support/translation.h"

#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static char *quoted(const char *text)
{
	char *s = mem_strdup(text), *p;

	for (p = s; *p; p++)
		if (*p == '\'') *p = '"';
	return s;
}

json_t *translation_json(const char *text)
{
	char *s = quoted(text);
	json_error_t err;
	json_t *j = json_loads(s, JSON_REJECT_DUPLICATES, &err);

	if (!j) fail_msg("not JSON (%s): %s", err.text, s);
	free(s);
	return j;
}

static void check_accepted(const struct translation_row *row, json_t *got, const struct apierr *e)
{
	json_t *want = translation_json(row->want);
	char *text = got ? json_dumps(got, JSON_COMPACT) : NULL;

	if (!got) fail_msg("%s: refused: %s", row->body, e->message);
	if (!json_equal(got, want)) fail_msg("%s\nbecame %s\nand not %s", row->body, text, row->want);
	free(text);
	json_decref(want);
}

static void check_refused(const struct translation_row *row, json_t *got, const struct apierr *e)
{
	if (got) fail_msg("%s: not refused", row->body);
	assert_int_equal(e->status, 400);
	assert_string_equal(e->param, row->param);
	if (!strstr(e->message, row->says)) fail_msg("%s: \"%s\" does not say \"%s\"", row->body, e->message, row->says);
}

void translation_check(const struct endpoint *endpoint, const struct translation_row *rows, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		json_t *body = translation_json(rows[i].body), *before = json_deep_copy(body), *got;
		struct apierr e = {0};

		got = endpoint->translate(body, &e);
		apierr_rename(&e, endpoint->names);
		if (rows[i].want) check_accepted(&rows[i], got, &e);
		else check_refused(&rows[i], got, &e);
		if (!json_equal(body, before)) fail_msg("%s: the client's own body was changed", rows[i].body);
		json_decref(got);
		json_decref(body);
		json_decref(before);
	}
}
