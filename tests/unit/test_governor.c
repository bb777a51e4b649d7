/* test_governor.c - the governor: limits that no storm passes and that can be reached, and a frontend that dies between any two
 * instructions. The latter is tried at each of them: a child is single-stepped through its reservations, and after every step a copy of
 * the shared memory is repaired as the supervisor does; at some of them it is killed for good. */
#include "common/mem.h"
#include "common/splitmix.h"
#include "proto/governor.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TENANT 1000 /* a key; TENANT + i are others */

static void *shared_new(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static struct governor *governor_new(void)
{
	return shared_new(sizeof(struct governor));
}

static void governor_free(struct governor *g)
{
	munmap(g, sizeof(*g));
}

static struct governor_door door_of(struct governor *g, uint32_t slot, struct governor_limits limits)
{
	if (!limits.max_tenants) limits.max_tenants = 16;
	return (struct governor_door){.g = g, .slot = slot, .limits = limits};
}

static void expect_counts(const struct governor *g, uint64_t requests, uint64_t tokens)
{
	assert_int_equal(governor_count(g, GOVERNOR_MESH, GOVERNOR_REQUESTS), requests);
	assert_int_equal(governor_count(g, GOVERNOR_MESH, GOVERNOR_TOKENS), tokens);
}

/* ---- one process ---- */

static void each_limit_is_reached_and_not_passed(void **state)
{
	struct governor *g = governor_new();
	struct governor_door a = door_of(g, 0, (struct governor_limits){.requests = 5, .tokens = 100, .tenant_requests = 3, .tenant_tokens = 60});
	struct governor_door b = door_of(g, 255, a.limits);
	struct governor_hold h[6] = {0};

	assert_int_equal(governor_reserve(&a, TENANT, 3, &h[0]), GOVERNOR_OK);
	assert_int_equal(governor_reserve(&b, TENANT, 1, &h[1]), GOVERNOR_FULL_TENANT_REQUESTS);
	assert_int_equal(governor_peek(&b, TENANT), GOVERNOR_FULL_TENANT_REQUESTS);
	assert_int_equal(governor_peek(&b, TENANT + 1), GOVERNOR_OK);
	assert_int_equal(governor_reserve(&b, TENANT + 1, 3, &h[1]), GOVERNOR_FULL_REQUESTS);
	assert_int_equal(governor_reserve(&b, TENANT + 1, 2, &h[1]), GOVERNOR_OK);
	assert_int_equal(governor_peek(&b, TENANT + 2), GOVERNOR_FULL_REQUESTS);
	expect_counts(g, 5, 0);
	assert_int_equal(governor_extend(&a, &h[0], 0, 61), GOVERNOR_FULL_TENANT_TOKENS);
	assert_int_equal(governor_extend(&a, &h[0], 0, 60), GOVERNOR_OK);
	assert_int_equal(governor_peek(&b, TENANT), GOVERNOR_FULL_TENANT_REQUESTS);
	assert_int_equal(governor_extend(&b, &h[1], 0, 41), GOVERNOR_FULL_TOKENS);
	assert_int_equal(governor_extend(&b, &h[1], 1, 1), GOVERNOR_FULL_REQUESTS);
	expect_counts(g, 5, 60);
	assert_int_equal(governor_count(g, h[1].account, GOVERNOR_TOKENS), 0);
	assert_int_equal(governor_count(g, h[1].account, GOVERNOR_REQUESTS), 2);
	assert_int_equal(governor_extend(&b, &h[1], 0, 40), GOVERNOR_OK);
	governor_give_back(&a, &h[0]);
	governor_give_back(&a, &h[0]); /* holds nothing any more */
	expect_counts(g, 2, 40);
	governor_give_back(&b, &h[1]);
	expect_counts(g, 0, 0);
	governor_free(g);
}

static void without_limits_nothing_is_refused_but_all_is_counted(void **state)
{
	struct governor *g = governor_new();
	struct governor_door d = door_of(g, 7, (struct governor_limits){0});
	struct governor_hold h = {0};

	assert_int_equal(governor_reserve(&d, TENANT, 1, &h), GOVERNOR_OK);
	assert_int_equal(h.account, GOVERNOR_MESH);
	assert_int_equal(governor_extend(&d, &h, 1u << 20, 1ull << 38), GOVERNOR_OK);
	expect_counts(g, 1 + (1u << 20), 1ull << 38);
	governor_give_back(&d, &h);
	expect_counts(g, 0, 0);
	governor_free(g);
}

/* ---- tenants ---- */

static void tenants_beyond_the_table_share_an_account(void **state)
{
	struct governor *g = governor_new();
	struct governor_door d = door_of(g, 0, (struct governor_limits){.tenant_requests = 1, .max_tenants = 4});
	struct governor_hold h[8] = {0};
	int i;

	for (i = 0; i < 4; i++) assert_int_equal(governor_reserve(&d, TENANT + (uint64_t)i * 4, 1, &h[i]), GOVERNOR_OK); /* all in one cell's way */
	assert_int_equal(governor_reserve(&d, TENANT + 1, 1, &h[4]), GOVERNOR_OK);
	assert_int_equal(h[4].account, GOVERNOR_SHARED);
	assert_int_equal(d.n_shared, 1);
	assert_int_equal(governor_reserve(&d, TENANT + 2, 1, &h[5]), GOVERNOR_FULL_TENANT_REQUESTS);
	assert_int_equal(governor_peek(&d, TENANT + 2), GOVERNOR_FULL_TENANT_REQUESTS);
	assert_int_equal(governor_reserve(&d, GOVERNOR_TENANT_NOBODY, 1, &h[5]), GOVERNOR_OK); /* has an account of its own */
	assert_int_equal(governor_reserve(&d, GOVERNOR_TENANT_NOBODY, 1, &h[6]), GOVERNOR_FULL_TENANT_REQUESTS);
	for (i = 0; i < 6; i++) governor_give_back(&d, &h[i]);
	expect_counts(g, 0, 0);
	governor_free(g);
}

/* Those that hold something stay where they are and are found there. */
static void idle_tenants_make_room(void **state)
{
	struct governor *g = governor_new();
	struct governor_door d = door_of(g, 0, (struct governor_limits){.tenant_requests = 100, .max_tenants = 64});
	struct governor_hold held[64] = {0}, h = {0};
	uint64_t key, seed = 5;
	int i, round;

	for (round = 0; round < 50; round++) {
		for (i = 0; i < 64; i++) {
			key = 2 + splitmix_next(&seed) % 1000000;
			assert_int_equal(governor_reserve(&d, key, 1, &h), GOVERNOR_OK);
			governor_give_back(&d, &h);
		}
		for (i = 0; i < 20; i++)
			if (held[i].requests == 0) assert_int_equal(governor_reserve(&d, TENANT + (uint64_t)i * 64, 1, &held[i]), GOVERNOR_OK);
		governor_tidy(g, 64);
		for (i = 0; i < 20; i++) {
			if (held[i].account == GOVERNOR_SHARED) continue; /* there was no room at that moment */
			assert_int_equal(governor_reserve(&d, TENANT + (uint64_t)i * 64, 1, &h), GOVERNOR_OK);
			assert_int_equal(h.account, held[i].account);
			governor_give_back(&d, &h);
		}
		for (i = 0; i < 20; i++)
			if (splitmix_next(&seed) % 4 == 0 || held[i].account == GOVERNOR_SHARED) governor_give_back(&d, &held[i]);
	}
	for (i = 0; i < 20; i++) governor_give_back(&d, &held[i]);
	governor_tidy(g, 64);
	for (i = 0; i < 64; i++) assert_true(atomic_load(&g->keys[i]) == 0 || atomic_load(&g->keys[i]) > GOVERNOR_TENANT_GONE);
	d.n_shared = 0;
	for (i = 0; i < 16; i++) {
		assert_int_equal(governor_reserve(&d, 77 + (uint64_t)i, 1, &h), GOVERNOR_OK);
		governor_give_back(&d, &h);
	}
	assert_int_equal(d.n_shared, 0);
	governor_free(g);
}

/* ---- storms ---- */

#define STORM_ROUNDS 20000
#define STORM_TENANTS 3
#define STORM_HELD 4

/* What the processes of a storm know to be taken: raised after a reservation and lowered before it is given back. */
struct storm {
	struct governor g;
	_Atomic uint64_t requests, tokens, tenant_requests[STORM_TENANTS];
	_Atomic uint32_t bad, taken, refused;
	_Atomic bool over;
};

static const struct governor_limits storm_limits = {.requests = 7, .tokens = 500, .tenant_requests = 4, .tenant_tokens = 300, .max_tenants = 16};

static void storm_note(struct storm *s, _Atomic uint64_t *sum, uint64_t n, uint64_t limit)
{
	if (atomic_fetch_add(sum, n) + n > limit) atomic_fetch_add(&s->bad, 1);
}

static void storm_give_back(struct storm *s, struct governor_door *d, struct governor_hold *h, uint32_t tenant)
{
	atomic_fetch_sub(&s->requests, h->requests);
	atomic_fetch_sub(&s->tokens, h->tokens);
	atomic_fetch_sub(&s->tenant_requests[tenant], h->requests);
	governor_give_back(d, h);
}

static void storm_one(struct storm *s, struct governor_door *d, struct governor_hold *h, uint32_t tenant, uint64_t *seed)
{
	uint64_t n = 1 + splitmix_next(seed) % 2, more = splitmix_next(seed) % 2, tokens = splitmix_next(seed) % 150;

	if (governor_reserve(d, TENANT + tenant, n, h) != GOVERNOR_OK) {
		atomic_fetch_add(&s->refused, 1);
		return;
	}
	if (governor_extend(d, h, more, tokens) != GOVERNOR_OK) {
		atomic_fetch_add(&s->refused, 1);
		governor_give_back(d, h);
		return;
	}
	atomic_fetch_add(&s->taken, 1);
	storm_note(s, &s->requests, n + more, storm_limits.requests);
	storm_note(s, &s->tokens, tokens, storm_limits.tokens);
	storm_note(s, &s->tenant_requests[tenant], n + more, storm_limits.tenant_requests);
}

static void storm_process(struct storm *s, uint32_t slot)
{
	struct governor_door d = door_of(&s->g, slot, storm_limits);
	struct governor_hold held[STORM_HELD] = {0};
	uint32_t tenants[STORM_HELD] = {0};
	uint64_t seed = slot + 1;

	for (int i = 0; i < STORM_ROUNDS; i++) {
		uint32_t k = splitmix_next(&seed) % STORM_HELD;

		if (held[k].requests) {
			storm_give_back(s, &d, &held[k], tenants[k]);
		} else {
			tenants[k] = splitmix_next(&seed) % STORM_TENANTS;
			storm_one(s, &d, &held[k], tenants[k], &seed);
		}
		if (i % 64 == 0) sched_yield(); /* two cores: else each would find itself alone */
	}
	for (int k = 0; k < STORM_HELD; k++)
		if (held[k].requests) storm_give_back(s, &d, &held[k], tenants[k]);
	_exit(0);
}

/* The counts themselves are read, too, as /metrics does. */
static void storm_watch(struct storm *s)
{
	if (governor_count(&s->g, GOVERNOR_MESH, GOVERNOR_REQUESTS) > storm_limits.requests ||
	    governor_count(&s->g, GOVERNOR_MESH, GOVERNOR_TOKENS) > storm_limits.tokens)
		atomic_fetch_add(&s->bad, 1);
}

static void expect_whole_capacity(struct governor *g, struct governor_limits limits, uint32_t k)
{
	struct governor_hold h[16] = {0}, more = {0};
	uint64_t i;

	expect_counts(g, 0, 0);
	for (i = 0; i < limits.requests; i++) {
		struct governor_door d = door_of(g, (uint32_t)i % k, limits);

		assert_int_equal(governor_reserve(&d, TENANT + 100 + i, 1, &h[i]), GOVERNOR_OK);
	}
	for (i = 0; i < k; i++) {
		struct governor_door d = door_of(g, (uint32_t)i, limits);

		assert_int_equal(governor_reserve(&d, TENANT + 50, 1, &more), GOVERNOR_FULL_REQUESTS);
	}
	for (i = 0; i < limits.requests; i++) {
		struct governor_door d = door_of(g, (uint32_t)i % k, limits);

		governor_give_back(&d, &h[i]);
	}
	expect_counts(g, 0, 0);
}

static void storm_run(uint32_t k)
{
	struct storm *s = shared_new(sizeof(*s));
	uint32_t alive = k;
	int status;

	for (uint32_t i = 0; i < k; i++)
		if (fork() == 0) storm_process(s, i);
	while (alive > 0) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		assert_true(pid >= 0);
		if (pid > 0) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		alive -= pid > 0;
		storm_watch(s);
		sched_yield();
	}
	assert_int_equal(atomic_load(&s->bad), 0);
	assert_true(atomic_load(&s->taken) > 0 && atomic_load(&s->refused) > 0);
	expect_whole_capacity(&s->g, storm_limits, k);
	munmap(s, sizeof(*s));
}

