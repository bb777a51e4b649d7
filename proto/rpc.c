/* rpc.c - see rpc.h. Everything is expanded from RPC_BODIES. */
#include "proto/rpc.h"

static size_t rpc_put(uint8_t *out, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
	return bytes;
}

static uint64_t rpc_get(const uint8_t *at, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
	return value;
}

#define RPC_PUT(type, field, max, doc) n += rpc_put(out + n, body->field, sizeof(body->field));
#define RPC_GET(type, field, max, doc)                                              \
	if (len - n < sizeof(body->field)) return ST_CORRUPT;                       \
	body->field = (RPC_CTYPE_##type)rpc_get(at + n, sizeof(body->field));       \
	n += sizeof(body->field);                                                   \
	if ((uint64_t)(max) != 0 && body->field > (uint64_t)(max)) return ST_CORRUPT;

#define RPC_AS_CODE(name, fields)                                                   \
	_Static_assert(sizeof(struct rpc_##name) <= RPC_BODY_MAX, "RPC_BODY_MAX");  \
	size_t rpc_##name##_pack(const struct rpc_##name *body, uint8_t out[RPC_BODY_MAX]) \
	{                                                                           \
		size_t n = 0;                                                       \
                                                                                    \
		fields                                                              \
		return n;                                                           \
	}
RPC_BODIES(RPC_AS_CODE, RPC_PUT)
#undef RPC_AS_CODE

#define RPC_AS_CODE(name, fields)                                                   \
	int rpc_##name##_unpack(struct rpc_##name *body, const void *data, size_t len) \
	{                                                                           \
		const uint8_t *at = data;                                           \
		size_t n = 0;                                                       \
                                                                                    \
		fields                                                              \
		return ST_OK;                                                       \
	}
RPC_BODIES(RPC_AS_CODE, RPC_GET)
