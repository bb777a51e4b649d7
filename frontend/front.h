/* front.h - the frontend process: everything of it in one loop. */
#ifndef SLUICE_FRONT_H
#define SLUICE_FRONT_H

#include "proto/boot.h"

/* Loads tokenizer and template, serves until drained; returns the exit code. boot: borrowed. */
int front_run(struct boot *boot);

#endif
