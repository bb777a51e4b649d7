/* fuzz_grammar.c - any bytes as an expression and as EBNF: regexc.h, ebnfc.h, and expressions as automata of dfa.h.
 *
 * What is compiled is a grammar that loads; what is refused has a reason. A text that the grammar of an expression makes is accepted
 * by the automaton of the same expression, when there are both. Seeds: corpus/grammar. */
#include "common/utf8.h"
#include "frontend/dfa.h"
#include "frontend/gramc.h"
#include "proto/gram.h"
#include "proto/limits.h"
#include "tests/support/gramwalk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_MAX (64 * KIB)
#define WALK_MAX 256 /* bytes: the plain walk takes the square of a text's length, and more */

typedef int (*compile)(struct strbuf *out, const char *text, size_t len, const struct gramc_opts *o, struct errbuf *err);

static const struct gramc_opts options = {.bytes_max = 64 * KIB};

/* Appends a text of the grammar; false: nothing was compiled, or its shortest text is too long for the plain walk. */
static bool try_one(compile how, const char *text, size_t len, struct strbuf *out)
{
	struct errbuf err = {{0}};
	uint64_t seed = len;
	struct strbuf wire;
	struct gram *g;
	bool made = false;
	int rc;

	strbuf_init(&wire, LIMIT_GRAMMAR_BYTES);
	rc = how(&wire, text, len, &options, &err);
	CHECK(rc == ST_OK || rc == ST_INVALID || rc == ST_UNSUPPORTED || rc == ST_LIMIT);
	CHECK((rc == ST_OK) == !err.text[0] && wire.len <= options.bytes_max);
	if (rc == ST_OK) {
		CHECK(gram_load(&g, wire.data, wire.len, &err) == ST_OK);
		made = g->state_min[g->rule_start[0]] <= WALK_MAX;
		if (made) gramwalk_random(g, &seed, 20, out);
		gram_free(g);
	}
	strbuf_release(&wire);
	return made && !out->overflow;
}

static void check_automaton(const char *text, size_t len, const struct strbuf *made)
{
	struct errbuf err = {{0}};
	struct gramctx g;
	const struct dfa *a;

	gramctx_init(&g, &options, &err);
	a = dfaregex_pattern(&g, text, len, false, false);
	if (gramctx_is_ok(&g)) CHECK(dfa_accepts(a, made->data ? made->data : "", made->len));
	gramctx_release(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct strbuf made;

	strbuf_init(&made, TEXT_MAX);
	if (try_one(gramc_regex, text, size, &made)) {
		CHECK(utf8_valid_len(made.data ? made.data : "", made.len) == made.len);
		check_automaton(text, size, &made);
	}
	strbuf_reset(&made);
	try_one(gramc_ebnf, text, size, &made);
	strbuf_release(&made);
	return 0;
}
