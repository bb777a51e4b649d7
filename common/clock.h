/* clock.h - the only place that asks the system for the time. Pure code gets `now` as an argument. */
#ifndef SLUICE_CLOCK_H
#define SLUICE_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

/* Monotonic time in nanoseconds; the same clock in all processes of one machine (CLOCK_MONOTONIC). */
static inline uint64_t clock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* Processor time that the calling thread has used, in nanoseconds. */
static inline uint64_t clock_thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* Sleeps until clock_now_ns() is `at`; returns soon when it has passed, after a system call. */
static inline void clock_sleep_until(uint64_t at)
{
	const struct timespec ts = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) continue;
}

/* Wall clock in seconds since 1970 (`created` fields, logs). */
static inline int64_t clock_wall_s(void)
{
	return (int64_t)time(NULL);
}

#endif
