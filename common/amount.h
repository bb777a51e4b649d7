/* amount.h - numbers for people: "1.5 GiB", "134.5 M". */
#ifndef SLUICE_AMOUNT_H
#define SLUICE_AMOUNT_H

#include "common/base.h"

struct amount {
	char text[32];
};

/* Powers of 1024: "512 B", "4.0 KiB". */
struct amount amount_bytes(uint64_t n);
/* Powers of 1000: "880", "879.7 K". */
struct amount amount_count(uint64_t n);

#endif
