/* fuzz_config.c - any text as a config.json, beside any tensors: a description that keeps the promises of spec.h comes
 * out, or words.
 *
 * The input is config.json, a zero byte, and lines "NAME DTYPE DIM DIM ..." which become model.safetensors (all values
 * are zero). A third part behind another zero byte is the overrides. Every weight of the description is then found, and
 * its first and last rows are read. Seeds: corpus/config. */
#include "common/mem.h"
#include "common/strbuf.h"
#include "model/ckpt.h"
#include "model/spec.h"
#include "model/wsrc.h"
#include "tests/support/spec_touch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DATA_MAX ((uint64_t)1 << 30) /* of zeroes, which take no memory until they are read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A line as a member of the header; *at: where the data of the next one begins. */
static void put_line(struct strbuf *header, char *line, uint64_t *at)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} types[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F8_E4M3", 1}, {"I32", 4}, {"U8", 1}};
	char *rest, *name = strtok_r(line, " ", &rest), *dtype = strtok_r(NULL, " ", &rest), *dim;
	uint64_t n = 0;

	if (!name || !dtype) return;
	for (char *p = name; *p; p++)
		if (*p == '"' || *p == '\\' || (unsigned char)*p < 0x20) return;
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (strcmp(types[i].name, dtype) == 0) n = types[i].bytes;
	if (n == 0) return;
	strbuf_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->len > 1 ? "," : "", name, dtype);
	for (int i = 0; i < 4 && (dim = strtok_r(NULL, " ", &rest)); i++) {
		uint64_t d = strtoull(dim, NULL, 10) % 100000;

		strbuf_printf(header, "%s%" PRIu64, i ? "," : "", d);
		n = min_u64(n * d, DATA_MAX); /* then the file is not as its header says: also a case */
	}
	strbuf_printf(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, *at + n);
	*at += n;
}

/* The file's first bytes, with the length; the rest are zeroes. */
static struct strbuf make_header(char *lines, uint64_t *zeroes)
{
	struct strbuf header, file;
	char *rest, *line;
	uint64_t len;

	strbuf_init(&header, MIB);
	strbuf_putc(&header, '{');
	*zeroes = 0;
	for (line = strtok_r(lines, "\n", &rest); line && *zeroes < DATA_MAX; line = strtok_r(NULL, "\n", &rest))
		put_line(&header, line, zeroes);
	strbuf_putc(&header, '}');
	strbuf_init(&file, 2 * MIB);
	len = header.len;
	strbuf_append(&file, &len, sizeof(len));
	strbuf_append(&file, header.data, header.len);
	strbuf_release(&header);
	return file;
}

static void try_spec(const struct ckpt *c, const char *overrides)
{
	struct errbuf err = {0};
	struct spec s = {0};
	struct spec_opts opts = {0};
	json_t *j = json_loads(overrides, JSON_REJECT_DUPLICATES, NULL);

	opts.overrides = j;
	if (spec_read(&s, c, &opts, &err) == ST_OK)
		spec_touch(&s, c);
	else
		CHECK(err.text[0]);
	spec_release(&s);
	json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = mem_strndup((const char *)data, size), *lines;
	const char *texts[3] = {text, "", ""};
	struct errbuf err = {0};
	struct strbuf file;
	struct ckpt *c;
	uint64_t zeroes;
	size_t n = 1;

	for (size_t i = 0; i < size && n < 3; i++)
		if (!text[i]) texts[n++] = text + i + 1;
	lines = mem_strdup(texts[1]);
	file = make_header(lines, &zeroes);
	struct ckpt_part parts[] = {{"config.json", texts[0], strlen(texts[0]), 0},
				    {"model.safetensors", file.data, file.len, (size_t)zeroes}};
	if (ckpt_open_parts(&c, parts, 2, NULL, &err) == ST_OK)
		try_spec(c, texts[2]);
	else
		CHECK(err.text[0]);
	ckpt_close(c);
	strbuf_release(&file);
	free(lines);
	free(text);
	return 0;
}
