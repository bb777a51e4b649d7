/* status.h - the one list of status codes. 0 is success, errors are negative. */
#ifndef SLUICE_STATUS_H
#define SLUICE_STATUS_H

#define STATUS_CODES(S)                                                                   \
	S(ST_OK, 0, "ok")                                                                 \
	S(ST_INVALID, -1, "invalid input")                                                \
	S(ST_LIMIT, -2, "a limit was reached")                                            \
	S(ST_AGAIN, -3, "not now, try again")                                             \
	S(ST_NOT_FOUND, -4, "not found")                                                  \
	S(ST_UNSUPPORTED, -5, "not supported")                                            \
	S(ST_CORRUPT, -6, "corrupt data")                                                 \
	S(ST_IO, -7, "input/output error")                                                \
	S(ST_CLOSED, -8, "closed by the other side")                                      \
	S(ST_TIMEOUT, -9, "timed out")                                                    \
	S(ST_EXISTS, -10, "exists already")                                               \
	S(ST_NO_MEMORY, -11, "not enough memory")                                         \
	S(ST_DEVICE, -12, "device error")                                                 \
	S(ST_DENIED, -13, "permission denied")

#define STATUS_AS_ENUM(name, number, text) name = number,
enum status { STATUS_CODES(STATUS_AS_ENUM) };
#undef STATUS_AS_ENUM

/* The text of a code, for messages to people; "unknown status" for a number that is not in the list. */
const char *status_text(int rc);

#endif
