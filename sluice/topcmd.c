/* topcmd.c - see topcmd.h. Around topview.c: finds the mesh, reads its status page and /proc, draws, and watches the keyboard.
 *
 * Asks the mesh for nothing but its page, once; from then on it only reads memory. So it works while the mesh loads, and while any of
 * its processes is down, and costs the mesh nothing. */
#include "sluice/topcmd.h"

#include "common/child.h"
#include "common/clock.h"
#include "common/mem.h"
#include "sluice/cmdopts.h"
#include "sluice/operator.h"
#include "sluice/topview.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define TOP_FRAME_MAX (256 * KIB)

static const char help[] =
	"usage: sluice top [options]\n\n"
	"Shows a running mesh, once a second: its processes, requests, tokens, latencies, where they come from, limits and restarts. `q` or\n"
	"Ctrl-C leaves. When the output is no terminal, one frame is printed, as with --once.\n\n"
	"options:\n"
	"  --interval SECONDS         time between two frames, and of the rates in them [1]\n"
	"  --once                     print one frame and end\n" OPERATOR_FLAGS_HELP "\nexample:\n  sluice top --interval 5\n";

struct top {
	struct operator_where where;
	double interval_s;
	bool once;
	struct operator mesh;
	const struct page *page;
	struct termios tty; /* as it was */
	bool is_live;       /* the terminal is ours */
	struct strbuf text;
	struct top_sample *before, *now; /* owned */
};

static volatile sig_atomic_t wants_out;

static void on_signal(int sig)
{
	if (sig != SIGWINCH) wants_out = 1; /* a new size only ends the waiting */
}

/* ---- what the system tells ---- */

static struct top_usage usage_of(uint32_t pid)
{
	struct top_usage u = {0};
	unsigned long user, sys, pages;
	char path[64], stat[1024];
	const char *at;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	f = fopen(path, "r");
	if (!f) return u;
	n = fread(stat, 1, sizeof(stat) - 1, f);
	stat[n] = 0;
	fclose(f);
	at = strrchr(stat, ')'); /* the name may hold anything */
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys) != 2) return u;
	snprintf(path, sizeof(path), "/proc/%u/statm", pid);
	f = fopen(path, "r");
	if (!f) return u;
	if (fscanf(f, "%*u %lu", &pages) == 1)
		u = (struct top_usage){true, (user + sys) * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK)), pages * (uint64_t)sysconf(_SC_PAGESIZE)};
	fclose(f);
	return u;
}

static struct top_screen screen_of(const struct top *t)
{
	struct top_screen s = {.at = t->mesh.at, .model = t->mesh.model, .cols = 200};
	struct winsize w;

	if (!t->is_live) return s;
	s.has_colors = true;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0 || w.ws_row == 0) return (struct top_screen){s.at, s.model, 80, 23, true};
	s.cols = w.ws_col;
	s.rows = w.ws_row > 1 ? w.ws_row - 1u : 1; /* a line feed on the last one would scroll */
	return s;
}

/* ---- the terminal ---- */

static void put(const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, text, len);

		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) {
			wants_out = 1; /* nobody looks any more */
			return;
		}
		text += n;
		len -= (size_t)n;
	}
}

static void put_text(const char *text)
{
	put(text, strlen(text));
}

static void tty_take(struct top *t)
{
	struct termios raw;

	if (t->once || !isatty(STDOUT_FILENO)) return;
	t->is_live = true;
	if (tcgetattr(STDIN_FILENO, &t->tty) == 0) {
		raw = t->tty;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VSUSP] = _POSIX_VDISABLE; /* stopped, it would leave the terminal like this */
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	put_text("\033[?1049h\033[?25l"); /* a screen of our own, no cursor */
}

static void tty_give(struct top *t)
{
	if (!t->is_live) return;
	t->is_live = false;
	put_text("\033[?25h\033[?1049l");
	tcsetattr(STDIN_FILENO, TCSANOW, &t->tty);
}

/* Over what is there, so that nothing flickers: each line clears what is left of the old one. */
static void draw(struct top *t, const struct top_sample *before)
{
	struct top_screen screen = screen_of(t);
	struct strbuf out;

	strbuf_reset(&t->text);
	topview_frame(before, t->now, &screen, &t->text);
	if (!t->is_live) {
		put(t->text.data, t->text.len);
		return;
	}
	strbuf_init(&out, 2 * TOP_FRAME_MAX);
	strbuf_puts(&out, "\033[H");
	for (const char *at = t->text.data, *end; (end = strchr(at, '\n')); at = end + 1) {
		strbuf_append(&out, at, (size_t)(end - at));
		strbuf_puts(&out, "\033[K\n");
	}
	strbuf_puts(&out, "\033[J");
	put(out.data, out.len);
	strbuf_release(&out);
}

