/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The GPU driver's own structures. There is one lock, vgpu_dev.lock, around everything that
 * changes; mmap_lock is taken outside it (page faults), never inside.
 */

#ifndef VGPU_H
#define VGPU_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/pci.h>

#include "vgpu_uapi.h"

struct dma_buf;
struct vm_area_struct;

struct vgpu_dev {
	struct kref kref;
	struct pci_dev *pdev;
	struct miscdevice misc;
	char name[16];
	int id;
	struct mutex lock;	/* everything below, and the files' allocations */
	bool gone;		/* removed; waits for its files to close */
	phys_addr_t vram;
	pci_bus_addr_t vram_bus;
	void __iomem *vram_map;	/* to clear what is allocated */
	unsigned long page_count;
	unsigned long *used;	/* one bit for each page */
	struct list_head files;
};

struct vgpu_file {
	struct vgpu_dev *gpu;
	struct list_head node;
	struct list_head allocations;
	struct address_space *mapping;
};

/* A run of VRAM pages. It lives until it is freed, or its file is. */
struct vgpu_allocation {
	struct vgpu_file *owner;
	struct list_head node;
	unsigned long first;	/* page */
	unsigned long count;
	unsigned int users;	/* mappings and exports; each of them holds the file as well */
};

static inline u64 vgpu_allocation_size(const struct vgpu_allocation *allocation)
{
	return (u64)allocation->count << PAGE_SHIFT;
}

static inline phys_addr_t vgpu_allocation_address(const struct vgpu_allocation *allocation)
{
	return allocation->owner->gpu->vram + ((phys_addr_t)allocation->first << PAGE_SHIFT);
}

/* vgpu_main.c */
void vgpu_dev_get(struct vgpu_dev *gpu);
void vgpu_dev_put(struct vgpu_dev *gpu);

/* vgpu_file.c */
extern const struct file_operations vgpu_fops;
void vgpu_files_revoke(struct vgpu_dev *gpu);

/* vgpu_vram.c */
unsigned long vgpu_vram_free_pages(struct vgpu_dev *gpu);
struct vgpu_allocation *vgpu_vram_alloc(struct vgpu_file *owner, u64 size);
struct vgpu_allocation *vgpu_vram_find(struct vgpu_file *owner, u64 offset);
void vgpu_vram_free(struct vgpu_allocation *allocation);
int vgpu_vram_mmap(struct vgpu_file *owner, struct vm_area_struct *vma);

/* vgpu_dmabuf.c */
struct dma_buf *vgpu_dmabuf_export(struct file *file, struct vgpu_allocation *allocation);

#endif /* VGPU_H */
