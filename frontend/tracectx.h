/* tracectx.h - W3C trace context: to which trace a request belongs. https://www.w3.org/TR/trace-context/ */
#ifndef SLUICE_TRACECTX_H
#define SLUICE_TRACECTX_H

#include "common/base.h"

struct tracectx {
	char trace_id[33];  /* 32 lower-case hex digits, not all zero */
	char span_id[17];   /* of this request's own span */
	char parent_id[17]; /* "": it is the first of its trace */
	bool is_sampled;    /* as the caller decided; true without one */
};

/* header: `traceparent`, NULL: none. One that is not valid is as none: the trace begins here. random: makes the ids. */
void tracectx_read(struct tracectx *t, const char *header, const uint64_t random[3]);

#endif
