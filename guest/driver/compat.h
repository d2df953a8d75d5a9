/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What differs between the kernels the drivers build for, 6.1 to 7.x. */

#ifndef VRNIC_COMPAT_H
#define VRNIC_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/version.h>

#if KERNEL_VERSION(6, 3, 0) > LINUX_VERSION_CODE
static inline void vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set, vm_flags_t clear)
{
	vma->vm_flags |= set;
	vma->vm_flags &= ~clear;
}
#endif

/* The namespace became a string literal. */
#if KERNEL_VERSION(6, 13, 0) > LINUX_VERSION_CODE
#define VRNIC_IMPORT_DMA_BUF()	MODULE_IMPORT_NS(DMA_BUF)
#else
#define VRNIC_IMPORT_DMA_BUF()	MODULE_IMPORT_NS("DMA_BUF")
#endif

/* The importer's callback of struct dma_buf_attach_ops was renamed. */
#if KERNEL_VERSION(7, 0, 0) > LINUX_VERSION_CODE
#define VRNIC_INVALIDATE_MAPPINGS	move_notify
#else
#define VRNIC_INVALIDATE_MAPPINGS	invalidate_mappings
#endif

#endif /* VRNIC_COMPAT_H */
