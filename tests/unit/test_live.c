/* test_live.c - the frontend's half of the request protocol, as scripts.
 *
 * A script is a list of lines "command => what came out of it". Requests are named by a letter: a is the first that
 * starts. Time is in milliseconds; silence is 1000, hello is repeated every 100. Commands:
 *
 *   at MS                      sets the time
 *   epoch E | welcome E [V]    supervisor's word; the executor's answer, of protocol version V
 *   start NAME [N]             a request of N prompt tokens (3), numbered from 1, at most 6 output tokens
 *   cancel NAME | step         the owner's calls
 *   row E NAME ATT POS FIN N,TOKEN,TOKEN...      a results message of one row, N: n_cached
 *   rows E ROW | ROW ...       one message of many rows, each "NAME ATT POS FIN N,TOKEN..."
 *   sync E NAME:ATT:POS ...    #NUMBER instead of a name is a counter of ours; @ID any id
 *   refused E NAME ATT REASON
 *   room N                     the lane takes N more messages, then ST_AGAIN; -1: all; long: the next is ST_LIMIT
 *   end NAME N                 the owner ends it with its N-th token from now
 *   state NAME | deadline | flags | stats
 *
 * What comes out: hello eE, submit NAME aATT eE PROMPT+OUTPUT tokens, cancel NAME, NAME: TOKEN@POSITION, NAME ends
 * ... */
#include "frontend/live.h"

#include "common/mem.h"
#include "common/status.h"
#include "proto/ids.h"
#include "tests/support/leak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS    NS_PER_MS
#define NAMES 26

struct owner {
	char name;
	struct live *live;
	uint64_t id;
	int end_in; /* tokens; 0: never */
};

struct bench {
	struct lives *l;
	struct strbuf out;
	uint64_t now;
	int room; /* -1: endless */
	bool too_long;
	struct owner owners[NAMES];
	const char *script;
	struct msg last; /* the submit sent last; its views are gone */
};

static void say(struct bench *b, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (b->out.len) strbuf_puts(&b->out, "; ");
	strbuf_puts(&b->out, text);
}

static char name_of(const struct bench *b, uint64_t id)
{
	for (int i = 0; i < NAMES; i++)
		if (b->owners[i].id == id) return b->owners[i].name;
	return '?';
}

static int on_send(void *ctx, const struct msg *m)
{
	struct bench *b = ctx;
	char tokens[128] = "";

	if (b->too_long && m->type == MSG_submit) {
		b->too_long = false;
		return ST_LIMIT;
	}
	if (b->room == 0) {
		say(b, "full");
		return ST_AGAIN;
	}
	if (b->room > 0) b->room--;
	switch (m->type) {
	case MSG_hello:
		assert_int_equal(m->hello.version, PROTO_VERSION);
		assert_int_equal(m->hello.frontend, 2);
		assert_int_equal(m->hello.incarnation, 3);
		say(b, "hello e%d", (int)m->hello.epoch);
		break;
	case MSG_submit:
		for (uint32_t i = 0; i < m->submit.tokens.n && i < 12; i++)
			snprintf(tokens + strlen(tokens), sizeof(tokens) - strlen(tokens), i ? ",%u" : " %u",
				 col_u32(m->submit.tokens, i));
		say(b, "submit %c a%u e%d %u+%u%s", name_of(b, m->submit.client_id), m->submit.attempt,
		    (int)m->submit.epoch, m->submit.n_prompt, m->submit.tokens.n - m->submit.n_prompt, tokens);
		b->last = *m;
		break;
	case MSG_cancel: {
		char name = name_of(b, m->cancel.client_id);

		if (name == '?')
			say(b, "cancel #%d", (int)client_id_counter(m->cancel.client_id));
		else
			say(b, "cancel %c", name);
		break;
	}
	default: fail_msg("sends a %s", msg_type_name(m->type));
	}
	return ST_OK;
}

static bool on_token(void *ctx, void *owner, const struct live_token *t)
{
	struct bench *b = ctx;
	struct owner *o = owner;

	say(b, "%c: %u@%u", o->name, t->id, t->position);
	if (t->n_top) {
		for (uint32_t i = 0; i < t->n_top; i++)
			say(b, "top %u %.1f", col_u32(t->top_ids, i), (double)col_f32(t->top_logprobs, i));
		say(b, "rank %u", t->rank);
	}
	if (o->end_in == 0 || --o->end_in > 0) return false;
	o->live = NULL;
	return true;
}

static void on_end(void *ctx, void *owner, enum finish finish, uint32_t refusal, struct view text)
{
	struct owner *o = owner;

	say(ctx, "%c ends f%d r%u%s%.*s", o->name, finish, refusal, text.n ? " " : "", (int)text.n,
	    (const char *)text.data);
	o->live = NULL;
}

static void init(struct bench *b, const char *script)
{
	const struct lives_config cfg = {2, 3, 1000 * MS, 100 * MS, 4};
	const struct lives_out out = {.ctx = b, .send = on_send, .on_token = on_token, .on_end = on_end};

	*b = (struct bench){.room = -1, .script = script};
	strbuf_init(&b->out, 65536);
	b->l = lives_new(&cfg, &out);
}

