/* servecheck.c - see servecheck.h. */
#include "sluice/servecheck.h"

#include "common/child.h"
#include "common/log.h"
#include "model/preflight.h"
#include "sluice/hub.h"
#include "sluice/notify.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A child is given descriptor numbers up to CHILD_FD_REPLY_EVENT + LIMIT_WORKERS; the rest is for sockets. */
#define DESCRIPTORS_MIN 512
#define HANG_TIMEOUT_MIN_NS (NS_PER_S / 2) /* heartbeats come eight times in it, the supervisor's look five times */

void servecheck_help(void)
{
	printf("usage: sluice serve MODEL [options]\n"
	       "\n"
	       "Serves a model over an OpenAI-compatible HTTP API: K frontend processes share one port and feed one executor,\n"
	       "which drives the worker. MODEL is a GGUF file (of a split one the first part), a folder with config.json and\n"
	       "safetensors, or a hub's ORG/NAME, which is fetched unless the cache has it (see `sluice pull --help`).\n"
	       "Every option can also be set by the [VARIABLE] named with it; flags win.\n"
	       "\n"
	       "examples:\n"
	       "  sluice serve model.gguf\n"
	       "  sluice serve Qwen/Qwen3-0.6B\n"
	       "  sluice serve model.gguf --port 8080 --num-frontends auto\n"
	       "  SLUICE_NUM_FRONTENDS=4 sluice serve model.gguf --max-model-len 4096 --served-model-name small\n"
	       "\n"
	       "exit codes: 0 stopped by a signal, 1 failure (the last line says why), 2 bad options\n");
	config_help(stdout);
}

int servecheck_config(struct config *c, struct errbuf *err)
{
	json_t *overrides;
	int rc;

	if (!c->model[0]) return err_set(err, ST_INVALID, "no model given: sluice serve MODEL, or SLUICE_MODEL");
	if (c->device == DEVICE_CUDA)
		return err_set(err, ST_UNSUPPORTED, "--device cuda: this build has no CUDA worker; use --device cpu");
	if (c->device == DEVICE_AUTO) c->device = DEVICE_CPU;
	rc = preflight_overrides(&overrides, c->hf_overrides, err);
	json_decref(overrides);
	if (rc != ST_OK) return rc;
	if (c->hang_timeout && c->hang_timeout < HANG_TIMEOUT_MIN_NS)
		return err_set(err, ST_INVALID, "--hang-timeout: expected 0, or 0.5 and more");
	if (c->ssl_keyfile[0] && !c->ssl_certfile[0]) return err_set(err, ST_INVALID, "--ssl-keyfile needs --ssl-certfile");
	if (c->root_path[0] && c->root_path[0] != '/') return err_set(err, ST_INVALID, "--root-path %s: expected a path that begins with /", c->root_path);
	return ST_OK;
}

/* Descriptors: as many as the hard limit allows; children inherit it. */
int servecheck_descriptors(struct errbuf *err)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) != 0) return err_set(err, ST_IO, "no limit of open files: %s", strerror(errno));
	lim.rlim_cur = lim.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &lim) != 0) getrlimit(RLIMIT_NOFILE, &lim);
	if (lim.rlim_cur >= DESCRIPTORS_MIN) return ST_OK;
	return err_set(err, ST_LIMIT, "the limit of open files is %llu, but at least %d are needed; raise it (ulimit -n)",
		       (unsigned long long)lim.rlim_cur, DESCRIPTORS_MIN);
}

static void say_line(const char *line)
{
	log_info("%s", line);
}

/* systemd waits longer for the start. */
static void on_fetching(const char *state)
{
	char text[300];

	snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=fetching: %s", state);
	notify_send(text);
}

/* What was fetched so far stays there. For PID 1, which has no defaults. */
static void on_fetching_signal(int sig)
{
	static const char text[] = "\nstopped while fetching the model\n";

	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(EXIT_OK);
}

/* A model by its name on a hub is fetched first, unless the cache has it, and served under that name. */
static int find_model(struct config *c, struct errbuf *err)
{
	struct hub_opts o = {.may_fetch = true, .progress = c->progress, .say = say_line, .beat = on_fetching};
	struct hub_found found;
	int rc;

	signal(SIGINT, on_fetching_signal);
	signal(SIGTERM, on_fetching_signal);
	rc = hub_resolve(&found, c->model, &o, err);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	if (rc != ST_OK) return rc;
	free(c->model);
	c->model = found.path;
	if (found.repo) log_info("%s is %s", found.repo, found.path);
	if (!found.repo || c->served_model_name[0]) {
		free(found.repo);
		return ST_OK;
	}
	free(c->served_model_name);
	c->served_model_name = found.repo;
	return ST_OK;
}

static int preflight(const struct config *c, uint64_t *ident, struct errbuf *err)
{
	struct spec_opts opts = {.model_len_max = c->max_model_len == CONFIG_LEN_AUTO ? 0 : c->max_model_len};
	json_t *overrides;
	int rc = preflight_overrides(&overrides, c->hf_overrides, err);

	opts.overrides = overrides;
	if (rc == ST_OK) rc = preflight_check(c->model, &opts, ident, err);
	json_decref(overrides);
	return rc;
}

int servecheck_model(struct config *c, uint64_t *ident, struct errbuf *err)
{
	int rc = find_model(c, err);

	return rc == ST_OK ? preflight(c, ident, err) : rc;
}
