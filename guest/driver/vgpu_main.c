// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* vgpu: driver of the virtual GPU, whose only function is VRAM behind a BAR. Probe and remove. */

#include <linux/bitmap.h>
#include <linux/dma-mapping.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "vgpu.h"
#include "vrnic_contract.h"

static DEFINE_IDA(vgpu_ids);

static void vgpu_dev_release(struct kref *kref)
{
	struct vgpu_dev *gpu = container_of(kref, struct vgpu_dev, kref);

	bitmap_free(gpu->used);
	ida_free(&vgpu_ids, gpu->id);
	kfree(gpu);
}

void vgpu_dev_get(struct vgpu_dev *gpu)
{
	kref_get(&gpu->kref);
}

/* Open files outlive the PCI device; the last one frees the structure. */
void vgpu_dev_put(struct vgpu_dev *gpu)
{
	kref_put(&gpu->kref, vgpu_dev_release);
}

static struct vgpu_dev *vgpu_dev_alloc(struct pci_dev *pdev)
{
	struct vgpu_dev *gpu;

	gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	if (!gpu)
		return NULL;
	gpu->id = ida_alloc(&vgpu_ids, GFP_KERNEL);
	if (gpu->id < 0) {
		kfree(gpu);
		return NULL;
	}
	kref_init(&gpu->kref);
	gpu->pdev = pdev;
	mutex_init(&gpu->lock);
	INIT_LIST_HEAD(&gpu->files);
	snprintf(gpu->name, sizeof(gpu->name), "vgpu%d", gpu->id);
	return gpu;
}

/* Check the registers and learn how much VRAM there is. */
static int vgpu_identify(struct vgpu_dev *gpu)
{
	struct device *dev = &gpu->pdev->dev;
	u64 bar = pci_resource_len(gpu->pdev, VGPU_VRAM_BAR);
	void __iomem *regs;
	u32 magic, abi;
	u64 size;

	regs = pci_iomap(gpu->pdev, VGPU_REGISTER_BAR, 0);
	if (!regs)
		return -ENODEV;
	magic = readl(regs + VGPU_REG_MAGIC);
	abi = readl(regs + VGPU_REG_ABI_VERSION);
	size = readl(regs + VGPU_REG_VRAM_SIZE);
	size |= (u64)readl(regs + VGPU_REG_VRAM_SIZE + 4) << 32;
	pci_iounmap(gpu->pdev, regs);

	if (magic != VGPU_MAGIC) {
		dev_err(dev, "not a vgpu: magic is %#x, expected %#x\n", magic, VGPU_MAGIC);
		return -ENODEV;
	}
	if (abi >> 16 != VRNIC_ABI_MAJOR) {
		dev_err(dev,
			"the device speaks contract %u.%u, this driver %u.x: build the driver and the device from the same tree\n",
			abi >> 16, abi & 0xffff, VRNIC_ABI_MAJOR);
		return -EPROTONOSUPPORT;
	}
	if (!size || size > bar || size >> PAGE_SHIFT > INT_MAX) {
		dev_err(dev, "%llu bytes of VRAM behind a BAR of %llu\n", size, bar);
		return -ENODEV;
	}
	gpu->page_count = size >> PAGE_SHIFT;
	return 0;
}

static int vgpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *dev = &pdev->dev;
	struct vgpu_dev *gpu;
	int ret;

	gpu = vgpu_dev_alloc(pdev);
	if (!gpu)
		return -ENOMEM;
	pci_set_drvdata(pdev, gpu);

	ret = pci_enable_device(pdev);
	if (ret) {
		dev_err(dev, "cannot enable the device: %d\n", ret);
		goto err_put;
	}
	ret = pci_request_regions(pdev, KBUILD_MODNAME);
	if (ret) {
		dev_err(dev, "the BARs belong to another driver: %d\n", ret);
		goto err_disable;
	}
	ret = vgpu_identify(gpu);
	if (ret)
		goto err_regions;
	gpu->used = bitmap_zalloc(gpu->page_count, GFP_KERNEL);
	if (!gpu->used) {
		ret = -ENOMEM;
		goto err_regions;
	}
	gpu->vram = pci_resource_start(pdev, VGPU_VRAM_BAR);
	gpu->vram_bus = pci_bus_address(pdev, VGPU_VRAM_BAR);
	/*
	 * Write combining, as GPU drivers map VRAM: stores are merged and may pass each other, so
	 * a kernel needs its fence before a doorbell. The mapping also sets the type that user
	 * mappings of the same pages get.
	 */
	gpu->vram_map = ioremap_wc(gpu->vram, (size_t)gpu->page_count << PAGE_SHIFT);
	if (!gpu->vram_map) {
		dev_err(dev, "cannot map %lu pages of VRAM\n", gpu->page_count);
		ret = -ENOMEM;
		goto err_regions;
	}
	gpu->misc.minor = MISC_DYNAMIC_MINOR;
	gpu->misc.name = gpu->name;
	gpu->misc.fops = &vgpu_fops;
	gpu->misc.parent = dev;
	gpu->misc.mode = 0666;
	ret = misc_register(&gpu->misc);
	if (ret) {
		dev_err(dev, "no character device: %d\n", ret);
		goto err_unmap;
	}
	dev_info(dev, "/dev/%s: %lu MiB of VRAM at %pa\n", gpu->name,
		 gpu->page_count >> (20 - PAGE_SHIFT), &gpu->vram);
	return 0;

err_unmap:
	iounmap(gpu->vram_map);
err_regions:
	pci_release_regions(pdev);
err_disable:
	pci_disable_device(pdev);
err_put:
	vgpu_dev_put(gpu);
	return ret;
}

static void vgpu_remove(struct pci_dev *pdev)
{
	struct vgpu_dev *gpu = pci_get_drvdata(pdev);

	/* No open() begins after this; those that are open fail once their VRAM is revoked. */
	misc_deregister(&gpu->misc);
	vgpu_files_revoke(gpu);
	iounmap(gpu->vram_map);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
	vgpu_dev_put(gpu);
}

static const struct pci_device_id vgpu_pci_ids[] = {
	{ PCI_DEVICE(VRNIC_VENDOR_ID, VGPU_DEVICE_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, vgpu_pci_ids);

static struct pci_driver vgpu_driver = {
	.name = KBUILD_MODNAME,
	.id_table = vgpu_pci_ids,
	.probe = vgpu_probe,
	.remove = vgpu_remove,
};
module_pci_driver(vgpu_driver);

MODULE_DESCRIPTION("Virtual GPU: VRAM behind a BAR");
MODULE_AUTHOR("vrnic authors");
MODULE_LICENSE("Dual BSD/GPL");
VRNIC_IMPORT_DMA_BUF();
