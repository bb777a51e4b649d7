/* lane.c - see lane.h. */
#include "frontend/lane.h"

#include "common/mem.h"
#include "common/zsock.h"

/* Packets that may queue in the socket before submits wait in live.c instead: one a loop pass, or one for each 64 KiB. */
#define LANE_HWM 1000

struct lane_link {
	const struct boot *boot;
	uv_loop_t *loop;
	struct lane_events events;
	struct zctx *zctx;
	struct zsock *pull, *push;
	struct strbuf packed; /* reused */
	uint64_t unreadable;
};

static void on_lane_message(void *ctx, const void *data, size_t len)
{
	struct lane_link *l = ctx;
	struct msg m;

	if (msg_unpack(&m, data, len) == ST_OK) l->events.on_message(l->events.ctx, &m);
	else l->unreadable++;
}

static void on_lane_ready(void *ctx)
{
	struct lane_link *l = ctx;

	l->events.on_ready(l->events.ctx);
}

int lane_open(struct lane_link **out, const struct boot *boot, uv_loop_t *loop, const struct lane_events *events, struct errbuf *err)
{
	struct lane_link *l = mem_new(struct lane_link);
	char path[160];
	int rc;

	l->boot = boot;
	l->loop = loop;
	l->events = *events;
	strbuf_init(&l->packed, LIMIT_MESSAGE_BYTES);
	l->zctx = zctx_new(boot->key, LIMIT_MESSAGE_BYTES);
	boot_frontend_path(boot->ipc_dir, boot->index, boot->incarnation, path, sizeof(path));
	rc = zsock_open_pull(&l->pull, l->zctx, loop, path, on_lane_message, l, err);
	if (rc == ST_OK) rc = lane_epoch(l, boot->epoch, err);
	*out = l; /* on an error, the process ends */
	return rc;
}

int lane_epoch(struct lane_link *l, uint64_t epoch, struct errbuf *err)
{
	char path[160];

	zsock_close(l->push);
	l->push = NULL;
	boot_requests_path(l->boot->ipc_dir, epoch, path, sizeof(path));
	return zsock_open_push(&l->push, l->zctx, l->loop, path, LANE_HWM, on_lane_ready, l, err);
}

int lane_send(struct lane_link *l, const struct msg *m)
{
	int rc;

	if (!l->push) return ST_AGAIN;
	strbuf_reset(&l->packed);
	rc = msg_pack(m, &l->packed);
	if (rc == ST_OK) rc = zsock_put(l->push, l->packed.data, l->packed.len);
	if (l->packed.cap > MIB) strbuf_release(&l->packed);
	return rc;
}

void lane_flush(struct lane_link *l)
{
	if (l->push) zsock_flush(l->push);
}

void lane_yield(struct lane_link *l)
{
	zsock_yield(l->pull);
}

uint64_t lane_dropped(const struct lane_link *l)
{
	struct zsock_stats s;

	zsock_stats(l->pull, &s);
	return s.dropped + l->unreadable;
}

void lane_close(struct lane_link *l)
{
	zsock_close(l->pull);
	zsock_close(l->push);
	l->push = NULL;
}

void lane_free(struct lane_link *l)
{
	if (!l) return;
	zctx_free(l->zctx);
	strbuf_release(&l->packed);
	free(l);
}
