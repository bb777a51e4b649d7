/* kdev.c - forwards the device calls of kernels.h to the device's driver; names of levels. */
#include "kernels/kdev.h"

#include <string.h>

static const char *const klevel_names[KLEVEL_COUNT] = {"ref", "avx2", "avx512"};

const char *klevel_name(enum klevel level)
{
	return level < KLEVEL_COUNT ? klevel_names[level] : "unknown";
}

bool klevel_parse(const char *name, enum klevel *out)
{
	for (unsigned i = 0; i < KLEVEL_COUNT; i++) {
		if (strcmp(name, klevel_names[i]) != 0) continue;
		*out = (enum klevel)i;
		return true;
	}
	return false;
}

void kdev_close(struct kdev *d)
{
	if (d) d->driver->close(d);
}

const struct kops *kdev_ops(const struct kdev *d)
{
	return d->ops;
}

enum klevel kdev_level(const struct kdev *d)
{
	return d->level;
}

void *kdev_alloc(struct kdev *d, size_t bytes)
{
	return d->driver->alloc(d, bytes);
}

void kdev_release(struct kdev *d, void *ptr, size_t bytes)
{
	if (ptr) d->driver->release(d, ptr, bytes);
}

void kdev_upload(struct kdev *d, void *dst, const void *src_host, size_t bytes)
{
	if (bytes) d->driver->upload(d, dst, src_host, bytes);
}

void kdev_download(struct kdev *d, void *dst_host, const void *src, size_t bytes)
{
	if (bytes) d->driver->download(d, dst_host, src, bytes);
}

int kdev_sync(struct kdev *d)
{
	return d->driver->sync(d);
}

/* ---- KV memory ---- */

#define KKV_ALIGN 64

bool kkv_type_built(enum ggtype type)
{
	return type == GGTYPE_F16 || type == GGTYPE_F32;
}

static size_t kkv_elems(const struct kkv *kv, uint32_t dim)
{
	return (size_t)kv->kv_heads * KBLOCK_LEN * dim;
}

/* Bytes of the parts of n_blocks: K, V, the scales of each. */
static void kkv_parts(const struct kkv *kv, size_t n_blocks, size_t out[4])
{
	size_t elem = ggtype_row_bytes(kv->type, 1), scales = kv->type == GGTYPE_I8 ? kkv_elems(kv, sizeof(float)) : 0;

	out[0] = n_blocks * kkv_elems(kv, kv->k_dim) * elem;
	out[1] = kv->latent ? 0 : n_blocks * kkv_elems(kv, kv->v_dim) * elem;
	out[2] = n_blocks * scales;
	out[3] = kv->latent ? 0 : n_blocks * scales;
}

size_t kkv_bytes(const struct kkv *kv, uint32_t n_blocks)
{
	size_t parts[4], sum = 0;

	kkv_parts(kv, n_blocks, parts);
	for (int i = 0; i < 4; i++) sum += align_up(parts[i], KKV_ALIGN);
	return sum;
}

size_t kkv_block_bytes(const struct kkv *kv)
{
	size_t parts[4];

	kkv_parts(kv, 1, parts);
	return parts[0] + parts[1] + parts[2] + parts[3];
}

void kkv_place(struct kkv *kv, void *base, uint32_t n_blocks)
{
	size_t parts[4], at[4], sum = 0;

	kkv_parts(kv, n_blocks, parts);
	for (int i = 0; i < 4; i++) {
		at[i] = sum;
		sum += align_up(parts[i], KKV_ALIGN);
	}
	kv->k = (char *)base + at[0];
	kv->v = parts[1] ? (char *)base + at[1] : NULL;
	kv->k_scale = parts[2] ? (float *)((char *)base + at[2]) : NULL;
	kv->v_scale = parts[3] ? (float *)((char *)base + at[3]) : NULL;
}
