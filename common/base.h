/* base.h - the few macros that every file of Sluice uses.
 *
 * CHECK is for our own mistakes (an impossible state): it logs and aborts, also in release builds.
 * Bytes from outside never reach a CHECK; they get a status code (status.h). */
#ifndef SLUICE_BASE_H
#define SLUICE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
#define NORETURN __attribute__((noreturn))
#define UNUSED __attribute__((unused))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

NORETURN void check_failed(const char *cond, const char *file, int line);

#define CHECK(cond)                                             \
	do {                                                    \
		if (__builtin_expect(!(cond), 0))               \
			check_failed(#cond, __FILE__, __LINE__); \
	} while (0)

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Rounds up to a multiple of align, which must be a power of two. */
static inline size_t align_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

/* Inside a short spin: tells the core that this thread waits. */
static inline void cpu_relax(void)
{
#if defined(__has_builtin)
#if __has_builtin(__builtin_ia32_pause)
	__builtin_ia32_pause();
#endif
#endif
}

/* ceil(a / b) for b > 0, without overflow. */
static inline uint64_t div_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

#endif
