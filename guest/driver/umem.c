// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* User memory: pinned for as long as its region lives, and mapped for DMA. */

#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "vrnic.h"

static int vrnic_umem_charge(struct vrnic_mr *mr)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	unsigned long pinned;

	pinned = atomic64_add_return(mr->page_count, &current->mm->pinned_vm);
	if (pinned > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(mr->page_count, &current->mm->pinned_vm);
		return -ENOMEM;
	}
	/* The region may outlive the process when its file was passed on. */
	mmgrab(current->mm);
	mr->mm = current->mm;
	return 0;
}

static void vrnic_umem_uncharge(struct vrnic_mr *mr)
{
	atomic64_sub(mr->page_count, &mr->mm->pinned_vm);
	mmdrop(mr->mm);
}

static int vrnic_umem_pin_pages(struct vrnic_mr *mr, unsigned long start)
{
	unsigned int flags = FOLL_LONGTERM | (mr->writable ? FOLL_WRITE : 0);
	unsigned long done = 0;
	int ret;

	while (done < mr->page_count) {
		ret = pin_user_pages_fast(start + (done << PAGE_SHIFT),
					  min_t(unsigned long, mr->page_count - done, INT_MAX),
					  flags, mr->pages + done);
		if (ret <= 0) {
			unpin_user_pages(mr->pages, done);
			return ret ? ret : -EFAULT;
		}
		done += ret;
	}
	return 0;
}

/* On failure @mr holds nothing. */
int vrnic_umem_pin(struct vrnic_dev *vdev, struct vrnic_mr *mr, u64 start, u64 length,
		   bool writable)
{
	struct device *dev = &vdev->pdev->dev;
	unsigned long first = start & PAGE_MASK;
	int ret;

	if (start > ULONG_MAX - length)
		return -EOVERFLOW;
	mr->writable = writable;
	mr->page_count = (PAGE_ALIGN(start + length) - first) >> PAGE_SHIFT;
	ret = vrnic_umem_charge(mr);
	if (ret)
		return ret;
	mr->pages = kvmalloc_array(mr->page_count, sizeof(*mr->pages), GFP_KERNEL_ACCOUNT);
	if (!mr->pages) {
		ret = -ENOMEM;
		goto err_uncharge;
	}
	ret = vrnic_umem_pin_pages(mr, first);
	if (ret)
		goto err_free;
	ret = sg_alloc_table_from_pages(&mr->umem_sgt, mr->pages, mr->page_count, 0,
					mr->page_count << PAGE_SHIFT, GFP_KERNEL_ACCOUNT);
	if (ret)
		goto err_unpin;
	ret = dma_map_sgtable(dev, &mr->umem_sgt, DMA_BIDIRECTIONAL, 0);
	if (ret)
		goto err_table;
	mr->sgt = &mr->umem_sgt;
	return 0;

err_table:
	sg_free_table(&mr->umem_sgt);
err_unpin:
	unpin_user_pages(mr->pages, mr->page_count);
err_free:
	kvfree(mr->pages);
	mr->pages = NULL;
err_uncharge:
	vrnic_umem_uncharge(mr);
	return ret;
}

void vrnic_umem_unpin(struct vrnic_dev *vdev, struct vrnic_mr *mr)
{
	dma_unmap_sgtable(&vdev->pdev->dev, mr->sgt, DMA_BIDIRECTIONAL, 0);
	sg_free_table(&mr->umem_sgt);
	unpin_user_pages_dirty_lock(mr->pages, mr->page_count, mr->writable);
	kvfree(mr->pages);
	vrnic_umem_uncharge(mr);
}
