/* benchrun.c - see benchrun.h.
 *
 * Prompts are token ids drawn from those of a sample text, so that they have exactly the wanted length and share nothing but the wanted
 * prefix; a server without /tokenize, or the chat endpoint, gets words instead. Everything follows from the seed. */
#include "sluice/benchrun.h"

#include "common/child.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/splitmix.h"
#include "common/strbuf.h"
#include "sluice/client.h"
#include "sluice/clientpool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BENCH_ITL_MAX (64u << 20)      /* samples kept; later ones are left out, and the report says so */
#define BENCH_PROGRESS_NS (200 * NS_PER_MS)

static const char bench_words[] =
	"the of and to in is that it was for on are as with his they at be this have from or one had by word but not what all were we when your "
	"can said there use an each which she do how their if will up other about out many then them these so some her would make like him into "
	"time has look two more write go see number no way could people my than first water been call who oil its now find long down day did get "
	"come made may part over new sound take only little work know place year live me back give most very after thing our just name good";

struct bench {
	const struct bench_opts *opts;
	struct bench_result *out;
	struct clientpool *pool;
	json_t *ids; /* to draw from; NULL: words */
	bool is_chat;
	uint64_t random, began_ns, shown_ns;
	size_t n_started, n_ended, n_failed;
	uint64_t n_events;
};

struct bench_flight {
	struct bench *bench;
	struct bench_request *request;
	char *body;
	char error[200];
};

static uint64_t bench_random(struct bench *b)
{
	return splitmix_next(&b->random);
}

static double bench_uniform(struct bench *b)
{
	return (double)((bench_random(b) >> 11) + 1) * 0x1p-53; /* (0, 1] */
}

static double bench_normal(struct bench *b)
{
	return sqrt(-2 * log(bench_uniform(b))) * cos(2 * M_PI * bench_uniform(b));
}

/* Gamma distribution of mean 1 (Marsaglia and Tsang, 2000): the time between two requests, in units of 1 / rate. */
static double bench_gap(struct bench *b)
{
	double shape = b->opts->burstiness, boost = 1, d, c, x, v;

	if (shape == 1) return -log(bench_uniform(b));
	if (shape < 1) boost = pow(bench_uniform(b), 1 / shape);
	d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
	c = 1 / sqrt(9 * d);
	do {
		do x = bench_normal(b), v = 1 + c * x;
		while (v <= 0);
		v = v * v * v;
	} while (log(bench_uniform(b)) > 0.5 * x * x + d - d * v + d * log(v));
	return boost * d * v / shape;
}

static double bench_now(const struct bench *b)
{
	return (double)(clock_now_ns() - b->began_ns) / 1e9;
}

/* ---- prompts ---- */

/* The ids of the sample words, without any control token. NULL when the server cannot tell. */
static json_t *bench_sample_ids(const struct bench_opts *o, struct client *c)
{
	json_t *body = json_pack("{s:s, s:s, s:b}", "model", o->server.model, "prompt", bench_words, "add_special_tokens", 0), *answer = NULL, *ids = NULL;
	struct errbuf err;

	if (client_post(c, "/tokenize", body, &answer, &err) == ST_OK) ids = json_incref(json_object_get(answer, "tokens"));
	json_decref(answer);
	json_decref(body);
	if (json_array_size(ids) >= 16) return ids;
	json_decref(ids);
	return NULL;
}

static void bench_put_words(struct bench *b, struct strbuf *out, int64_t n)
{
	const char *word;
	size_t at;

	for (; n > 0; n--) {
		at = bench_random(b) % (sizeof(bench_words) - 16);
		while (at > 0 && bench_words[at - 1] != ' ') at--;
		word = bench_words + at;
		strbuf_append(out, word, strcspn(word, " "));
		strbuf_putc(out, ' ');
	}
}

static void bench_put_ids(struct bench *b, json_t *list, int64_t n)
{
	for (; n > 0; n--) json_array_append(list, json_array_get(b->ids, bench_random(b) % json_array_size(b->ids)));
}

/* The prefix is the same for all: the generator begins it from the seed each time. */
static json_t *bench_prompt(struct bench *b)
{
	uint64_t random = b->random;
	struct strbuf text;
	json_t *prompt;

	b->random = (uint64_t)b->opts->seed;
	if (b->ids) {
		prompt = json_array();
		bench_put_ids(b, prompt, b->opts->prefix_len);
		b->random = random;
		bench_put_ids(b, prompt, b->opts->input_len);
		return prompt;
	}
	strbuf_init(&text, 64 * MIB);
	bench_put_words(b, &text, b->opts->prefix_len);
	b->random = random;
	bench_put_words(b, &text, b->opts->input_len);
	prompt = json_stringn(text.data, text.len);
	strbuf_release(&text);
	return prompt;
}

static char *bench_body(struct bench *b)
{
	const struct bench_opts *o = b->opts;
	json_t *body = json_pack("{s:s, s:I, s:f, s:b, s:{s:b}}", "model", o->server.model, "max_tokens", (json_int_t)o->output_len, "temperature",
				 o->temperature, "stream", 1, "stream_options", "include_usage", 1);
	json_t *prompt = bench_prompt(b);
	char *text;

	if (b->is_chat) json_object_set_new(body, "messages", json_pack("[{s:s, s:o}]", "role", "user", "content", prompt));
	else json_object_set_new(body, "prompt", prompt);
	if (!o->no_ignore_eos) json_object_set_new(body, "ignore_eos", json_true());
	text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	return text;
}

/* ---- one request ---- */

