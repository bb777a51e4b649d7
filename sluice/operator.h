/* operator.h - the operators' side of the control socket (sluice/control.h): finds the running mesh and asks it. Blocking. */
#ifndef SLUICE_OPERATOR_H
#define SLUICE_OPERATOR_H

#include "common/base.h"
#include "common/errbuf.h"
#include "proto/page.h"

#include <jansson.h>

/* Which mesh is meant. */
struct operator_where {
	const char *ipc_dir; /* --ipc-dir; NULL: SLUICE_IPC_DIR, or every place where a mesh of this user may have its folder */
	uint32_t pid;        /* --mesh: its supervisor; 0: the only one */
};

#define OPERATOR_FLAGS_HELP                                                                             \
	"  --mesh PID                 which mesh, by its supervisor's process; needed when several run\n" \
	"  --ipc-dir DIR              the folder that `sluice serve --ipc-dir` was given [SLUICE_IPC_DIR]\n" \
	"  --help                     show this\n"

/* Takes one of the flags above (--mesh PID, --ipc-dir=DIR, ...) at argv[*i]; *i moves over its value. ST_NOT_FOUND: it is none of them.
 * ST_INVALID: err says what is wrong. */
int operator_flag(struct operator_where *w, int argc, char **argv, int *i, struct errbuf *err) MUST_CHECK;

struct operator_events {
	void *ctx;
	void (*on_progress)(void *ctx, const char *text);
};

struct operator {
	int fd;
	uint32_t pid;
	char at[300];      /* "http://127.0.0.1:8000" */
	char model[300];
};

/* The mesh that is meant. Fails with a text that lists the running ones when there is not exactly one. */
int operator_open(struct operator *o, const struct operator_where *w, struct errbuf *err) MUST_CHECK;
void operator_close(struct operator *o);

/* Asks and waits for the answer, for as long as it takes. fields: further members of the request, borrowed, or NULL. events may be
 * NULL. *answer is the caller's (json_decref); NULL: not wanted. ST_CLOSED: the mesh has ended instead. Another code: it refused, and err
 * says why. */
int operator_ask(struct operator *o, const char *command, const json_t *fields, const struct operator_events *events, json_t **answer,
		 struct errbuf *err) MUST_CHECK;

/* The status page, mapped for reading; unmap it by operator_page_close(). It stays readable when the mesh has ended. */
int operator_page(const struct page **out, struct operator *o, struct errbuf *err) MUST_CHECK;
void operator_page_close(const struct page *p);

#endif