static void storms_never_pass_a_limit(void **state)
{
	storm_run(1);
	storm_run(4);
	storm_run(8);
}

/* Processes of a storm are killed and their slots repaired and used again, while the others go on. */
static void storms_with_deaths_leave_nothing(void **state)
{
	enum { K = 4, DEATHS = 120 };
	struct storm *s = shared_new(sizeof(*s));
	uint64_t seed = 99;
	pid_t pids[K];
	int i, n;

	for (i = 0; i < K; i++)
		if ((pids[i] = fork()) == 0) storm_process(s, (uint32_t)i);
	for (n = 0; n < DEATHS; n++) {
		i = (int)(splitmix_next(&seed) % K);
		usleep((useconds_t)(splitmix_next(&seed) % 1500));
		kill(pids[i], SIGKILL);
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
		storm_watch(s);
		governor_repair(&s->g, (uint32_t)i);
		if ((pids[i] = fork()) == 0) storm_process(s, (uint32_t)i);
	}
	for (i = 0; i < K; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		governor_repair(&s->g, (uint32_t)i);
	}
	expect_whole_capacity(&s->g, storm_limits, K);
	munmap(s, sizeof(*s));
}

static bool cell_has_key(struct storm *s, uint32_t account, uint64_t key)
{
	for (;;) {
		uint32_t version = atomic_load(&s->g.version);

		if (atomic_load(&s->g.keys[account - GOVERNOR_CELLS]) == key) return true;
		/* While it tidies up, the supervisor may take a key out, find the cell in use, and put it back. */
		if (!(version & 1) && atomic_load(&s->g.version) == version) return false;
		sched_yield();
	}
}