/* ---- the loop ---- */

static bool mesh_is_there(const struct top *t)
{
	return kill((pid_t)t->mesh.pid, 0) == 0 || errno == EPERM;
}

/* Up to the next sample; q ends it, and a new size of the terminal draws again. */
static void wait_for_next(struct top *t, uint64_t until)
{
	struct pollfd p = {.fd = t->is_live && isatty(STDIN_FILENO) ? STDIN_FILENO : -1, .events = POLLIN};
	uint64_t now;
	char key;

	while (!wants_out && (now = clock_now_ns()) < until) {
		int rc = poll(&p, 1, (int)min_u64(div_up(until - now, NS_PER_MS), 60000));

		if (rc < 0 && errno == EINTR && !wants_out && t->is_live) draw(t, t->before->at_ns ? t->before : NULL);
		if (rc <= 0) continue;
		if (read(STDIN_FILENO, &key, 1) != 1) p.fd = -1;
		else if (key == 'q' || key == 'Q') wants_out = 1;
	}
}

static void sample(struct top *t)
{
	struct top_sample *old = t->before;

	t->before = t->now;
	t->now = old;
	topview_take(t->now, t->page, clock_now_ns(), usage_of);
}

static bool top_run(struct top *t)
{
	uint64_t step = (uint64_t)(t->interval_s * 1e9), next;

	sample(t);
	next = t->now->at_ns;
	if (t->is_live) draw(t, NULL);
	while (!wants_out) {
		next += step;
		wait_for_next(t, next);
		if (wants_out) break;
		if (!mesh_is_there(t)) return false;
		sample(t);
		draw(t, t->before);
		if (!t->is_live) break;
	}
	return true;
}

static int top_parse(struct top *t, int argc, char **argv, bool *done)
{
	struct errbuf err = {{0}};

	*done = true;
	for (int i = 1; i < argc; i++) {
		const char *value = NULL;
		char *end;
		int rc;

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			printf("%s", help);
			return EXIT_OK;
		}
		if (strcmp(argv[i], "--once") == 0) {
			t->once = true;
			continue;
		}
		if (strncmp(argv[i], "--interval=", 11) == 0) value = argv[i] + 11;
		else if (strcmp(argv[i], "--interval") == 0 && i + 1 < argc) value = argv[++i];
		if (value) {
			t->interval_s = strtod(value, &end);
			if (end != value && !*end && t->interval_s >= 0.1 && t->interval_s <= 3600) continue;
			return cmdopts_fail("top", EXIT_USAGE, "--interval must be a number of seconds from 0.1 to 3600, but is %s", value);
		}
		rc = operator_flag(&t->where, argc, argv, &i, &err);
		if (rc == ST_INVALID) return cmdopts_fail("top", EXIT_USAGE, "%s", err.text);
		if (rc != ST_OK) return cmdopts_fail("top", EXIT_USAGE, "unexpected %s; see sluice top --help", argv[i]);
	}
	*done = false;
	return EXIT_OK;
}

static void top_signals(void)
{
	static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
	struct sigaction a = {.sa_handler = on_signal};

	for (size_t i = 0; i < ARRAY_LEN(all); i++) sigaction(all[i], &a, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int topcmd_main(int argc, char **argv)
{
	struct top t = {.interval_s = 1};
	struct errbuf err = {{0}};
	bool done, is_there;
	int rc = top_parse(&t, argc, argv, &done);

	if (done) return rc;
	if (operator_open(&t.mesh, &t.where, &err) != ST_OK) return cmdopts_fail("top", EXIT_FAILED, "%s", err.text);
	if (operator_page(&t.page, &t.mesh, &err) != ST_OK) {
		operator_close(&t.mesh);
		return cmdopts_fail("top", EXIT_FAILED, "%s", err.text);
	}
	operator_close(&t.mesh); /* its place is for others */
	strbuf_init(&t.text, TOP_FRAME_MAX);
	t.before = mem_new(struct top_sample);
	t.now = mem_new(struct top_sample);
	top_signals();
	tty_take(&t);
	is_there = top_run(&t);
	tty_give(&t);
	if (!is_there) printf("The mesh of process %u has ended.\n", t.mesh.pid);
	operator_page_close(t.page);
	strbuf_release(&t.text);
	free(t.before);
	free(t.now);
	return EXIT_OK;
}
