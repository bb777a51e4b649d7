/* family_rest.c - settings of a checkpoint that its family did not ask for: harmless, or refused by name.
 *
 * A setting that changes what a model computes and is not built must not be ignored: the answers would be wrong. What
 * is empty, zero or false asks for nothing; the lists below are of settings that concern training, other programs, or
 * generation. */
#include "model/family_impl.h"

#include "common/quote.h"

#include <string.h>

/* clang-format off */

/* Keys of config.json that change nothing in what a token's logits are. */
static const char family_rest_config[] =
	/* what the file is */
	"architectures|model_type|torch_dtype|dtype|transformers_version|auto_map|name_or_path|model_name|tokenizer_class|prefix|"
	"text_config|vision_config|audio_config|language_model_only|is_llama_config|transformers.js_config|mm_tokens_per_image|unsloth_fixed|unsloth_version|"
	/* training */
	"initializer_range|attention_dropout|resid_pdrop|embd_pdrop|attn_pdrop|hidden_dropout|dropout|classifier_dropout|"
	"output_router_logits|router_aux_loss_coef|router_jitter_noise|router_z_loss_coef|aux_loss_alpha|seq_aux|tf_legacy_loss|"
	"gradient_checkpointing|pretraining_tp|ep_size|"
	/* how others compute, or how far */
	"use_cache|cache_implementation|attn_implementation|use_flash_attention|use_flash_attn|use_bfloat16|mamba_ssm_dtype|"
	"initial_context_length|max_seq_len|max_seq_length|max_sequence_length|sliding_window_size|model_max_length|seq_length|full_attn_mod|interpolate_factor|"
	"use_mtp|mtp_use_dedicated_embeddings|"
	/* defaults of transformers' class of all settings */
	"output_attentions|output_hidden_states|use_return_dict|return_dict|torchscript|is_decoder|is_encoder_decoder|"
	"add_cross_attention|cross_attention_hidden_size|tie_encoder_decoder|chunk_size_feed_forward|pruned_heads|problem_type|"
	"id2label|label2id|num_labels|finetuning_task|task_specific_params|"
	/* generation */
	"max_length|min_length|do_sample|early_stopping|num_beams|num_beam_groups|diversity_penalty|temperature|top_k|top_p|typical_p|"
	"repetition_penalty|length_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|num_return_sequences|output_scores|"
	"return_dict_in_generate|remove_invalid_values|exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens|"
	"bad_words_ids|bos_token|eos_token|pad_token";

/* Ends of such keys. */
static const char *const family_rest_ends[] = {
	"_token_id", "_token_ids", "_token_index", "_version", "_dropout", "_pdrop", "_dropout_prob", "_loss_coef", "_plan",
};

/* GGUF keys behind "ARCHITECTURE.". */
static const char family_rest_gguf[] =
	"vocab_size|tensor_data_layout|rope.scaling.finetuned|rope.dimension_sections|attention.layer_norm_epsilon|pooling_type|"
	"embedding_length_out";

/* clang-format on */

static bool family_rest_ends_so(const char *key)
{
	size_t i, len = strlen(key);

	for (i = 0; i < ARRAY_LEN(family_rest_ends); i++) {
		size_t n = strlen(family_rest_ends[i]);

		if (len > n && strcmp(key + len - n, family_rest_ends[i]) == 0) return true;
	}
	return false;
}

static bool family_rest_empty(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_NULL:
	case JSON_FALSE:
		return true;
	case JSON_INTEGER:
	case JSON_REAL:
		return json_number_value(v) == 0;
	case JSON_STRING:
		return json_string_length(v) == 0;
	case JSON_ARRAY:
		return json_array_size(v) == 0;
	case JSON_OBJECT:
		return json_object_size(v) == 0;
	case JSON_TRUE:
		break;
	}
	return false;
}

/* True when it is one that the family asked for, or that asks for nothing. */
static bool family_rest_config_good(const struct family_reading *r, const char *key, const json_t *v,
				    enum family_setting *x)
{
	*x = family_setting_spelled(r, key);
	if (*x != FAMILY_SETTING_COUNT && r->asked[*x]) return true;
	if (family_rest_empty(v) || key[0] == '_') return true;
	return *x == FAMILY_SETTING_COUNT &&
	       (family_words_have(family_rest_config, key, strlen(key), NULL) || family_rest_ends_so(key));
}

static void family_rest_json(struct family_reading *r)
{
	enum family_setting x;
	struct quote shown;
	const char *key;
	const json_t *v;
	char *text;

	json_object_foreach((json_t *)r->config, key, v)
	{
		if (family_rest_config_good(r, key, v, &x)) continue;
		text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
		shown = quote_short(text ? text : "", text ? strlen(text) : 0);
		free(text);
		if (x != FAMILY_SETTING_COUNT)
			family_fail(r, ST_UNSUPPORTED, "%s is %s; the family %s is built without such a setting",
				    quote_short(key, strlen(key)).text, shown.text, r->f->name);
		else
			family_fail(r, ST_UNSUPPORTED,
				    "%s is %s, a setting that is not known; if it changes nothing, leave it out with "
				    "--hf-overrides '{\"%s\": null}'",
				    quote_short(key, strlen(key)).text, shown.text, quote_short(key, strlen(key)).text);
		return;
	}
}

/* ---- GGUF ---- */

static bool family_rest_kv_empty(const struct gguf_kv *kv)
{
	switch (kv->kind) {
	case GGUF_STR:
		return kv->bytes <= sizeof(uint64_t); /* the length alone */
	case GGUF_ARR:
		return kv->n == 0;
	default:
		return gguf_array_f64(kv, 0) == 0;
	}
}

static void family_rest_keys(struct family_reading *r)
{
	size_t i, skip = strlen(r->arch);
	char key[96];

	for (i = 0; i < gguf_kv_count(r->g); i++) {
		const struct gguf_kv *kv = gguf_kv_at(r->g, i);
		enum family_setting x;

		if (kv->key.len <= skip + 1 || memcmp(kv->key.s, r->arch, skip) != 0 || kv->key.s[skip] != '.')
			continue;
		key[0] = 0;
		if (kv->key.len - skip - 1 < sizeof(key)) {
			memcpy(key, kv->key.s + skip + 1, kv->key.len - skip - 1);
			key[kv->key.len - skip - 1] = 0;
		}
		x = family_setting_spelled(r, key);
		if (x != FAMILY_SETTING_COUNT && r->asked[x]) continue;
		if (family_rest_kv_empty(kv) != (strcmp(key, "attention.causal") == 0))
			continue; /* false alone says something */
		if (x == FAMILY_SETTING_COUNT && family_words_have(family_rest_gguf, key, strlen(key), NULL)) continue;
		family_fail(r, ST_UNSUPPORTED, "key %s is a setting that is not built for the family %s",
			    quote_short(kv->key.s, kv->key.len).text, r->f->name);
		return;
	}
}

void family_rest(struct family_reading *r)
{
	if (r->rc != ST_OK) return;
	if (r->g)
		family_rest_keys(r);
	else
		family_rest_json(r);
}