static void release(struct bench *b)
{
	lives_free(b->l);
	strbuf_release(&b->out);
}

static void start(struct bench *b, char name, uint32_t n)
{
	struct owner *o = &b->owners[name - 'a'];
	static uint32_t stop; /* static, so that the cleared values stay where they were */
	static char salt[] = "pepper";
	uint32_t *prompt = mem_array(uint32_t, n);
	struct msg_submit m = {.tokens = view_of(prompt, n),
			       .n_prompt = n,
			       .n_output_max = 6,
			       .n_output_min = 1,
			       .stop_ids = view_of(&stop, 1),
			       .temperature = 0.5f,
			       .top_p = 0.75f,
			       .top_k = 7,
			       .seed = 1234567890123,
			       .choice = 1,
			       .n_logprobs = 2,
			       .priority = 9,
			       .cache_salt = view_of(salt, 6),
			       .client_id = 99,
			       .attempt = 99,
			       .epoch = 99};

	for (uint32_t i = 0; i < n; i++) prompt[i] = i + 1;
	stop = 77;
	memcpy(salt, "pepper", 6);
	*o = (struct owner){.name = name};
	o->live = lives_start(b->l, &m, o, b->now);
	if (o->live)
		o->id = live_client_id(o->live);
	else
		say(b, "none");
	free(prompt);
	stop = 0;
	memset(salt, 0, 6);
}

/* A results message. */
struct rows {
	uint64_t ids[8];
	uint32_t attempts[8], positions[8], n_tokens[8], finishes[8], n_cached[8], tokens[64], n_top[64], ranks[64], n,
		n_all, prompt_starts[8], n_prompt[8], n_pooled[8];
};

static void add_row(struct bench *b, struct rows *r, char *text)
{
	char name, tokens[128] = "", *save = NULL, *word;

	if (sscanf(text, " %c %u %u %u %127s", &name, &r->attempts[r->n], &r->positions[r->n], &r->finishes[r->n],
		   tokens) < 5)
		fail_msg("%s: bad row: %s", b->script, text);
	r->ids[r->n] = b->owners[name - 'a'].id;
	word = strtok_r(tokens, ",", &save);
	r->n_cached[r->n] = (uint32_t)atoi(word);
	while ((word = strtok_r(NULL, ",", &save)) != NULL) {
		r->tokens[r->n_all++] = (uint32_t)atoi(word);
		r->n_tokens[r->n]++;
	}
	r->n++;
}

static struct msg results(uint64_t epoch, const struct rows *r)
{
	struct msg m = {.type = MSG_results};

	m.results = (struct msg_results){
		.epoch = epoch,
		.client_ids = view_of(r->ids, r->n),
		.attempts = view_of(r->attempts, r->n),
		.positions = view_of(r->positions, r->n),
		.n_tokens = view_of(r->n_tokens, r->n),
		.finishes = view_of(r->finishes, r->n),
		.n_cached = view_of(r->n_cached, r->n),
		.tokens = view_of(r->tokens, r->n_all),
		.n_top = view_of(r->n_top, r->n_all),
		.ranks = view_of(r->ranks, r->n_all),
		.prompt_starts = view_of(r->prompt_starts, r->n),
		.n_prompt_tokens = view_of(r->n_prompt, r->n),
		.n_pooled = view_of(r->n_pooled, r->n),
	};
	return m;
}

static void do_rows(struct bench *b, uint64_t epoch, char *text)
{
	struct rows r = {0};
	struct msg m;
	char *save = NULL;

	for (char *w = strtok_r(text, "|", &save); w; w = strtok_r(NULL, "|", &save)) add_row(b, &r, w);
	m = results(epoch, &r);
	lives_on_message(b->l, &m, b->now);
}

static uint64_t id_of(struct bench *b, const char *word)
{
	if (*word == '#') return client_id_make(2, 3, (uint64_t)atoi(word + 1));
	if (*word == '@') return strtoull(word + 1, NULL, 16);
	return b->owners[*word - 'a'].id;
}

static void do_sync(struct bench *b, uint64_t epoch, char *text)
{
	uint64_t ids[16];
	uint32_t attempts[16], positions[16], n = 0;
	struct msg m = {.type = MSG_sync};
	char *save = NULL;

	for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		ids[n] = id_of(b, w);
		if (sscanf(strchr(w, ':'), ":%u:%u", &attempts[n], &positions[n]) != 2)
			fail_msg("%s: bad sync", b->script);
		n++;
	}
	m.sync = (struct msg_sync){epoch, 1, view_of(ids, n), view_of(attempts, n), view_of(positions, n)};
	lives_on_message(b->l, &m, b->now);
}

