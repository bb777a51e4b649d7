/* inspect_memory.c - see inspect_memory.h.
 *
 * The worker's answer is lines of a word and a number (worker/planproc.c), or one line "error TEXT". */
#include "sluice/inspect_memory.h"

#include "common/mem.h"
#include "common/quote.h"
#include "common/strbuf.h"
#include "sluice/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY_ANSWER_MAX (8 * KIB)
#define MEMORY_ARGS_MAX   256 /* above the number of options */

struct memory_field {
	const char *name;
	size_t offset;
};

struct memory_answer {
	uint64_t available, weights, activations, workspace, state, tokens_ahead, model_len_max, context_len, seqs_max,
		auto_max;
	uint64_t kv_type, shape_len, block_bytes;
};

#define FIELD(name)                                         \
	{                                                   \
#name, offsetof(struct memory_answer, name) \
	}
static const struct memory_field memory_fields[] = {
	FIELD(available),    FIELD(weights),       FIELD(activations), FIELD(workspace), FIELD(state),
	FIELD(tokens_ahead), FIELD(model_len_max), FIELD(context_len), FIELD(seqs_max),  FIELD(auto_max),
	FIELD(kv_type),      FIELD(shape_len),     FIELD(block_bytes),
};
#undef FIELD

static bool memory_take(struct memory_answer *a, const char *name, uint64_t value)
{
	for (size_t i = 0; i < ARRAY_LEN(memory_fields); i++) {
		if (strcmp(memory_fields[i].name, name) != 0) continue;
		*(uint64_t *)(void *)((char *)a + memory_fields[i].offset) = value;
		return true;
	}
	return false;
}

static int memory_other_version(struct errbuf *err)
{
	return err_set(err, ST_CORRUPT, "the worker's answer could not be read; are all programs of one version?");
}

static int memory_parse(struct memory_answer *a, char *text, struct errbuf *err)
{
	size_t n = 0;
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		unsigned long long value;
		char name[32];

		if (strncmp(line, "error ", 6) == 0) return err_set(err, ST_INVALID, "%s", line + 6);
		if (sscanf(line, "%31s %llu", name, &value) != 2 || !memory_take(a, name, value)) break;
		n++;
	}
	if (n == ARRAY_LEN(memory_fields)) return ST_OK;
	return memory_other_version(err);
}

/* Reads until the end; *status is the worker's. */
static int memory_read(int fd, pid_t pid, char *text, int *status, struct errbuf *err)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, text + len, MEMORY_ANSWER_MAX - 1 - len)) > 0 || (n < 0 && errno == EINTR))
		len += n > 0 ? (size_t)n : 0;
	close(fd);
	text[len] = 0;
	while (waitpid(pid, status, 0) < 0)
		if (errno != EINTR) return err_set(err, ST_IO, "waiting for the worker: %s", strerror(errno));
	return ST_OK;
}

static int memory_spawn(const char *program, char *const *argv, char *text, struct errbuf *err)
{
	int fd, status = 0, rc;
	pid_t pid;

	rc = program_start(program, argv, &pid, &fd, err);
	if (rc != ST_OK) return rc;
	rc = memory_read(fd, pid, text, &status, err);
	if (rc == ST_OK && WIFSIGNALED(status))
		return err_set(err, ST_IO, "the worker that was asked for its plan was ended by signal %d (%s)",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
	return rc;
}

/* "--flag=value" of every option; the model by its path. */
static size_t memory_args(const struct config *c, const char *path, char **argv)
{
	struct strbuf packed;
	size_t n = 0;

	strbuf_init(&packed, MIB);
	config_pack(c, &packed);
	for (const char *p = packed.data; p < packed.data + packed.len; p += strlen(p) + 1) {
		char *arg;

		CHECK(n < MEMORY_ARGS_MAX);
		if (strncmp(p, "model=", 6) == 0 || strncmp(p, "api-key", 7) == 0) continue;
		arg = mem_array(char, strlen(p) + 3);
		memcpy(arg, "--", 2);
		memcpy(arg + 2, p, strlen(p));
		argv[n++] = arg;
	}
	strbuf_release(&packed);
	argv[n] = mem_array(char, strlen(path) + sizeof("--model="));
	memcpy(argv[n], "--model=", 8);
	memcpy(argv[n] + 8, path, strlen(path));
	return n + 1;
}

static int memory_ask(const struct config *c, const char *path, uint32_t tp, char *text, struct errbuf *err)
{
	char program[768], ranks[16], plan[] = "--plan";
	char *argv[MEMORY_ARGS_MAX + 5] = {program, plan, ranks};
	size_t n;
	int rc = program_find(program, sizeof(program), program_worker(c->device), err);

	if (rc != ST_OK) return rc;
	snprintf(ranks, sizeof(ranks), "%u", tp);
	n = memory_args(c, path, argv + 3);
	rc = memory_spawn(program, argv, text, err);
	for (size_t i = 0; i < n; i++) free(argv[3 + i]);
	return rc;
}

int inspect_memory_plan(struct inspect_memory *out, const struct config *c, const char *path, const struct spec *spec,
			uint32_t tp, struct errbuf *err)
{
	struct memory_answer a = {0};
	char text[MEMORY_ANSWER_MAX];
	struct kvplan_in in;
	int rc = memory_ask(c, path, tp, text, err);

	*out = (struct inspect_memory){.rc = ST_OK};
	if (rc == ST_OK) rc = memory_parse(&a, text, err);
	if (rc == ST_OK) rc = kvplan_shape(&out->shape, spec, (enum ggtype)a.kv_type, tp, (uint32_t)a.shape_len, err);
	if (rc != ST_OK) return rc;
	if (out->shape.block_bytes != a.block_bytes) return memory_other_version(err);
	in = (struct kvplan_in){.available = a.available,
				.weights = a.weights,
				.activations = a.activations,
				.workspace = a.workspace,
				.state = a.state,
				.shape = &out->shape,
				.tokens_ahead = a.tokens_ahead,
				.model_len_max = (uint32_t)a.model_len_max,
				.context_len = (uint32_t)a.context_len,
				.seqs_max = (uint32_t)a.seqs_max,
				.blocks_override = c->num_gpu_blocks_override,
				.kv_bytes = c->kv_cache_memory_bytes,
				.utilization = c->gpu_memory_utilization,
				.auto_max = a.auto_max};
	out->rc = kvplan_make(&out->plan, &in, &out->why);
	return ST_OK;
}
