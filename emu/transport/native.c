// SPDX-License-Identifier: Apache-2.0
/*
 * The hot half of the transport. Small writes are collected here and handed to Python in batches, since a
 * call into Python per doorbell would cost more than everything else on its way. Order is kept: whatever is
 * not a small write (a read, a DMA map or unmap, a reset, the end of a burst) first hands over what waits.
 *
 * The two messages a running guest sends, the small posted write and the small read, are taken off the socket
 * here, a burst of writes with two system calls in all; the library would spend two and several allocations
 * on each. Every other message, and every malformed one, is left to the library untouched.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libvfio-user.h>

#include "native.h"

#define REGIONS (VFU_PCI_DEV_CFG_REGION_IDX + 1)
#define SMALL 8
#define COMMAND 0x0
#define REPLY 0x1
#define COMMAND_POSTED 0x10

/* VFIO_USER_REGION_READ and _WRITE; data follows a write, and the reply to a read. */
struct region_message {
	uint16_t id;
	uint16_t command;
	uint32_t size;
	uint32_t flags;
	uint32_t error;
	uint64_t offset;
	uint32_t region;
	uint32_t count;
	uint8_t data[SMALL];
} __attribute__((packed));

#define WITHOUT_DATA (sizeof(struct region_message) - SMALL)

struct vrnic_endpoint {
	vfu_ctx_t *ctx;
	void *handle;
	int listen_fd;
	int waiting;
	bool muted;
	bool lost;
	uint32_t queued;
	struct vrnic_write queue[VRNIC_QUEUE];
	uint64_t region_size[REGIONS];
	uint8_t input[VRNIC_QUEUE * sizeof(struct region_message)];
};

int *vrnic_waiting;

static void flush(struct vrnic_endpoint *ep)
{
	uint32_t count = ep->queued;

	if (count) {
		/* Emptied first: the callback may lead back here. */
		ep->queued = 0;
		vrnic_py_writes(ep->handle, count);
	}
}

static void enqueue(struct vrnic_endpoint *ep, uint32_t region, uint64_t offset, const void *data, uint32_t size)
{
	struct vrnic_write *write;

	if (ep->queued == VRNIC_QUEUE)
		flush(ep);
	write = &ep->queue[ep->queued++];
	write->region = region;
	write->size = size;
	write->offset = offset;
	memset(write->data, 0, sizeof(write->data));
	memcpy(write->data, data, size);
}

static ssize_t on_access(vfu_ctx_t *ctx, uint32_t region, char *buf, size_t count, loff_t offset, bool is_write)
{
	struct vrnic_endpoint *ep = vfu_get_private(ctx);

	if (is_write && count <= SMALL) {
		enqueue(ep, region, offset, buf, count);
		return count;
	}
	flush(ep);
	if (is_write)
		vrnic_py_write(ep->handle, region, offset, buf, count);
	else
		vrnic_py_read(ep->handle, region, offset, buf, count);
	return count;
}

/* The library does not tell its callback which region it serves. */
#define REGION(n)                                                                                   \
	static ssize_t on_region##n(vfu_ctx_t *ctx, char *buf, size_t count, loff_t offset, bool w) \
	{                                                                                           \
		return on_access(ctx, n, buf, count, offset, w);                                    \
	}
REGION(0)
REGION(1)
REGION(2)
REGION(3)
REGION(4)
REGION(5)
REGION(6)
REGION(7)

static vfu_region_access_cb_t *const on_region[] = {
	on_region0, on_region1, on_region2, on_region3, on_region4, on_region5, on_region6, on_region7,
};

static void on_map(vfu_ctx_t *ctx, vfu_dma_info_t *info)
{
	struct vrnic_endpoint *ep = vfu_get_private(ctx);
	uint64_t skip = 0;
	uint64_t length = 0;
	void *own = NULL;

	flush(ep);
	if (info->vaddr) {
		/*
		 * A second mapping of the same pages: the library unmaps its own when the client says so, ours lives
		 * until the last view of it is gone.
		 */
		length = info->mapping.iov_len;
		own = mremap(info->mapping.iov_base, 0, length, MREMAP_MAYMOVE);
		if (own == MAP_FAILED) {
			own = NULL;
		} else {
			madvise(own, length, MADV_DONTDUMP);
			skip = (char *)info->vaddr - (char *)info->mapping.iov_base;
		}
	}
	vrnic_py_map(ep->handle, (uint64_t)(uintptr_t)info->iova.iov_base, info->iova.iov_len, own, length, skip,
		     info->prot);
}