static void do_message(struct bench *b, const char *command, char *rest)
{
	struct msg m = {0};
	unsigned e = 0, a = 0, v = PROTO_VERSION;
	char name = 0;

	if (!strcmp(command, "welcome")) {
		m.type = MSG_welcome;
		sscanf(rest, "%u %u", &e, &v);
		m.welcome = (struct msg_welcome){v, e, 2048 + e, 9};
	} else {
		m.type = MSG_refused;
		sscanf(rest, "%u %c %u %u", &e, &name, &a, &v);
		m.refused = (struct msg_refused){e, b->owners[name - 'a'].id, a, v, view_text("why")};
	}
	lives_on_message(b->l, &m, b->now);
}

static void do_show(struct bench *b, const char *command, const char *rest)
{
	const struct live *r = b->owners[(rest[0] >= 'a' ? rest[0] : 'a') - 'a'].live;
	uint64_t deadline = lives_deadline(b->l);
	struct lives_stats st;

	lives_stats(b->l, &st);
	if (!strcmp(command, "state"))
		say(b, "%s output %u cached %u", live_is_accepted(r) ? "accepted" : "new", live_n_output(r),
		    live_n_cached(r));
	else if (!strcmp(command, "flags"))
		say(b, "%s %u", lives_is_welcome(b->l) ? "welcome" : "alone", lives_model_len_max(b->l));
	else if (!strcmp(command, "stats"))
		say(b, "live %d started %d ended %d cancelled %d resubmits %d stale %d repeats %d gaps %d tokens %d",
		    (int)st.n_live, (int)st.started, (int)st.ended, (int)st.cancelled, (int)st.resubmits,
		    (int)st.dropped_stale, (int)st.dropped_repeats, (int)st.gaps, (int)st.tokens);
	else if (deadline == UINT64_MAX)
		say(b, "never");
	else
		say(b, "%d", (int)(deadline / MS));
}

static void do_command(struct bench *b, char *line)
{
	char command[16] = "", *rest;
	int n = 0;

	sscanf(line, "%15s %n", command, &n);
	rest = line + n;
	if (!strcmp(command, "at")) {
		b->now = strtoull(rest, NULL, 10) * MS;
	} else if (!strcmp(command, "epoch")) {
		lives_on_epoch(b->l, strtoull(rest, NULL, 10), b->now);
	} else if (!strcmp(command, "start")) {
		start(b, rest[0], rest[1] ? (uint32_t)atoi(rest + 1) : 3);
	} else if (!strcmp(command, "cancel")) {
		lives_cancel(b->l, b->owners[rest[0] - 'a'].live);
		b->owners[rest[0] - 'a'].live = NULL;
	} else if (!strcmp(command, "step")) {
		lives_step(b->l, b->now);
	} else if (!strcmp(command, "row") || !strcmp(command, "rows")) {
		uint64_t epoch = strtoull(rest, &rest, 10);

		do_rows(b, epoch, rest);
	} else if (!strcmp(command, "sync")) {
		uint64_t epoch = strtoull(rest, &rest, 10);

		do_sync(b, epoch, rest);
	} else if (!strcmp(command, "welcome") || !strcmp(command, "refused")) {
		do_message(b, command, rest);
	} else if (!strcmp(command, "room")) {
		b->too_long = rest[0] == 'l';
		b->room = b->too_long ? -1 : atoi(rest);
	} else if (!strcmp(command, "end")) {
		b->owners[rest[0] - 'a'].end_in = atoi(rest + 1);
	} else if (strchr("sdf", command[0]) && command[0]) {
		do_show(b, command, rest);
	} else {
		fail_msg("%s: bad command: %s", b->script, line);
	}
}

static void run(struct bench *b, const char *const *lines)
{
	for (int i = 0; lines[i]; i++) {
		char *line = mem_strdup(lines[i]), *expected = strstr(line, " => ");

		if (expected) {
			*expected = 0;
			expected += 4;
		}
		strbuf_reset(&b->out);
		do_command(b, line);
		lives_check(b->l);
		if (strcmp(b->out.len ? b->out.data : "", expected ? expected : ""))
			fail_msg("%s, line %d: %s\n   expected: %s\n   came out: %s", b->script, i + 1, lines[i],
				 expected ? expected : "", b->out.len ? b->out.data : "");
		free(line);
	}
}

#define MAX_LINES 64

