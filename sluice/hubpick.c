/* hubpick.c - see hubpick.h. */
#include "sluice/hubpick.h"

#include "common/mem.h"
#include "common/quote.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define QUANT_DEFAULT "Q4_K_M"

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);

	return n > m && strcasecmp(name + n - m, end) == 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void pick_add(struct hubpick *p, size_t ix)
{
	p->ix[p->n++] = ix;
}

/* ---- folders ---- */

static bool is_small_of_folder(const char *name)
{
	if (strcmp(name, "1_Pooling/config.json") == 0) return true; /* models for embeddings */
	return !strchr(name, '/') &&
	       (ends_with(name, ".json") || ends_with(name, ".jinja") || strcmp(name, "tokenizer.model") == 0) &&
	       strncmp(name, "consolidated", 12) != 0;
}

static bool is_weight_of_folder(const char *name)
{
	return !strchr(name, '/') && ends_with(name, ".safetensors") && strncmp(name, "consolidated", 12) != 0;
}

static bool has_folder_model(const char *const *names, size_t n)
{
	bool config = false, weights = false;

	for (size_t i = 0; i < n; i++) {
		config |= strcmp(names[i], "config.json") == 0;
		weights |= is_weight_of_folder(names[i]);
	}
	return config && weights;
}

static void pick_folder(struct hubpick *p, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_small_of_folder(names[i])) pick_add(p, i);
	p->n_small = p->n;
	for (size_t i = 0; i < n; i++)
		if (is_weight_of_folder(names[i])) pick_add(p, i);
}

/* ---- GGUF ---- */

bool hubpick_part(const char *name, uint32_t *part, uint32_t *n_parts, size_t *stem_len)
{
	size_t len = strlen(name);
	const char *end = name + len - 20; /* "-00001-of-00002.gguf" */
	char digits[6];

	if (len <= 20 || end[0] != '-' || memcmp(end + 6, "-of-", 4) != 0 || strcasecmp(end + 15, ".gguf") != 0)
		return false;
	for (int i = 1; i <= 5; i++)
		if (!isdigit((unsigned char)end[i]) || !isdigit((unsigned char)end[9 + i])) return false;
	snprintf(digits, sizeof(digits), "%.5s", end + 1);
	*part = (uint32_t)atoi(digits);
	snprintf(digits, sizeof(digits), "%.5s", end + 10);
	*n_parts = (uint32_t)atoi(digits);
	*stem_len = len - 20;
	return *part >= 1 && *part <= *n_parts;
}

/* A whole GGUF, or the first part of a split one. */
static bool is_gguf_start(const char *name)
{
	uint32_t part, n_parts;
	size_t stem;

	if (!ends_with(name, ".gguf") || strncasecmp(base_name(name), "mmproj", 6) == 0) return false;
	return !hubpick_part(name, &part, &n_parts, &stem) || part == 1;
}

/* The quantization stands in the file's name or its folder's, between signs that are no part of such a name: Q4_K is
 * not in Q4_K_M. */
static bool names_quant(const char *name, const char *quant)
{
	size_t n = strlen(quant);

	for (const char *p = name; *p; p++) {
		if (strncasecmp(p, quant, n) != 0 || (p > name && (isalnum((unsigned char)p[-1]) || p[-1] == '_')))
			continue;
		if (!isalnum((unsigned char)p[n]) && p[n] != '_') return true;
	}
	return false;
}

/* Of several that name it the shortest: "x-Q4_K_M.gguf" rather than "x-Q4_K_M-imatrix.gguf". n: none. */
static size_t find_quant(const char *const *names, size_t n, const char *quant)
{
	size_t best = n;

	for (size_t i = 0; i < n; i++)
		if (is_gguf_start(names[i]) && names_quant(names[i], quant) &&
		    (best == n || strlen(names[i]) < strlen(names[best])))
			best = i;
	return best;
}

static int refuse(const struct hubname *want, const char *const *names, size_t n, const char *what, struct errbuf *err)
{
	char list[400] = "";
	size_t at = 0, n_listed = 0, n_all = 0;

	for (size_t i = 0; i < n; i++) {
		if (!is_gguf_start(names[i])) continue;
		n_all++;
		if (at + 110 > sizeof(list)) continue;
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", n_listed ? ", " : "",
				       quote_short(names[i], strlen(names[i])).text);
		n_listed++;
	}
	if (n_all == 0)
		return err_set(err, ST_NOT_FOUND,
			       "%s has %s; of %zu files none is config.json with *.safetensors, or *.gguf", want->repo,
			       what, n);
	return err_set(err, ST_NOT_FOUND, "%s has %s; its GGUF files are %s%s", want->repo, what, list,
		       n_all > n_listed ? ", ..." : "");
}

static int find_gguf(const struct hubname *want, const char *const *names, size_t n, size_t *out, struct errbuf *err)
{
	char what[HUBNAME_FILE_MAX + 32];

	*out = n;
	if (want->file[0]) {
		for (size_t i = 0; i < n && *out == n; i++)
			if (strcmp(names[i], want->file) == 0) *out = i;
		snprintf(what, sizeof(what), "no file %s", quote_short(want->file, strlen(want->file)).text);
	} else {
		*out = find_quant(names, n, want->quant[0] ? want->quant : QUANT_DEFAULT);
		for (size_t i = 0; i < n && *out == n && !want->quant[0]; i++)
			if (is_gguf_start(names[i])) *out = i;
		if (want->quant[0])
			snprintf(what, sizeof(what), "no quantization %s", want->quant);
		else
			snprintf(what, sizeof(what), "nothing that can be served");
	}
	return *out < n ? ST_OK : refuse(want, names, n, what, err);
}

/* All parts, in order; each must be there. */
static int pick_parts(struct hubpick *p, const struct hubname *want, const char *const *names, size_t n, size_t first,
		      struct errbuf *err)
{
	uint32_t part, n_parts, k, m;
	size_t stem, other;

	if (!hubpick_part(names[first], &part, &n_parts, &stem)) {
		pick_add(p, first);
		return ST_OK;
	}
	if (n_parts > n)
		return err_set(err, ST_NOT_FOUND, "%s: %s has %u parts, but the repository only %zu files", want->repo,
			       quote_short(names[first], strlen(names[first])).text, n_parts, n);
	for (k = 1; k <= n_parts; k++) {
		size_t i = 0;

		for (; i < n; i++)
			if (hubpick_part(names[i], &part, &m, &other) && part == k && m == n_parts && other == stem &&
			    memcmp(names[i], names[first], stem) == 0)
				break;
		if (i == n)
			return err_set(err, ST_NOT_FOUND, "%s: part %u of %u of %.*s is missing", want->repo, k,
				       n_parts, (int)min_size(stem, 200), names[first]);
		pick_add(p, i);
	}
	return ST_OK;
}

int hubpick_files(struct hubpick *out, const struct hubname *want, const char *const *names, size_t n,
		  struct errbuf *err)
{
	size_t first;
	int rc;

	*out = (struct hubpick){.ix = mem_array(size_t, n + 1)};
	if (!want->quant[0] && !want->file[0] && has_folder_model(names, n)) {
		pick_folder(out, names, n);
		return ST_OK;
	}
	out->is_gguf = true;
	rc = find_gguf(want, names, n, &first, err);
	if (rc == ST_OK) rc = pick_parts(out, want, names, n, first, err);
	if (rc != ST_OK) hubpick_release(out);
	return rc;
}

void hubpick_release(struct hubpick *p)
{
	free(p->ix);
	*p = (struct hubpick){0};
}
