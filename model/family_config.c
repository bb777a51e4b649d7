/* family_config.c - config.json as a family reads it: with the overrides of --hf-overrides merged in, and the text
 * model's part found in the file of a model that also sees or hears. */
#include "model/family_impl.h"

#include <string.h>

/* RFC 7396: null removes, objects merge, everything else replaces. Depth is bounded by that of the patch, which a
 * person typed. `without`: a key that is left alone; "": none. */
static void family_config_merge(json_t *into, const json_t *patch, const char *without, uint32_t depth)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)patch, key, value)
	{
		json_t *old = json_object_get(into, key);

		if (strcmp(key, without) == 0) continue;
		if (json_is_null(value)) {
			json_object_del(into, key);
		} else if (json_is_object(value) && depth < 16) {
			if (!json_is_object(old)) {
				old = json_object();
				if (json_object_set_new(into, key, old) != 0) continue;
			}
			family_config_merge(old, value, "", depth + 1);
		} else {
			json_object_set(into, key, value);
		}
	}
}

/* Some settings of the whole model stand beside the text model's part. */
static void family_config_share(const json_t *root, json_t *text)
{
	static const char *const shared[] = {"tie_word_embeddings", "quantization_config", "vocab_size"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(shared); i++) {
		json_t *v = json_object_get(root, shared[i]);

		if (v && !json_object_get(text, shared[i])) json_object_set(text, shared[i], v);
	}
}

void family_config(struct family_reading *r, const struct spec_opts *opts)
{
	const json_t *overrides = opts ? opts->overrides : NULL, *text;

	if (overrides && !json_is_object(overrides)) {
		r->rc = err_set(r->err, ST_INVALID, "the overrides of config.json are not a JSON object");
		return;
	}
	r->g = ckpt_gguf(r->c);
	r->model_len_max = opts ? opts->model_len_max : 0;
	if (r->g) {
		if (overrides && json_object_size(overrides) > 0)
			r->rc = err_set(r->err, ST_INVALID,
					"%s: a GGUF file has no config.json whose settings could be overridden",
					ckpt_shown_path(r->c));
		return;
	}
	r->root = json_deep_copy(ckpt_config(r->c));
	if (!json_is_object(r->root)) {
		family_fail(r, ST_INVALID, "not a JSON object");
		return;
	}
	if (overrides) family_config_merge(r->root, overrides, "", 0);
	text = json_object_get(r->root, "text_config");
	r->config = json_is_object(text) ? text : r->root;
	if (r->config == r->root) return;
	/* Who overrides a setting by its plain name means the text model's. */
	if (overrides) family_config_merge((json_t *)text, overrides, "text_config", 0);
	family_config_share(r->root, (json_t *)text);
}