/* clang-format off */
static const struct {
	const char *name;
	const char *lines[MAX_LINES];
} scripts[] = {
	{"good path",
	 {"deadline => never", "flags => alone 0", "step", "start a", "step", "epoch 1", "deadline => 0",
	  "step => hello e1",
	  "deadline => 100", "step", "at 99", "step", "at 100", "step => hello e1", "welcome 1",
	  "flags => welcome 2049", "deadline => 0",
	  "step => submit a a1 e1 3+0 1,2,3", "step", "deadline => 1100", "state a => new output 0 cached 0",
	  "row 1 a 1 0 0 0",
	  "state a => accepted output 0 cached 0", "row 1 a 1 0 0 2,11 => a: 11@0",
	  "state a => accepted output 1 cached 2",
	  "row 1 a 1 1 0 9,12,13 => a: 12@1; a: 13@2", "state a => accepted output 3 cached 2", "step",
	  "row 1 a 1 3 1 2,14 => a: 14@3; a ends f1 r0",
	  "stats => live 0 started 1 ended 1 cancelled 0 resubmits 0 stale 0 repeats 0 gaps 0 tokens 4",
	  "deadline => 1100"}},
	{"finish without a token", {"epoch 1", "step => hello e1", "welcome 1", "start a",
	 "step => submit a a1 e1 3+0 1,2,3",
				    "row 1 a 1 0 2 0 => a ends f2 r0"}},
	{"finish aborted, in a row with tokens", {"epoch 1", "step => hello e1", "welcome 1", "start a",
	 "step => submit a a1 e1 3+0 1,2,3",
						 "row 1 a 1 0 3 0,5,6,7 => a: 5@0; a: 6@1; a: 7@2; a ends f3 r0"}},
	{"requests_max", {"start a", "start b", "start c", "start d", "start e => none", "cancel b", "start e",
	 "start f => none"}},
	{"first in, first out", {"start c", "start a", "epoch 1", "step => hello e1", "welcome 1", "start b",
				 "step => submit c a1 e1 3+0 1,2,3; submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3"}},
	{"repeats and overlaps",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5,6 => a: 5@0; a: 6@1",
	  "row 1 a 1 0 0 0,5,6", "row 1 a 1 1 0 0,6,7 => a: 7@2", "row 1 a 1 0 0 0,5",
	  "stats => live 1 started 1 ended 0 cancelled 0 resubmits 0 stale 0 repeats 4 gaps 0 tokens 3",
	  /* an end before what is here already is none; one exactly here is */
	  "row 1 a 1 1 1 0,6",
	  "stats => live 1 started 1 ended 0 cancelled 0 resubmits 0 stale 1 repeats 5 gaps 0 tokens 3",
	  "row 1 a 1 1 1 0,6,7 => a ends f1 r0"}},
	{"gap: submitted again at once, with the tokens so far",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5 => a: 5@0",
	  "row 1 a 1 2 0 0,7", "deadline => 0", "step => submit a a2 e1 3+1 1,2,3,5", "row 1 a 1 3 0 0,8",
	  "stats => live 1 started 1 ended 0 cancelled 0 resubmits 1 stale 1 repeats 0 gaps 1 tokens 1",
	  "row 1 a 2 1 0 0",
	  "row 1 a 2 1 0 0,6,7 => a: 6@1; a: 7@2", "state a => accepted output 3 cached 0"}},
	{"gap in the accepted row", {"epoch 1", "step => hello e1", "welcome 1", "start a",
	 "step => submit a a1 e1 3+0 1,2,3",
				     "row 1 a 1 0 0 0,5 => a: 5@0", "row 1 a 1 3 0 0",
				     "step => submit a a2 e1 3+1 1,2,3,5"}},
	{"gaps without progress: not before the hold is over, then the sync shows it",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3", "at 99",
	  "row 1 a 1 1 0 0,6", "step",
	  "sync 1 a:1:2", "step", "at 100", "sync 1 a:1:2", "step => submit a a2 e1 3+0 1,2,3",
	  /* the next hold is twice as long */
	  "at 299", "row 1 a 2 1 0 0,6", "step", "at 300", "row 1 a 2 1 0 0,6", "step => submit a a3 e1 3+0 1,2,3",
	  "at 699", "sync 1 a:3:1",
	  "step", "at 700", "sync 1 a:3:1", "step => submit a a4 e1 3+0 1,2,3", "at 1499", "sync 1 a:4:1", "step",
	  "at 1500", "sync 1 a:4:1",
	  "step => submit a a5 e1 3+0 1,2,3",
	  /* silence_ns is the longest */
	  "at 2499", "sync 1 a:5:1", "step", "at 2500", "sync 1 a:5:1", "step => submit a a6 e1 3+0 1,2,3",
	  /* a token ends it */
	  "row 1 a 6 0 0 0,5 => a: 5@0", "sync 1 a:6:2", "step => submit a a7 e1 3+1 1,2,3,5", "at 2599",
	  "sync 1 a:7:2",
	  "step", "at 2600", "sync 1 a:7:2", "step => submit a a8 e1 3+1 1,2,3,5",
	  /* a new epoch too */
	  "epoch 2", "step => hello e2", "welcome 2", "step => submit a a9 e2 3+1 1,2,3,5", "at 2700", "sync 2 a:9:2",
	  "step => submit a a10 e2 3+1 1,2,3,5"}},
	{"stale rows",
	 {"epoch 2", "step => hello e2", "welcome 2", "start a", "step => submit a a1 e2 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5", "row 3 a 1 0 0 0,5",
	  "row 2 a 0 0 0 0,5", "row 2 a 2 0 0 0,5", "row 2 a 1 0 4 0,5", "row 2 a 1 0 0 0,1,2,3,4,5,6,7",
	  "row 2 a 1 6 0 0,1",
	  "row 2 b 1 0 0 0,5",
	  "stats => live 1 started 1 ended 0 cancelled 0 resubmits 0 stale 8 repeats 0 gaps 0 tokens 0",
	  "state a => new output 0 cached 0",
	  "row 2 a 1 0 2 0,1,2,3,4,5,6 => a: 1@0; a: 2@1; a: 3@2; a: 4@3; a: 5@4; a: 6@5; a ends f2 r0"}},
	{"many rows, some unknown",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3",
	  "rows 1 z 1 0 0 0,9,9 | b 1 0 0 0,5 | a 7 0 0 0,8 | a 1 0 1 0,6,7 => b: 5@0; a: 6@0; a: 7@1; a ends f1 r0",
	  "rows 1 b 1 1 0 0,6 | b 1 2 2 0,7 => b: 6@1; b: 7@2; b ends f2 r0"}},
	{"new epoch: everything again, running ones first",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b", "start c", "room 2",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3; full", "row 1 b 1 0 0 1,5 => b: 5@0", "room -1",
	  "epoch 2",
	  "flags => alone 2049", "row 1 b 1 1 0 0,6", "step => hello e2", "step", "welcome 1", "flags => alone 2049",
	  "welcome 2",
	  "flags => welcome 2050",
	  "step => submit b a2 e2 3+1 1,2,3,5; submit a a2 e2 3+0 1,2,3; submit c a1 e2 3+0 1,2,3",
	  "row 2 b 2 1 0 3,6 => b: 6@1", "state b => accepted output 2 cached 1",
	  "stats => live 3 started 3 ended 0 cancelled 0 resubmits 2 stale 2 repeats 0 gaps 0 tokens 2"}},
	{"the order within a state stays",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b", "start c",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3; submit c a1 e1 3+0 1,2,3", "epoch 2",
	  "step => hello e2", "welcome 2",
	  "step => submit a a2 e2 3+0 1,2,3; submit b a2 e2 3+0 1,2,3; submit c a2 e2 3+0 1,2,3"}},
	{"the supervisor's word comes twice or late", {"epoch 5", "step => hello e5", "welcome 5", "epoch 5",
	 "flags => welcome 2053", "epoch 4",
						       "flags => welcome 2053", "step"}},
	{"welcome of a newer epoch: hello to that one first",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3", "welcome 2",
	  "flags => alone 2049", "welcome 2",
	  "flags => alone 2049", "step => hello e2", "welcome 2", "flags => welcome 2050",
	  "step => submit a a2 e2 3+0 1,2,3", "epoch 2",
	  "flags => welcome 2050"}},
	{"welcome before any epoch", {"at 5", "welcome 3", "flags => alone 0", "step => hello e3", "deadline => 105",
	 "welcome 3",
				      "flags => welcome 2051"}},
	{"epoch 0 is one too", {"epoch 0", "step => hello e0", "welcome 0", "flags => welcome 2048", "epoch 0",
	 "flags => welcome 2048"}},
	{"welcome that was not asked for, or of another version",
	 {"epoch 1", "welcome 1", "flags => alone 0", "step => hello e1", "welcome 1 99", "flags => alone 0",
	  "welcome 1 0", "flags => alone 0",
	  "stats => live 0 started 0 ended 0 cancelled 0 resubmits 0 stale 3 repeats 0 gaps 0 tokens 0", "welcome 1",
	  "flags => welcome 2049"}},
	{"a second welcome changes nothing but is heard",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3", "at 400",
	  "welcome 1", "step", "deadline => 1400",
	  "at 1399", "step", "at 1400", "step => hello e1"}},
	{"silence: hello, and everything again after welcome",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5 => a: 5@0", "at 600",
	  "sync 1 a:1:1", "deadline => 1600", "at 1599", "step", "flags => welcome 2049", "at 1600", "start b",
	  "step => hello e1",
	  "flags => alone 2049", "deadline => 1700", "step", "row 1 a 1 1 0 0,6 => a: 6@1", "sync 1 a:1:2",
	  "flags => alone 2049",
	  "at 1700", "step => hello e1", "welcome 1", "deadline => 0",
	  "step => submit a a2 e1 3+2 1,2,3,5,6; submit b a1 e1 3+0 1,2,3"}},
	{"any message of this epoch ends a silence",
	 {"epoch 1", "step => hello e1", "welcome 1", "at 300", "row 1 z 1 0 0 0,5", "deadline => 1300", "at 400",
	  "refused 1 z 1 1", "deadline => 1400",
	  "at 500", "row 2 z 1 0 0 0,5", "refused 2 z 1 1", "sync 2", "deadline => 1400", "at 600", "sync 1",
	  "deadline => 1600"}},
	{"cancel before the submit went out says nothing", {"start a", "cancel a", "epoch 1", "step => hello e1",
	 "welcome 1", "step", "start a",
							    "cancel a", "step",
							    "stats => live 0 started 2 ended 0 cancelled 2 resubmits 0 stale 0 repeats 0 gaps 0 tokens 0"}},
	{"cancel after it",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5 => a: 5@0", "start c", "cancel a", "deadline => 0", "cancel b",
	  "step => cancel a; cancel b; submit c a1 e1 3+0 1,2,3", "row 1 a 1 1 0 0,6", "step"}},
	{"cancel of one that was to be submitted again",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5 => a: 5@0",
	  "row 1 a 1 2 0 0,7", "cancel a", "step => cancel a"}},
	{"cancel in another epoch says nothing",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3",
	  "room 0", "cancel a", "step => full", "room -1", "epoch 2", "cancel b", "step => hello e2", "welcome 2",
	  "step"}},
	{"the lane is full: retried, in order, hello first",
	 {"room 0", "epoch 1", "step => full", "deadline => 20", "at 5", "step => full", "deadline => 25", "room 1",
	  "at 6", "step => hello e1",
	  "welcome 1", "start a", "start b", "step => full", "deadline => 26", "at 7", "room 1",
	  "step => submit a a1 e1 3+0 1,2,3; full",
	  "cancel a", "deadline => 27", "room 1", "step => cancel a; full", "start a", "room -1",
	  "step => submit b a1 e1 3+0 1,2,3; submit a a1 e1 3+0 1,2,3", "deadline => 1006"}},
	{"a lane that was full is forgotten", {"epoch 1", "step => hello e1", "welcome 1", "start a", "room 0",
	 "step => full", "deadline => 20", "room -1",
					       "step => submit a a1 e1 3+0 1,2,3", "start b", "deadline => 0",
					       "cancel b", "cancel a",
					       "deadline => 0", "start c", "room 0", "step => full", "room -1",
					       "step => cancel a; submit c a1 e1 3+0 1,2,3"}},
	{"a full lane does not hide silence", {"epoch 1", "step => hello e1", "welcome 1", "start a", "room 0",
	 "at 990", "step => full",
					       "deadline => 1000", "at 1000", "step => full", "flags => alone 2049",
					       "deadline => 1020", "room -1",
					       "step => hello e1"}},
	{"longer than any lane takes", {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b", "room long",
					"step => a ends f3 r1 the request is longer than a message may be; submit b a1 e1 3+0 1,2,3"}},
	{"sync: held and not listed is submitted again",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3",
	  "rows 1 a 1 0 0 0,5 | b 1 0 0 0,6 => a: 5@0; b: 6@0", "sync 1 b:1:1", "step => submit a a2 e1 3+1 1,2,3,5",
	  /* now the submit may be on its way: two syncs, and the hold */
	  "at 100", "sync 1 b:1:1", "step", "sync 1 b:1:1", "step => submit a a3 e1 3+1 1,2,3,5"}},
	{"sync: a new submit may cross one, not two, and not within the hold",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3", "at 10", "sync 1",
	  "step", "at 20", "sync 1", "step",
	  "at 99", "sync 1", "step", "at 100", "sync 1", "step => submit a a2 e1 3+0 1,2,3", "at 300", "sync 1", "step",
	  "sync 1",
	  "step => submit a a3 e1 3+0 1,2,3"}},
	{"sync: listed is accepted, an older attempt is not",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3", "sync 1 a:1:0",
	  "state a => accepted output 0 cached 0",
	  "at 100", "sync 1", "step => submit a a2 e1 3+0 1,2,3", "at 300", "sync 1 a:1:5", "step", "sync 1 a:1:5",
	  "step => submit a a3 e1 3+0 1,2,3", "row 1 a 3 0 0 0", "at 900", "sync 1 a:3:0", "step"}},
	{"sync: further than what has come",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5 => a: 5@0", "sync 1 a:1:1", "step",
	  "sync 1 a:1:0", "step", "sync 1 a:1:2", "step => submit a a2 e1 3+1 1,2,3,5",
	  "stats => live 1 started 1 ended 0 cancelled 0 resubmits 1 stale 0 repeats 0 gaps 1 tokens 1"}},
	{"sync: unknown rows are cancelled, ours only, and not again while cancels wait",
	 {"epoch 1", "step => hello e1", "welcome 1",
	  "sync 1 #7:1:0 #8:1:0 @0002030000000009:1:0 @0002040000000009:1:0 @0003030000000009:1:0",
	  "step => cancel #7; cancel #8; cancel #9", "step", "room 0", "sync 1 #7:1:0", "step => full",
	  "sync 1 #7:1:0 #8:1:0", "room -1",
	  "step => cancel #7"}},
	{"more cancels than requests_max are dropped; a sync finds them again",
	 {"epoch 1", "step => hello e1", "welcome 1", "sync 1 #1:1:0 #2:1:0 #3:1:0 #4:1:0 #5:1:0 #6:1:0",
	  "step => cancel #1; cancel #2; cancel #3; cancel #4", "sync 1 #5:1:0 #6:1:0", "step => cancel #5; cancel #6",
	  "sync 1 #1:1:0 #2:1:0 #3:1:0 #4:1:0", "step => cancel #1; cancel #2; cancel #3; cancel #4"}},
	{"sync of another epoch",
	 {"epoch 2", "step => hello e2", "welcome 2", "start a", "step => submit a a1 e2 3+0 1,2,3",
	  "row 2 a 1 0 0 0,5 => a: 5@0", "at 500", "sync 1", "sync 3",
	  "step", "deadline => 1000",
	  "stats => live 1 started 1 ended 0 cancelled 0 resubmits 0 stale 2 repeats 0 gaps 0 tokens 1"}},
	{"refused",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b", "start c",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3; submit c a1 e1 3+0 1,2,3", "refused 2 a 1 1",
	  "refused 1 a 2 1",
	  "refused 1 z 1 1", "refused 1 a 1 1 => a ends f3 r1 why", "refused 1 b 1 2 => b ends f3 r2 why",
	  "refused 1 c 1 0 => c ends f3 r5 why",
	  "stats => live 0 started 3 ended 3 cancelled 0 resubmits 0 stale 3 repeats 0 gaps 0 tokens 0"}},
	{"a full queue ends only what was never accepted",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5 => a: 5@0", "epoch 2",
	  "step => hello e2", "welcome 2", "step => submit a a2 e2 3+1 1,2,3,5", "refused 2 a 2 2", "at 50", "sync 2",
	  "step", "at 100", "sync 2",
	  "step => submit a a3 e2 3+1 1,2,3,5", "row 2 a 3 1 0 0", "refused 2 a 3 2", "at 300", "sync 2", "step",
	  "sync 2",
	  "step => submit a a4 e2 3+1 1,2,3,5", "refused 2 a 4 3 => a ends f3 r3 why"}},
	{"the owner ends it with a token: cancelled, unless that was the end anyway",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "start b", "start c", "start d",
	  "step => submit a a1 e1 3+0 1,2,3; submit b a1 e1 3+0 1,2,3; submit c a1 e1 3+0 1,2,3; submit d a1 e1 3+0 1,2,3",
	  "end a 2", "end b 1", "end c 2", "end d 2", "row 1 a 1 0 0 0,5,6,7 => a: 5@0; a: 6@1", "step => cancel a",
	  "row 1 b 1 0 0 0,5 => b: 5@0",
	  "step => cancel b", "row 1 c 1 0 1 0,5,6 => c: 5@0; c: 6@1", "step",
	  "row 1 d 1 0 1 0,5,6,7 => d: 5@0; d: 6@1", "step => cancel d",
	  "stats => live 0 started 4 ended 0 cancelled 4 resubmits 0 stale 0 repeats 0 gaps 0 tokens 7"}},
	{"held while due is still submitted",
	 {"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3",
	  "row 1 a 1 0 0 0,5 => a: 5@0", "row 1 a 1 2 0 0,7",
	  "row 1 a 1 1 0 0,6 => a: 6@1", "row 1 a 1 5 0 0,7", "step => submit a a2 e1 3+2 1,2,3,5,6", "step"}},
};
/* clang-format on */

