/* notify.h - the systemd notification protocol (sd_notify(3)): one datagram to $NOTIFY_SOCKET; nothing without it. */
#ifndef SLUICE_NOTIFY_H
#define SLUICE_NOTIFY_H

#include "common/base.h"

/* state: "READY=1\nSTATUS=...". */
void notify_send(const char *state);

#endif
