/* hubenv.h - where the hub is, where its cache is, and who asks: the environment variables of huggingface_hub. */
#ifndef SLUICE_HUBENV_H
#define SLUICE_HUBENV_H

#include "common/base.h"
#include "common/errbuf.h"

struct hubenv {
	char *endpoint; /* HF_ENDPOINT, "https://huggingface.co"; without a trailing slash */
	char *cache;    /* HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub */
	char *token;    /* HF_TOKEN, or the file HF_TOKEN_PATH or $HF_HOME/token; NULL: none */
	char *cacert;   /* SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE: certificates to trust; NULL: the system's */
	bool offline;   /* HF_HUB_OFFLINE: nothing is asked */
	long timeout_s; /* HF_HUB_DOWNLOAD_TIMEOUT: seconds without a byte after which a transfer has failed */
};

/* ST_INVALID: a variable holds what it cannot. The token never appears in a text. Release it in any case. */
int hubenv_read(struct hubenv *e, struct errbuf *err) MUST_CHECK;
void hubenv_release(struct hubenv *e);

#endif
