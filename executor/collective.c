/* collective.c - see collective.h. */
#include "executor/collective.h"

#include <limits.h>
#include <string.h>

void collective_init(struct collective *c, uint32_t n_ranks)
{
	CHECK(n_ranks >= 1 && n_ranks <= LIMIT_WORKERS);
	memset(c, 0, sizeof(*c));
	c->n_ranks = n_ranks;
	c->deadline_ns = UINT64_MAX;
}

void collective_call(struct collective *c, uint64_t epoch, const char *method, const void *args, size_t args_len, uint64_t now,
		     uint64_t timeout_ns, struct msg *m)
{
	CHECK(args_len <= sizeof(c->args));
	c->id++;
	c->running = true;
	c->n_arrived = 0;
	c->method = method;
	c->deadline_ns = timeout_ns ? now + timeout_ns : UINT64_MAX;
	for (uint32_t i = 0; i < c->n_ranks; i++) c->answers[i].arrived = false;
	if (args_len) memcpy(c->args, args, args_len);
	*m = (struct msg){.type = MSG_rpc, .rpc = {epoch, c->id, view_text(method), view_of(c->args, args_len)}};
}

/* The code of a rank that failed. Not one of those that mean something else to our caller: a missing file is no missing call. */
static int collective_failure(uint32_t status)
{
	int rc = status <= INT_MAX ? -(int)status : ST_INVALID;

	return rc == ST_AGAIN || rc == ST_NOT_FOUND ? ST_INVALID : rc;
}

int collective_on_reply(struct collective *c, const struct msg_rpc_reply *m, struct errbuf *err)
{
	struct collective_answer *a;

	if (!c->running || m->id != c->id || m->rank >= c->n_ranks || c->answers[m->rank].arrived) return ST_NOT_FOUND;
	if (m->status != 0) {
		c->running = false;
		return err_set(err, collective_failure(m->status), "worker %u: %s: %.*s", m->rank, c->method, (int)m->text.n,
			       (const char *)m->text.data);
	}
	if (m->body.n > RPC_BODY_MAX) {
		c->running = false;
		return err_set(err, ST_CORRUPT, "worker %u: %s: an answer of %u bytes, at most %d are expected", m->rank, c->method,
			       m->body.n, RPC_BODY_MAX);
	}
	a = &c->answers[m->rank];
	a->arrived = true;
	a->body_len = m->body.n;
	if (m->body.n) memcpy(a->body, m->body.data, m->body.n);
	if (++c->n_arrived < c->n_ranks) return ST_AGAIN;
	c->running = false;
	return ST_OK;
}
