// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The list of bus addresses that REG_MR names: nothing when the range is contiguous, one block of
 * up to 512 pages, or a root that lists the blocks. The list lives as long as the region.
 */

#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "vrnic.h"

#define VRNIC_BLOCK_SIZE	SZ_4K
#define VRNIC_BLOCK_PAGES	(VRNIC_BLOCK_SIZE / sizeof(__le64))

static size_t vrnic_root_size(const struct vrnic_page_list *list)
{
	return list->blocks * sizeof(__le64);
}

void vrnic_page_list_free(struct vrnic_dev *vdev, struct vrnic_page_list *list)
{
	struct device *dev = &vdev->pdev->dev;
	size_t i;

	if (list->root)
		dma_free_coherent(dev, vrnic_root_size(list), list->root, list->root_dma);
	for (i = 0; list->block && i < list->blocks && list->block[i]; i++)
		dma_free_coherent(dev, VRNIC_BLOCK_SIZE, list->block[i], list->block_dma[i]);
	kvfree(list->block);
	kvfree(list->block_dma);
}

/* What is there on failure is freed by vrnic_page_list_free(). */
static int vrnic_blocks_alloc(struct vrnic_dev *vdev, struct vrnic_page_list *list)
{
	struct device *dev = &vdev->pdev->dev;
	size_t i;

	list->blocks = DIV_ROUND_UP(list->count, VRNIC_BLOCK_PAGES);
	list->block = kvcalloc(list->blocks, sizeof(*list->block), GFP_KERNEL_ACCOUNT);
	list->block_dma = kvcalloc(list->blocks, sizeof(*list->block_dma), GFP_KERNEL_ACCOUNT);
	if (!list->block || !list->block_dma)
		return -ENOMEM;
	for (i = 0; i < list->blocks; i++) {
		list->block[i] = dma_alloc_coherent(dev, VRNIC_BLOCK_SIZE, &list->block_dma[i],
						    GFP_KERNEL);
		if (!list->block[i])
			return -ENOMEM;
	}
	if (list->blocks == 1)
		return 0;
	list->root = dma_alloc_coherent(dev, vrnic_root_size(list), &list->root_dma, GFP_KERNEL);
	if (!list->root)
		return -ENOMEM;
	for (i = 0; i < list->blocks; i++)
		list->root[i] = cpu_to_le64(list->block_dma[i]);
	return 0;
}

typedef void (*vrnic_page_visit_t)(struct vrnic_page_list *list, size_t index, dma_addr_t address);

/*
 * Call @visit for the bus address of each of list->count pages, @skip bytes into the table. The
 * page offset of an address that is not aligned would be lost, so it is an error.
 */
static int vrnic_visit_pages(struct vrnic_page_list *list, struct sg_table *sgt, u64 skip,
			     vrnic_page_visit_t visit)
{
	struct scatterlist *sg;
	size_t index = 0;
	unsigned int i;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		dma_addr_t address = sg_dma_address(sg);
		u64 size = sg_dma_len(sg);
		u64 at = min(skip, size);

		if ((address | size) & ~PAGE_MASK)
			return -EINVAL;
		skip -= at;
		for (; at < size && index < list->count; at += PAGE_SIZE)
			visit(list, index++, address + at);
	}
	return index == list->count ? 0 : -EINVAL;
}

static void vrnic_page_compare(struct vrnic_page_list *list, size_t index, dma_addr_t address)
{
	if (!index)
		list->first = address;
	else if (address != list->first + index * PAGE_SIZE)
		list->contiguous = false;
}

static void vrnic_page_store(struct vrnic_page_list *list, size_t index, dma_addr_t address)
{
	list->block[index / VRNIC_BLOCK_PAGES][index % VRNIC_BLOCK_PAGES] = cpu_to_le64(address);
}

/**
 * vrnic_page_list_build() - List the bus addresses of a region's pages
 * @vdev: device
 * @list: zeroed; to be freed whatever this returns
 * @sgt: DMA mapped
 * @skip: bytes of @sgt before the region's first page, a multiple of the page size
 * @count: pages
 *
 * Return: 0, -ENOMEM, or -EINVAL when @sgt is too short or not made of whole pages.
 */
int vrnic_page_list_build(struct vrnic_dev *vdev, struct vrnic_page_list *list,
			  struct sg_table *sgt, u64 skip, size_t count)
{
	int ret;

	list->count = count;
	list->contiguous = true;
	ret = vrnic_visit_pages(list, sgt, skip, vrnic_page_compare);
	if (ret)
		return ret;
	if (list->contiguous)
		return 0;
	ret = vrnic_blocks_alloc(vdev, list);
	if (ret)
		return ret;
	return vrnic_visit_pages(list, sgt, skip, vrnic_page_store);
}
