/* config.h - the configuration of a mesh as one struct, expanded from config.def. */
#ifndef SLUICE_CONFIG_H
#define SLUICE_CONFIG_H

#include "common/base.h"
#include "common/errbuf.h"
#include "common/strbuf.h"
#include "proto/config.def"

#include <stdio.h>

#define CONFIG_CTYPE_STR char *
#define CONFIG_CTYPE_U32 uint32_t
#define CONFIG_CTYPE_AUTO uint32_t
#define CONFIG_CTYPE_LEN uint32_t
#define CONFIG_CTYPE_SIZE uint64_t
#define CONFIG_CTYPE_TIME uint64_t
#define CONFIG_CTYPE_F64 double
#define CONFIG_CTYPE_BOOL bool
#define CONFIG_CTYPE_WORD uint32_t

#define CONFIG_LEN_AUTO UINT32_MAX /* of a LEN: the longest that is possible */

struct config {
#define CONFIG_AS_FIELD(kind, field, flag, alias, def, min, max, metavar, group, help) CONFIG_CTYPE_##kind field;
	CONFIG(CONFIG_AS_FIELD)
#undef CONFIG_AS_FIELD
};

/* Values of the WORD options, in the order of their metavar. */
enum config_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA, DEVICE_NULL };
enum config_activations { ACTIVATIONS_AUTO, ACTIVATIONS_Q8, ACTIVATIONS_F32 };
enum config_kv_dtype { KV_DTYPE_AUTO, KV_DTYPE_BF16, KV_DTYPE_F16, KV_DTYPE_F32, KV_DTYPE_FP8, KV_DTYPE_INT8 };
enum config_kernels { KERNELS_AUTO, KERNELS_REF, KERNELS_AVX2, KERNELS_AVX512 };

enum config_scheduling { SCHEDULING_FCFS, SCHEDULING_PRIORITY };
enum config_log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
enum config_generation { GENERATION_AUTO, GENERATION_VLLM };

/* Defaults. config_release() frees the strings. */
void config_init(struct config *c);
void config_release(struct config *c);

/* Sets one option by its flag (without dashes) or alias. ST_NOT_FOUND: no such option; ST_INVALID: err names option, value, and what
 * is accepted. */
int config_set(struct config *c, const char *name, const char *value, struct errbuf *err) MUST_CHECK;

/* The value of an option, by its flag, as one would write it. */
void config_print(const struct config *c, const char *name, struct strbuf *out);

/* All SLUICE_... variables of the environment. An unknown SLUICE_ variable is only warned about (log), a bad value is an error. */
int config_from_env(struct config *c, struct errbuf *err) MUST_CHECK;

/* Command line, flags win over the environment (call this second). Accepts --flag VALUE, --flag=VALUE, --flag_with_underscores, -m, and
 * one positional argument, the model. *help is set by -h and --help. An unknown flag is ST_INVALID, with the nearest known one
 * in the text. */
int config_from_args(struct config *c, int argc, char **argv, bool *help, struct errbuf *err) MUST_CHECK;

/* All options, grouped, with defaults and variables. */
void config_help(FILE *out);
/* The same as a Markdown table, for the README. */
void config_document(struct strbuf *out);

/* "flag=value\0" of every option, for the boot message; and back. */
void config_pack(const struct config *c, struct strbuf *out);
int config_unpack(struct config *c, const void *data, size_t len, struct errbuf *err) MUST_CHECK;

#endif
