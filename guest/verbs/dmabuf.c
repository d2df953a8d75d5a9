// SPDX-License-Identifier: Apache-2.0
/* Video memory as a memory region, by way of a dma-buf. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs.h"
#include "vgpu_uapi.h"

#define BYTES 65536
#define IOVA 0x700000000000ull

int case_dmabuf(struct world *world)
{
	struct end *near = &world->near;
	struct vgpu_alloc buffer = { .size = BYTES };
	struct vgpu_export export = {};
	int gpu = open("/dev/vgpu0", O_RDWR | O_CLOEXEC);
	uint8_t *video;
	struct ibv_mr *mr;

	if (gpu < 0 || ioctl(gpu, VGPU_IOC_ALLOC, &buffer))
		return failed("video memory");
	video = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, (off_t)buffer.offset);
	if (video == MAP_FAILED)
		return failed("map video memory");
	export.offset = buffer.offset;
	export.flags = O_CLOEXEC;
	if (ioctl(gpu, VGPU_IOC_EXPORT, &export))
		return failed("export a dma-buf");
	mr = ibv_reg_dmabuf_mr(world->pd, 4096, BYTES - 4096, IOVA + 4096, export.fd,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!mr)
		return failed("register a dma-buf");
	for (int at = 0; at < 40000; at++)
		near->memory[at] = (uint8_t)(at * 13);
	if (write_to(near, 0, IOVA + 8192, mr->rkey, 40000, IBV_WC_SUCCESS))
		return -1;
	if (memcmp(video + 8192, near->memory, 40000))
		return failed("video memory holds something else");
	uint32_t rkey = mr->rkey;
	if (ibv_dereg_mr(mr))
		return failed("deregister");
	if (write_to(near, 0, IOVA + 8192, rkey, 8, IBV_WC_REM_ACCESS_ERR))
		return -1;
	close(export.fd);
	munmap(video, BYTES);
	return close(gpu);
}