static void on_unmap(vfu_ctx_t *ctx, vfu_dma_info_t *info)
{
	struct vrnic_endpoint *ep = vfu_get_private(ctx);

	flush(ep);
	vrnic_py_unmap(ep->handle, (uint64_t)(uintptr_t)info->iova.iov_base, info->iova.iov_len);
}

static int on_reset(vfu_ctx_t *ctx, vfu_reset_type_t type)
{
	struct vrnic_endpoint *ep = vfu_get_private(ctx);

	flush(ep);
	ep->lost = type == VFU_RESET_LOST_CONN;
	vrnic_py_reset(ep->handle, ep->lost);
	return 0;
}

static void on_log(vfu_ctx_t *ctx, int level, const char *message)
{
	struct vrnic_endpoint *ep = vfu_get_private(ctx);

	if (!ep->muted)
		vrnic_py_log(ep->handle, level, (char *)message);
}

static int failed(int ret)
{
	return ret < 0 ? -errno : 0;
}

struct vrnic_endpoint *vrnic_open(const char *path, void *handle, int log_level, int *error)
{
	struct vrnic_endpoint *ep = calloc(1, sizeof(*ep));

	if (!ep) {
		*error = ENOMEM;
		return NULL;
	}
	ep->handle = handle;
	ep->waiting = -1;
	ep->ctx = vfu_create_ctx(VFU_TRANS_SOCK, path, LIBVFIO_USER_FLAG_ATTACH_NB, ep, VFU_DEV_TYPE_PCI);
	if (!ep->ctx)
		goto no_context;
	ep->listen_fd = vfu_get_poll_fd(ep->ctx);
	if (vfu_setup_log(ep->ctx, on_log, log_level) < 0 ||
	    vfu_pci_init(ep->ctx, VFU_PCI_TYPE_EXPRESS, PCI_HEADER_TYPE_NORMAL, 0) < 0 ||
	    vfu_setup_device_reset_cb(ep->ctx, on_reset) < 0)
		goto no_setup;
#if VRNIC_VFU_API >= 2
	if (vfu_setup_device_dma(ep->ctx, LIBVFIO_USER_MAX_DMA_REGIONS, on_map, on_unmap) < 0)
		goto no_setup;
#else
	if (vfu_setup_device_dma(ep->ctx, on_map, on_unmap) < 0)
		goto no_setup;
#endif
	return ep;

no_setup:
	*error = errno;
	vrnic_close(ep);
	return NULL;
no_context:
	*error = errno;
	free(ep);
	return NULL;
}

int vrnic_region(struct vrnic_endpoint *ep, int index, uint64_t size, int fd)
{
	int flags = VFU_REGION_FLAG_RW;

	int ret;

	if (index < 0 || index >= REGIONS)
		return -EINVAL;
#if VRNIC_VFU_API < 2
	/* The library of 2022 keeps 32 bits of a region's size. */
	if (size > UINT32_MAX)
		return -EFBIG;
#endif
	/* Our own configuration space is the authority, the library's copy is never looked at. */
	if (index == VFU_PCI_DEV_CFG_REGION_IDX)
		flags |= VFU_REGION_FLAG_ALWAYS_CB;
	else
		flags |= VFU_REGION_FLAG_MEM;
	ret = failed(vfu_setup_region(ep->ctx, index, size, on_region[index], flags, NULL, 0, fd, 0));
	if (ret == 0)
		ep->region_size[index] = size;
	return ret;
}

int vrnic_realize(struct vrnic_endpoint *ep, uint32_t msix_vectors)
{
	if (vfu_setup_device_nr_irqs(ep->ctx, VFU_DEV_MSIX_IRQ, msix_vectors) < 0)
		return -errno;
	return failed(vfu_realize_ctx(ep->ctx));
}

int vrnic_poll_fd(struct vrnic_endpoint *ep)
{
	return ep->waiting >= 0 ? ep->waiting : vfu_get_poll_fd(ep->ctx);
}

int vrnic_attach(struct vrnic_endpoint *ep)
{
	int ret;

	vrnic_waiting = &ep->waiting;
	ret = failed(vfu_attach_ctx(ep->ctx));
	vrnic_waiting = NULL;
	return ret;
}

/* Whether the bytes at m, of which left are there, are a small access that nothing is wrong with. */
static bool is_small(struct vrnic_endpoint *ep, const struct region_message *m, size_t left)
{
	return left >= WITHOUT_DATA && m->count >= 1 && m->count <= SMALL && m->region < REGIONS &&
	       m->offset <= ep->region_size[m->region] && m->count <= ep->region_size[m->region] - m->offset;
}

