/* keysource.h - where the API keys come from: --api-key and its variables, which are read once and then wiped from this process's
 * arguments and environment (everybody may look at the former, and children inherit the latter), and --api-key-file, which can
 * be read again. */
#ifndef SLUICE_KEYSOURCE_H
#define SLUICE_KEYSOURCE_H

#include "proto/apikeys.h"
#include "proto/config.h"

struct keysource {
	struct apikeys given; /* of --api-key */
	char *path;           /* of --api-key-file, or NULL; owned */
};

/* Takes the keys out of the configuration, argv and the environment. VLLM_API_KEY counts when nothing of ours is set. */
int keysource_open(struct keysource *s, struct config *c, int argc, char **argv, struct errbuf *err) MUST_CHECK;
void keysource_release(struct keysource *s);

/* All keys as of now; out is empty when none are asked for. On failure out holds nothing. */
int keysource_read(const struct keysource *s, struct apikeys *out, struct errbuf *err) MUST_CHECK;

#endif
