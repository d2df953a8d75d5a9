// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * VRAM for other devices. VRAM never moves and has no struct page, so an importer gets one range of
 * bus addresses and must be able to work with that alone (peer2peer).
 *
 * There is no pci_p2pdma_distance() check: it knows only the host bridges of real machines, and
 * would refuse every virtual one. In a guest all functions reach each other.
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "compat.h"
#include "vgpu.h"

struct vgpu_dmabuf {
	struct file *file;	/* holds the allocation */
	struct vgpu_allocation *allocation;
};

static int vgpu_dmabuf_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	return attach->peer2peer ? 0 : -EOPNOTSUPP;
}

static int vgpu_dmabuf_pin(struct dma_buf_attachment *attach)
{
	/* VRAM stays where it is. */
	return 0;
}

static void vgpu_dmabuf_unpin(struct dma_buf_attachment *attach)
{
}

static struct sg_table *vgpu_dmabuf_map(struct dma_buf_attachment *attach,
					enum dma_data_direction direction)
{
	struct vgpu_dmabuf *buffer = attach->dmabuf->priv;
	struct vgpu_allocation *allocation = buffer->allocation;
	size_t size = vgpu_allocation_size(allocation);
	struct vgpu_dev *gpu = allocation->owner->gpu;
	struct sg_table *sgt;
	dma_addr_t address;
	int ret;

	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table(sgt, 1, GFP_KERNEL);
	if (ret)
		goto err_free;
	mutex_lock(&gpu->lock);
	ret = gpu->gone ? -ENODEV : 0;
	mutex_unlock(&gpu->lock);
	if (ret)
		goto err_table;
	address = dma_map_resource(attach->dev, vgpu_allocation_address(allocation), size,
				   direction, DMA_ATTR_SKIP_CPU_SYNC);
	ret = dma_mapping_error(attach->dev, address);
	if (ret)
		goto err_table;
	sg_set_page(sgt->sgl, NULL, size, 0);
	sg_dma_address(sgt->sgl) = address;
	sg_dma_len(sgt->sgl) = size;
	return sgt;

err_table:
	sg_free_table(sgt);
err_free:
	kfree(sgt);
	return ERR_PTR(ret);
}

static void vgpu_dmabuf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			      enum dma_data_direction direction)
{
	dma_unmap_resource(attach->dev, sg_dma_address(sgt->sgl), sg_dma_len(sgt->sgl), direction,
			   DMA_ATTR_SKIP_CPU_SYNC);
	sg_free_table(sgt);
	kfree(sgt);
}

/* A mapping of the dma-buf becomes one of the device file, which knows how to revoke it. */
static int vgpu_dmabuf_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct vgpu_dmabuf *buffer = dmabuf->priv;

	vma->vm_pgoff += buffer->allocation->first;
	vma_set_file(vma, buffer->file);
	return vgpu_vram_mmap(buffer->allocation->owner, vma);
}

static void vgpu_dmabuf_release(struct dma_buf *dmabuf)
{
	struct vgpu_dmabuf *buffer = dmabuf->priv;
	struct vgpu_dev *gpu = buffer->allocation->owner->gpu;

	mutex_lock(&gpu->lock);
	buffer->allocation->users--;
	mutex_unlock(&gpu->lock);
	fput(buffer->file);
	kfree(buffer);
}

static const struct dma_buf_ops vgpu_dmabuf_ops = {
	.attach = vgpu_dmabuf_attach,
	.pin = vgpu_dmabuf_pin,
	.unpin = vgpu_dmabuf_unpin,
	.map_dma_buf = vgpu_dmabuf_map,
	.unmap_dma_buf = vgpu_dmabuf_unmap,
	.mmap = vgpu_dmabuf_mmap,
	.release = vgpu_dmabuf_release,
};

/* The caller holds the lock and owns the reference. */
struct dma_buf *vgpu_dmabuf_export(struct file *file, struct vgpu_allocation *allocation)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct vgpu_dmabuf *buffer;
	struct dma_buf *dmabuf;

	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return ERR_PTR(-ENOMEM);
	buffer->allocation = allocation;
	buffer->file = get_file(file);
	info.ops = &vgpu_dmabuf_ops;
	info.size = vgpu_allocation_size(allocation);
	info.flags = O_RDWR;
	info.priv = buffer;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		fput(buffer->file);
		kfree(buffer);
		return dmabuf;
	}
	allocation->users++;
	return dmabuf;
}
