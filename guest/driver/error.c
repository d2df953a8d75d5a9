// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Function level reset and PCI error recovery. Open files survive neither: they get ENODEV. */

#include "vrnic.h"

static void vrnic_down(struct vrnic_dev *vdev)
{
	down_write(&vdev->state_lock);
	vrnic_device_stop(vdev, VRNIC_DOWN);
	up_write(&vdev->state_lock);
}

static int vrnic_up(struct vrnic_dev *vdev)
{
	int ret;

	atomic64_inc(&vdev->counters.resets);
	pci_set_master(vdev->pdev);
	down_write(&vdev->state_lock);
	ret = vrnic_device_check(vdev);
	if (!ret)
		ret = vrnic_device_start(vdev);
	up_write(&vdev->state_lock);
	if (ret)
		dev_err(&vdev->pdev->dev, "the device did not come back after a reset: %d\n", ret);
	else
		dev_info(&vdev->pdev->dev, "back after a reset\n");
	return ret;
}

static void vrnic_reset_prepare(struct pci_dev *pdev)
{
	vrnic_down(pci_get_drvdata(pdev));
}

static void vrnic_reset_done(struct pci_dev *pdev)
{
	vrnic_up(pci_get_drvdata(pdev));
}

static pci_ers_result_t vrnic_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	vrnic_down(pci_get_drvdata(pdev));
	if (state == pci_channel_io_perm_failure)
		return PCI_ERS_RESULT_DISCONNECT;
	pci_disable_device(pdev);
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t vrnic_slot_reset(struct pci_dev *pdev)
{
	if (pci_enable_device(pdev)) {
		dev_err(&pdev->dev, "cannot enable the device after a slot reset\n");
		return PCI_ERS_RESULT_DISCONNECT;
	}
	pci_restore_state(pdev);
	pci_save_state(pdev);
	return vrnic_up(pci_get_drvdata(pdev)) ? PCI_ERS_RESULT_DISCONNECT :
						 PCI_ERS_RESULT_RECOVERED;
}

const struct pci_error_handlers vrnic_error_handlers = {
	.error_detected = vrnic_error_detected,
	.slot_reset = vrnic_slot_reset,
	.reset_prepare = vrnic_reset_prepare,
	.reset_done = vrnic_reset_done,
};