/* More tenants than cells come and go while the table is tidied up all the time: whoever finds its cell taken away gives back there
 * what it had reserved, and no account keeps anything. */
static void tidy_process(struct storm *s, uint32_t slot)
{
	struct governor_door d = door_of(&s->g, slot, (struct governor_limits){.tenant_requests = 1000, .max_tenants = 16});
	struct governor_hold held[STORM_HELD] = {0};
	uint64_t seed = slot + 1;

	for (int i = 0; i < STORM_ROUNDS; i++) {
		uint32_t k = splitmix_next(&seed) % STORM_HELD;
		uint64_t key = TENANT + splitmix_next(&seed) % 40;

		governor_give_back(&d, &held[k]);
		if (governor_reserve(&d, key, 1, &held[k]) != GOVERNOR_OK || governor_extend(&d, &held[k], 0, 3) != GOVERNOR_OK) _exit(1);
		/* While it holds something, its cell has its key. */
		if (held[k].account != GOVERNOR_SHARED && !cell_has_key(s, held[k].account, key)) atomic_fetch_add(&s->bad, 1);
		atomic_fetch_add(&s->taken, held[k].account != GOVERNOR_SHARED);
		if (i % 64 == 0) sched_yield();
	}
	for (int k = 0; k < STORM_HELD; k++) governor_give_back(&d, &held[k]);
	_exit(0);
}