static void run_scripts(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
		struct bench b;

		init(&b, scripts[i].name);
		assert_null(scripts[i].lines[MAX_LINES - 1]);
		run(&b, scripts[i].lines);
		release(&b);
	}
}

static const char *const welcomed[] = {"epoch 1", "step => hello e1", "welcome 1", NULL};
static const char *const one_sent[] = {
	"epoch 1", "step => hello e1", "welcome 1", "start a", "step => submit a a1 e1 3+0 1,2,3", NULL};

/* The submit carries what the owner asked for, from our own copies. */
static void submit_is_complete(void **state)
{
	struct bench b;
	const struct msg_submit *m = &b.last.submit;

	init(&b, "complete");
	run(&b, one_sent);
	assert_int_equal(m->client_id, client_id_make(2, 3, 1));
	assert_int_equal(m->n_output_max, 6);
	assert_int_equal(m->n_output_min, 1);
	assert_int_equal(m->stop_ids.n, 1);
	assert_int_equal(col_u32(m->stop_ids, 0), 77); /* start() has cleared its own */
	assert_float_equal(m->temperature, 0.5, 0);
	assert_float_equal(m->top_p, 0.75, 0);
	assert_int_equal(m->top_k, 7);
	assert_int_equal(m->seed, 1234567890123);
	assert_int_equal(m->choice, 1);
	assert_int_equal(m->n_logprobs, 2);
	assert_int_equal(m->priority, 9);
	assert_int_equal(m->cache_salt.n, 6);
	assert_memory_equal(m->cache_salt.data, "pepper", 6);
	release(&b);
}

