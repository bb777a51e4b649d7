/* notify.c - see notify.h. A datagram is all there is to it, so libsystemd is not needed. */
#include "sluice/notify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	size_t len;
	int fd;

	if (!path || (path[0] != '/' && path[0] != '@')) return;
	len = strlen(path);
	if (len >= sizeof(un.sun_path)) return;
	memcpy(un.sun_path, path, len);
	if (path[0] == '@') un.sun_path[0] = 0; /* the abstract namespace */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) return;
	/* systemd not listening is systemd's affair; serving goes on. */
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&un,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0) {
	}
	close(fd);
}
