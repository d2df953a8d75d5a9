// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* VRAM pages: allocation, clearing, and mappings in user space. */

#include <linux/bitmap.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "compat.h"
#include "vgpu.h"

unsigned long vgpu_vram_free_pages(struct vgpu_dev *gpu)
{
	return gpu->page_count - bitmap_weight(gpu->used, gpu->page_count);
}

/* First fit, cleared: the pages may have been another process's. The caller holds the lock. */
struct vgpu_allocation *vgpu_vram_alloc(struct vgpu_file *owner, u64 size)
{
	struct vgpu_dev *gpu = owner->gpu;
	struct vgpu_allocation *allocation;
	unsigned long count, first;

	if (gpu->gone)
		return ERR_PTR(-ENODEV);
	if (!size)
		return ERR_PTR(-EINVAL);
	/* A segment of the dma-buf's table counts bytes in 32 bits. */
	if (size > SZ_2G)
		return ERR_PTR(-E2BIG);
	count = PAGE_ALIGN(size) >> PAGE_SHIFT;
	first = bitmap_find_next_zero_area(gpu->used, gpu->page_count, 0, count, 0);
	if (first >= gpu->page_count)
		return ERR_PTR(-ENOSPC);
	allocation = kzalloc(sizeof(*allocation), GFP_KERNEL_ACCOUNT);
	if (!allocation)
		return ERR_PTR(-ENOMEM);
	allocation->owner = owner;
	allocation->first = first;
	allocation->count = count;
	bitmap_set(gpu->used, first, count);
	list_add_tail(&allocation->node, &owner->allocations);
	memset_io(gpu->vram_map + (first << PAGE_SHIFT), 0, count << PAGE_SHIFT);
	return allocation;
}

/* The caller's own allocation that begins at @offset, or NULL. The caller holds the lock. */
struct vgpu_allocation *vgpu_vram_find(struct vgpu_file *owner, u64 offset)
{
	struct vgpu_allocation *allocation;

	list_for_each_entry(allocation, &owner->allocations, node)
		if ((u64)allocation->first << PAGE_SHIFT == offset)
			return allocation;
	return NULL;
}

void vgpu_vram_free(struct vgpu_allocation *allocation)
{
	bitmap_clear(allocation->owner->gpu->used, allocation->first, allocation->count);
	list_del(&allocation->node);
	kfree(allocation);
}

static void vgpu_vma_open(struct vm_area_struct *vma)
{
	struct vgpu_allocation *allocation = vma->vm_private_data;
	struct vgpu_dev *gpu = allocation->owner->gpu;

	mutex_lock(&gpu->lock);
	allocation->users++;
	mutex_unlock(&gpu->lock);
}

static void vgpu_vma_close(struct vm_area_struct *vma)
{
	struct vgpu_allocation *allocation = vma->vm_private_data;
	struct vgpu_dev *gpu = allocation->owner->gpu;

	mutex_lock(&gpu->lock);
	allocation->users--;
	mutex_unlock(&gpu->lock);
}

/*
 * The first touch maps everything, so that the path of a kernel has no page fault. Nothing is
 * mapped before, because a mapping made in mmap() could escape revocation.
 */
static vm_fault_t vgpu_vma_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct vgpu_allocation *allocation = vma->vm_private_data;
	struct vgpu_dev *gpu = allocation->owner->gpu;
	unsigned long pfn = PHYS_PFN(gpu->vram) + vma->vm_pgoff;
	unsigned long address;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	mutex_lock(&gpu->lock);
	if (!gpu->gone) {
		for (address = vma->vm_start; address < vma->vm_end; address += PAGE_SIZE) {
			ret = vmf_insert_pfn(vma, address, pfn++);
			if (ret & VM_FAULT_ERROR)
				break;
		}
	}
	mutex_unlock(&gpu->lock);
	return ret;
}

static const struct vm_operations_struct vgpu_vma_ops = {
	.open = vgpu_vma_open,
	.close = vgpu_vma_close,
	.fault = vgpu_vma_fault,
};

static bool vgpu_allocation_covers(const struct vgpu_allocation *allocation,
				   struct vm_area_struct *vma)
{
	unsigned long count = vma_pages(vma);

	return vma->vm_pgoff >= allocation->first && count <= allocation->count &&
	       vma->vm_pgoff - allocation->first <= allocation->count - count;
}

/* Map a part of an allocation; the offset counts from the start of VRAM. */
int vgpu_vram_mmap(struct vgpu_file *owner, struct vm_area_struct *vma)
{
	struct vgpu_dev *gpu = owner->gpu;
	struct vgpu_allocation *allocation;
	int ret = -EINVAL;

	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	mutex_lock(&gpu->lock);
	if (gpu->gone)
		ret = -ENODEV;
	list_for_each_entry(allocation, &owner->allocations, node) {
		if (gpu->gone || !vgpu_allocation_covers(allocation, vma))
			continue;
		vm_flags_mod(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
		vma->vm_private_data = allocation;
		vma->vm_ops = &vgpu_vma_ops;
		allocation->users++;
		ret = 0;
		break;
	}
	mutex_unlock(&gpu->lock);
	return ret;
}