static void tidying_up_disturbs_nobody(void **state)
{
	enum { K = 3 };
	struct storm *s = shared_new(sizeof(*s));
	uint32_t alive = K;
	int status;

	for (uint32_t i = 0; i < K; i++)
		if (fork() == 0) tidy_process(s, i);
	while (alive > 0) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		assert_true(pid >= 0);
		if (pid > 0) assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		alive -= pid > 0;
		governor_tidy(&s->g, 16);
		sched_yield();
	}
	assert_int_equal(atomic_load(&s->bad), 0);
	assert_true(atomic_load(&s->taken) > 1000);
	for (uint32_t i = 0; i < GOVERNOR_CELLS + 16; i++)
		for (int what = 0; what < GOVERNOR_COUNTS; what++) assert_int_equal(governor_count(&s->g, i, (enum governor_what)what), 0);
	munmap(s, sizeof(*s));
}

/* ---- every instruction ---- */

#define STEP_CHILD 3u /* slot of the one that is stepped */
#define STEP_OTHER 1u /* slot of this process */
#define STEP_KILL_EACH 61
#define STEP_MEDDLED 1500
#define STEP_TIDIED 40000
#define STEP_TIDY_EACH 200 /* about */

static const struct governor_limits step_limits = {.requests = 100, .tokens = 10000, .tenant_requests = 50, .tenant_tokens = 5000, .max_tenants = 16};

