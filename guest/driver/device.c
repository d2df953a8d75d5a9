// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The device as a whole: identity, reset, bring-up and bring-down. */

#include <linux/delay.h>
#include <linux/iopoll.h>

#include "vrnic.h"

#define VRNIC_RESET_POLL_US	1000
#define VRNIC_RESET_TIMEOUT_US	(5 * USEC_PER_SEC)

/* Refuse what is not ours before anything is written to it. */
int vrnic_device_check(struct vrnic_dev *vdev)
{
	struct device *dev = &vdev->pdev->dev;
	u32 magic, abi;

	magic = vrnic_read(vdev, VRNIC_REG_MAGIC);
	if (magic == U32_MAX) {
		dev_err(dev, "the device does not answer (all ones)\n");
		return -ENODEV;
	}
	if (magic != VRNIC_MAGIC) {
		dev_err(dev, "not a vrnic: magic is %#x, expected %#x\n", magic, VRNIC_MAGIC);
		return -ENODEV;
	}
	abi = vrnic_read(vdev, VRNIC_REG_ABI_VERSION);
	if (abi >> 16 != VRNIC_ABI_MAJOR) {
		dev_err(dev,
			"the device speaks contract %u.%u, this driver %u.x: build the driver and the device from the same tree\n",
			abi >> 16, abi & 0xffff, VRNIC_ABI_MAJOR);
		return -EPROTONOSUPPORT;
	}
	return 0;
}

static int vrnic_device_reset(struct vrnic_dev *vdev)
{
	u32 status;
	int ret;

	vrnic_write(vdev, VRNIC_REG_CONTROL, VRNIC_CONTROL_RESET);
	ret = readl_poll_timeout(vdev->regs + VRNIC_REG_STATUS, status,
				 status & VRNIC_STATUS_READY, VRNIC_RESET_POLL_US,
				 VRNIC_RESET_TIMEOUT_US);
	if (ret) {
		dev_err(&vdev->pdev->dev, "reset did not end, status is %#x\n", status);
		return ret;
	}
	return status == U32_MAX ? -ENODEV : 0;
}

static void vrnic_limits_read(struct vrnic_dev *vdev)
{
	struct vrnic_limits *limits = &vdev->limits;
	u64 fit = pci_resource_len(vdev->pdev, VRNIC_DOORBELL_BAR) >> PAGE_SHIFT;

	limits->abi_version = vrnic_read(vdev, VRNIC_REG_ABI_VERSION);
	/* The BAR's end binds, whatever the register says. */
	limits->doorbell_pages = min_t(u64, vrnic_read(vdev, VRNIC_REG_DOORBELL_PAGES), fit);
	limits->max_pd = vrnic_read(vdev, VRNIC_REG_MAX_PD);
	limits->max_mr = vrnic_read(vdev, VRNIC_REG_MAX_MR);
	limits->max_eq = vrnic_read(vdev, VRNIC_REG_MAX_EQ);
	limits->max_cq = vrnic_read(vdev, VRNIC_REG_MAX_CQ);
	limits->max_qp = vrnic_read(vdev, VRNIC_REG_MAX_QP);
	limits->max_log_ring = vrnic_read(vdev, VRNIC_REG_MAX_LOG_RING);
	limits->max_inline = vrnic_read(vdev, VRNIC_REG_MAX_INLINE);
	limits->max_message = vrnic_read(vdev, VRNIC_REG_MAX_MESSAGE);
}

/* Bring the device from any state to UP. The caller holds state_lock for writing. */
int vrnic_device_start(struct vrnic_dev *vdev)
{
	int ret;

	ret = vrnic_device_reset(vdev);
	if (ret)
		return ret;
	vrnic_limits_read(vdev);
	ret = vrnic_admin_enable(vdev);
	if (ret)
		return ret;
	ret = vrnic_eqs_start(vdev);
	if (ret) {
		vrnic_eqs_stop(vdev);
		vrnic_device_reset(vdev);
		return ret;
	}
	vdev->state = VRNIC_UP;
	return 0;
}

/*
 * Take the device out of use: it forgets every object, and so does every open file. The caller
 * holds state_lock for writing. @state says whether it may come back.
 */
void vrnic_device_stop(struct vrnic_dev *vdev, enum vrnic_state state)
{
	vrnic_eqs_stop(vdev);
	/* The files' pages are unpinned below, so the device must not reach memory any more. */
	if (!vrnic_absent(vdev) && vrnic_device_reset(vdev))
		pci_clear_master(vdev->pdev);
	vdev->state = state;
	vrnic_contexts_kill(vdev);
}
