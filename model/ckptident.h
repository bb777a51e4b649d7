/* ckptident.h - whether a checkpoint is still the same model.
 *
 * A process that starts again while a server runs reads the files again. Another model under the same name must not go
 * on with streams that the first one began. Copies of one model are the same, wherever and whenever they were made. */
#ifndef SLUICE_CKPTIDENT_H
#define SLUICE_CKPTIDENT_H

#include "model/ckpt.h"

/* A hash of the metadata (config.json), of all names, types and shapes, and of some numbers of some hundred tensors;
 * never 0. Files of a folder that are not read by ckpt_open() do not count. */
uint64_t ckptident(const struct ckpt *c);

/* ST_INVALID when it is another one than `expected`; 0: any will do. */
int ckptident_check(const struct ckpt *c, uint64_t expected, struct errbuf *err) MUST_CHECK;

#endif
