/* fuzz_control.c - any packets on the control socket: each request that is one is told once, what is none is answered by an error and
 * the end; nothing that a peer does keeps a place for good.
 *
 * Each line of the input is a step of one of three peers, by its first byte: a packet, an end, reading. Seeds: corpus/control. */
#include "common/mem.h"
#include "sluice/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEERS 3

struct end {
	uv_loop_t loop;
	struct control control;
	struct sockaddr_un at;
	int fds[PEERS]; /* -1: not connected */
	uint64_t later[PEERS * 64]; /* requests that wait for their answers */
	size_t n_later;
};

static void on_request(void *ctx, uint64_t peer, const char *command, const json_t *request)
{
	struct end *e = ctx;

	CHECK(peer != 0 && json_is_object(request) && strlen(command) < CONTROL_REQUEST_MAX);
	control_progress(&e->control, peer, command);
	if (strcmp(command, "page") == 0) control_answer(&e->control, peer, json_pack("{s:b}", "ok", 1), 0);
	else if (strcmp(command, "scale") == 0 && e->n_later < ARRAY_LEN(e->later)) e->later[e->n_later++] = peer;
	else control_fail(&e->control, peer, "no command `%s`", command);
}

static char folder[32];

static void remove_folder(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/" CONTROL_NAME, folder);
	unlink(path);
	rmdir(folder);
}

static struct end *end_open(void)
{
	static struct end e;
	const struct control_events events = {.ctx = &e, .on_request = on_request};
	char dir[] = "/tmp/fuzz-control-XXXXXX";
	struct errbuf err;

	if (e.at.sun_family) return &e;
	CHECK(uv_loop_init(&e.loop) == 0 && mkdtemp(dir));
	CHECK(control_open(&e.control, &e.loop, dir, &events, &err) == ST_OK);
	e.at.sun_family = AF_UNIX;
	snprintf(e.at.sun_path, sizeof(e.at.sun_path), "%s/" CONTROL_NAME, dir);
	memcpy(folder, dir, sizeof(dir));
	atexit(remove_folder);
	return &e;
}

static void run(struct end *e)
{
	for (int i = 0; i < 4; i++) uv_run(&e->loop, UV_RUN_NOWAIT);
}

static void peer_end(struct end *e, int i)
{
	if (e->fds[i] >= 0) close(e->fds[i]);
	e->fds[i] = -1;
}

/* Until nothing is there. What is said is JSON. */
static void peer_read(struct end *e, int i)
{
	char packet[CONTROL_ANSWER_MAX + 1];
	ssize_t n;

	while (e->fds[i] >= 0 && (n = recv(e->fds[i], packet, sizeof(packet), MSG_DONTWAIT)) > 0) {
		json_t *j = json_loadb(packet, (size_t)n, 0, NULL);

		CHECK(json_is_object(j));
		json_decref(j);
	}
}

static void step(struct end *e, const uint8_t *line, size_t len)
{
	int i = line[0] % PEERS, what = line[0] / PEERS % 8;

	if (what == 0) {
		peer_end(e, i);
	} else if (what == 1) {
		peer_read(e, i);
	} else if (what == 2) {
		while (e->n_later > 0) control_answer(&e->control, e->later[--e->n_later], json_pack("{s:b}", "ok", 1), -1);
	} else {
		if (e->fds[i] < 0) {
			e->fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
			CHECK(e->fds[i] >= 0 && connect(e->fds[i], (struct sockaddr *)&e->at, sizeof(e->at)) == 0);
		}
		(void)!send(e->fds[i], line + 1, len - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	run(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct end *e = end_open();
	const uint8_t *end = data + size, *next;

	e->n_later = 0;
	for (int i = 0; i < PEERS; i++) e->fds[i] = -1;
	for (; data < end; data = next + 1) {
		next = memchr(data, '\n', (size_t)(end - data));
		if (!next) next = end;
		if (next > data) step(e, data, (size_t)(next - data));
	}
	for (int i = 0; i < PEERS; i++) peer_end(e, i);
	run(e);
	for (size_t i = 0; i < ARRAY_LEN(e->control.peers); i++) CHECK(!e->control.peers[i].used);
	return 0;
}