struct step {
	struct governor g, copy;
	_Atomic uint32_t is_done, bad, own, shared;
	struct governor_door other;
	struct governor_hold held; /* of the other one, all the time */
};

/* What is stepped: each kind of change, taken on and given back. */
static void step_child(struct step *s)
{
	struct governor_door d = door_of(&s->g, STEP_CHILD, step_limits);
	struct governor_hold h = {0};

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
	raise(SIGSTOP);
	if (governor_reserve(&d, TENANT, 1, &h) != GOVERNOR_OK || governor_extend(&d, &h, 2, 70) != GOVERNOR_OK) _exit(1);
	governor_give_back(&d, &h);
	atomic_store(&s->is_done, 1);
	for (;;) pause();
}

/* Accounts that the two use: their first rows. */
static void step_copy(struct step *s)
{
	struct governor *c = &s->copy, *g = &s->g;
	size_t head = offsetof(struct governor_account, rows) + 4 * sizeof(struct governor_row);

	memcpy(c, g, offsetof(struct governor, accounts));
	for (uint32_t i = 0; i < GOVERNOR_CELLS + step_limits.max_tenants; i++)
		if (i < GOVERNOR_CELLS || atomic_load(&g->used[i - GOVERNOR_CELLS])) memcpy(&c->accounts[i], &g->accounts[i], head);
}

static void step_expect_repaired(struct governor *g, const struct governor_hold *held)
{
	governor_repair(g, STEP_CHILD);
	expect_counts(g, held->requests, held->tokens);
	assert_int_equal(governor_count(g, held->account, GOVERNOR_REQUESTS), held->requests);
	assert_int_equal(governor_count(g, held->account, GOVERNOR_TOKENS), held->tokens);
	for (int what = 0; what < GOVERNOR_COUNTS; what++) {
		const struct governor_account *a = &g->accounts[GOVERNOR_MESH];

		assert_int_equal(atomic_load(&a->rows[STEP_CHILD].held[what]) >> 24, 0);
		assert_int_equal(atomic_load(&a->rows[STEP_OTHER].held[what]) >> 24, what == GOVERNOR_REQUESTS ? held->requests : held->tokens);
	}
}

/* As if it had died here: repaired at once, and after another one has been at all counts meanwhile. */
static void step_look(struct step *s)
{
	struct governor_door other = s->other;
	struct governor_hold h = {0};

	step_copy(s);
	step_expect_repaired(&s->copy, &s->held);
	step_copy(s);
	other.g = &s->copy;
	assert_int_equal(governor_reserve(&other, TENANT, 1, &h), GOVERNOR_OK);
	assert_int_equal(governor_extend(&other, &h, 1, 5), GOVERNOR_OK);
	governor_give_back(&other, &h);
	step_expect_repaired(&s->copy, &s->held);
}

static void step_meddle(struct step *s)
{
	struct governor_hold h = {0};

	assert_int_equal(governor_reserve(&s->other, TENANT, 2, &h), GOVERNOR_OK);
	assert_int_equal(governor_extend(&s->other, &h, 0, 9), GOVERNOR_OK);
	governor_give_back(&s->other, &h);
}

static pid_t step_start(struct step *s, void (*child)(struct step *s))
{
	int status;
	pid_t pid;

	atomic_store(&s->is_done, 0);
	pid = fork();
	if (pid == 0) child(s);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return 0;
	assert_true(WIFSTOPPED(status));
	return pid;
}

static void step_once(pid_t pid)
{
	int status;

	assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
}

static void step_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct step *step_new(void)
{
	struct step *s = shared_new(sizeof(*s));

	s->other = door_of(&s->g, STEP_OTHER, step_limits);
	assert_int_equal(governor_reserve(&s->other, TENANT, 2, &s->held), GOVERNOR_OK);
	assert_int_equal(governor_extend(&s->other, &s->held, 1, 30), GOVERNOR_OK);
	return s;
}

/* meddle_each: the other one gets in the way each so many instructions; 0: never. Returns how many there were. */
static int step_through(struct step *s, int meddle_each)
{
	pid_t pid = step_start(s, step_child);
	int n;

	if (!pid) skip(); /* a place where nobody may be traced */
	for (n = 0; !atomic_load(&s->is_done); n++) {
		step_once(pid);
		/* Not for ever: it might never get its turn. */
		if (meddle_each && n < STEP_MEDDLED && n % meddle_each == 0) step_meddle(s);
		step_look(s);
	}
	step_kill(pid);
	step_expect_repaired(&s->g, &s->held);
	return n;
}

