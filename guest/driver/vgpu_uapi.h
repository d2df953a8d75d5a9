/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * /dev/vgpuN: VRAM for user space.
 *
 * An open file owns the allocations it makes. mmap() (shared) maps an allocation at its offset; an
 * exported dma-buf can be imported by any driver that reaches the VRAM BAR peer to peer. An
 * allocation that is mapped or exported cannot be freed (EBUSY); everything goes away when the
 * file, its mappings and its exports are closed. Reserved fields must be 0.
 */

#ifndef VGPU_UAPI_H
#define VGPU_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct vgpu_info - What the device has
 * @vram_size: bytes
 * @vram_free: bytes not allocated, in pieces of any size
 * @bus_address: of VRAM byte 0; for traces and captures, nothing needs it
 */
struct vgpu_info {
	__u64 vram_size;
	__u64 vram_free;
	__u64 bus_address;
};

/**
 * struct vgpu_alloc - Allocate VRAM (zeroed) or free it
 * @size: bytes, rounded up to whole pages; ALLOC returns the rounded size, FREE wants 0
 * @offset: of the allocation in VRAM and in mmap(): ALLOC out, FREE in
 */
struct vgpu_alloc {
	__u64 size;
	__u64 offset;
};

/**
 * struct vgpu_export - Make a dma-buf of an allocation
 * @offset: of the allocation
 * @flags: O_CLOEXEC or 0
 * @fd: out: the dma-buf
 */
struct vgpu_export {
	__u64 offset;
	__u32 flags;
	__s32 fd;
};

#define VGPU_IOC_MAGIC		0xbd

#define VGPU_IOC_INFO		_IOR(VGPU_IOC_MAGIC, 0x00, struct vgpu_info)
#define VGPU_IOC_ALLOC		_IOWR(VGPU_IOC_MAGIC, 0x01, struct vgpu_alloc)
#define VGPU_IOC_FREE		_IOW(VGPU_IOC_MAGIC, 0x02, struct vgpu_alloc)
#define VGPU_IOC_EXPORT		_IOWR(VGPU_IOC_MAGIC, 0x03, struct vgpu_export)

#endif /* VGPU_UAPI_H */
