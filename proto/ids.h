/* ids.h - who is who: client ids, incarnations, epochs.
 *
 * client_id (u64): bits 63-48 frontend id, 47-40 the frontend's incarnation (0 at first start, +1 at each restart, modulo
 * 256), 39-0 a counter. With one frontend, ids are bit for bit what they are for frontend 0 of many. */
#ifndef SLUICE_IDS_H
#define SLUICE_IDS_H

#include "common/base.h"

#define CLIENT_COUNTER_MASK ((1ull << 40) - 1)

static inline uint64_t client_id_make(uint32_t frontend, uint32_t incarnation, uint64_t counter)
{
	return (uint64_t)(frontend & 0xFFFF) << 48 | (uint64_t)(incarnation & 0xFF) << 40 | (counter & CLIENT_COUNTER_MASK);
}

static inline uint32_t client_id_frontend(uint64_t id)
{
	return (uint32_t)(id >> 48);
}

static inline uint32_t client_id_incarnation(uint64_t id)
{
	return (uint32_t)(id >> 40) & 0xFF;
}

static inline uint64_t client_id_counter(uint64_t id)
{
	return id & CLIENT_COUNTER_MASK;
}

#endif
