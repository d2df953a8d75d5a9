// SPDX-License-Identifier: Apache-2.0
/* VRAM: whose it is, when it can go, and that it comes empty. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selftest.h"

#define SIZE (64 * 4096ul)

static void test_arguments(struct vgpu *gpu)
{
	struct vgpu_alloc alloc = { .size = 0 };
	struct vgpu_export export = { .offset = gpu->info.vram_size };

	refused(gpu->fd, VGPU_IOC_ALLOC, &alloc, EINVAL, "an empty allocation is refused");
	alloc.size = UINT64_MAX;
	refused(gpu->fd, VGPU_IOC_ALLOC, &alloc, E2BIG, "an absurd allocation is refused");
	alloc.size = gpu->info.vram_size + 1;
	refused(gpu->fd, VGPU_IOC_ALLOC, &alloc, ENOSPC, "more than there is is refused");
	alloc = (struct vgpu_alloc){ .offset = gpu->info.vram_size };
	refused(gpu->fd, VGPU_IOC_FREE, &alloc, ENOENT, "freeing what is not allocated is refused");
	refused(gpu->fd, VGPU_IOC_EXPORT, &export, ENOENT, "exporting what is not allocated is refused");
	refused(gpu->fd, _IO(VGPU_IOC_MAGIC, 0x7f), NULL, ENOTTY, "an unknown call is refused");
}

static void test_owner(struct vgpu *gpu, const struct vgpu_buffer *buffer)
{
	struct vgpu other;
	struct vgpu_alloc alloc = { .offset = buffer->offset };
	void *map;

	need(vgpu_open(&other, NULL), "opening the GPU again");
	map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, other.fd, (off_t)buffer->offset);
	check(map == MAP_FAILED && errno == EINVAL, "another file's VRAM cannot be mapped", "%p", map);
	refused(other.fd, VGPU_IOC_FREE, &alloc, ENOENT, "another file's VRAM cannot be freed");
	vgpu_close(&other);
	map = mmap(NULL, 2 * SIZE, PROT_READ, MAP_SHARED, gpu->fd, (off_t)buffer->offset);
	check(map == MAP_FAILED && errno == EINVAL, "a mapping beyond the allocation is refused", "%p", map);
	map = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, gpu->fd, (off_t)buffer->offset);
	check(map == MAP_FAILED && errno == EINVAL, "a private mapping is refused", "%p", map);
}

static void test_export(struct vgpu *gpu, struct vgpu_buffer *buffer)
{
	struct vgpu_alloc alloc = { .offset = buffer->offset };
	int fd = vgpu_export(gpu, buffer);
	volatile uint8_t *map;

	need(fd, "exporting VRAM");
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
	need(map == MAP_FAILED ? -errno : 0, "mapping the dma-buf");
	((uint8_t *)buffer->map)[4096 + 17] = 0x5a;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	check(map[17] == 0x5a, "the dma-buf's mapping shows the same bytes", "%#x", map[17]);
	munmap((void *)map, 4096);
	munmap(buffer->map, buffer->size);
	buffer->map = NULL;
	refused(gpu->fd, VGPU_IOC_FREE, &alloc, EBUSY, "VRAM that is exported cannot go");
	close(fd);
}

void test_gpu(void)
{
	struct vgpu_buffer buffer;
	struct vgpu gpu, after;
	struct vgpu_alloc alloc;
	size_t dirty = 0;

	need(vgpu_open(&gpu, NULL), "opening the GPU");
	need(vgpu_alloc(&gpu, SIZE, &buffer), "VRAM");
	test_arguments(&gpu);
	test_owner(&gpu, &buffer);
	alloc = (struct vgpu_alloc){ .offset = buffer.offset };
	refused(gpu.fd, VGPU_IOC_FREE, &alloc, EBUSY, "VRAM that is mapped cannot go");
	memset(buffer.map, 0xee, SIZE);
	test_export(&gpu, &buffer);
	need(vgpu_free(&gpu, &buffer), "freeing VRAM");
	need(vgpu_alloc(&gpu, SIZE, &buffer), "VRAM again");
	for (size_t i = 0; i < SIZE; i++)
		dirty += ((volatile uint8_t *)buffer.map)[i] != 0;
	check(!dirty, "allocated VRAM is empty", "%zu bytes are not", dirty);
	munmap(buffer.map, buffer.size);
	vgpu_close(&gpu);
	need(vgpu_open(&after, NULL), "opening the GPU");
	check(after.info.vram_free == after.info.vram_size, "close frees what was left", "%llu of %llu free",
	      (unsigned long long)after.info.vram_free, (unsigned long long)after.info.vram_size);
	vgpu_close(&after);
}
