// SPDX-License-Identifier: Apache-2.0
/* VRAM: allocation, mapping, export. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libvrnic.h"

__attribute__((format(printf, 3, 4))) static int fail(struct vgpu *gpu, int ret, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(gpu->error, sizeof(gpu->error), format, arguments);
	va_end(arguments);
	return ret;
}

int vgpu_open(struct vgpu *gpu, const char *path)
{
	int ret;

	memset(gpu, 0, sizeof(*gpu));
	if (!path)
		path = "/dev/vgpu0";
	gpu->fd = open(path, O_RDWR | O_CLOEXEC);
	if (gpu->fd < 0)
		return fail(gpu, -errno, "%s: %s%s", path, strerror(errno),
			    errno == ENOENT ? " (is the vgpu module loaded?)" : "");
	if (ioctl(gpu->fd, VGPU_IOC_INFO, &gpu->info)) {
		ret = fail(gpu, -errno, "%s: %s", path, strerror(errno));
		vgpu_close(gpu);
		return ret;
	}
	return 0;
}

void vgpu_close(struct vgpu *gpu)
{
	if (gpu->fd >= 0)
		close(gpu->fd);
	gpu->fd = -1;
}

const char *vgpu_error(const struct vgpu *gpu)
{
	return gpu->error;
}

static int free_pages(struct vgpu *gpu, uint64_t offset)
{
	struct vgpu_alloc argument = { .offset = offset };

	if (ioctl(gpu->fd, VGPU_IOC_FREE, &argument))
		return fail(gpu, -errno, "free VRAM: %s", strerror(errno));
	return 0;
}

int vgpu_alloc(struct vgpu *gpu, size_t size, struct vgpu_buffer *buffer)
{
	struct vgpu_alloc argument = { .size = size };
	int ret;

	memset(buffer, 0, sizeof(*buffer));
	if (ioctl(gpu->fd, VGPU_IOC_ALLOC, &argument))
		return fail(gpu, -errno, "allocate %zu bytes of VRAM: %s", size, strerror(errno));
	buffer->offset = argument.offset;
	buffer->size = argument.size;
	buffer->map = mmap(NULL, buffer->size, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd,
			   (off_t)buffer->offset);
	if (buffer->map != MAP_FAILED)
		return 0;
	ret = fail(gpu, -errno, "map %zu bytes of VRAM: %s", size, strerror(errno));
	buffer->map = NULL;
	free_pages(gpu, buffer->offset);
	return ret;
}

int vgpu_free(struct vgpu *gpu, struct vgpu_buffer *buffer)
{
	if (buffer->map)
		munmap(buffer->map, buffer->size);
	buffer->map = NULL;
	return free_pages(gpu, buffer->offset);
}

int vgpu_export(struct vgpu *gpu, const struct vgpu_buffer *buffer)
{
	struct vgpu_export argument = { .offset = buffer->offset, .flags = O_CLOEXEC };

	if (ioctl(gpu->fd, VGPU_IOC_EXPORT, &argument))
		return fail(gpu, -errno, "export VRAM: %s", strerror(errno));
	return argument.fd;
}
