/* messages.h - every message as a struct, with pack, unpack, print and equal, expanded from messages.def.
 *
 * A column is a view: of the caller's array when packing, of the received bytes when unpacked. Received columns may lie at
 * any address: read them with col_u32() and friends, never by a cast pointer. */
#ifndef SLUICE_MESSAGES_H
#define SLUICE_MESSAGES_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/strbuf.h"
#include "proto/limits.h"
#include "proto/messages.def"

#include <string.h>

struct view {
	const void *data;
	uint32_t n; /* bytes of str and bin, elements of a column */
};

static inline struct view view_of(const void *data, size_t n)
{
	return (struct view){data, (uint32_t)n};
}

static inline struct view view_text(const char *s)
{
	return (struct view){s, (uint32_t)strlen(s)};
}

static inline uint32_t col_u32(struct view c, uint32_t ix)
{
	uint32_t v;

	CHECK(ix < c.n);
	memcpy(&v, (const char *)c.data + (size_t)ix * sizeof(v), sizeof(v));
	return v;
}

/* Of a column that may be left out when all of it is 0. */
static inline uint32_t col_u32_or_0(struct view c, uint32_t ix)
{
	return c.n ? col_u32(c, ix) : 0;
}

static inline uint64_t col_u64(struct view c, uint32_t ix)
{
	uint64_t v;

	CHECK(ix < c.n);
	memcpy(&v, (const char *)c.data + (size_t)ix * sizeof(v), sizeof(v));
	return v;
}

static inline float col_f32(struct view c, uint32_t ix)
{
	float v;

	CHECK(ix < c.n);
	memcpy(&v, (const char *)c.data + (size_t)ix * sizeof(v), sizeof(v));
	return v;
}

#define MSG_CTYPE_u32 uint32_t
#define MSG_CTYPE_u64 uint64_t
#define MSG_CTYPE_f32 float
#define MSG_CTYPE_str struct view
#define MSG_CTYPE_bin struct view
#define MSG_CTYPE_u32s struct view
#define MSG_CTYPE_u64s struct view
#define MSG_CTYPE_f32s struct view

#define MSG_AS_FIELD(type, field, max, doc) MSG_CTYPE_##type field;
#define MSG_AS_STRUCT(name, number, doc, fields) \
	struct msg_##name {                      \
		fields                           \
	};
MESSAGES(MSG_AS_STRUCT, MSG_AS_FIELD)
#undef MSG_AS_STRUCT
#undef MSG_AS_FIELD

#define MSG_NO_FIELD(type, field, max, doc)
#define MSG_AS_ENUM(name, number, doc, fields) MSG_##name = number,
enum msg_type { MESSAGES(MSG_AS_ENUM, MSG_NO_FIELD) };
#undef MSG_AS_ENUM

/* Any message. */
struct msg {
	enum msg_type type;
	union {
#define MSG_AS_MEMBER(name, number, doc, fields) struct msg_##name name;
		MESSAGES(MSG_AS_MEMBER, MSG_NO_FIELD)
#undef MSG_AS_MEMBER
	};
};
#undef MSG_NO_FIELD

/* What a submit asks for. Pooling requests have no output: they end with one embedding. */
enum request_kind {
	REQUEST_GENERATE = 0,
	REQUEST_POOL_MEAN = 1, /* mean over all prompt tokens of the hidden states after the last norm */
	REQUEST_POOL_LAST = 2  /* the last token's */
};

/* Tokens of a step_result that are none: why the request cannot go on. */
#define TOKEN_FAILED      0xfffffff0u /* the smallest of them; above every vocabulary */
#define TOKEN_NO_LOGITS   UINT32_MAX       /* the model gave no usable logits */
#define TOKEN_NOT_ALLOWED (UINT32_MAX - 1) /* grammar, allowed ids and bans leave no token */
#define TOKEN_BAD_GRAMMAR (UINT32_MAX - 2) /* the worker could not take the grammar */

/* How a request ended; in results.finishes. */
enum finish {
	FINISH_NONE = 0,   /* goes on */
	FINISH_STOP = 1,   /* a stop id was drawn; it is the row's last token */
	FINISH_LENGTH = 2, /* n_output_max or the model's length is reached */
	FINISH_ABORT = 3   /* cancelled by the engine */
};

/* Why a request was refused; the frontend maps it to an HTTP status. */
enum refusal {
	REFUSAL_TOO_LONG = 1,  /* can never fit the model's length or the KV pool: 400 */
	REFUSAL_QUEUE_FULL = 2, /* 503 with Retry-After */
	REFUSAL_DRAINING = 3,   /* 503 */
	REFUSAL_POISON = 4,     /* it brought a worker down alone: 500 */
	REFUSAL_INVALID = 5,    /* fields that do not go together: 400 */
	REFUSAL_NUMERIC = 6,    /* the model gave no usable logits: 500 */
	REFUSAL_QUEUE_TIMEOUT = 7 /* it waited for queue_ms: 503 with Retry-After */
};

/* Appends the packed message. ST_LIMIT when a field is above its bound or out overflows. */
int msg_pack(const struct msg *m, struct strbuf *out) MUST_CHECK;

/* Unpacks; views point into data. ST_CORRUPT: not a message of ours (unknown number, wrong type, a bound broken). Unknown
 * trailing fields are ignored. Never allocates. */
int msg_unpack(struct msg *m, const void *data, size_t len) MUST_CHECK;

bool msg_equal(const struct msg *a, const struct msg *b);
/* One line for logs and test failures; long columns are cut. */
void msg_print(const struct msg *m, struct strbuf *out);
const char *msg_type_name(enum msg_type type);

/* A deep copy in one block of memory (free() it). For those who must keep a message past its handler. */
struct msg *msg_dup(const struct msg *m);

/* The table of proto/README.md, made from the same list. */
void msg_document(struct strbuf *out);

#endif
