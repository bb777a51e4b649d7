/* mac.c - see mac.h. */
#include "common/mac.h"

#include <sodium.h>

void mac_make(uint8_t out[MAC_BYTES], const uint8_t key[MAC_KEY_BYTES], const void *data, size_t len)
{
	crypto_generichash(out, MAC_BYTES, data, len, key, MAC_KEY_BYTES);
}

void mac_make_of(uint8_t out[MAC_BYTES], const uint8_t key[MAC_KEY_BYTES], const struct iovec *parts, size_t n)
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, key, MAC_KEY_BYTES, MAC_BYTES);
	for (size_t i = 0; i < n; i++) crypto_generichash_update(&state, parts[i].iov_base, parts[i].iov_len);
	crypto_generichash_final(&state, out, MAC_BYTES);
}

bool mac_is(const uint8_t mac[MAC_BYTES], const uint8_t key[MAC_KEY_BYTES], const void *data, size_t len)
{
	uint8_t own[MAC_BYTES];

	mac_make(own, key, data, len);
	return sodium_memcmp(own, mac, MAC_BYTES) == 0;
}
