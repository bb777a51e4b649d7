/* pagetext.h - the text of /metrics (Prometheus exposition format 0.0.4). */
#ifndef SLUICE_PAGETEXT_H
#define SLUICE_PAGETEXT_H

#include "proto/page.h"

/* labels: `model_name="...",engine="0"`, escaped by the caller. cache_config: label text of vllm:cache_config_info. Costs some tens of
 * microseconds. */
void pagetext_render(const struct page *p, const char *labels, const char *cache_config, struct strbuf *out);

#endif
