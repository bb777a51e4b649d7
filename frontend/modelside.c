/* modelside.c - see modelside.h. */
#include "frontend/modelside.h"

#include "common/log.h"
#include "frontend/chat.h"
#include "frontend/chatfile.h"
#include "frontend/tokenizer.h"
#include "frontend/tokfile.h"
#include "model/ckpt.h"
#include "model/ckptident.h"
#include "model/jsonplace.h"

#include <stdio.h>

/* Tokens as workers count them: of a GGUF file its vocabulary's, or the rows of its embedding; of a folder the rows. 0: not said. */
static uint64_t modelside_n_tokens(const struct ckpt *c)
{
	const struct gguf_kv *tokens = ckpt_gguf(c) ? gguf_find(ckpt_gguf(c), "tokenizer.ggml.tokens") : NULL;
	const struct ckpt_tensor *embed = ckpt_find(c, "token_embd.weight");
	const json_t *config = ckpt_config(c), *n = json_object_get(config, "vocab_size");

	if (!n) n = json_object_get(json_object_get(config, "text_config"), "vocab_size");
	if (config) return json_integer_value(n) > 0 && json_integer_value(n) < UINT32_MAX ? (uint64_t)json_integer_value(n) : 0;
	return tokens ? tokens->n : embed ? embed->dims[0] : 0;
}

/* Where the model ends its outputs, for a tokenizer that did not come with it. */
static int modelside_add_stops(struct modelside *m, const struct ckpt *c, struct errbuf *err)
{
	static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
	struct tokfile_stops stops = {0};
	uint64_t id;
	int rc = ST_OK;

	if (!ckpt_gguf(c)) rc = tokfile_stops_read(&stops, ckpt_path(c), err);
	for (size_t i = 0; i < ARRAY_LEN(keys) && ckpt_gguf(c); i++)
		if (gguf_get_u64_or(ckpt_gguf(c), keys[i], 0, UINT32_MAX, UINT32_MAX, &id, NULL) == ST_OK && id < UINT32_MAX)
			stops.ids[stops.n++] = (uint32_t)id;
	if (rc == ST_OK) tokenizer_add_stops(m->tokenizer, stops.ids, stops.n);
	return rc;
}

/* The model's own vocabulary, or the one that --tokenizer names. */
static int modelside_tokenizer(struct modelside *m, const struct config *config, const struct ckpt *c, struct errbuf *err)
{
	const char *path = config->tokenizer;
	uint64_t n = modelside_n_tokens(c);
	int rc;

	if (path[0]) {
		rc = tokenizer_from_json(&m->tokenizer, path, err);
		if (rc == ST_OK && n) rc = tokenizer_fit(m->tokenizer, n, ckpt_shown_path(c), err);
		return rc == ST_OK ? modelside_add_stops(m, c, err) : err_prefix(err, rc, "--tokenizer");
	}
	if (ckpt_gguf(c)) return tokenizer_from_gguf(&m->tokenizer, ckpt_gguf(c), err);
	rc = tokenizer_from_json(&m->tokenizer, ckpt_path(c), err);
	return rc == ST_OK && n ? tokenizer_fit_own(m->tokenizer, n, ckpt_shown_path(c), err) : rc;
}

static int modelside_chat(struct modelside *m, const struct config *config, const struct ckpt *c, struct errbuf *err)
{
	const char *own = config->chat_template;
	int rc;

	if (tokenizer_chat_template(m->tokenizer) || !ckpt_gguf(c)) rc = chat_from_tokenizer(&m->chat, m->tokenizer, err);
	else rc = chat_from_gguf(&m->chat, ckpt_gguf(c), m->tokenizer, err);
	return rc == ST_OK && own[0] ? chatfile_apply(&m->chat, own, err) : rc;
}

/* What a folder says of sampling. */
static int modelside_defaults(struct modelside *m, const struct boot *boot, const struct ckpt *c, struct errbuf *err)
{
	char says[200];
	int rc;

	m->defaults = GENDEFAULTS_NEUTRAL;
	if (ckpt_gguf(c) || boot->config.generation_config == GENERATION_VLLM) return ST_OK;
	rc = gendefaults_read(&m->defaults, ckpt_path(c), says, err);
	if (rc == ST_OK && says[0] && boot->index == 0)
		log_info("generation_config.json: requests that do not say it get %s (--generation-config vllm: they do not)", says);
	return rc;
}

/* GGUF: <architecture>.pooling_type, 1 mean, 3 last. */
static bool modelside_gguf_pools_last(const struct gguf *g)
{
	struct gguf_str arch;
	uint64_t type = 0;
	char key[128];

	if (gguf_get_str(g, "general.architecture", &arch, NULL) != ST_OK || arch.len > 64) return false;
	snprintf(key, sizeof(key), "%.*s.pooling_type", (int)arch.len, arch.s);
	return gguf_get_u64_or(g, key, 0, UINT32_MAX, 0, &type, NULL) == ST_OK && type == 3;
}

/* A folder: what sentence-transformers says, if the model is one for embeddings. */
static bool modelside_folder_pools_last(const char *folder)
{
	char path[4400];
	json_t *root = NULL;
	bool last;

	snprintf(path, sizeof(path), "%s/1_Pooling/config.json", folder);
	if (jsonplace_load(&root, path, "1_Pooling/config.json", NULL) != ST_OK) return false;
	last = json_is_true(json_object_get(root, "pooling_mode_lasttoken"));
	json_decref(root);
	return last;
}

/* What the model says of pooling, unless the user knows better. */
static uint32_t modelside_pooling(const struct config *c, const struct ckpt *m)
{
	if (c->pooling_type) return c->pooling_type == 1 ? REQUEST_POOL_MEAN : REQUEST_POOL_LAST;
	return (ckpt_gguf(m) ? modelside_gguf_pools_last(ckpt_gguf(m)) : modelside_folder_pools_last(ckpt_path(m))) ? REQUEST_POOL_LAST : REQUEST_POOL_MEAN;
}

int modelside_read(struct modelside *m, const struct boot *boot, struct errbuf *err)
{
	const struct config *config = &boot->config;
	struct ckpt *c = NULL;
	int rc;

	rc = ckpt_open(&c, config->model, err);
	if (rc == ST_OK) rc = ckptident_check(c, atomic_load(&boot->page->model_ident), err);
	if (rc == ST_OK) rc = modelside_tokenizer(m, config, c, err);
	if (rc == ST_OK) rc = modelside_chat(m, config, c, err);
	if (rc == ST_OK) rc = modelside_defaults(m, boot, c, err);
	if (rc == ST_OK) m->pooling = modelside_pooling(config, c);
	if (rc == ST_OK && !chat_has_template(m->chat)) log_warning("the model has no chat template: /v1/chat/completions will be refused");
	ckpt_close(c);
	return rc;
}

void modelside_release(struct modelside *m)
{
	chat_free(m->chat);
	tokenizer_free(m->tokenizer);
}
