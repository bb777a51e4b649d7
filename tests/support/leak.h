/* leak.h - exact counts of the memory in use, so that a plain build's tests notice a leak, too (ASan's notices it anyway). */
#ifndef SLUICE_LEAK_H
#define SLUICE_LEAK_H

#include <stddef.h>

/* First in main(): starts the program again with the allocator's caches off, whose chunks count as used. */
void leak_exact(char **argv);

/* Bytes in use; 0 under ASan. */
size_t leak_bytes_used(void);

#endif
