/* logline.c - see logline.h. Uses no memory but the caller's, because what is logged may be that there is none. */
#include "common/logline.h"

#include "common/utf8.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOGLINE_TAIL 4 /* a quote, `}`, a line feed, and the terminator of snprintf */

static size_t room(const struct logline *l)
{
	return l->len + LOGLINE_TAIL < l->cap ? l->cap - LOGLINE_TAIL - l->len : 0;
}

/* All or nothing. */
static bool put(struct logline *l, const char *s, size_t n)
{
	if (n > room(l)) return false;
	memcpy(l->data + l->len, s, n);
	l->len += n;
	return true;
}

/* What a terminal obeys or an eye is fooled by: C0, DEL, C1, line separators, overrides of direction. */
static bool is_control(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 || (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
}

/* One character of text as it is shown, up to 6 bytes; *n: its own bytes. */
static size_t escape(const char *s, size_t len, char out[8], size_t *n)
{
	bool cut;
	int k = utf8_next(s, len, &cut);
	uint32_t cp;

	*n = (size_t)(k > 0 ? k : -k);
	if (k <= 0) {
		memcpy(out, UTF8_REPLACEMENT, 3);
		return 3;
	}
	utf8_decode(s, &cp);
	out[0] = '\\';
	out[1] = cp == '\n' ? 'n' : cp == '\r' ? 'r' : cp == '\t' ? 't' : (char)cp;
	if (cp == '"' || cp == '\\' || cp == '\n' || cp == '\r' || cp == '\t') return 2;
	if (is_control(cp)) return (size_t)snprintf(out, 8, "\\u%04x", cp);
	memcpy(out, s, *n);
	return *n;
}

static void put_escaped(struct logline *l, const char *s, size_t len)
{
	char out[8];
	size_t i, n;

	for (i = 0; i < len; i += n)
		if (!put(l, out, escape(s + i, len - i, out, &n))) return;
}

/* A message of the text format is for a person: it stays as it is. */
static void begin_text(struct logline *l, enum log_level level, const char *msg, size_t msg_len)
{
	/* A terminal may show the supervisor's progress bar, whoever logs: a line takes its place. */
	static const char clear[] = "\r\033[K";
	static const char *const levels[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
	time_t now = time(NULL);
	struct tm tm;

	localtime_r(&now, &tm);
	l->len = (size_t)snprintf(l->data, l->cap, "%s%s ", isatty(STDERR_FILENO) ? clear : "", levels[level]);
	l->len += strftime(l->data + l->len, l->cap - l->len, "%m-%d %H:%M:%S ", &tm);
	l->len += (size_t)snprintf(l->data + l->len, l->cap - l->len, "[%s] ", log_name());
	put(l, msg, min_size(msg_len, room(l)));
}

static void begin_json(struct logline *l, enum log_level level, const char *msg, size_t msg_len)
{
	static const char *const levels[] = {"debug", "info", "warning", "error"};
	struct timespec now;
	char stamp[32];
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	l->len = (size_t)snprintf(l->data, l->cap, "{\"ts\":\"%s.%03dZ\",\"level\":\"%s\",\"process\":\"%s\",\"pid\":%d,\"msg\":\"", stamp,
				  (int)(now.tv_nsec / 1000000), levels[level], log_name(), (int)getpid());
	put_escaped(l, msg, msg_len);
	l->data[l->len++] = '"'; /* there is room: LOGLINE_TAIL */
}

void logline_begin(struct logline *l, char *data, size_t cap, enum log_level level, const char *msg, size_t msg_len)
{
	CHECK(cap >= 512);
	*l = (struct logline){.data = data, .cap = cap, .is_json = log_is_json()};
	if (l->is_json) begin_json(l, level, msg, msg_len);
	else begin_text(l, level, msg, msg_len);
}

/* False: no room; nothing was written. */
static bool put_key(struct logline *l, const char *key, size_t value_min)
{
	size_t n = strlen(key);

	if (n + 4 + value_min > room(l)) return false;
	put(l, l->is_json ? ",\"" : " ", l->is_json ? 2 : 1);
	put(l, key, n);
	put(l, l->is_json ? "\":" : "=", l->is_json ? 2 : 1);
	return true;
}

static bool is_plain(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 0x7f || s[i] == '"' || s[i] == '=' || s[i] == '\\') return false;
	return len > 0;
}

void logline_text(struct logline *l, const char *key, const char *s, size_t len)
{
	if (!put_key(l, key, 8)) return;
	if (!l->is_json && is_plain(s, len) && put(l, s, len)) return;
	put(l, "\"", 1);
	put_escaped(l, s, len);
	l->data[l->len++] = '"';
}

void logline_u64(struct logline *l, const char *key, uint64_t v)
{
	char buf[24];
	int n = snprintf(buf, sizeof(buf), "%llu", (unsigned long long)v);

	if (put_key(l, key, (size_t)n)) put(l, buf, (size_t)n);
}

void logline_ms(struct logline *l, const char *key, uint64_t ns)
{
	char buf[32];
	int n = snprintf(buf, sizeof(buf), "%llu.%03u", (unsigned long long)(ns / 1000000), (unsigned)(ns / 1000 % 1000));

	if (put_key(l, key, (size_t)n)) put(l, buf, (size_t)n);
}

size_t logline_end(struct logline *l)
{
	if (l->is_json) l->data[l->len++] = '}';
	l->data[l->len++] = '\n';
	return l->len;
}
