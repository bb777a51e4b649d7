/* sim_lane.c - connections of the simulation: first in first out, late, bounded; and what becomes of the messages at a
 * death.
 *
 * Within a living connection nothing is lost or changes places. When the receiver dies, a first part of the queue is
 * lost (it was in the dead process's buffers) and the rest reaches the successor; when the sender dies, a first part
 * arrives and the rest is lost. The survivors are ghosts: they keep their order among themselves, but may come long
 * after everything else. */
#include "tests/sim/sim_impl.h"

#include "common/mem.h"
#include "common/status.h"

#include <stdio.h>

#define GHOST_DELAY_MAX (300 * NS_PER_MS)

void sim_queue_push(struct sim_queue *q, struct sim_packet p)
{
	if (q->first + q->n == q->cap && q->first > 0) {
		memmove(q->items, q->items + q->first, q->n * sizeof(*q->items));
		q->first = 0;
	}
	mem_reserve(q->items, q->cap, q->first + q->n + 1);
	q->items[q->first + q->n++] = p;
}

struct sim_packet sim_queue_pop(struct sim_queue *q)
{
	struct sim_packet p = q->items[q->first++];

	if (--q->n == 0) q->first = 0;
	return p;
}

struct sim_packet *sim_queue_at(const struct sim_queue *q, size_t ix)
{
	return &q->items[q->first + ix];
}

void sim_queue_clear(struct sim_queue *q)
{
	while (q->n > 0) free(sim_queue_pop(q).data);
}

void sim_queue_release(struct sim_queue *q)
{
	sim_queue_clear(q);
	free(q->items);
	*q = (struct sim_queue){0};
}

void sim_unpack(struct sim *s, const struct sim_packet *p, struct msg *m)
{
	SIM_EXPECT(s, msg_unpack(m, p->data, p->len) == ST_OK, "a message of %zu bytes does not unpack", p->len);
}

static void lane_print(const struct sim *s, const struct sim_lane *lane, const struct msg *m)
{
	struct strbuf line;

	strbuf_init(&line, 300);
	msg_print(m, &line);
	printf("%12.6f ms    to %u: %s\n", (double)s->now / 1e6, lane->to, line.data);
	strbuf_release(&line);
}

int sim_lane_send(struct sim *s, struct sim_lane *lane, const struct msg *m)
{
	struct sim_packet p = {.at = s->now + s->setup.delay_ns + sim_rand(s, s->setup.jitter_ns + 1)};
	struct strbuf buf;
	struct msg back;

	if (lane->queue.n >= lane->hwm) {
		if (!lane->wants_room) sim_note(s, "lane to %u is full", lane->to);
		lane->wants_room = true;
		s->counts->high_water_mark++;
		return ST_AGAIN;
	}
	strbuf_init(&buf, LIMIT_MESSAGE_BYTES);
	SIM_EXPECT(s, msg_pack(m, &buf) == ST_OK, "a %s does not pack", msg_type_name(m->type));
	p.len = buf.len;
	p.data = strbuf_take(&buf);
	sim_unpack(s, &p, &back);
	SIM_EXPECT(s, msg_equal(m, &back), "a %s is another one after its way", msg_type_name(m->type));
	if (s->verbose) lane_print(s, lane, m);
	s->trace = sim_mix(s->trace ^ (p.len << 32 | lane->to));
	for (size_t i = 0; i < p.len; i += 8) {
		uint64_t word = 0;

		memcpy(&word, p.data + i, min_size(8, p.len - i));
		s->trace = sim_mix(s->trace + word);
	}
	p.at = lane->last_at = max_u64(lane->last_at, p.at);
	sim_queue_push(&lane->queue, p);
	sim_wake(s, lane->to, p.at);
	return ST_OK;
}

bool sim_lane_pop(struct sim *s, struct sim_lane *lane, struct sim_packet *out)
{
	if (lane->queue.n == 0 || sim_queue_at(&lane->queue, 0)->at > s->now) return false;
	*out = sim_queue_pop(&lane->queue);
	free(lane->recent.data);
	lane->recent = *out;
	lane->recent.data = mem_dup(out->data, out->len, 1);
	return true;
}

static void lane_ghosts(struct sim *s, struct sim_lane *lane, struct sim_queue *from, size_t n)
{
	uint64_t at = s->now + sim_rand(s, GHOST_DELAY_MAX);

	for (size_t i = 0; i < n; i++) {
		struct sim_packet p = sim_queue_pop(from);

		p.at = at;
		p.to = lane->to;
		if (sim_chance(s, 20)) {
			struct sim_packet twice = p;

			twice.data = mem_dup(p.data, p.len, 1);
			s->counts->message_duplicated++;
			sim_queue_push(&s->ghosts, p);
			p = twice;
		}
		sim_queue_push(&s->ghosts, p);
		at += sim_rand(s, 2 * NS_PER_MS);
	}
	sim_wake(s, lane->to, at);
}

static void lane_reset(struct sim_lane *lane)
{
	sim_queue_clear(&lane->queue);
	free(lane->recent.data);
	lane->recent = (struct sim_packet){0};
	lane->wants_room = false;
}

void sim_lane_receiver_died(struct sim *s, struct sim_lane *lane)
{
	size_t n = lane->queue.n, n_lost = sim_chance(s, 40) ? n : sim_rand(s, n + 1);

	s->counts->message_lost += n_lost;
	s->counts->message_misdelivered += n - n_lost;
	for (size_t i = 0; i < n_lost; i++) free(sim_queue_pop(&lane->queue).data);
	/* What the dead had received already comes once more. */
	if (lane->recent.data && sim_chance(s, 25)) {
		struct sim_queue one = {0};

		sim_queue_push(&one, lane->recent);
		lane->recent.data = NULL;
		s->counts->message_duplicated++;
		lane_ghosts(s, lane, &one, 1);
		sim_queue_release(&one);
	}
	lane_ghosts(s, lane, &lane->queue, n - n_lost);
	lane_reset(lane);
}

void sim_lane_sender_died(struct sim *s, struct sim_lane *lane)
{
	size_t n = lane->queue.n, n_arrive = sim_chance(s, 30) ? n : sim_rand(s, n + 1);

	s->counts->message_lost += n - n_arrive;
	lane_ghosts(s, lane, &lane->queue, n_arrive);
	lane_reset(lane);
}

/* Loses what is on its way, between two who live. ZeroMQ does not do this to us; the protocol heals it all the same. */
void sim_lane_glitch(struct sim *s, struct sim_lane *lane)
{
	s->counts->message_lost += lane->queue.n;
	sim_note(s, "lane to %u loses %zu messages", lane->to, lane->queue.n);
	sim_queue_clear(&lane->queue);
}

void sim_lane_release(struct sim_lane *lane)
{
	lane_reset(lane);
	sim_queue_release(&lane->queue);
}

/* The first ghost that is due at the process. */
bool sim_ghost_pop(struct sim *s, uint32_t to, struct sim_packet *out)
{
	struct sim_queue *q = &s->ghosts;

	for (size_t i = 0; i < q->n; i++) {
		struct sim_packet *p = sim_queue_at(q, i);

		if (p->to != to || p->at > s->now) continue;
		*out = *p;
		memmove(p, p + 1, (q->n - i - 1) * sizeof(*p));
		q->n--;
		return true;
	}
	return false;
}