static void consume(struct vrnic_endpoint *ep, int fd, size_t size)
{
	while (size) {
		/* Stops early behind a message with descriptors, which are dropped with it. */
		ssize_t got = recvfrom(fd, ep->input, size, MSG_DONTWAIT, NULL, NULL);

		if (got <= 0)
			return;
		size -= got;
	}
}

static void answer_read(struct vrnic_endpoint *ep, int fd, struct region_message *m)
{
	struct region_message reply = *m;

	flush(ep);
	vrnic_py_read(ep->handle, m->region, m->offset, (char *)reply.data, m->count);
	reply.size = WITHOUT_DATA + m->count;
	reply.flags = REPLY;
	reply.error = 0;
	/* The library sees the end of the stream and does what there is to do. */
	if (send(fd, &reply, reply.size, MSG_NOSIGNAL) != (ssize_t)reply.size)
		shutdown(fd, SHUT_RDWR);
}

/* Take small accesses off the socket. Returns how many; *empty when nothing is left for the library. */
static int take_small(struct vrnic_endpoint *ep, bool *empty)
{
	int fd = vfu_get_poll_fd(ep->ctx);
	struct region_message read;
	size_t room, got, used = 0;
	bool is_read = false;
	ssize_t ret;
	int taken = 0;

	if (ep->queued)
		flush(ep);
	/* Not recv: guards.c has its hand on that. */
	ret = recvfrom(fd, ep->input, sizeof(ep->input), MSG_PEEK | MSG_DONTWAIT, NULL, NULL);
	*empty = ret < 0 && errno == EAGAIN;
	if (ret <= 0)
		return 0;
	got = ret;
	for (room = VRNIC_QUEUE; room; room--) {
		const struct region_message *m = (const void *)(ep->input + used);

		if (!is_small(ep, m, got - used))
			break;
		if (m->command == VFIO_USER_REGION_READ && m->flags == COMMAND && m->size == WITHOUT_DATA) {
			memcpy(&read, m, WITHOUT_DATA);
			used += WITHOUT_DATA;
			is_read = true;
			taken++;
			break;
		}
		if (m->command != VFIO_USER_REGION_WRITE || m->flags != COMMAND_POSTED ||
		    m->size != WITHOUT_DATA + m->count || got - used < m->size)
			break;
		enqueue(ep, m->region, m->offset, m->data, m->count);
		used += m->size;
		taken++;
	}
	*empty = used == got && got < sizeof(ep->input);
	consume(ep, fd, used);
	if (is_read)
		answer_read(ep, fd, &read);
	return taken;
}

int vrnic_drain(struct vrnic_endpoint *ep, int budget)
{
	int done = 0;
	int ret = 0;

	ep->lost = false;
	/* A client lost while its reply was sent is told as success by the library. */
	while (done < budget && !ep->lost) {
		bool empty;
		int taken = take_small(ep, &empty);

		done += taken;
		if (empty) {
			ret = 0;
			break;
		}
		/* Behind what was taken something else waits: a message for the library, or half of one. */
		if (taken)
			continue;
		ret = vfu_run_ctx(ep->ctx);
		if (ret <= 0)
			break;
		done += ret;
	}
	ret = ret < 0 ? -errno : done;
	if (ep->lost)
		ret = -ENOTCONN;
	flush(ep);
	return ret;
}

int vrnic_trigger(struct vrnic_endpoint *ep, uint32_t vector)
{
	int ret;

	/* A vector without eventfd is an everyday case here, an error line of the library each time is not. */
	ep->muted = true;
	ret = failed(vfu_irq_trigger(ep->ctx, vector));
	ep->muted = false;
	return ret;
}

int vrnic_refuse(struct vrnic_endpoint *ep)
{
	int fd = accept4(ep->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

void vrnic_disconnect(struct vrnic_endpoint *ep)
{
	int fd = vfu_get_poll_fd(ep->ctx);

	/* The library offers no way to drop a client; it does so itself when it reads the end of the stream. */
	if (fd >= 0 && fd != ep->listen_fd)
		shutdown(fd, SHUT_RDWR);
}

void vrnic_close(struct vrnic_endpoint *ep)
{
	flush(ep);
	vfu_destroy_ctx(ep->ctx);
	if (ep->waiting >= 0)
		close(ep->waiting);
	free(ep);
}

void vrnic_unmap(void *base, uint64_t length)
{
	munmap(base, length);
}

struct vrnic_write *vrnic_queue(struct vrnic_endpoint *ep)
{
	return ep->queue;
}
