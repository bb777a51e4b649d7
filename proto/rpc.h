/* rpc.h - the methods of collective_rpc, with their arguments and answers (the `args` and `body` of msg rpc and rpc_reply).
 *
 * A body is its fields in order, little-endian, without gaps. New fields come last: an unpacked body may be longer than
 * known (a newer sender), never shorter. `max` bounds a value, 0 = no bound of its own. */
#ifndef SLUICE_RPC_H
#define SLUICE_RPC_H

#include "common/base.h"
#include "common/status.h"
#include "proto/limits.h"

/* The methods. Arguments and answers that are not named below are empty. */
#define RPC_HELLO "hello"     /* -> hello_reply; allowed in every state */
#define RPC_LOAD "load"       /* -> load_reply; at once when loaded already */
#define RPC_PROFILE "profile" /* -> profile_reply; after load */
#define RPC_KV_INIT "kv_init" /* kv_init_args; after load; drops all sequences when the size changes */
#define RPC_WARM_UP "warm_up" /* -> warm_up_reply; after kv_init; only without sequences */
#define RPC_PING "ping"       /* ping -> ping */
#define RPC_RESET "reset"     /* drops all sequences */

enum rpc_worker_state {
	RPC_WORKER_NOTHING, /* load comes next */
	RPC_WORKER_LOADED,  /* kv_init comes next */
	RPC_WORKER_READY    /* takes steps */
};

/* B(name, fields), F(type, field, max, doc) */
#define RPC_BODIES(B, F)                                                                                  \
	B(hello_reply, F(u32, version, 0, "PROTO_VERSION")                                                \
	  F(u32, rank, LIMIT_WORKERS, "")                                                                 \
	  F(u32, state, RPC_WORKER_READY, "enum rpc_worker_state")                                        \
	  F(u32, model_len_max, LIMIT_TOKENS, "0 before load")                                            \
	  F(u64, n_blocks, 0, "0 before kv_init")                                                         \
	  F(u32, vocab, 0, "as in load_reply; 0 before load")                                             \
	  F(u32, dim, LIMIT_POOLED, "likewise")                                                           \
	  F(u32, n_full, LIMIT_KV_GROUPS, "likewise, and the next three")                                 \
	  F(u32, n_windowed, LIMIT_KV_GROUPS, "")                                                         \
	  F(u32, window, 0, "")                                                                           \
	  F(u32, recurrent, 1, ""))                                                        \
	B(load_reply, F(u64, weight_bytes, 0, "on the device")                                            \
	  F(u64, activation_bytes, 0, "on the device, for the largest step")                              \
	  F(u32, model_len_max, LIMIT_TOKENS, "")                                                         \
	  F(u32, vocab, 0, "token ids are below it")                                                      \
	  F(u64, load_ns, 0, "how long it took")                                                          \
	  F(u32, dim, LIMIT_POOLED, "elements of a hidden state")                                         \
	  F(u32, n_full, LIMIT_KV_GROUPS, "block tables of a sequence: of layers that see everything")    \
	  F(u32, n_windowed, LIMIT_KV_GROUPS, "and of those with a window")                               \
	  F(u32, window, 0, "of the latter, tokens")                                                      \
	  F(u32, recurrent, 1, "1: there is state beside the blocks, so no prefix can be reused"))                                     \
	B(profile_reply, F(u64, n_blocks, 0, "KV blocks that this rank can have")                         \
	  F(u64, block_bytes, 0, "of one block over all layers")                                          \
	  F(u64, memory_available, 0, "bytes, measured before the weights were loaded"))                  \
	B(kv_init_args, F(u64, n_blocks, 0, ""))                                                          \
	B(warm_up_reply, F(u64, step_ns, 0, "of a one-token step"))                                       \
	B(ping, F(u64, nonce, 0, "comes back as it is"))

#define RPC_CTYPE_u32 uint32_t
#define RPC_CTYPE_u64 uint64_t

#define RPC_BODY_MAX 256 /* bytes of a packed body; compared with each struct where they are packed */

#define RPC_AS_FIELD(type, field, max, doc) RPC_CTYPE_##type field;
#define RPC_AS_STRUCT(name, fields)                                                              \
	struct rpc_##name {                                                                      \
		fields                                                                           \
	};                                                                                       \
	size_t rpc_##name##_pack(const struct rpc_##name *body, uint8_t out[RPC_BODY_MAX]);      \
	int rpc_##name##_unpack(struct rpc_##name *body, const void *data, size_t len) MUST_CHECK;
/* pack returns the bytes written; unpack gives ST_CORRUPT for a short body or a value above its bound. */
RPC_BODIES(RPC_AS_STRUCT, RPC_AS_FIELD)
#undef RPC_AS_STRUCT
#undef RPC_AS_FIELD

#endif
