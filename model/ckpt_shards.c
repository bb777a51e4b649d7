/* ckpt_shards.c - the files that model.safetensors.index.json names: {"weight_map": {tensor: file}}.
 *
 * The index decides which tensor is read from which file. Files must be plain names, so nothing outside of the folder
 * is opened (a name may be a link: the Hugging Face cache is made of them). All files must be there and hold what the
 * index places in them before anything is loaded. metadata.total_size is not looked at: published ones are often wrong.
 */
#include "common/mem.h"
#include "common/quote.h"
#include "model/ckpt_impl.h"

#include <string.h>

static const struct jsonfile_bounds index_bounds = {.bytes_max = 128 * MIB, .depth_max = 8, .values_max = 1u << 21};

static const char *shard_name(const void *owner, size_t ix, size_t *len)
{
	const struct ckpt_names *n = owner;

	*len = strlen(n->names[ix]);
	return n->names[ix];
}

static bool is_plain(const char *name)
{
	return name[0] && name[0] != '.' && !strchr(name, '/');
}

/* The files' names, each once, sorted. */
static int collect(const json_t *weight_map, struct ckpt_names *shards, struct errbuf *err)
{
	struct nameindex seen;
	const char *tensor;
	json_t *value;
	int rc = ST_OK;

	nameindex_init(&seen);
	json_object_foreach((json_t *)weight_map, tensor, value)
	{
		const char *file = json_string_value(value);

		if (!file || strlen(file) != json_string_length(value) || !is_plain(file)) {
			rc = err_set(err, ST_INVALID,
				     "weight_map: tensor %s is placed in \"%s\"; expected the name of a file inside "
				     "the folder",
				     quote_short(tensor, strlen(tensor)).text,
				     file ? quote_short(file, json_string_length(value)).text : "(no text)");
			break;
		}
		mem_reserve(shards->names, shards->cap, shards->n + 1);
		shards->names[shards->n] = (char *)(uintptr_t)file;
		if (!nameindex_add(&seen, shard_name, shards, shards->n)) continue;
		shards->names[shards->n++] = mem_strdup(file);
		if (shards->n > CKPT_DIR_NAMES_MAX) {
			rc = err_set(err, ST_LIMIT, "weight_map names more than %d files", CKPT_DIR_NAMES_MAX);
			break;
		}
	}
	nameindex_release(&seen);
	ckpt_names_sort(shards);
	return rc;
}

static int check_files(const struct ckpt_dir *dir, const struct ckpt_names *shards, struct errbuf *err)
{
	char *missing = ckpt_dir_missing(dir, shards);
	int rc = ST_OK;

	if (missing)
		rc = err_set(err, ST_NOT_FOUND, "of the %zu files that it names, %s missing in the folder", shards->n,
			     missing);
	free(missing);
	return rc;
}

/* Everything that the index names was entered, unless something is missing. */
static int check_tensors(const struct ckpt *c, const json_t *weight_map, struct errbuf *err)
{
	const char *tensor;
	json_t *file;

	if (c->n_tensors == json_object_size(weight_map)) return ST_OK;
	json_object_foreach((json_t *)weight_map, tensor, file) if (!ckpt_find(c, tensor)) return err_set(
		err, ST_NOT_FOUND, "tensor %s is missing in %s, where the index places it",
		quote_short(tensor, strlen(tensor)).text,
		quote_short(json_string_value(file), json_string_length(file)).text);
	return ST_OK;
}

int ckpt_read_shards(struct ckpt *c, const struct ckpt_dir *dir, struct errbuf *err)
{
	struct ckpt_names shards = {0};
	json_t *index, *weight_map;
	int rc = ckpt_read_json(&index, dir, CKPT_INDEX, &index_bounds, err);

	if (rc != ST_OK) return rc;
	weight_map = json_object_get(index, "weight_map");
	if (json_object_size(weight_map) == 0)
		rc = err_set(err, ST_INVALID,
			     "weight_map is missing or empty; expected an object of tensor names and file names");
	if (rc == ST_OK) rc = collect(weight_map, &shards, err);
	if (rc == ST_OK) rc = check_files(dir, &shards, err);
	if (rc != ST_OK) ckpt_dir_prefix(dir, CKPT_INDEX, rc, err);
	for (size_t i = 0; i < shards.n && rc == ST_OK; i++)
		rc = ckpt_read_safetensors(c, dir, shards.names[i], weight_map, err);
	if (rc == ST_OK && check_tensors(c, weight_map, err) != ST_OK)
		rc = ckpt_dir_prefix(dir, CKPT_INDEX, ST_NOT_FOUND, err);
	ckpt_names_release(&shards);
	json_decref(index);
	return rc;
}
