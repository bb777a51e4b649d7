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
	return d->driver->alloc(d, bytes, true);
}

void *kdev_alloc_small(struct kdev *d, size_t bytes)
{
	return d->driver->alloc(d, bytes, false);
}

void kdev_large_pages(struct kdev *d, void *ptr, size_t bytes)
{
	d->driver->large_pages(d, ptr, bytes);
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

void kdev_set_beat(struct kdev *d, void (*beat)(void *ctx), void *ctx)
{
	d->beat = beat;
	d->beat_ctx = ctx;
}

int kdev_sync(struct kdev *d)
{
	return d->driver->sync(d);
}
