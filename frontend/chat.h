/* chat.h - a model's chat template: conversations to prompts.
 *
 * Texts of messages, tools and template arguments are input: control tokens in them stay plain text when the prompt is
 * encoded. The template's own text and the special tokens' texts (bos_token ...) may become control tokens. */
#ifndef SLUICE_CHAT_H
#define SLUICE_CHAT_H

#include "common/base.h"
#include "common/errbuf.h"
#include "frontend/jinja.h"
#include "frontend/outparse.h"

#include <jansson.h>

struct chat;
struct gguf;
struct token_vec;
struct tokenizer;
struct tokenizer_work;

/* Everything is borrowed. tools, documents and kwargs may be NULL. kwargs: more variables for the template
 * (chat_template_kwargs of a request); they win over the named ones but never over the special tokens. */
struct chat_request {
	json_t *messages;
	json_t *tools;
	json_t *documents;
	json_t *kwargs;
	bool add_generation_prompt;
	bool continue_final; /* the prompt ends with the last message's text */
	int64_t now_s; /* the template's clock, seconds since 1970 */
};

/* Compiles. text NULL: the model has no template; every chat_render() then says so (ST_NOT_FOUND). tokens: an object with
 * the special tokens' texts (bos_token, eos_token ...), or NULL; kept with a reference of its own. */
int chat_new(struct chat **out, const char *text, size_t len, json_t *tokens, struct errbuf *err) MUST_CHECK;
/* From tokenizer.chat_template and the special tokens of a model file. Both arguments may go away afterwards. */
int chat_from_gguf(struct chat **out, const struct gguf *g, const struct tokenizer *t, struct errbuf *err) MUST_CHECK;
/* The same special tokens with another template. How the model writes calls and reasoning is what its own template told (a request's
 * template changes the prompt, not the model), or what the new one tells (the operator knows his model). */
enum chat_whose { CHAT_SAME_MODEL, CHAT_NEW_MODEL };
int chat_with_template(struct chat **out, const struct chat *c, const char *text, size_t len, enum chat_whose whose, struct errbuf *err) MUST_CHECK;
/* From the template and the special tokens that came with a tokenizer.json. */
int chat_from_tokenizer(struct chat **out, const struct tokenizer *t, struct errbuf *err) MUST_CHECK;
void chat_free(struct chat *c);

bool chat_has_template(const struct chat *c);
/* The template can use the content of a message as a list of parts; when it cannot, chat_render() joins text parts. */
bool chat_takes_parts(const struct chat *c);

/* The template makes something of tools; tried once, when it was compiled. chat_render() itself does not mind. */
bool chat_takes_tools(const struct chat *c);
/* How its model writes tool calls and reasoning, as far as the template tells. */
enum outparse_tools chat_tools(const struct chat *c);
enum outparse_reasoning chat_reasoning(const struct chat *c);

/* out: see jinja.h. ST_NOT_FOUND: no template. ST_INVALID: err is what the client did wrong; *raised: exactly the template's
 * own words. ST_LIMIT: the template or the request is too large, named in err. All of these are a 400. */
int chat_render(const struct chat *c, const struct chat_request *rq, struct jinja_out *out, bool *raised, struct errbuf *err) MUST_CHECK;

/* Appends the rendered prompt's ids. No BOS is added: the template writes it. */
void chat_encode(const struct tokenizer *t, struct tokenizer_work *w, const struct jinja_out *o, struct token_vec *ids);

#endif
