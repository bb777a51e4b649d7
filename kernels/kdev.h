/* kdev.h - inside of a device: what every kind of device (CPU, later CUDA) puts behind struct kdev.
 *
 * Private to kernels/. A device embeds struct kdev as its first member; kdev.c forwards the calls of kernels.h that are
 * not in the table of operations. */
#ifndef SLUICE_KDEV_H
#define SLUICE_KDEV_H

#include "kernels/kernels.h"

struct kdev_driver {
	void (*close)(struct kdev *d);
	void *(*alloc)(struct kdev *d, size_t bytes, bool large_pages);
	void (*large_pages)(struct kdev *d, void *ptr, size_t bytes);
	void (*release)(struct kdev *d, void *ptr, size_t bytes);
	void (*upload)(struct kdev *d, void *dst, const void *src_host, size_t bytes);
	void (*download)(struct kdev *d, void *dst_host, const void *src, size_t bytes);
	int (*sync)(struct kdev *d);
};

struct kdev {
	const struct kops *ops;
	const struct kdev_driver *driver;
	enum klevel level;
	void (*beat)(void *ctx); /* NULL: none */
	void *beat_ctx;
};

#endif
