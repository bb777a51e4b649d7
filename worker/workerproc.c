/* workerproc.c - see workerproc.h.
 *
 * Good path: boot, map and attach the rings, serve; `drain` from the supervisor ends it with 0. The supervisor's death
 * ends it at once. A damaged ring or a failed device ends it with EXIT_DEVICE: a new worker gets a new start. */
#include "worker/workerproc.h"

#include "common/cpuset.h"
#include "common/log.h"
#include "proto/boot.h"
#include "worker/rank.h"

#include <stdio.h>
#include <unistd.h>

#define WORKERPROC_NULL_BYTES (64 * 1024 * GIB) /* the null device's KV blocks are numbers alone: as many as are asked for */

struct workerproc {
	struct boot boot;
	struct engine_opts opts;
	struct rank_io io;
	uint8_t packet[BOOT_PACKET_MAX];
};

static enum ggtype workerproc_kv_type(const struct config *c)
{
	static const enum ggtype types[] = {[KV_DTYPE_BF16] = GGTYPE_BF16,
					    [KV_DTYPE_F16] = GGTYPE_F16,
					    [KV_DTYPE_F32] = GGTYPE_F32,
					    [KV_DTYPE_FP8] = GGTYPE_F8_E4M3,
					    [KV_DTYPE_INT8] = GGTYPE_I8};

	if (c->kv_cache_dtype != KV_DTYPE_AUTO) return types[c->kv_cache_dtype];
	return c->activations == ACTIVATIONS_F32 ? GGTYPE_F32 : GGTYPE_F16;
}

void workerproc_options(const struct config *c, bool null_device, struct engine_opts *o)
{
	static const enum klevel levels[] = {[KERNELS_AUTO] = KLEVEL_AVX512,
					     [KERNELS_REF] = KLEVEL_REF,
					     [KERNELS_AVX2] = KLEVEL_AVX2,
					     [KERNELS_AVX512] = KLEVEL_AVX512};
	bool f32 = c->activations == ACTIVATIONS_F32;

	engine_opts_init(o);
	o->model = c->model;
	o->tokenizer = c->tokenizer && *c->tokenizer ? c->tokenizer : NULL;
	o->overrides = c->hf_overrides && *c->hf_overrides ? c->hf_overrides : NULL;
	o->model_len_max = c->max_model_len == CONFIG_LEN_AUTO ? ENGINE_LEN_AUTO : c->max_model_len;
	o->batched_tokens_max = c->max_num_batched_tokens;
	o->seqs_max = c->max_num_seqs;
	o->n_threads = c->threads;
	if (c->threads > cpuset_available())
		log_warning("--threads %u, but %u can run at once: threads that wait for each other make each step slower",
			    c->threads, cpuset_available());
	o->act = f32 ? KACT_F32 : KACT_Q8;
	o->level_max = levels[c->kernels];
	o->kv_type = workerproc_kv_type(c);
	o->kv.n_blocks = c->num_gpu_blocks_override;
	o->kv.bytes = c->kv_cache_memory_bytes;
	o->kv.utilization = c->gpu_memory_utilization;
	o->hash_logits = c->debug_logits_hash;
	o->null_device = null_device;
	if (null_device) o->kv.available = WORKERPROC_NULL_BYTES;
	o->null_step_ns = c->null_step_us * NS_PER_US;
}

static int workerproc_attach(struct workerproc *w, struct errbuf *err)
{
	size_t bytes;
	void *mem = child_map(CHILD_FD_STEP_RING, &bytes, err);
	int rc;

	if (!mem) return ST_IO;
	rc = ring_attach(&w->io.steps, mem, bytes, (int)w->boot.index, err);
	if (rc != ST_OK) return err_prefix(err, rc, "step ring");
	mem = child_map(CHILD_FD_REPLY_RING, &bytes, err);
	if (!mem) return ST_IO;
	rc = ring_attach(&w->io.replies, mem, bytes, -1, err);
	return rc == ST_OK ? ST_OK : err_prefix(err, rc, "reply ring");
}

static bool workerproc_may_go_on(void *ctx)
{
	struct workerproc *w = ctx;
	struct msg m;
	int rc;

	while ((rc = boot_poll(&m, w->packet, sizeof(w->packet))) == ST_OK)
		if (m.type == MSG_drain) return false;
	if (rc != ST_AGAIN) _exit(EXIT_ORPHAN);
	return true;
}

static void workerproc_on_ready(void *ctx)
{
	boot_send_ready();
}

int workerproc_run(bool null_device)
{
	static struct workerproc w;
	struct errbuf err = {{0}};
	struct rank *rank;
	int rc;

	if (boot_receive(&w.boot, "worker", &err) != ST_OK) {
		fprintf(stderr, "sluice-worker: error: %s\n", err.text);
		boot_send_failed(EXIT_FAILED, err.text);
		return EXIT_FAILED;
	}
	w.io = (struct rank_io){.event_fd = CHILD_FD_REPLY_EVENT,
				.rank = w.boot.index,
				.may_go_on = workerproc_may_go_on,
				.on_ready = workerproc_on_ready,
				.ctx = &w};
	if (w.boot.index >= w.boot.page->n_workers) {
		boot_send_failed(EXIT_FAILED, "a worker of this rank is not known");
		return EXIT_FAILED;
	}
	w.io.slot = &w.boot.page->workers[w.boot.index];
	w.io.calm_look_ns = page_beat_ns(w.boot.config.heartbeat_timeout, w.boot.config.hang_timeout);
	rc = workerproc_attach(&w, &err);
	if (rc != ST_OK) {
		boot_send_failed(EXIT_FAILED, err.text);
		return EXIT_FAILED;
	}
	workerproc_options(&w.boot.config, null_device, &w.opts);
	w.opts.model_ident = atomic_load(&w.boot.page->model_ident);
	rank = rank_new(&w.io, &w.opts);
	rc = rank_run(rank);
	if (rc != ST_OK) log_error("the worker ends: %s", status_text(rc));
	rank_free(rank);
	boot_release(&w.boot);
	return rc == ST_OK ? EXIT_OK : EXIT_DEVICE;
}
