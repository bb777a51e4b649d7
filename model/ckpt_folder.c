/* ckpt_folder.c - a folder as a checkpoint: config.json and safetensors, or one GGUF.
 *
 * model.safetensors wins, as in transformers; then model.safetensors.index.json says which tensor is in which file. */
#include "common/jsonfile.h"
#include "common/mem.h"
#include "common/quote.h"
#include "model/ckpt_impl.h"

#include <string.h>

#define SINGLE "model.safetensors"

static const struct jsonfile_bounds config_bounds = {.bytes_max = 16 * MIB, .depth_max = 64, .values_max = 1u << 20};

static int read_json(json_t **out, const struct ckpt_dir *dir, const char *name, const struct jsonfile_bounds *b,
		     struct errbuf *err)
{
	char *text, *shown;
	size_t len;
	int rc = ckpt_dir_text(dir, name, b->bytes_max, &text, &len, err);

	if (rc == ST_OK) rc = jsonfile_parse(out, text, len, b, err);
	free(text);
	if (rc == ST_OK) return ST_OK;
	shown = ckpt_dir_shown(dir, name);
	err_prefix(err, rc, "%s", shown);
	free(shown);
	return rc;
}

/* Maps the file and enters its tensors. */
static int read_safetensors(struct ckpt *c, const struct ckpt_dir *dir, const char *name, struct errbuf *err)
{
	struct ckpt_file *f = ckpt_add_file(c, name);
	int rc = ckpt_dir_map(dir, name, "a safetensors file", &f->map, err);

	if (rc == ST_OK) rc = safetensors_read(&f->st, f->map.data, f->map.bytes, err);
	for (size_t i = 0; i < f->st.n && rc == ST_OK; i++) {
		f->st.tensors[i].file = (uint32_t)c->n_files - 1;
		rc = ckpt_add_tensor(c, &f->st.tensors[i], err);
	}
	if (rc != ST_OK) {
		char *shown = ckpt_dir_shown(dir, name);

		err_prefix(err, rc, "%s", shown);
		free(shown);
	}
	return rc;
}

int ckpt_read_folder(struct ckpt *c, const struct ckpt_dir *dir, struct errbuf *err)
{
	int rc = read_json(&c->config, dir, "config.json", &config_bounds, err);

	if (rc != ST_OK) return rc;
	if (ckpt_dir_has(dir, SINGLE)) return read_safetensors(c, dir, SINGLE, err);
	return err_set(err, ST_UNSUPPORTED, "%s: has no " SINGLE, c->shown);
}
