// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* vrnic: driver of the virtual RDMA NIC. Probe, remove and what they hold. */

#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "vrnic.h"

static DEFINE_IDA(vrnic_ids);

static void vrnic_dev_release(struct kref *kref)
{
	struct vrnic_dev *vdev = container_of(kref, struct vrnic_dev, kref);

	xa_destroy(&vdev->cq_owners);
	xa_destroy(&vdev->qp_owners);
	ida_free(&vrnic_ids, vdev->id);
	kfree(vdev);
}

/* Open files outlive the PCI device; the last one frees the structure. */
void vrnic_dev_put(struct vrnic_dev *vdev)
{
	kref_put(&vdev->kref, vrnic_dev_release);
}

static struct vrnic_dev *vrnic_dev_alloc(struct pci_dev *pdev)
{
	struct vrnic_dev *vdev;

	vdev = kzalloc(sizeof(*vdev), GFP_KERNEL);
	if (!vdev)
		return NULL;
	vdev->id = ida_alloc(&vrnic_ids, GFP_KERNEL);
	if (vdev->id < 0) {
		kfree(vdev);
		return NULL;
	}
	kref_init(&vdev->kref);
	vdev->pdev = pdev;
	vdev->state = VRNIC_DOWN;
	init_rwsem(&vdev->state_lock);
	spin_lock_init(&vdev->contexts_lock);
	INIT_LIST_HEAD(&vdev->contexts);
	xa_init_flags(&vdev->cq_owners, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&vdev->qp_owners, XA_FLAGS_LOCK_IRQ);
	snprintf(vdev->name, sizeof(vdev->name), "vrnic%d", vdev->id);
	return vdev;
}

static int vrnic_vectors_alloc(struct vrnic_dev *vdev)
{
	unsigned int wanted = 1 + min_t(unsigned int, num_online_cpus(), VRNIC_EQS);
	int count;

	count = pci_alloc_irq_vectors(vdev->pdev, 2, wanted, PCI_IRQ_MSIX);
	if (count < 0) {
		dev_err(&vdev->pdev->dev, "no MSI-X: the device needs 2 vectors or more (%d)\n",
			count);
		return count;
	}
	vdev->eq_count = count - 1;
	return 0;
}

static int vrnic_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *dev = &pdev->dev;
	struct vrnic_dev *vdev;
	int ret;

	BUILD_BUG_ON(PAGE_SIZE != VRNIC_DOORBELL_PAGE_SIZE);

	vdev = vrnic_dev_alloc(pdev);
	if (!vdev)
		return -ENOMEM;
	pci_set_drvdata(pdev, vdev);

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
	ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64));
	if (ret) {
		dev_err(dev, "no 64-bit DMA: %d\n", ret);
		goto err_regions;
	}
	dma_set_max_seg_size(dev, UINT_MAX);
	vdev->doorbells = pci_resource_start(pdev, VRNIC_DOORBELL_BAR);
	vdev->regs = pci_iomap(pdev, VRNIC_REGISTER_BAR, 0);
	if (!vdev->regs || !vdev->doorbells) {
		dev_err(dev, "BAR %d or %d is missing\n", VRNIC_REGISTER_BAR, VRNIC_DOORBELL_BAR);
		ret = -ENODEV;
		goto err_unmap;
	}
	ret = vrnic_device_check(vdev);
	if (ret)
		goto err_unmap;
	pci_set_master(pdev);

	ret = vrnic_vectors_alloc(vdev);
	if (ret)
		goto err_master;
	ret = vrnic_admin_init(vdev);
	if (ret)
		goto err_vectors;
	ret = vrnic_eqs_init(vdev);
	if (ret)
		goto err_admin;

	down_write(&vdev->state_lock);
	ret = vrnic_device_start(vdev);
	up_write(&vdev->state_lock);
	if (ret)
		goto err_eqs;
	/* What slot_reset goes back to. */
	pci_save_state(pdev);

	vdev->misc.minor = MISC_DYNAMIC_MINOR;
	vdev->misc.name = vdev->name;
	vdev->misc.fops = &vrnic_fops;
	vdev->misc.parent = dev;
	/* What a process can reach through it is its own: no privilege needed, as for verbs. */
	vdev->misc.mode = 0666;
	ret = misc_register(&vdev->misc);
	if (ret) {
		dev_err(dev, "no character device: %d\n", ret);
		goto err_stop;
	}
	vrnic_debugfs_add(vdev);
	dev_info(dev, "/dev/%s: contract %u.%u, %u doorbell pages, %u event queues\n", vdev->name,
		 vdev->limits.abi_version >> 16, vdev->limits.abi_version & 0xffff,
		 vdev->limits.doorbell_pages, vdev->eq_count);
	return 0;

err_stop:
	down_write(&vdev->state_lock);
	vrnic_device_stop(vdev, VRNIC_GONE);
	up_write(&vdev->state_lock);
err_eqs:
	vrnic_eqs_exit(vdev);
err_admin:
	vrnic_admin_exit(vdev);
err_vectors:
	pci_free_irq_vectors(pdev);
err_master:
	pci_clear_master(pdev);
err_unmap:
	if (vdev->regs)
		pci_iounmap(pdev, vdev->regs);
err_regions:
	pci_release_regions(pdev);
err_disable:
	pci_disable_device(pdev);
err_put:
	vrnic_dev_put(vdev);
	return ret;
}

static void vrnic_remove(struct pci_dev *pdev)
{
	struct vrnic_dev *vdev = pci_get_drvdata(pdev);

	vrnic_debugfs_remove(vdev);
	/* No open() begins after this; those that are open fail from the next line on. */
	misc_deregister(&vdev->misc);
	down_write(&vdev->state_lock);
	vrnic_device_stop(vdev, VRNIC_GONE);
	up_write(&vdev->state_lock);
	vrnic_eqs_exit(vdev);
	vrnic_admin_exit(vdev);
	pci_free_irq_vectors(pdev);
	pci_clear_master(pdev);
	pci_iounmap(pdev, vdev->regs);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
	vrnic_dev_put(vdev);
}

static const struct pci_device_id vrnic_pci_ids[] = {
	{ PCI_DEVICE(VRNIC_VENDOR_ID, VRNIC_DEVICE_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, vrnic_pci_ids);

static struct pci_driver vrnic_driver = {
	.name = KBUILD_MODNAME,
	.id_table = vrnic_pci_ids,
	.probe = vrnic_probe,
	.remove = vrnic_remove,
	/* A kexec'ed kernel must not find a device that still writes to memory. */
	.shutdown = vrnic_remove,
	.err_handler = &vrnic_error_handlers,
};

static int __init vrnic_init(void)
{
	int ret;

	vrnic_debugfs_register();
	ret = pci_register_driver(&vrnic_driver);
	if (ret)
		vrnic_debugfs_unregister();
	return ret;
}

static void __exit vrnic_exit(void)
{
	pci_unregister_driver(&vrnic_driver);
	vrnic_debugfs_unregister();
	ida_destroy(&vrnic_ids);
}

module_init(vrnic_init);
module_exit(vrnic_exit);

MODULE_DESCRIPTION("Virtual RDMA NIC");
MODULE_AUTHOR("vrnic authors");
MODULE_LICENSE("Dual BSD/GPL");
VRNIC_IMPORT_DMA_BUF();