static void death_at_any_instruction_leaves_nothing(void **state)
{
	struct step *s = step_new();
	int i, n = step_through(s, 0);

	assert_true(n > 200);
	step_through(s, 23);
	step_through(s, 131);
	for (i = 0; i < n; i += STEP_KILL_EACH) {
		pid_t pid = step_start(s, step_child);

		for (int k = 0; k < i && !atomic_load(&s->is_done); k++) step_once(pid);
		step_kill(pid);
		if (i % 2) step_meddle(s);
		step_expect_repaired(&s->g, &s->held);
	}
	governor_give_back(&s->other, &s->held);
	expect_whole_capacity(&s->g, (struct governor_limits){.requests = 9, .max_tenants = 16}, 4);
	munmap(s, sizeof(*s));
}

/* Looks after each reservation whether the account is still its tenant's. */
static void step_child_of_tenant(struct step *s)
{
	struct governor_door d = door_of(&s->g, STEP_CHILD, (struct governor_limits){.tenant_requests = 9, .max_tenants = 1});
	struct governor_hold h = {0};

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
	raise(SIGSTOP);
	for (;;) {
		if (governor_reserve(&d, TENANT, 1, &h) != GOVERNOR_OK) _exit(1);
		if (h.account == GOVERNOR_SHARED) atomic_fetch_add(&s->shared, 1);
		else atomic_fetch_add(atomic_load(&s->g.keys[0]) == TENANT ? &s->own : &s->bad, 1);
		governor_give_back(&d, &h);
	}
}

/* The table, of one cell, is tidied up in the middle of reservations. */
static void a_cell_that_is_taken_away_is_noticed(void **state)
{
	struct step *s = shared_new(sizeof(*s));
	pid_t pid = step_start(s, step_child_of_tenant);
	uint64_t seed = 7;

	if (!pid) skip();
	for (int n = 0; n < STEP_TIDIED; n++) {
		step_once(pid);
		if (splitmix_next(&seed) % STEP_TIDY_EACH == 0) governor_tidy(&s->g, 1);
	}
	step_kill(pid);
	governor_repair(&s->g, STEP_CHILD);
	assert_int_equal(atomic_load(&s->bad), 0);
	assert_true(atomic_load(&s->own) > 0 && atomic_load(&s->shared) > 0);
	for (uint32_t i = 0; i <= GOVERNOR_CELLS; i++) assert_int_equal(governor_count(&s->g, i, GOVERNOR_REQUESTS), 0);
	munmap(s, sizeof(*s));
}

/* The repair does not trust what it finds: a frontend may have written anything into its row. */
static void nonsense_in_a_row_harms_no_count_below_zero(void **state)
{
	struct governor *g = governor_new();
	struct governor_door d = door_of(g, 0, (struct governor_limits){.requests = 5});
	struct governor_hold h = {0};

	assert_int_equal(governor_reserve(&d, TENANT, 2, &h), GOVERNOR_OK);
	atomic_store(&g->accounts[GOVERNOR_MESH].rows[9].held[GOVERNOR_REQUESTS], UINT64_MAX);
	atomic_store(&g->accounts[GOVERNOR_MESH].rows[9].intent[GOVERNOR_REQUESTS], UINT64_MAX);
	governor_repair(g, 9);
	expect_counts(g, 0, 0);
	governor_give_back(&d, &h);
	expect_counts(g, 0, 0);
	governor_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_limit_is_reached_and_not_passed),
		cmocka_unit_test(without_limits_nothing_is_refused_but_all_is_counted),
		cmocka_unit_test(tenants_beyond_the_table_share_an_account),
		cmocka_unit_test(idle_tenants_make_room),
		cmocka_unit_test(storms_never_pass_a_limit),
		cmocka_unit_test(storms_with_deaths_leave_nothing),
		cmocka_unit_test(tidying_up_disturbs_nobody),
		cmocka_unit_test(death_at_any_instruction_leaves_nothing),
		cmocka_unit_test(a_cell_that_is_taken_away_is_noticed),
		cmocka_unit_test(nonsense_in_a_row_harms_no_count_below_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
