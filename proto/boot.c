/* boot.c - see boot.h. */
#include "proto/boot.h"

#include "common/log.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void boot_fit(char out[BOOT_FIT_MAX])
{
	snprintf(out, BOOT_FIT_MAX, "protocol %d, status page %d of %zu bytes", PROTO_VERSION, PAGE_LAYOUT, sizeof(struct page));
}

bool boot_was_asked(int argc, char **argv)
{
	char fit[BOOT_FIT_MAX];

	if (argc != 2 || strcmp(argv[1], BOOT_FIT_FLAG) != 0) return false;
	boot_fit(fit);
	puts(fit);
	return true;
}

static int boot_take(struct boot *b, const struct msg_boot *m, struct errbuf *err)
{
	int rc;

	if (m->version != PROTO_VERSION)
		return err_set(err, ST_UNSUPPORTED, "the supervisor speaks protocol %u, this program %u: installed from two versions?",
			       m->version, PROTO_VERSION);
	if (m->key.n != sizeof(b->key) || m->ipc_dir.n >= sizeof(b->ipc_dir))
		return err_set(err, ST_CORRUPT, "boot message: bad key or folder");
	memcpy(b->key, m->key.data, sizeof(b->key));
	memcpy(b->ipc_dir, m->ipc_dir.data, m->ipc_dir.n);
	b->ipc_dir[m->ipc_dir.n] = 0;
	b->index = m->index;
	b->incarnation = m->incarnation;
	b->epoch = m->epoch;
	if (apikeys_set(&b->keys, m->api_keys.data, m->api_keys.n) != ST_OK) return err_set(err, ST_CORRUPT, "boot message: bad API keys");
	rc = config_unpack(&b->config, m->config.data, m->config.n, err);
	return rc;
}

static int boot_map_page(struct boot *b, struct errbuf *err)
{
	size_t bytes;

	b->page = child_map(CHILD_FD_PAGE, &bytes, err);
	if (!b->page) return ST_IO;
	return page_check(b->page, bytes, err);
}

int boot_receive(struct boot *b, const char *kind, struct errbuf *err)
{
	static uint8_t packet[BOOT_PACKET_MAX];
	enum log_level level = LOG_INFO;
	char name[32];
	struct stat st;
	struct msg m;
	size_t len;
	int rc;

	memset(b, 0, sizeof(*b));
	config_init(&b->config);
	if (fstat(CHILD_FD_CONTROL, &st) != 0 || !S_ISSOCK(st.st_mode))
		return err_set(err, ST_INVALID, "this program is started by `sluice serve`, not by hand");
	/* A terminal or a service manager signals the whole group: the supervisor decides what that means. libuv has undone
	 * what was ignored (nohup). */
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	child_die_with_parent();
	rc = child_receive(CHILD_FD_CONTROL, packet, sizeof(packet), &len, 10000);
	if (rc != ST_OK) return err_set(err, rc, "no boot message from the supervisor: %s", status_text(rc));
	if (msg_unpack(&m, packet, len) != ST_OK || m.type != MSG_boot)
		return err_set(err, ST_CORRUPT, "the first message of the supervisor is no boot message");
	rc = boot_take(b, &m.boot, err);
	if (rc != ST_OK) return rc;
	if (strcmp(kind, "executor") == 0) snprintf(name, sizeof(name), "%s", kind);
	else snprintf(name, sizeof(name), "%s %u", kind, b->index);
	level = (enum log_level)b->config.log_level; /* same order in config.def and log.h */
	log_init(name, level);
	log_use_json(b->config.log_format == LOG_FORMAT_JSON);
	return boot_map_page(b, err);
}

void boot_release(struct boot *b)
{
	config_release(&b->config);
	apikeys_release(&b->keys);
}

static void boot_send(const struct msg *m)
{
	struct strbuf out;

	strbuf_init(&out, BOOT_PACKET_MAX);
	/* If the supervisor cannot take it, it is gone or about to be: end of file will say so. */
	if (msg_pack(m, &out) == ST_OK && child_send(CHILD_FD_CONTROL, out.data, out.len) != ST_OK)
		log_debug("the supervisor did not take a %s message", msg_type_name(m->type));
	strbuf_release(&out);
}

void boot_send_ready(void)
{
	boot_send(&(struct msg){.type = MSG_ready});
}

void boot_send_failed(int exit_code, const char *text)
{
	size_t len = min_size(strlen(text), LIMIT_TEXT);

	boot_send(&(struct msg){.type = MSG_failed, .failed = {(uint32_t)exit_code, view_of(text, len)}});
}

void boot_requests_path(const char *ipc_dir, uint64_t epoch, char *out, size_t cap)
{
	snprintf(out, cap, "%s/requests-%llu", ipc_dir, (unsigned long long)epoch);
}

void boot_frontend_path(const char *ipc_dir, uint32_t frontend, uint32_t incarnation, char *out, size_t cap)
{
	snprintf(out, cap, "%s/frontend-%u-%u", ipc_dir, frontend, incarnation);
}

void boot_inbox_path(const char *ipc_dir, uint32_t frontend, char *out, size_t cap)
{
	snprintf(out, cap, "%s/inbox-%u", ipc_dir, frontend);
}

int boot_poll_fd(struct msg *m, void *buf, size_t cap, int *passed)
{
	size_t len;
	int rc;

	for (;;) {
		rc = child_receive_fd(CHILD_FD_CONTROL, buf, cap, &len, passed);
		if (rc != ST_OK && rc != ST_LIMIT) return rc == ST_AGAIN ? ST_AGAIN : ST_CLOSED;
		if (rc == ST_OK && msg_unpack(m, buf, len) == ST_OK) return ST_OK;
		if (*passed >= 0) close(*passed);
		log_warning("a control packet of the supervisor could not be read and was dropped");
	}
}

int boot_poll(struct msg *m, void *buf, size_t cap)
{
	int passed, rc = boot_poll_fd(m, buf, cap, &passed);

	if (rc == ST_OK && passed >= 0) close(passed);
	return rc;
}