/* Each token gets its own entries, also behind rows and tokens that are skipped. */
static void log_probabilities(void **state)
{
	uint32_t tokens[] = {1, 2, 3, 4, 5}, n_top[] = {2, 0, 1, 1, 2}, ranks[] = {1, 0, 3, 4, 5},
		 ids[] = {10, 11, 20, 30, 40, 41};
	float lps[] = {-1, -2, -3, -4, -5, -6};
	struct rows r = {.attempts = {1, 1}, .positions = {0, 0}, .n_tokens = {2, 3}, .n = 2};
	struct bench b;
	struct msg m;

	init(&b, "log-probabilities");
	run(&b, one_sent);
	r.ids[0] = 12345; /* unknown */
	r.ids[1] = b.owners[0].id;
	r.n_all = 5;
	m = results(1, &r);
	m.results.tokens = view_of(tokens, 5);
	m.results.n_top = view_of(n_top, 5);
	m.results.ranks = view_of(ranks, 5);
	m.results.top_ids = view_of(ids, 6);
	m.results.top_logprobs = view_of(lps, 6);
	strbuf_reset(&b.out);
	lives_on_message(b.l, &m, 0);
	assert_string_equal(
		b.out.data,
		"a: 3@0; top 20 -3.0; rank 3; a: 4@1; top 30 -4.0; rank 4; a: 5@2; top 40 -5.0; top 41 -6.0; rank 5");
	/* Again, one further: the repeats are skipped with their entries. */
	r.ids[0] = r.ids[1];
	r.positions[0] = 1;
	r.positions[1] = 2;
	strbuf_reset(&b.out);
	lives_on_message(b.l, &m, 0);
	assert_string_equal(b.out.data, "a: 4@3; top 30 -4.0; rank 4; a: 5@4; top 40 -5.0; top 41 -6.0; rank 5");
	release(&b);
}

