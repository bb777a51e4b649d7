/* family_common.c - the settings that nearly all families have, and what relations they must keep. */
#include "model/family_impl.h"

#include "common/mem.h"
#include "common/quote.h"

#include <math.h>
#include <string.h>

void family_check_heads(struct family_reading *r, const struct spec_layer *y)
{
	if (r->rc == ST_OK && y->heads % y->kv_heads)
		family_fail(r, ST_INVALID, "%s %u is not a multiple of %s %u", family_key(r, FAMILY_heads).text,
			    y->heads, family_key(r, FAMILY_kv_heads).text, y->kv_heads);
}

static void family_common_heads(struct family_reading *r)
{
	struct spec_layer *y = &r->y;
	uint32_t dim = r->s->dim;

	y->heads = family_u32(r, FAMILY_heads);
	y->kv_heads = family_u32_or(r, FAMILY_kv_heads, y->heads);
	family_check_heads(r, y);
	y->k_dim = family_u32_or(r, FAMILY_k_dim, 0);
	if (r->rc != ST_OK) return;
	if (!y->k_dim && dim % y->heads)
		family_fail(r, ST_INVALID, "%s %u is not a multiple of %s %u", family_key(r, FAMILY_dim).text, dim,
			    family_key(r, FAMILY_heads).text, y->heads);
	else if (!y->k_dim)
		y->k_dim = dim / y->heads;
	y->v_dim = r->g ? family_u32_or(r, FAMILY_v_dim, y->k_dim) : y->k_dim;
	if (r->rc == ST_OK && (y->k_dim % 2 || y->k_dim > SPEC_HEAD_DIM_MAX))
		family_fail(r, ST_INVALID,
			    "the length of a head (%s, or %s / %s) is %u; expected an even number up to %d",
			    family_key(r, FAMILY_k_dim).text, family_key(r, FAMILY_dim).text,
			    family_key(r, FAMILY_heads).text, y->k_dim, SPEC_HEAD_DIM_MAX);
}

void family_window(struct family_reading *r)
{
	r->window = family_u32(r, FAMILY_window);
	if (!r->window)
		family_fail(r, ST_INVALID, "%s%s is 0; expected the positions that a layer sees", r->g ? "key " : "",
			    family_key(r, FAMILY_window).text);
}

/* GGUF: all rows that the embedding has, of which the tokenizer's may be drawn. Folders: what config.json says, checked
 * with the embedding's shape. */
static void family_common_vocab(struct family_reading *r)
{
	const struct ckpt_tensor *embed;
	const struct gguf_kv *tokens;
	struct spec *s = r->s;

	if (!r->g) {
		s->vocab = s->n_tokens = family_u32(r, FAMILY_vocab);
		s->tied = family_bool_or(r, FAMILY_tied, false);
		return;
	}
	embed = ckpt_find(r->c, "token_embd.weight");
	tokens = gguf_find(r->g, "tokenizer.ggml.tokens");
	if (!embed)
		family_fail(r, ST_NOT_FOUND, "tensor token_embd.weight is missing");
	else if (embed->dims[0] > SPEC_VOCAB_MAX)
		family_fail(r, ST_INVALID, "tensor token_embd.weight has %llu rows; expected 1 to %u",
			    (unsigned long long)embed->dims[0], SPEC_VOCAB_MAX);
	if (r->rc != ST_OK) return;
	s->vocab = s->n_tokens = (uint32_t)embed->dims[0];
	s->tied = !ckpt_find(r->c, "output.weight");
	if (!tokens || tokens->kind != GGUF_ARR) return; /* the tokenizer says what is wrong with it */
	if (tokens->n > s->vocab)
		family_fail(
			r, ST_INVALID,
			"the vocabulary (tokenizer.ggml.tokens) has %llu tokens, but token_embd.weight only %u rows",
			(unsigned long long)tokens->n, s->vocab);
	if (tokens->n == 0) family_fail(r, ST_INVALID, "the vocabulary (tokenizer.ggml.tokens) has no tokens");
	s->n_tokens = (uint32_t)tokens->n;
}

void family_common(struct family_reading *r)
{
	struct spec *s = r->s;

	s->n_layers = family_u32(r, FAMILY_n_layers);
	s->dim = family_u32(r, FAMILY_dim);
	r->y.ffn = family_u32_or(r, FAMILY_ffn, 0);
	s->context_len = family_u32(r, FAMILY_context_len);
	s->eps = family_f64(r, FAMILY_eps);
	s->embed_scale = 1;
	r->y.router_scale = 1;
	r->y.n_groups = r->y.groups_used = 1;
	r->y.rope = -1;
	r->mla_mscale = 1;
	family_common_heads(r);
	family_common_vocab(r);
	r->y.scale = 1 / sqrt(r->y.k_dim);
}

