/* test_readme.c - the README's table of options is the one that config.def gives. UPDATE=1 writes it anew. */
#include "common/mem.h"
#include "proto/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define BEGIN "<!-- options: made from proto/config.def, checked by tests/unit/test_readme.c -->\n"
#define END "<!-- /options -->\n"

static struct strbuf read_file(const char *path)
{
	struct strbuf s;
	char buf[4096];
	size_t n;
	FILE *f = fopen(path, "r");

	if (!f) fail_msg("%s is missing; run this test from the project's root", path);
	strbuf_init(&s, 1 << 20);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0) strbuf_append(&s, buf, n);
	fclose(f);
	return s;
}

static void the_options_are_those_of_the_table(void **state)
{
	struct strbuf have = read_file("README.md"), want;
	char *begin = strstr(have.data, BEGIN), *end = strstr(have.data, END);
	FILE *f;

	assert_non_null(begin);
	assert_non_null(end);
	strbuf_init(&want, 1 << 20);
	strbuf_append(&want, have.data, (size_t)(begin - have.data) + strlen(BEGIN));
	config_document(&want);
	strbuf_puts(&want, end);
	if (getenv("UPDATE")) {
		f = fopen("README.md", "w");
		assert_non_null(f);
		fwrite(want.data, 1, want.len, f);
		fclose(f);
	} else if (strcmp(have.data, want.data) != 0) {
		fail_msg("README.md: the options differ from proto/config.def; UPDATE=1 build/tests/test_readme writes them");
	}
	strbuf_release(&have);
	strbuf_release(&want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_options_are_those_of_the_table)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
