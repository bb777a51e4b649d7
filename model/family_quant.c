/* family_quant.c - quantization_config: how a folder's matrices are coded, or a refusal by the method's name.
 *
 * Which matrices are coded needs no list (modules_to_not_convert, ignored_layers): each tensor's own name and type say
 * so. */
#include "model/family_impl.h"

#include "common/quote.h"

#include <math.h>
#include <string.h>

/* A member that must be a word; "" when it is missing. */
static const char *family_quant_word(const json_t *o, const char *name)
{
	const char *word = json_string_value(json_object_get(o, name));

	return word ? word : "";
}

static bool family_quant_is_true(const json_t *o, const char *name)
{
	return json_is_true(json_object_get(o, name));
}

static uint32_t family_quant_group(struct family_reading *r, const json_t *o)
{
	double group = family_member(r, o, FAMILY_quantization, "group_size", -1, SPEC_DIM_MAX, NAN);

	if (r->rc == ST_OK && (group == 0 || group != floor(group)))
		family_fail(r, ST_INVALID, "quantization_config.group_size is %g; expected -1 or a multiple of 32",
			    group);
	return group < 0 ? 0 : (uint32_t)group; /* 0: all columns */
}

static void family_quant_bits(struct family_reading *r, const json_t *o, const char *method)
{
	double bits =
		family_member(r, o, FAMILY_quantization, json_object_get(o, "bits") ? "bits" : "w_bit", 1, 32, NAN);

	if (r->rc == ST_OK && bits != 4)
		family_fail(r, ST_UNSUPPORTED, "quantization_config.bits is %g; supported with %s: 4", bits, method);
}

static void family_quant_fp8(struct family_reading *r, const json_t *o, struct spec_quant *q)
{
	const json_t *size = json_object_get(o, "weight_block_size");
	const char *fmt = family_quant_word(o, "fmt");
	json_int_t rows, cols;

	if (fmt[0] && strcmp(fmt, "e4m3") != 0 && strcmp(fmt, "float8_e4m3fn") != 0) {
		family_fail(r, ST_UNSUPPORTED, "quantization_config.fmt \"%s\" is not supported; supported: e4m3",
			    quote_short(fmt, strlen(fmt)).text);
		return;
	}
	if (!json_is_array(size) || json_array_size(size) != 2) {
		family_fail(r, ST_UNSUPPORTED,
			    "quantization_config of the method fp8 has no weight_block_size of two numbers; scales for "
			    "whole tensors are not supported");
		return;
	}
	rows = json_integer_value(json_array_get(size, 0));
	cols = json_integer_value(json_array_get(size, 1));
	if (rows < 1 || cols < 1 || rows > (json_int_t)SPEC_FFN_MAX || cols > (json_int_t)SPEC_FFN_MAX) {
		family_fail(r, ST_INVALID,
			    "quantization_config.weight_block_size is [%lld, %lld]; expected two sizes of at least 1",
			    (long long)rows, (long long)cols);
		return;
	}
	*q = (struct spec_quant){.kind = SPEC_QUANT_FP8, .block_rows = (uint32_t)rows, .block_cols = (uint32_t)cols};
}

static void family_quant_gptq(struct family_reading *r, const json_t *o, struct spec_quant *q)
{
	const char *format = family_quant_word(o, "checkpoint_format");

	family_quant_bits(r, o, "gptq");
	if (format[0] && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
		family_fail(r, ST_UNSUPPORTED,
			    "quantization_config.checkpoint_format \"%s\" is not supported; supported: gptq, gptq_v2",
			    quote_short(format, strlen(format)).text);
	*q = (struct spec_quant){.kind = SPEC_QUANT_GPTQ,
				 .block_cols = family_quant_group(r, o),
				 .zeros_minus_one = strcmp(format, "gptq_v2") != 0};
}

static void family_quant_awq(struct family_reading *r, const json_t *o, struct spec_quant *q)
{
	const char *version = family_quant_word(o, "version");

	family_quant_bits(r, o, "awq");
	if (version[0] && strcasecmp(version, "gemm") != 0)
		family_fail(r, ST_UNSUPPORTED, "quantization_config.version \"%s\" is not supported; supported: gemm",
			    quote_short(version, strlen(version)).text);
	if (json_object_get(o, "zero_point") && !family_quant_is_true(o, "zero_point"))
		family_fail(r, ST_UNSUPPORTED, "quantization_config.zero_point is false; supported with awq: true");
	*q = (struct spec_quant){.kind = SPEC_QUANT_AWQ, .block_cols = family_quant_group(r, o)};
}

void family_quant(struct family_reading *r)
{
	const json_t *o = family_json(r, FAMILY_quantization, JSON_OBJECT);
	const char *method;

	if (!o || r->rc != ST_OK || json_object_size(o) == 0) return;
	method = family_quant_word(o, "quant_method");
	if (strcmp(method, "fp8") == 0)
		family_quant_fp8(r, o, &r->s->quant);
	else if (strcmp(method, "gptq") == 0)
		family_quant_gptq(r, o, &r->s->quant);
	else if (strcmp(method, "awq") == 0)
		family_quant_awq(r, o, &r->s->quant);
	else if (strcmp(method, "mxfp4") == 0)
		r->s->quant.kind = SPEC_QUANT_MXFP4;
	else
		family_fail(
			r, ST_UNSUPPORTED,
			"quantization_config.quant_method \"%s\" is not supported; supported: fp8, gptq, awq, mxfp4",
			quote_short(method, strlen(method)).text);
}
