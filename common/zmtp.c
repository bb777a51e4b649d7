/* zmtp.c - see zmtp.h. */
#include "common/zmtp.h"

#include <string.h>

#define GREETING_BYTES 64
#define GREETING_VERSION 10   /* offsets */
#define GREETING_MECHANISM 12
#define MECHANISM_BYTES 20
#define COMMAND_MAX 4096 /* a hello's properties are a few dozen bytes */

enum { FRAME_MORE = 1, FRAME_LONG = 2, FRAME_COMMAND = 4 };

struct zmtp_frame {
	uint8_t flags;
	struct zmtp_bytes body;
	size_t n_bytes; /* with its head */
};

static const char *const role_names[] = {[ZMTP_PUSH] = "PUSH", [ZMTP_PULL] = "PULL"};
static const uint8_t mechanism_null[MECHANISM_BYTES] = "NULL";

void zmtp_init(struct zmtp *z, enum zmtp_role role, size_t message_max)
{
	*z = (struct zmtp){.role = role, .message_max = message_max};
}

/* READY: its name behind its length; then each property's name behind its length and its value behind 4 bytes of it. */
void zmtp_hello(enum zmtp_role role, uint8_t out[ZMTP_HELLO_BYTES])
{
	static const uint8_t ready[] = "\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04";
	uint8_t *p = out + GREETING_BYTES;

	memset(out, 0, GREETING_BYTES);
	out[0] = 0xff;
	out[9] = 0x7f;
	out[GREETING_VERSION] = 3;
	memcpy(out + GREETING_MECHANISM, mechanism_null, sizeof(mechanism_null));
	memcpy(p, ready, sizeof(ready) - 1);
	memcpy(p + sizeof(ready) - 1, role_names[role], 4);
	CHECK(GREETING_BYTES + sizeof(ready) - 1 + 4 == ZMTP_HELLO_BYTES);
}

size_t zmtp_head(uint8_t out[ZMTP_HEAD_BYTES], size_t len, bool more)
{
	uint8_t flags = more ? FRAME_MORE : 0;

	if (len <= UINT8_MAX) {
		out[0] = flags;
		out[1] = (uint8_t)len;
		return 2;
	}
	out[0] = flags | FRAME_LONG;
	for (int i = 0; i < 8; i++) out[1 + i] = (uint8_t)((uint64_t)len >> (8 * (7 - i)));
	return ZMTP_HEAD_BYTES;
}

/* ---- the hello ---- */

static int zmtp_read_greeting(struct zmtp *z, const uint8_t *data, size_t len, size_t *n, struct errbuf *err)
{
	*n = GREETING_BYTES;
	if (len > 0 && data[0] != 0xff) return err_set(err, ST_CORRUPT, "does not begin as ZeroMQ does");
	if (len < GREETING_BYTES) return ST_AGAIN;
	if (!(data[9] & 1) || data[GREETING_VERSION] < 3) return err_set(err, ST_CORRUPT, "speaks a ZMTP before 3.0");
	if (memcmp(data + GREETING_MECHANISM, mechanism_null, MECHANISM_BYTES) != 0)
		return err_set(err, ST_CORRUPT, "wants another security mechanism than NULL");
	z->greeted = true;
	return ST_OK;
}

/* One property: false when it is cut short. *p: behind it. */
static bool zmtp_read_property(const uint8_t **p, const uint8_t *end, struct zmtp_bytes *key, struct zmtp_bytes *value)
{
	size_t n_key = *(*p)++, n_value;
	const uint8_t *at = *p;

	if ((size_t)(end - at) < n_key + 4) return false;
	*key = (struct zmtp_bytes){at, n_key};
	at += n_key;
	n_value = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
	at += 4;
	if ((size_t)(end - at) < n_value) return false;
	*value = (struct zmtp_bytes){at, n_value};
	*p = at + n_value;
	return true;
}

