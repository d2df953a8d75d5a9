// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory of another device, imported as a dma-buf and reached peer to peer at its bus address. The
 * buffer is pinned: the NIC's keys hold bus addresses and cannot follow a move.
 */

#include <linux/dma-buf.h>
#include <linux/dma-resv.h>

#include "compat.h"
#include "vrnic.h"

static void vrnic_dmabuf_moved(struct dma_buf_attachment *attach)
{
	/* Not reached: the buffer is pinned before it is mapped. The core wants a callback. */
	dev_warn_ratelimited(attach->dev, "the exporter moved a pinned dma-buf\n");
}

static const struct dma_buf_attach_ops vrnic_dmabuf_ops = {
	.allow_peer2peer = true,
	.VRNIC_INVALIDATE_MAPPINGS = vrnic_dmabuf_moved,
};

static int vrnic_dmabuf_map(struct vrnic_mr *mr)
{
	struct dma_resv *resv = mr->attach->dmabuf->resv;
	struct sg_table *sgt;
	long ret;

	dma_resv_lock(resv, NULL);
	ret = dma_buf_pin(mr->attach);
	if (ret)
		goto unlock;
	sgt = dma_buf_map_attachment(mr->attach, DMA_BIDIRECTIONAL);
	if (IS_ERR(sgt)) {
		ret = PTR_ERR(sgt);
		goto unpin;
	}
	/* A mapping may start before the exporter's copy into the memory is over. */
	ret = dma_resv_wait_timeout(resv, DMA_RESV_USAGE_KERNEL, false, MAX_SCHEDULE_TIMEOUT);
	if (ret < 0) {
		dma_buf_unmap_attachment(mr->attach, sgt, DMA_BIDIRECTIONAL);
		goto unpin;
	}
	mr->sgt = sgt;
	dma_resv_unlock(resv);
	return 0;

unpin:
	dma_buf_unpin(mr->attach);
unlock:
	dma_resv_unlock(resv);
	return ret;
}

/* On failure @mr holds nothing. */
int vrnic_dmabuf_import(struct vrnic_dev *vdev, struct vrnic_mr *mr, int fd, u64 offset,
			u64 length)
{
	struct dma_buf *dmabuf;
	int ret;

	dmabuf = dma_buf_get(fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	ret = -EINVAL;
	if (offset > dmabuf->size || length > dmabuf->size - offset)
		goto err_put;
	mr->attach = dma_buf_dynamic_attach(dmabuf, &vdev->pdev->dev, &vrnic_dmabuf_ops, mr);
	if (IS_ERR(mr->attach)) {
		ret = PTR_ERR(mr->attach);
		goto err_attach;
	}
	ret = vrnic_dmabuf_map(mr);
	if (ret)
		goto err_detach;
	return 0;

err_detach:
	dma_buf_detach(dmabuf, mr->attach);
err_attach:
	mr->attach = NULL;
err_put:
	dma_buf_put(dmabuf);
	return ret;
}

void vrnic_dmabuf_release(struct vrnic_mr *mr)
{
	struct dma_buf *dmabuf = mr->attach->dmabuf;

	dma_resv_lock(dmabuf->resv, NULL);
	dma_buf_unmap_attachment(mr->attach, mr->sgt, DMA_BIDIRECTIONAL);
	dma_buf_unpin(mr->attach);
	dma_resv_unlock(dmabuf->resv);
	dma_buf_detach(dmabuf, mr->attach);
	dma_buf_put(dmabuf);
}
