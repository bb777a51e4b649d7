/* ckpt_folder.c - a folder as a checkpoint: config.json and safetensors, or one GGUF.
 *
 * model.safetensors wins, as in transformers, whatever lies beside it (adapters, consolidated.safetensors, an index
 * that nobody needs). Else model.safetensors.index.json says which tensor is in which file (ckpt_shards.c). Without
 * both, one file *.safetensors is the model, and several are refused: guessing which belong together could mix two
 * models. Files in Mistral's own layout and adapters are not counted. A folder without safetensors may be that of one
 * GGUF. */
#include "common/jsonfile.h"
#include "common/mem.h"
#include "common/quote.h"
#include "model/ckpt_impl.h"

#include <string.h>

#define CONFIG "config.json"
#define SINGLE "model.safetensors"

static const struct jsonfile_bounds config_bounds = {.bytes_max = 16 * MIB, .depth_max = 64, .values_max = 1u << 20};

/* ---- files ---- */

int ckpt_read_json(json_t **out, const struct ckpt_dir *dir, const char *name, const struct jsonfile_bounds *b,
		   struct errbuf *err)
{
	char *text = NULL;
	size_t len;
	int rc = ckpt_dir_text(dir, name, b->bytes_max, &text, &len, err);

	*out = NULL;
	if (rc == ST_OK) rc = jsonfile_parse(out, text, len, b, err);
	free(text);
	return rc == ST_OK ? ST_OK : ckpt_dir_prefix(dir, name, rc, err);
}

/* Whether the index says that the tensor is in this file. Shards that are shared between checkpoints hold others, which
 * count as not there: a stale copy must not take the place of the tensor that is meant. */
static bool is_placed_here(const json_t *weight_map, struct gguf_str tensor, const char *file)
{
	char *key = mem_strndup(tensor.s, tensor.len);
	const char *where = strlen(key) == tensor.len ? json_string_value(json_object_get(weight_map, key)) : NULL;
	bool here = where && strcmp(where, file) == 0;

	free(key);
	return here;
}

int ckpt_read_safetensors(struct ckpt *c, const struct ckpt_dir *dir, const char *name, const json_t *weight_map,
			  struct errbuf *err)
{
	struct ckpt_file *f = ckpt_add_file(c, name);
	int rc = ckpt_dir_map(dir, name, "a safetensors file", &f->map, err);

	if (rc == ST_OK) rc = safetensors_read(&f->st, f->map.data, f->map.bytes, err);
	for (size_t i = 0; i < f->st.n && rc == ST_OK; i++) {
		struct ckpt_tensor *t = &f->st.tensors[i];

		if (weight_map && !is_placed_here(weight_map, t->name, name)) continue;
		t->file = (uint32_t)c->n_files - 1;
		rc = ckpt_add_tensor(c, t, err);
	}
	free(f->st.tensors); /* c has its own copies; the names' texts stay */
	f->st.tensors = NULL;
	f->st.n = 0;
	return rc == ST_OK ? ST_OK : ckpt_dir_prefix(dir, name, rc, err);
}

/* ---- what is in the folder ---- */

/* Keeps those that may be the model's. */
static void leave_out(struct ckpt_names *n, const char *const *beginnings)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->n; i++) {
		bool out = false;

		for (const char *const *b = beginnings; *b; b++) out |= strncmp(n->names[i], *b, strlen(*b)) == 0;
		if (out)
			free(n->names[i]);
		else
			n->names[kept++] = n->names[i];
	}
	n->n = kept;
}

/* One GGUF, or the parts of one. */
static int read_only_gguf(struct ckpt *c, const struct ckpt_dir *dir, const struct ckpt_names *ggufs,
			  struct errbuf *err)
{
	for (size_t i = 1; i < ggufs->n; i++)
		if (!ckpt_same_split(ggufs->names[0], ggufs->names[i]))
			return err_set(err, ST_INVALID, "%s: holds several models (%s, %s ...); give one of the files",
				       c->shown, quote_short(ggufs->names[0], strlen(ggufs->names[0])).text,
				       quote_short(ggufs->names[i], strlen(ggufs->names[i])).text);
	return ckpt_read_gguf(c, dir, ggufs->names[0], err);
}

static int read_only_safetensors(struct ckpt *c, const struct ckpt_dir *dir, const struct ckpt_names *files,
				 struct errbuf *err)
{
	const char *first = files->n ? files->names[0] : NULL;

	if (!first)
		return err_set(err, ST_NOT_FOUND,
			       "%s: has no weights: neither " SINGLE " nor " CKPT_INDEX " (nor one *.gguf)", c->shown);
	if (files->n > 1 || ckpt_part_stem(first, ".safetensors"))
		return err_set(err, ST_NOT_FOUND,
			       "%s: %zu files *.safetensors (%s ...) are there, but " CKPT_INDEX
			       " is missing, and there is no " SINGLE,
			       c->shown, files->n, quote_short(first, strlen(first)).text);
	return ckpt_read_safetensors(c, dir, first, NULL, err);
}

static int read_config(struct ckpt *c, const struct ckpt_dir *dir, struct errbuf *err)
{
	static const char key[] = "transformers_weights"; /* the name of the file to read instead */
	int rc = ckpt_read_json(&c->config, dir, CONFIG, &config_bounds, err);

	if (rc == ST_OK && json_is_string(json_object_get(c->config, key)))
		rc = ckpt_dir_prefix(dir, CONFIG, err_set(err, ST_UNSUPPORTED, "%s is set; expected none", key), err);
	return rc;
}

static int read_weights(struct ckpt *c, const struct ckpt_dir *dir, const struct ckpt_names *files, struct errbuf *err)
{
	if (ckpt_dir_has(dir, SINGLE)) return ckpt_read_safetensors(c, dir, SINGLE, NULL, err);
	if (ckpt_dir_has(dir, CKPT_INDEX)) return ckpt_read_shards(c, dir, err);
	return read_only_safetensors(c, dir, files, err);
}

int ckpt_read_folder(struct ckpt *c, const struct ckpt_dir *dir, struct errbuf *err)
{
	static const char *const not_models[] = {"consolidated", "adapter_", NULL};
	static const char *const not_texts[] = {"mmproj", NULL};
	struct ckpt_names files = {0}, ggufs = {0};
	int rc = ckpt_dir_list(dir, ".safetensors", &files, err);

	if (rc == ST_OK) rc = ckpt_dir_list(dir, ".gguf", &ggufs, err);
	if (rc != ST_OK) err_prefix(err, rc, "%s", c->shown);
	leave_out(&files, not_models);
	leave_out(&ggufs, not_texts);
	if (rc == ST_OK && files.n == 0 && !ckpt_dir_has(dir, CKPT_INDEX) && ggufs.n) {
		rc = read_only_gguf(c, dir, &ggufs, err);
	} else if (rc == ST_OK) {
		rc = read_config(c, dir, err);
		if (rc == ST_OK) rc = read_weights(c, dir, &files, err);
	}
	ckpt_names_release(&files);
	ckpt_names_release(&ggufs);
	return rc;
}
