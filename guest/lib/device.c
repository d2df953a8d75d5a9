// SPDX-License-Identifier: Apache-2.0
/* Opening the NIC, what it can do, and its events. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"
#include "libvrnic.h"

int vrnic_fail(struct vrnic *nic, int ret, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(nic->error, sizeof(nic->error), format, arguments);
	va_end(arguments);
	return ret;
}

int vrnic_call(struct vrnic *nic, unsigned long request, void *argument,
	       const struct vrnic_verdict *verdict, const char *what)
{
	int error;

	if (!ioctl(nic->fd, request, argument))
		return 0;
	error = errno;
	if (error == ENODEV)
		return vrnic_fail(nic, -error, "%s: the device was reset or removed; open it again", what);
	if (verdict && verdict->status)
		return vrnic_fail(nic, -error, "%s: the device says %s (byte %u of the command): %s", what,
				  vrnic_admin_status_name(verdict->status), verdict->refused,
				  strerror(error));
	return vrnic_fail(nic, -error, "%s: %s", what, strerror(error));
}

static int vrnic_map_doorbells(struct vrnic *nic)
{
	void *page = mmap(NULL, VRNIC_DOORBELL_PAGE_SIZE, PROT_WRITE, MAP_SHARED, nic->fd, 0);

	if (page == MAP_FAILED)
		return vrnic_fail(nic, -errno, "doorbell page: %s", strerror(errno));
	nic->doorbells = page;
	return 0;
}

int vrnic_open(struct vrnic *nic, const char *path)
{
	int ret;

	memset(nic, 0, sizeof(*nic));
	if (!path)
		path = "/dev/vrnic0";
	nic->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (nic->fd < 0)
		return vrnic_fail(nic, -errno, "%s: %s%s", path, strerror(errno),
				  errno == ENOENT ? " (is the vrnic module loaded?)" : "");
	ret = vrnic_query(nic, &nic->limits);
	if (!ret && nic->limits.uapi_version != VRNIC_UAPI_VERSION)
		ret = vrnic_fail(nic, -EPROTO, "%s: the driver's interface is version %u, this library's %u",
				 path, nic->limits.uapi_version, VRNIC_UAPI_VERSION);
	if (!ret)
		ret = vrnic_map_doorbells(nic);
	if (ret)
		vrnic_close(nic);
	return ret;
}

void vrnic_close(struct vrnic *nic)
{
	if (nic->doorbells)
		munmap((void *)nic->doorbells, VRNIC_DOORBELL_PAGE_SIZE);
	nic->doorbells = NULL;
	if (nic->fd >= 0)
		close(nic->fd);
	nic->fd = -1;
}

const char *vrnic_error(const struct vrnic *nic)
{
	return nic->error;
}

int vrnic_query(struct vrnic *nic, struct vrnic_query *query)
{
	return vrnic_call(nic, VRNIC_IOC_QUERY, query, NULL, "query");
}

int vrnic_query_gid(struct vrnic *nic, uint32_t index, uint8_t gid[16])
{
	struct vrnic_gid argument = { .index = index };
	int ret;

	ret = vrnic_call(nic, VRNIC_IOC_QUERY_GID, &argument, &argument.verdict, "query GID");
	if (!ret)
		memcpy(gid, argument.gid, sizeof(argument.gid));
	return ret;
}

int vrnic_set_gid(struct vrnic *nic, uint32_t index, const uint8_t gid[16])
{
	struct vrnic_gid argument = { .index = index };

	memcpy(argument.gid, gid, sizeof(argument.gid));
	return vrnic_call(nic, VRNIC_IOC_SET_GID, &argument, &argument.verdict, "set GID");
}

int vrnic_next_event(struct vrnic *nic, int timeout_ms, struct vrnic_event_record *record)
{
	struct pollfd wait = { .fd = nic->fd, .events = POLLIN };
	ssize_t size;

	for (;;) {
		size = read(nic->fd, record, sizeof(*record));
		if (size == sizeof(*record))
			return 0;
		if (size < 0 && errno != EAGAIN && errno != EINTR)
			return vrnic_fail(nic, -errno, "event: %s", strerror(errno));
		switch (poll(&wait, 1, timeout_ms)) {
		case 0:
			return vrnic_fail(nic, -ETIMEDOUT, "event: none in %d ms", timeout_ms);
		case -1:
			if (errno != EINTR)
				return vrnic_fail(nic, -errno, "event: %s", strerror(errno));
		}
	}
}
