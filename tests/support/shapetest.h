/* shapetest.h - feeds an answer and compares what its shape writes. In expected texts ' stands for ", and ID for what is random in a
 * call's id. */
#ifndef SLUICE_SHAPETEST_H
#define SLUICE_SHAPETEST_H

#include "common/base.h"
#include "frontend/answer.h"

struct shapetest {
	struct answer answer;
	struct strbuf out;
};

/* request: JSON with ' for ", or NULL. n_logprobs: -1 for none. */
void shapetest_init(struct shapetest *t, const struct answer_shape *shape, bool is_stream, int n_logprobs, const char *request);
void shapetest_release(struct shapetest *t);

/* Says something: T text, R reasoning, C a call's name, A arguments. A stream writes it at once as a delta. */
void shapetest_say(struct shapetest *t, char kind, const char *text);
void shapetest_token(struct shapetest *t, uint32_t id);
/* Ends the choice, then the stream or the document. finish "stop!" stands for the stop string `E"D`. */
void shapetest_end(struct shapetest *t, const char *finish);

/* Compares all that was written since the last call. */
void shapetest_expect(struct shapetest *t, const char *want);
/* A plain answer as JSON, to be given back. */
json_t *shapetest_document(struct shapetest *t);

#endif
