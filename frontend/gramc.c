/* gramc.c - see gramc.h: what surrounds every grammar; each kind's own part lies in a file of its own. */
#include "frontend/gramc.h"

#include "common/utf8.h"
#include "frontend/dfa.h"
#include "frontend/ebnfc.h"
#include "frontend/gramjson.h"
#include "frontend/regexc.h"
#include "frontend/schemac.h"
#include "proto/limits.h"

#include <string.h>

#define GRAMC_MARKER_MAX 256
#define GRAMC_THINK "<think>"

/* Texts that end with the marker and have it nowhere before: one state for each beginning of the marker that was just read. */
static uint32_t gramc_until(struct gramctx *g, const char *marker, uint32_t rule, uint32_t from)
{
	size_t n = strlen(marker), i, k;
	uint32_t states[GRAMC_MARKER_MAX + 1];
	int byte;

	for (i = 0; i <= n; i++) states[i] = gramb_state(g->b, rule);
	gramb_empty(g->b, from, states[0]);
	for (i = 0; i < n; i++) {
		size_t to_of[256];

		for (byte = 0; byte < 256; byte++) {
			char read[GRAMC_MARKER_MAX + 1];

			/* The longest beginning of the marker that what was read ends with. */
			memcpy(read, marker, i);
			read[i] = (char)byte;
			for (k = i + 1; k > 0 && memcmp(read + i + 1 - k, marker, k) != 0;) k--;
			to_of[byte] = k;
		}
		for (byte = 0; byte < 256; byte = (int)k) {
			for (k = (size_t)byte; k < 256 && to_of[k] == to_of[byte];) k++;
			gramb_byte(g->b, states[i], (uint8_t)byte, (uint8_t)(k - 1), states[to_of[byte]]);
		}
	}
	return states[n];
}

/* Rule 0: free text first when it is asked for, then rule `body`. */
static void gramc_root(struct gramctx *g, uint32_t body, bool is_json)
{
	struct gramb *b = g->b;
	uint32_t at = gramb_start(b, 0), begin = at, end = gramb_state(b, 0), i, next;

	if (g->o->after) {
		if (strlen(g->o->after) > GRAMC_MARKER_MAX || !g->o->after[0]) {
			gramctx_fail(g, ST_LIMIT, "the marker before the answer has not 1 to %d bytes", GRAMC_MARKER_MAX);
			return;
		}
		begin = gramb_state(b, 0);
		if (g->o->may_skip_after) gramb_empty(b, at, begin);
		at = gramc_until(g, g->o->after, 0, g->o->may_skip_after ? gramb_text(b, at, GRAMC_THINK, strlen(GRAMC_THINK)) : at);
		/* Models leave a line empty there, which JSON does not mind. */
		for (i = 0; is_json && i < 2; i++) {
			next = gramb_state(b, 0);
			gramb_byte(b, at, '\n', '\n', next);
			gramb_empty(b, at, begin);
			at = next;
		}
		gramb_empty(b, at, begin);
	}
	gramb_final(b, end);
	gramb_call(b, begin, body, 1, 1, end);
}

/* The wire form, or the failure. `body` has a rule to call. */
static int gramc_finish(struct gramctx *g, struct strbuf *out, uint32_t body, bool is_json)
{
	int rc;

	if (gramctx_work(g, 0)) gramc_root(g, body, is_json);
	rc = g->rc;
	if (!rc) rc = gramb_finish(g->b, out, NULL, NULL, g->err);
	gramctx_release(g);
	return rc;
}

/* Begins a grammar: rule 0 is the root, and the result a rule for the body. */
static uint32_t gramc_begin(struct gramctx *g, const struct gramc_opts *o, struct errbuf *err)
{
	gramctx_init(g, o, err);
	gramb_rule(g->b);
	return gramb_rule(g->b);
}

int gramc_json_object(struct strbuf *out, const struct gramc_opts *o, struct errbuf *err)
{
	struct gramctx g;
	struct gramjson j;
	uint32_t body = gramc_begin(&g, o, err);

	gramjson_init(&j, &g);
	gramb_final(g.b, gramjson_put(&j, GRAMJSON_OBJECT, body, gramjson_space(&j, body, gramb_start(g.b, body))));
	return gramc_finish(&g, out, body, true);
}

int gramc_schema(struct strbuf *out, const json_t *schema, const struct gramc_opts *o, struct errbuf *err)
{
	struct gramctx g;
	uint32_t body = gramc_begin(&g, o, err);

	struct errbuf finish_err = {{0}};
	int rc;

	schemac_compile(&g, schema, body);
	g.err = &finish_err;
	if (g.rc) return gramc_finish(&g, out, body, true);
	rc = gramc_finish(&g, out, body, true);
	/* It speaks of rules, which the schema's author knows nothing of. */
	if (rc == ST_INVALID) return err_set(err, rc, "no value is valid for the schema");
	return rc ? err_set(err, rc, "%s", finish_err.text) : rc;
}

int gramc_regex(struct strbuf *out, const char *text, size_t len, const struct gramc_opts *o, struct errbuf *err)
{
	struct gramctx g;
	uint32_t body = gramc_begin(&g, o, err);
	const struct regexc *x = regexc_parse(&g, text, len, false);

	if (x) gramb_final(g.b, regexemit_into(&g, x, body, gramb_start(g.b, body)));
	return gramc_finish(&g, out, body, false);
}

int gramc_choice(struct strbuf *out, const json_t *list, const struct gramc_opts *o, struct errbuf *err)
{
	struct gramctx g;
	struct gramjson j;
	uint32_t body = gramc_begin(&g, o, err);
	size_t n = json_array_size(list), i;
	struct dfa_word *words = gramctx_array(&g, struct dfa_word, n);

	gramjson_init(&j, &g);
	if (!n) gramctx_fail(&g, ST_INVALID, "the list of choices is empty or not a list");
	for (i = 0; i < n && gramctx_is_ok(&g); i++) {
		const json_t *item = json_array_get(list, i);

		if (!json_is_string(item)) gramctx_fail(&g, ST_INVALID, "choice %zu is not a string", i);
		words[i] = (struct dfa_word){json_string_value(item), json_string_length(item)};
	}
	if (gramctx_is_ok(&g))
		gramb_final(g.b, gramjson_plain(&j, dfa_words(&g, words, n), body, gramb_start(g.b, body)));
	return gramc_finish(&g, out, body, false);
}

int gramc_ebnf(struct strbuf *out, const char *text, size_t len, const struct gramc_opts *o, struct errbuf *err)
{
	struct gramctx g;
	uint32_t body = gramc_begin(&g, o, err);

	ebnfc_compile(&g, text, len, body);
	return gramc_finish(&g, out, body, false);
}
