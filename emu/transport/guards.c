// SPDX-License-Identifier: Apache-2.0
/*
 * What libvfio-user does not check. Linked only when the library is built from source: the linker's --wrap
 * sends its calls through here.
 *
 *  accept                     a client that connects and says nothing would stop the one server thread
 *  recv                       a message that arrives in pieces, or never whole
 *  malloc                     a message shorter than the structure it is read as
 *  handle_device_set_irqs     start + count that wraps around 32 bits walks over foreign memory
 *  dma_controller_add_region  a file shorter than the range it is announced for (SIGBUS on access)
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "dma.h"
#include "irq.h"
#include "native.h"
#include "private.h"

#define GREETING_MAX 65536
/* More than any structure a message starts with. */
#define MESSAGE_MARGIN 64

int __real_accept(int fd, struct sockaddr *address, socklen_t *length);
int __wrap_accept(int fd, struct sockaddr *address, socklen_t *length);
ssize_t __real_recv(int fd, void *buffer, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *buffer, size_t size, int flags);
void *__wrap_malloc(size_t size);
int __real_handle_device_set_irqs(vfu_ctx_t *ctx, vfu_msg_t *msg);
int __wrap_handle_device_set_irqs(vfu_ctx_t *ctx, vfu_msg_t *msg);

/* What to say of a message that is not there whole: 0 for not yet, -1 when the client has hung up. */
static int incomplete(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLRDHUP };

	return poll(&poll_fd, 1, 0) == 0 ? 0 : -1;
}

/* 1: the first message is there whole. 0: not yet. -1: it never will be. */
static int greeted(int fd)
{
	struct vfio_user_header header;
	ssize_t got;
	int queued = 0;

	got = __real_recv(fd, &header, sizeof(header), MSG_PEEK | MSG_DONTWAIT);
	if (got < 0)
		return errno == EAGAIN ? 0 : -1;
	if (got == 0)
		return -1;
	if ((size_t)got < sizeof(header))
		return incomplete(fd);
	if (header.msg_size < sizeof(header) || header.msg_size > GREETING_MAX)
		return -1;
	if (ioctl(fd, FIONREAD, &queued) < 0)
		return -1;
	return (uint32_t)queued >= header.msg_size ? 1 : incomplete(fd);
}

int __wrap_accept(int fd, struct sockaddr *address, socklen_t *length)
{
	/* A reply to a client that does not read, or the rest of a message, may take this long and no longer. */
	const struct timeval patience = { .tv_sec = 1 };
	int *waiting = vrnic_waiting;
	int state;
	int peer;

	if (!waiting)
		return __real_accept(fd, address, length);
	if (*waiting < 0) {
		*waiting = __real_accept(fd, address, length);
		if (*waiting < 0)
			return -1;
	}
	state = greeted(*waiting);
	if (state == 0) {
		errno = EAGAIN;
		return -1;
	}
	peer = *waiting;
	*waiting = -1;
	if (state < 0) {
		close(peer);
		errno = EPROTO;
		return -1;
	}
	setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return peer;
}

ssize_t __wrap_recv(int fd, void *buffer, size_t size, int flags)
{
	ssize_t got = __real_recv(fd, buffer, size, flags | MSG_WAITALL);
	int error = errno;

	/* What follows on the stream can no longer be told apart: end it, the library then drops the client. */
	if (got != (ssize_t)size)
		shutdown(fd, SHUT_RDWR);
	errno = error;
	return got;
}

void *__wrap_malloc(size_t size)
{
	/* Messages are allocated at the size they arrived with, and looked at before that is checked. */
	return size > SIZE_MAX - MESSAGE_MARGIN ? NULL : calloc(1, size + MESSAGE_MARGIN);
}

int __wrap_handle_device_set_irqs(vfu_ctx_t *ctx, vfu_msg_t *msg)
{
	struct vfio_irq_set *set = msg->in.iov.iov_base;

	if (msg->in.iov.iov_len >= sizeof(*set) && (uint64_t)set->start + set->count > UINT32_MAX) {
		errno = EINVAL;
		return -1;
	}
	return __real_handle_device_set_irqs(ctx, msg);
}

/* A device or a huge page file has no size to compare with; only plain files (a memfd is one) do. */
static bool too_short(int fd, uint64_t offset, uint64_t size)
{
	struct stat file;

	if (offset + size < size)
		return true;
	return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && offset + size > (uint64_t)file.st_size;
}

#if VRNIC_VFU_API >= 2
dma_memory_region_t *__real_dma_controller_add_region(dma_controller_t *dma, vfu_dma_addr_t address, uint64_t size,
						      int *fd, off_t offset, uint32_t prot,
						      enum region_access_mode mode);
dma_memory_region_t *__wrap_dma_controller_add_region(dma_controller_t *dma, vfu_dma_addr_t address, uint64_t size,
						      int *fd, off_t offset, uint32_t prot,
						      enum region_access_mode mode);

dma_memory_region_t *__wrap_dma_controller_add_region(dma_controller_t *dma, vfu_dma_addr_t address, uint64_t size,
						      int *fd, off_t offset, uint32_t prot,
						      enum region_access_mode mode)
{
	if (size == 0 || (uintptr_t)address + size < size || (*fd != -1 && too_short(*fd, offset, size))) {
		errno = EINVAL;
		return NULL;
	}
	return __real_dma_controller_add_region(dma, address, size, fd, offset, prot, mode);
}
#else
int __real_dma_controller_add_region(dma_controller_t *dma, vfu_dma_addr_t address, size_t size, int fd, off_t offset,
				     uint32_t prot);
int __wrap_dma_controller_add_region(dma_controller_t *dma, vfu_dma_addr_t address, size_t size, int fd, off_t offset,
				     uint32_t prot);

int __wrap_dma_controller_add_region(dma_controller_t *dma, vfu_dma_addr_t address, size_t size, int fd, off_t offset,
				     uint32_t prot)
{
	if (size == 0 || (uintptr_t)address + size < size || (fd != -1 && too_short(fd, offset, size))) {
		errno = EINVAL;
		return -1;
	}
	return __real_dma_controller_add_region(dma, address, size, fd, offset, prot);
}
#endif
