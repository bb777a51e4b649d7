/* journal.c - see journal.h. A story that has ended waits for the end of its loop pass, because only then its last bytes are with the
 * kernel. */
#include "frontend/journal.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/splitmix.h"
#include "frontend/reqlog.h"
#include "frontend/sink.h"
#include "frontend/trace.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define JOURNAL_SPAN_MAX (64 * KIB) /* far above what a span takes */

struct journal {
	struct sink *log, *spans; /* NULL: not wanted */
	struct trace_process process;
	char instance[64];
	struct list ended;
	struct strbuf scratch;
	char *line;               /* (line_cap) */
	size_t line_cap;
	uint64_t random;
	uint64_t dropped_shown;
};

int journal_open(struct journal **out, const struct config *c, const char *model, uint32_t frontend, uint64_t run_id, struct errbuf *err)
{
	struct journal *j;
	int rc = ST_OK;

	*out = NULL;
	if (!c->enable_log_requests && !c->trace_file[0]) return ST_OK;
	j = mem_new(struct journal);
	list_init(&j->ended);
	j->random = run_id;
	snprintf(j->instance, sizeof(j->instance), "%016llx-%u", (unsigned long long)run_id, frontend);
	j->process = (struct trace_process){.model = model, .instance = j->instance, .pid = (uint32_t)getpid()};
	strbuf_init(&j->scratch, JOURNAL_SPAN_MAX);
	j->line_cap = reqlog_cap(c->max_log_len);
	j->line = mem_array(char, j->line_cap);
	if (c->trace_file[0]) rc = sink_open(&j->spans, c->trace_file, err);
	if (rc != ST_OK) {
		rc = err_prefix(err, rc, "--trace-file");
		journal_close(j);
		return rc;
	}
	if (c->enable_log_requests) j->log = sink_on(STDERR_FILENO);
	*out = j;
	return ST_OK;
}

void journal_reopen(struct journal *j, const struct config *c)
{
	struct errbuf err = {{0}};

	if (j && j->spans && sink_reopen(j->spans, c->trace_file, &err) != ST_OK) log_error("SIGHUP: --trace-file: %s; the old file stays in use", err.text);
}

static void story_free(struct story *s)
{
	strbuf_release(&s->prompt);
	strbuf_release(&s->said);
	free(s);
}

void journal_close(struct journal *j)
{
	if (!j) return;
	LIST_EACH(&j->ended, l, next) {
		list_remove(&j->ended, l);
		story_free(CONTAINER_OF(l, struct story, in_ended));
	}
	sink_close(j->log);
	sink_close(j->spans);
	strbuf_release(&j->scratch);
	free(j->line);
	free(j);
}

static const char *method_name(enum http_method m)
{
	switch (m) {
	case METHOD_GET: return "GET";
	case METHOD_HEAD: return "HEAD";
	case METHOD_POST: return "POST";
	case METHOD_OPTIONS: return "OPTIONS";
	case METHOD_DELETE: return "DELETE";
	case METHOD_OTHER: break;
	}
	return "OTHER";
}

void journal_begin(struct journal *j, struct http_request *r, uint64_t now)
{
	uint64_t random[3];
	const char *header;
	struct story *s;
	uint32_t n;

	if (!j || r->story) return;
	s = mem_new(struct story);
	for (size_t i = 0; i < ARRAY_LEN(random); i++) random[i] = splitmix_next(&j->random);
	header = http_header(r, "traceparent", &n);
	tracectx_read(&s->trace, n == 1 ? header : NULL, random);
	snprintf(s->id, sizeof(s->id), "%s", r->id);
	snprintf(s->path, sizeof(s->path), "%s", r->path ? r->path : "");
	s->method = method_name(r->method);
	s->began_ns = now;
	r->story = s;
}

void journal_end(struct journal *j, struct http_request *r, bool is_gone, uint64_t now)
{
	struct story *s;

	if (!j) return;
	journal_begin(j, r, now); /* one that was refused before it was whole */
	s = r->story;
	r->story = NULL;
	s->status = r->status ? r->status : is_gone ? 499 : 0; /* as proxies log it */
	s->is_gone = is_gone;
	s->tenant = r->admission.tenant;
	list_push_back(&j->ended, &s->in_ended);
}

static void journal_write(struct journal *j, const struct story *s, uint64_t wall_ns)
{
	if (j->log && reqlog_wants(s)) sink_put(j->log, j->line, reqlog_line(s, j->process.model, j->line, j->line_cap));
	if (!j->spans || !trace_wants(s)) return;
	trace_line(s, &j->process, wall_ns, &j->scratch);
	if (!j->scratch.overflow) sink_put(j->spans, j->scratch.data, j->scratch.len);
	strbuf_reset(&j->scratch);
}

void journal_pass(struct journal *j, struct page_slot *slot)
{
	struct timespec wall;
	struct list_link *l;
	uint64_t now;

	if (!j || j->ended.len == 0) return;
	now = clock_now_ns();
	clock_gettime(CLOCK_REALTIME, &wall);
	while ((l = list_pop_front(&j->ended))) {
		struct story *s = CONTAINER_OF(l, struct story, in_ended);

		s->ended_ns = now;
		journal_write(j, s, (uint64_t)wall.tv_sec * NS_PER_S + (uint64_t)wall.tv_nsec - now);
		story_free(s);
	}
	if (j->log) sink_wake(j->log);
	if (j->spans) sink_wake(j->spans);
	page_count_to(slot, COUNTER_lines_dropped, (j->log ? sink_dropped(j->log) : 0) + (j->spans ? sink_dropped(j->spans) : 0), &j->dropped_shown);
}