/* ---- layer_types ---- */

static bool family_layer_type_read(const json_t *v, uint8_t *out)
{
	uint32_t ix;

	if (!json_is_string(v)) return false;
	if (!family_words_have("full_attention|sliding_attention|linear_attention", json_string_value(v),
			       json_string_length(v), &ix))
		return false;
	*out = (uint8_t)ix; /* in the order of enum family_layer_type */
	return true;
}

void family_layer_types(struct family_reading *r)
{
	const json_t *list = family_json(r, FAMILY_layer_types, JSON_ARRAY);
	uint32_t i;

	if (!list || r->layer_types) return;
	if (json_array_size(list) != r->s->n_layers) {
		family_fail(r, ST_INVALID, "layer_types has %zu entries; expected num_hidden_layers, %u",
			    json_array_size(list), r->s->n_layers);
		return;
	}
	r->layer_types = mem_array(uint8_t, r->s->n_layers);
	for (i = 0; i < r->s->n_layers; i++) {
		const json_t *v = json_array_get(list, i);
		const char *word = json_is_string(v) ? json_string_value(v) : "";

		if (!family_layer_type_read(v, &r->layer_types[i]))
			family_fail(r, ST_UNSUPPORTED,
				    "layer_types[%u] \"%s\" is not supported; supported: full_attention, "
				    "sliding_attention, linear_attention",
				    i, quote_short(word, strlen(word)).text);
	}
}

enum family_layer_type family_type_of(const struct family_reading *r, uint32_t i, enum family_layer_type usual)
{
	return r->layer_types ? (enum family_layer_type)r->layer_types[i] : usual;
}

/* ---- experts ---- */

void family_marks(struct family_reading *r, enum family_setting x, bool each)
{
	const json_t *list = family_json(r, x, JSON_ARRAY), *v;
	json_int_t below = each ? 2 : r->s->n_layers;
	size_t i;

	if (!list || r->marks || json_array_size(list) == 0) return;
	if (each && json_array_size(list) < r->s->n_layers)
		family_fail(r, ST_INVALID, "%s has %zu entries; expected one for each of %u layers",
			    family_key(r, x).text, json_array_size(list), r->s->n_layers);
	r->marks = mem_array(uint8_t, r->s->n_layers);
	json_array_foreach(list, i, v)
	{
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= below) {
			family_fail(r, ST_INVALID, "%s[%zu] is not %s %u layers", family_key(r, x).text, i,
				    each ? "0 or 1, for each of" : "the number of one of", r->s->n_layers);
			return;
		}
		if (!each)
			r->marks[json_integer_value(v)] = 1;
		else if (i < r->s->n_layers)
			r->marks[i] = (uint8_t)json_integer_value(v);
	}
}

/* Experts instead of a dense feed-forward, in all layers: family->layer() takes them out of those that are dense. */
void family_experts(struct family_reading *r, enum family_setting ffn)
{
	struct spec_layer *y = &r->y;

	y->n_experts = family_u32(r, FAMILY_n_experts);
	y->n_used = family_u32(r, FAMILY_n_used);
	y->expert_ffn = family_u32(r, ffn);
	if (r->rc == ST_OK && (y->n_used < 1 || y->n_used > y->n_experts))
		family_fail(r, ST_INVALID, "%s is %u; expected 1 to %s, %u", family_key(r, FAMILY_n_used).text,
			    y->n_used, family_key(r, FAMILY_n_experts).text, y->n_experts);
}

/* A layer's feed-forward is dense after all. */
void family_make_dense(struct family_reading *r, struct spec_layer *y)
{
	struct spec_layer dense = *y;

	dense.ffn = r->y.ffn;
	dense.n_experts = dense.n_used = dense.expert_ffn = dense.shared_ffn = 0;
	dense.shared_gate = dense.router_bias = dense.router_correction = dense.expert_bias = dense.router_norm = false;
	dense.router = SPEC_SOFTMAX;
	dense.router_scale = 1;
	dense.n_groups = dense.groups_used = 1;
	*y = dense;
	if (!y->ffn)
		family_fail(r, ST_NOT_FOUND, "%s%s is missing", r->g ? "key " : "", family_key(r, FAMILY_ffn).text);
}