/* Columns that do not go together are dropped as a whole. */
static void columns_that_do_not_fit(void **state)
{
	struct rows good = {.attempts = {1},
			    .positions = {0},
			    .n_tokens = {2},
			    .n = 1,
			    .n_all = 2,
			    .tokens = {5, 6},
			    .n_top = {1, 1}};
	uint32_t ids[4] = {5, 6, 7, 8};
	struct lives_stats st;
	struct bench b;
	struct msg m;

	init(&b, "columns");
	run(&b, one_sent);
	good.ids[0] = b.owners[0].id;
	for (int k = 0; k < 24; k++) {
		/* Each column one shorter, then one longer; sums that do not match. The finishes and numbers of cached tokens of one row may
		 * be none, so they have two too many instead. */
		struct view *cols[] = {&m.results.client_ids, &m.results.attempts,    &m.results.positions,
				       &m.results.n_tokens,   &m.results.finishes,    &m.results.n_cached,
				       &m.results.tokens,     &m.results.n_top,       &m.results.ranks,
				       &m.results.top_ids,    &m.results.top_logprobs};
		struct rows r = good;

		if (k == 22) r.n_tokens[0] = 1;
		if (k == 23) r.n_top[0] = 2;
		m = results(1, &r);
		m.results.top_ids = m.results.top_logprobs = view_of(ids, 2);
		if (k < 22) cols[k / 2]->n += k % 2 ? 1 : k / 2 == 4 || k / 2 == 5 ? 2 : (uint32_t)-1;
		strbuf_reset(&b.out);
		lives_on_message(b.l, &m, 0);
		if (b.out.len) fail_msg("case %d: %s", k, b.out.data);
		lives_stats(b.l, &st);
		assert_int_equal(st.dropped_stale, k + 1);
	}
	m = (struct msg){.type = MSG_sync};
	m.sync = (struct msg_sync){1, 1, view_of(good.ids, 1), view_of(good.attempts, 0), view_of(good.positions, 1)};
	lives_on_message(b.l, &m, 500 * MS);
	m.sync = (struct msg_sync){1, 1, view_of(good.ids, 1), view_of(good.attempts, 1), view_of(good.positions, 0)};
	lives_on_message(b.l, &m, 500 * MS);
	lives_stats(b.l, &st);
	assert_int_equal(st.dropped_stale, 26);
	assert_int_equal(lives_deadline(b.l), 1000 * MS);
	m = (struct msg){.type = MSG_cancel};
	lives_on_message(b.l, &m, 0);
	lives_stats(b.l, &st);
	assert_int_equal(st.dropped_stale, 27);
	release(&b);
}

