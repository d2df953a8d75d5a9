// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The doorbell page in user space. It is mapped by page fault, so that a reset can take it away:
 * a fault that comes after the file died is SIGBUS.
 */

#include "compat.h"
#include "vrnic.h"

static vm_fault_t vrnic_doorbell_fault(struct vm_fault *vmf)
{
	struct vrnic_context *ctx = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	phys_addr_t page;

	mutex_lock(&ctx->map_lock);
	if (!ctx->dead) {
		page = ctx->vdev->doorbells + (phys_addr_t)ctx->number * VRNIC_DOORBELL_PAGE_SIZE;
		ret = vmf_insert_pfn(vmf->vma, vmf->address, PHYS_PFN(page));
		atomic64_inc(&ctx->doorbell_maps);
	}
	mutex_unlock(&ctx->map_lock);
	return ret;
}

static const struct vm_operations_struct vrnic_doorbell_ops = {
	.fault = vrnic_doorbell_fault,
};

int vrnic_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct vrnic_context *ctx = file->private_data;

	atomic64_inc(&ctx->syscalls);
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != VRNIC_DOORBELL_PAGE_SIZE)
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	/* A doorbell is one process's: a fork()ed child opens its own. */
	vm_flags_mod(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY,
		     VM_MAYEXEC);
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_private_data = ctx;
	vma->vm_ops = &vrnic_doorbell_ops;
	return 0;
}