static bool bench_has_text(json_t *event)
{
	json_t *choice = json_array_get(json_object_get(event, "choices"), 0), *delta = json_object_get(choice, "delta");

	return json_string_length(json_object_get(choice, "text")) > 0 || json_string_length(json_object_get(delta, "content")) > 0 ||
	       json_string_length(json_object_get(delta, "reasoning_content")) > 0;
}

static void bench_itl(struct bench_result *out, double s)
{
	if (out->n_itl >= BENCH_ITL_MAX) return;
	mem_reserve(out->itl_s, out->itl_cap, out->n_itl + 1);
	out->itl_s[out->n_itl++] = s;
}

static bool on_bench_event(void *ctx, json_t *event)
{
	struct bench_flight *f = ctx;
	struct bench_request *q = f->request;
	json_t *usage = json_object_get(event, "usage"), *error = json_object_get(event, "error");
	double now = bench_now(f->bench);

	if (error) {
		snprintf(f->error, sizeof(f->error), "%s", json_is_string(json_object_get(error, "message")) ? json_string_value(json_object_get(error, "message")) : "error in the stream");
		return true;
	}
	if (json_is_object(usage)) {
		q->n_in = (uint64_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
		q->n_out = (uint64_t)json_integer_value(json_object_get(usage, "completion_tokens"));
	}
	if (!bench_has_text(event)) return true;
	if (q->n_events++ == 0) q->first_s = now;
	else bench_itl(f->bench->out, now - q->last_s);
	q->last_s = now;
	f->bench->n_events++;
	return true;
}

static void on_bench_end(void *ctx, const char *error)
{
	struct bench_flight *f = ctx;
	struct bench *b = f->bench;

	f->request->end_s = bench_now(b);
	if (!error && f->error[0]) error = f->error;
	if (!error && f->request->n_events == 0) error = "an answer without any text";
	f->request->ok = !error;
	b->n_ended++;
	if (error && b->n_failed++ == 0) snprintf(b->out->error, sizeof(b->out->error), "%s", error);
	free(f->body);
	free(f);
}

static void bench_start(struct bench *b)
{
	struct bench_flight *f = mem_new(struct bench_flight);
	bool open_loop = isfinite(b->opts->rate);

	f->bench = b;
	f->request = &b->out->requests[b->n_started++];
	f->body = bench_body(b);
	f->request->start_s = open_loop ? f->request->due_s : bench_now(b);
	clientpool_start(b->pool, b->opts->endpoint, f->body, on_bench_event, on_bench_end, f);
}

/* ---- the run ---- */

static void bench_show(struct bench *b, bool last)
{
	uint64_t now = clock_now_ns();
	double s = (double)(now - b->began_ns) / 1e9;

	if (b->opts->quiet || !isatty(STDERR_FILENO) || (!last && now - b->shown_ns < BENCH_PROGRESS_NS)) return;
	b->shown_ns = now;
	fprintf(stderr, "\r%zu of %zu done, %zu running, %zu failed, %.0f s, %.1f chunks/s \033[K", b->n_ended, b->out->n, b->n_started - b->n_ended,
		b->n_failed, s, s > 0 ? (double)b->n_events / s : 0);
	if (last) fputc('\n', stderr);
}

/* Milliseconds until the next request is due, at most 100. */
static int bench_wait_ms(const struct bench *b)
{
	double left;

	if (b->n_started == b->out->n || clientpool_n_free(b->pool) == 0) return 100;
	left = b->out->requests[b->n_started].due_s - bench_now(b);
	return left <= 0 ? 0 : left > 0.1 ? 100 : (int)(left * 1000) + 1;
}

static void bench_loop(struct bench *b)
{
	b->began_ns = clock_now_ns();
	while (b->n_ended < b->out->n) {
		while (b->n_started < b->out->n && clientpool_n_free(b->pool) > 0 && b->out->requests[b->n_started].due_s <= bench_now(b)) bench_start(b);
		clientpool_poll(b->pool, bench_wait_ms(b));
		bench_show(b, false);
	}
	b->out->duration_s = bench_now(b);
	bench_show(b, true);
}

int benchrun(const struct bench_opts *o, struct client *c, struct bench_result *out)
{
	struct bench b = {.opts = o, .out = out, .random = (uint64_t)o->seed};
	uint32_t n_max = (uint32_t)(o->concurrency ? min_u64((uint64_t)o->concurrency, (uint64_t)o->n_prompts) : (uint64_t)o->n_prompts);
	struct errbuf err = {{0}};
	double due = 0;
	size_t i;

	*out = (struct bench_result){.n = (size_t)o->n_prompts, .requests = mem_array(struct bench_request, (size_t)o->n_prompts)};
	b.is_chat = strstr(o->endpoint, "chat") != NULL;
	if (!b.is_chat) b.ids = bench_sample_ids(o, c);
	out->ids_prompts = b.ids != NULL;
	for (i = 0; i < out->n && isfinite(o->rate); i++, due += bench_gap(&b) / o->rate) out->requests[i].due_s = due;
	if (clientpool_open(&b.pool, &o->server, n_max, &err) != ST_OK) {
		json_decref(b.ids);
		return cmdopts_fail("bench", EXIT_FAILED, "%s", err.text);
	}
	bench_loop(&b);
	clientpool_close(b.pool);
	json_decref(b.ids);
	return b.n_failed == out->n ? cmdopts_fail("bench", EXIT_FAILED, "all requests failed; the first one: %s", out->error) : EXIT_OK;
}

void benchrun_release(struct bench_result *r)
{
	free(r->requests);
	free(r->itl_s);
}
