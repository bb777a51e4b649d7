/* status.c - texts of the status codes. */
#include "common/status.h"

const char *status_text(int rc)
{
#define STATUS_AS_CASE(name, number, text) \
	case number:                       \
		return text;
	switch (rc) {
		STATUS_CODES(STATUS_AS_CASE)
	default:
		return "unknown status";
	}
#undef STATUS_AS_CASE
}
