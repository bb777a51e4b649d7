/* choice.h - one choice of a generation while its tokens come: ids go in, pieces of text, reasoning and tool calls come out.
 *
 * A token's text passes detok (whole characters), the stop strings, and the output parser where the request has one. Pure. */
#ifndef SLUICE_CHOICE_H
#define SLUICE_CHOICE_H

#include "common/base.h"
#include "frontend/answer.h"
#include "frontend/outparse.h"
#include "frontend/stopstr.h"
#include "frontend/tokenizer.h"
#include "proto/limits.h"
#include "proto/messages.h"

/* Of all choices of a request. */
struct choice_rules {
	const struct tokenizer *tokenizer; /* borrowed */
	struct stopstr_set stops;
	uint32_t n_stop_ids, n_model_stop;
	uint32_t output_min;     /* no stop string ends fewer tokens */
	bool skip_special;       /* control tokens are no text */
	bool hide_reasoning;
	bool calls_end_as_stop;  /* a named function was asked for: OpenAI and vLLM say "stop" then */
	uint32_t stop_ids[LIMIT_STOP_IDS]; /* (n_stop_ids), the model's own first */
};

void choice_rules_release(struct choice_rules *r);

struct choice {
	const struct choice_rules *rules;
	struct pieces *said;     /* where everything goes */
	struct detok detok;
	struct stopstr stop;
	struct outparse *parser; /* owned; NULL: everything is text */
	struct strbuf raw, text; /* scratch: of the token, and what came through the stop strings; empty between calls */
	uint32_t n_output, n_reasoning;
	bool in_reasoning;
	int stop_ix;             /* the stop string that was found, or -1 */
	int64_t stop_id;         /* the client's stop id that ended it, or -1 */
	enum finish finish;
};

/* Borrows rules and said until release. parse NULL: everything is text. */
void choice_init(struct choice *c, const struct choice_rules *rules, const struct outparse_config *parse, struct pieces *said);
void choice_release(struct choice *c);

/* The next token. True: a stop string was found, the choice ends here. */
bool choice_push(struct choice *c, uint32_t id);
/* The engine has ended it. What was held back comes out; a stop string in it makes it a stop. */
void choice_finish(struct choice *c, enum finish finish);

/* How it ended, for its answer; borrows from the rules. */
struct answer_end choice_end(const struct choice *c);

#endif
