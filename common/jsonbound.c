/* jsonbound.c - see jsonbound.h. */
#include "common/jsonbound.h"

enum jsonbound jsonbound_scan(const char *s, size_t len, uint32_t depth_max, size_t values_max)
{
	size_t i, values = 1;
	int64_t depth = 0;
	bool in_string = false;

	for (i = 0; i < len; i++) {
		char c = s[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		if (c == '"')
			in_string = true;
		else if (c == '[' || c == '{')
			depth++;
		else if (c == ']' || c == '}')
			depth--;
		if (c == '[' || c == '{' || c == ',' || c == ':') values++;
		if (depth > depth_max) return JSONBOUND_TOO_DEEP;
		if (values > values_max) return JSONBOUND_TOO_MANY;
	}
	return JSONBOUND_FITS;
}