/* One step sends about a mebibyte and leaves the rest for the next. */
static void a_step_is_bounded(void **state)
{
	static const char *const lines[] = {
		"start a262144",
		"start b10",
		"step => submit a a1 e1 262144+0 1,2,3,4,5,6,7,8,9,10,11,12",
		"deadline => 0",
		"step => submit b a1 e1 10+0 1,2,3,4,5,6,7,8,9,10",
		"start c262141",
		"start d10",
		"step => submit c a1 e1 262141+0 1,2,3,4,5,6,7,8,9,10,11,12; submit d a1 e1 10+0 1,2,3,4,5,6,7,8,9,10",
		NULL};
	struct bench b;

	init(&b, "bounded");
	run(&b, welcomed);
	run(&b, lines);
	release(&b);
}

/* Ended, cancelled, and those that live when everything is freed. */
static void all_memory_comes_back(void **state)
{
	size_t before;

	run_scripts(state); /* what is allocated once is there now */
	before = leak_bytes_used();
	run_scripts(state);
	assert_int_equal(leak_bytes_used(), before);
}

static void free_accepts_null(void **state)
{
	lives_free(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_scripts),       cmocka_unit_test(submit_is_complete),
		cmocka_unit_test(log_probabilities), cmocka_unit_test(columns_that_do_not_fit),
		cmocka_unit_test(a_step_is_bounded), cmocka_unit_test(all_memory_comes_back),
		cmocka_unit_test(free_accepts_null),
	};

	leak_exact(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
