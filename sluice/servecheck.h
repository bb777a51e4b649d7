/* servecheck.h - what `sluice serve` makes sure of before there is a mesh: options that go together, descriptors, and a model that is
 * here and can be served. */
#ifndef SLUICE_SERVECHECK_H
#define SLUICE_SERVECHECK_H

#include "common/base.h"
#include "common/errbuf.h"
#include "proto/config.h"

void servecheck_help(void);
/* Also decides what `auto` stands for. */
int servecheck_config(struct config *c, struct errbuf *err) MUST_CHECK;
/* As many open files as the hard limit allows; children inherit it. */
int servecheck_descriptors(struct errbuf *err) MUST_CHECK;
/* Fetches the model when it is a name on a hub, perhaps for an hour (a signal ends the process then), and looks at its headers. c->model is
 * a path afterwards. *ident: ckptident() of it. */
int servecheck_model(struct config *c, uint64_t *ident, struct errbuf *err) MUST_CHECK;

#endif
