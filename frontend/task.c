/* task.c - see task.h. */
#include "frontend/task.h"

#include "common/clock.h"
#include "common/mem.h"
#include "frontend/conn.h"
#include "frontend/jsonread.h"

#include <string.h>

#define TASK_INLINE_BYTES (16 * KIB)           /* as PREP_INLINE_BYTES */
#define TASK_OUT_MAX (CONN_OUT_MAX - 64 * KIB) /* headers have room */

static void on_run(struct offload_job *j)
{
	struct task *t = CONTAINER_OF(j, struct task, job);
	struct errbuf err = {{0}};
	int rc = jsonread(&t->root, t->bytes.data, t->bytes.len, &err);

	strbuf_release(&t->bytes);
	t->body = t->root;
	if (rc == ST_OK) t->work(t);
	else (void)apierr_set(&t->error, 400, NULL, "%s", err.text);
	if (t->out.overflow)
		(void)apierr_set(&t->error, 400, NULL, "The answer would be longer than %zu bytes.", (size_t)TASK_OUT_MAX);
}

static void on_drop(struct offload_job *j)
{
	struct task *t = CONTAINER_OF(j, struct task, job);

	strbuf_release(&t->bytes);
	strbuf_release(&t->out);
	json_decref(t->root);
	free(t);
}

static void task_finish(struct task *t, struct http_request *r)
{
	if (t->error.status) apierr_answer(&t->error, r);
	else http_answer(r, 200, "application/json", NULL, t->out.data, t->out.len);
	if (t->is_large) offload_drop(t->job.pool, &t->job);
	else on_drop(&t->job);
}

static void on_done(struct offload_job *j)
{
	struct task *t = CONTAINER_OF(j, struct task, job);

	((struct api *)t->api)->now = clock_now_ns();
	task_finish(t, j->request);
}

void task_start(struct api *a, struct http_request *r, void (*work)(struct task *t))
{
	struct task *t = mem_new(struct task);

	t->api = a;
	t->len_max = api_model_len(a);
	memcpy(t->id, r->id, sizeof(t->id));
	t->work = work;
	strbuf_init(&t->out, TASK_OUT_MAX);
	conn_take_body(r->conn, &t->bytes);
	/* A template of the client may take long, however short it is. */
	t->is_large = t->bytes.len > TASK_INLINE_BYTES || a->config->trust_request_chat_template;
	t->job = (struct offload_job){.pool = &a->offload, .bytes = t->bytes.len, .run = on_run, .done = on_done, .drop = on_drop};
	if (!t->is_large) {
		on_run(&t->job);
		task_finish(t, r);
		return;
	}
	if (offload_start(&a->offload, r, &t->job)) return;
	api_refuse_preparing(a, &t->error);
	task_finish(t, r);
}
