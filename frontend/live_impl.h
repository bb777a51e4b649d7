/* live_impl.h - what the two files of a frontend's live requests share: live.c (their life, what is sent) and liverows.c (what a results
 * message means). Nobody else includes it. */
#ifndef SLUICE_LIVE_IMPL_H
#define SLUICE_LIVE_IMPL_H

#include "common/list.h"
#include "common/map.h"
#include "frontend/live.h"

enum live_state { LIVE_DUE, LIVE_SENT, LIVE_HELD, LIVE_N_STATES };

struct live {
	struct list_link link; /* on lives.in_state[state] */
	enum live_state state;
	void *owner;
	struct msg *asked;        /* owned: the message around `submit` */
	struct msg_submit *submit; /* as sent last: attempt 0 before the first time; its tokens are left out */
	size_t submit_bytes;       /* of its other lists */
	uint32_t *tokens;          /* owned: prompt, then output */
	size_t tokens_cap;
	uint32_t n_output; /* received */
	uint32_t n_prompt_known; /* prompt positions below it need no log-probabilities any more; n_prompt when none are wanted */
	uint32_t n_cached;
	uint64_t hold_until_ns; /* no repeated submit before, within an epoch */
	uint64_t sent_ns;       /* when it was submitted first; of those with a queue timeout */
	uint64_t backoff_ns;    /* doubles with each submit that brought no token */
	uint64_t sync_seen;     /* the last sync that listed the newest attempt */
	uint32_t syncs_missed;  /* that did not list it, since it was sent */
	bool has_begun;         /* it has run, at any executor */
	bool accepted;          /* once, by any executor */
	bool in_callback;
};

struct lives {
	struct lives_config cfg;
	struct lives_out out;
	struct map by_id;
	struct list in_state[LIVE_N_STATES];
	uint64_t counter; /* of client ids */

	uint64_t epoch;
	bool has_epoch;
	bool hello_sent; /* in this epoch */
	bool welcome;
	uint64_t hello_due_ns;
	uint64_t heard_ns; /* last message of this epoch, of any kind: a sync may wait behind many others */
	uint64_t retry_ns; /* a send was not taken: again at the latest then; 0: at once */
	uint64_t sync_number;
	uint32_t model_len_max;

	uint64_t *cancels; /* ids, a ring of cfg.requests_max */
	uint32_t cancels_first, n_cancels;
	struct lives_stats stats;
};

/* live.c */
/* Takes it out of everything. The caller frees it. */
void live_remove(struct lives *l, struct live *r);
void live_free(struct live *r);
/* Room for n_more tokens. */
void live_reserve(struct live *r, uint32_t n_more);
/* Something of it is missing: submit again, unless that was just done. */
void live_resubmit(struct lives *l, struct live *r, uint64_t now);
/* The executor has answered the newest attempt. */
void live_hold(struct lives *l, struct live *r);
void live_end(struct lives *l, struct live *r, enum finish finish, uint32_t refusal, struct view text);

/* liverows.c */
void liverows_on_results(struct lives *l, const struct msg_results *m, uint64_t now);

#endif
