/* limits.h - the largest sizes that messages and shared memory may have. What a user can set lies in config.def; these are
 * the walls behind it, with the reason for each number. */
#ifndef SLUICE_LIMITS_H
#define SLUICE_LIMITS_H

#define LIMIT_FRONTENDS 256        /* status page slots; client ids would allow 65536 */
#define LIMIT_WORKERS 64           /* ranks of one engine */
#define LIMIT_SEQS 8192            /* running sequences of one executor */
#define LIMIT_REQUESTS (1u << 20)  /* requests one executor holds, waiting ones included */
#define LIMIT_TOKENS (4u << 20)    /* tokens of one request: 4 Mi, above every published context length */
#define LIMIT_BATCH (1u << 17)     /* tokens of one step */
#define LIMIT_KV_GROUPS 16         /* block tables of a sequence; KVGROUPS_MAX of model/ */
#define LIMIT_STEPS_IN_FLIGHT 2     /* step n + 1 is scheduled while step n runs; memory for windows is planned for so many */
#define LIMIT_STOP_IDS 128         /* stop token ids of one request */
#define LIMIT_TOP_LOGPROBS 20      /* vLLM's --max-logprobs default; KTOP_MAX of the kernels */
#define LIMIT_BIAS 4096            /* entries of a logit_bias; OpenAI takes 300 */
#define LIMIT_ALLOWED (1u << 18)   /* allowed_token_ids: above every published vocabulary */
#define LIMIT_GRAMMAR_BYTES (1u << 20) /* of one request's grammar (proto/gram.h) */
#define LIMIT_PROMPT_ROWS 4096     /* prompt tokens of one step whose log-probabilities are wanted: 0.7 MB of the reply ring */
#define LIMIT_POOLED (1u << 18)    /* elements of all pooled states of one step or message: 1 MiB, one of the widest model or hundreds of a common one */
#define LIMIT_CHOICES 128          /* n and best_of */
#define LIMIT_SALT 256             /* bytes of a cache salt */
#define LIMIT_API_KEYS 1024        /* keys of one server; a gateway in front holds more */
#define LIMIT_TENANTS 4096         /* told apart; 16 KiB of the status page each, of which 4 KiB are touched with up to 60 frontends */
#define LIMIT_TEXT 1024            /* bytes of an error text or a method name */
#define LIMIT_RPC_BYTES (1u << 20) /* arguments or answer of one collective call */
#define LIMIT_MESSAGE_BYTES (24u << 20) /* a submit of LIMIT_TOKENS tokens and its fields */
#define LIMIT_STEP_RING_BYTES (32u << 20)  /* two steps, each with the tokens of new sequences */
#define LIMIT_REPLY_RING_BYTES (8u << 20)  /* two results of LIMIT_SEQS rows with log-probabilities of some */

#define PROTO_VERSION 2

#endif
