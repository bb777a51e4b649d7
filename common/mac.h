/* mac.h - a keyed BLAKE2b-128 over bytes: proves that a process of the same mesh has made them. */
#ifndef SLUICE_MAC_H
#define SLUICE_MAC_H

#include "common/base.h"

#include <sys/uio.h>

#define MAC_BYTES 16
#define MAC_KEY_BYTES 32

void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[MAC_KEY_BYTES], const void *data, size_t len);
/* Of pieces, as if they were one. */
void mac_make_of(uint8_t out[MAC_BYTES], const uint8_t key[MAC_KEY_BYTES], const struct iovec *parts, size_t n);
/* In a time that does not depend on where they differ. */
bool mac_is(const uint8_t mac[MAC_BYTES], const uint8_t key[MAC_KEY_BYTES], const void *data, size_t len);

#endif