static bool zmtp_is(struct zmtp_bytes b, const char *text)
{
	return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

/* PUSH talks to PULL and PULL to PUSH. Other properties are for others. */
static int zmtp_read_ready(struct zmtp *z, const struct zmtp_frame *f, struct errbuf *err)
{
	static const uint8_t name[] = "\x05READY";
	const char *want = role_names[z->role == ZMTP_PUSH ? ZMTP_PULL : ZMTP_PUSH];
	const uint8_t *p, *end = f->body.data + f->body.len;
	struct zmtp_bytes key, value;
	bool named = false;

	if (f->body.len < sizeof(name) - 1 || memcmp(f->body.data, name, sizeof(name) - 1) != 0)
		return err_set(err, ST_CORRUPT, "sent another command than READY first");
	p = f->body.data + sizeof(name) - 1;
	while (p < end) {
		if (!zmtp_read_property(&p, end, &key, &value)) return err_set(err, ST_CORRUPT, "sent a READY with a property that is cut short");
		if (!zmtp_is(key, "Socket-Type")) continue;
		if (!zmtp_is(value, want)) return err_set(err, ST_CORRUPT, "is no %s socket", want);
		named = true;
	}
	if (!named) return err_set(err, ST_CORRUPT, "sent a READY that does not say its socket's type");
	z->up = true;
	return ST_OK;
}

/* ---- frames ---- */

/* The frame at data; `limit`: what of the message's bytes is left. ST_AGAIN: n_bytes are needed. */
static int zmtp_read_frame(const uint8_t *data, size_t len, size_t limit, struct zmtp_frame *f, struct errbuf *err)
{
	size_t n_head;
	uint64_t n = 0;

	f->n_bytes = 2;
	if (len < f->n_bytes) return ST_AGAIN;
	f->flags = data[0];
	if (f->flags & ~(FRAME_MORE | FRAME_LONG | FRAME_COMMAND)) return err_set(err, ST_CORRUPT, "sent a frame with unknown flags 0x%02x", f->flags);
	n_head = f->flags & FRAME_LONG ? ZMTP_HEAD_BYTES : 2;
	f->n_bytes = n_head;
	if (len < n_head) return ST_AGAIN;
	for (size_t i = 1; i < n_head; i++) n = n << 8 | data[i];
	if (f->flags & FRAME_COMMAND) limit = COMMAND_MAX;
	if (n > limit || limit - n < n_head)
		return err_set(err, ST_LIMIT, "sent a frame of %llu bytes; %zu are allowed", (unsigned long long)n, limit);
	f->body = (struct zmtp_bytes){data + n_head, (size_t)n};
	f->n_bytes = n_head + f->body.len;
	return len < f->n_bytes ? ST_AGAIN : ST_OK;
}

int zmtp_read(struct zmtp *z, const uint8_t *data, size_t len, struct zmtp_message *m, size_t *n, struct errbuf *err)
{
	struct zmtp_frame f;
	int rc;

	m->n_parts = 0;
	if (!z->greeted) return zmtp_read_greeting(z, data, len, n, err);
	*n = 0;
	do {
		rc = zmtp_read_frame(data + *n, len - *n, z->message_max - *n, &f, err);
		*n += f.n_bytes;
		if (rc != ST_OK) return rc;
		if (f.flags & FRAME_COMMAND) {
			if (m->n_parts > 0 || f.flags & FRAME_MORE) return err_set(err, ST_CORRUPT, "sent a command within a message");
			return z->up ? ST_OK : zmtp_read_ready(z, &f, err); /* later ones (PING) ask for nothing that we offer */
		}
		if (!z->up) return err_set(err, ST_CORRUPT, "sent a message before READY");
		if (m->n_parts == ZMTP_PARTS_MAX) return err_set(err, ST_LIMIT, "sent a message of more than %d frames", ZMTP_PARTS_MAX);
		m->parts[m->n_parts++] = f.body;
	} while (f.flags & FRAME_MORE);
	return ST_OK;
}
