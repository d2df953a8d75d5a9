// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The admin queue: 64-byte commands and replies in two rings.
 *
 * One command at a time. The control path is slow by nature (a context, some regions, a queue pair)
 * and a driver that keeps several in flight is harder to read than it is faster.
 */

#include <linux/interrupt.h>
#include <linux/module.h>

#include "vrnic.h"

/* How long to sleep for the interrupt before looking at the reply slot anyway. */
#define VRNIC_ADMIN_SLICE_MS	50

static unsigned int admin_timeout_ms = 10000;
module_param(admin_timeout_ms, uint, 0644);
MODULE_PARM_DESC(admin_timeout_ms, "time an admin command may take, in ms");

static size_t vrnic_admin_ring_size(void)
{
	return VRNIC_ADMIN_ENTRIES * VRNIC_ADMIN_ENTRY_SIZE;
}

int vrnic_admin_init(struct vrnic_dev *vdev)
{
	struct vrnic_admin *aq = &vdev->admin;
	struct device *dev = &vdev->pdev->dev;
	int ret = -ENOMEM;

	mutex_init(&aq->lock);
	init_completion(&aq->interrupt);
	aq->commands = dma_alloc_coherent(dev, vrnic_admin_ring_size(), &aq->commands_dma,
					  GFP_KERNEL);
	if (!aq->commands)
		return ret;
	aq->replies = dma_alloc_coherent(dev, vrnic_admin_ring_size(), &aq->replies_dma,
					 GFP_KERNEL);
	if (!aq->replies)
		goto err_commands;
	ret = request_irq(pci_irq_vector(vdev->pdev, 0), vrnic_admin_interrupt, 0, vdev->name,
			  vdev);
	if (ret) {
		dev_err(dev, "no interrupt for the admin queue: %d\n", ret);
		goto err_replies;
	}
	return 0;

err_replies:
	dma_free_coherent(dev, vrnic_admin_ring_size(), aq->replies, aq->replies_dma);
err_commands:
	dma_free_coherent(dev, vrnic_admin_ring_size(), aq->commands, aq->commands_dma);
	return ret;
}

void vrnic_admin_exit(struct vrnic_dev *vdev)
{
	struct vrnic_admin *aq = &vdev->admin;
	struct device *dev = &vdev->pdev->dev;

	free_irq(pci_irq_vector(vdev->pdev, 0), vdev);
	dma_free_coherent(dev, vrnic_admin_ring_size(), aq->replies, aq->replies_dma);
	dma_free_coherent(dev, vrnic_admin_ring_size(), aq->commands, aq->commands_dma);
}

static void vrnic_write_address(struct vrnic_dev *vdev, unsigned int offset, dma_addr_t address)
{
	/* Low half first: the contract's rule for an 8-byte register in two stores. */
	vrnic_write(vdev, offset, lower_32_bits(address));
	vrnic_write(vdev, offset + 4, upper_32_bits(address));
}

/* Start the queue from index 0. The device has just been reset. */
int vrnic_admin_enable(struct vrnic_dev *vdev)
{
	struct vrnic_admin *aq = &vdev->admin;
	u32 status, cause;

	memset(aq->commands, 0, vrnic_admin_ring_size());
	memset(aq->replies, 0, vrnic_admin_ring_size());
	aq->index = 0;
	aq->broken = false;
	vrnic_write_address(vdev, VRNIC_REG_ADMIN_SQ_BASE, aq->commands_dma);
	vrnic_write_address(vdev, VRNIC_REG_ADMIN_RQ_BASE, aq->replies_dma);
	vrnic_write(vdev, VRNIC_REG_ADMIN_LOG_SIZE, VRNIC_ADMIN_LOG_SIZE);
	vrnic_write(vdev, VRNIC_REG_CONTROL, VRNIC_CONTROL_ENABLE);

	status = vrnic_read(vdev, VRNIC_REG_STATUS);
	if (status != U32_MAX && status & VRNIC_STATUS_ENABLED && !(status & VRNIC_STATUS_FATAL))
		return 0;
	cause = vrnic_read(vdev, VRNIC_REG_FATAL_CAUSE);
	dev_err(&vdev->pdev->dev, "the admin queue did not start: status %#x, cause %s\n", status,
		vrnic_fatal_cause_name(cause));
	return -EIO;
}

irqreturn_t vrnic_admin_interrupt(int irq, void *data)
{
	struct vrnic_dev *vdev = data;

	atomic64_inc(&vdev->counters.interrupts);
	complete(&vdev->admin.interrupt);
	return IRQ_HANDLED;
}

static bool vrnic_admin_replied(const struct vrnic_reply *slot, u32 sequence)
{
	return le32_to_cpu(READ_ONCE(slot->sequence)) == sequence;
}

static int vrnic_admin_wait(struct vrnic_dev *vdev, const struct vrnic_reply *slot, u32 sequence)
{
	unsigned long slice = msecs_to_jiffies(VRNIC_ADMIN_SLICE_MS);
	unsigned long deadline = jiffies + msecs_to_jiffies(READ_ONCE(admin_timeout_ms));
	bool woken = true;

	while (!vrnic_admin_replied(slot, sequence)) {
		if (!woken && vrnic_absent(vdev))
			return -ENODEV;
		if (time_after(jiffies, deadline))
			return -ETIMEDOUT;
		woken = wait_for_completion_timeout(&vdev->admin.interrupt, slice);
	}
	if (!woken)
		atomic64_inc(&vdev->counters.admin_polled);
	/* The rest of the reply was written before its sequence number. */
	dma_rmb();
	return 0;
}

static int vrnic_admin_errno(u16 status)
{
	switch (status) {
	case VRNIC_ADMIN_OK:
		return 0;
	case VRNIC_ADMIN_BAD_FIELD:
		return -EINVAL;
	case VRNIC_ADMIN_BAD_OBJECT:
		return -ENOENT;
	case VRNIC_ADMIN_NOT_OWNER:
		return -EPERM;
	case VRNIC_ADMIN_BUSY:
		return -EBUSY;
	case VRNIC_ADMIN_NO_RESOURCE:
		return -ENOSPC;
	case VRNIC_ADMIN_BAD_STATE:
		return -EBADFD;
	case VRNIC_ADMIN_DMA_ERROR:
		return -EFAULT;
	case VRNIC_ADMIN_BAD_OPCODE:
	case VRNIC_ADMIN_UNSUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EPROTO;
	}
}

/**
 * vrnic_admin_call() - Carry out one admin command and wait for its reply
 * @vdev: device
 * @command: 64 bytes, a struct vrnic_cmd or one of its forms
 * @reply: 64 bytes out, valid on success
 * @verdict: the device's status out, or NULL
 *
 * Return: 0, the errno of a refusal, -EIO when the queue is broken, -ETIMEDOUT or -ENODEV.
 */
int vrnic_admin_call(struct vrnic_dev *vdev, const void *command, void *reply,
		     struct vrnic_verdict *verdict)
{
	const struct vrnic_cmd *cmd = command;
	struct vrnic_admin *aq = &vdev->admin;
	struct device *dev = &vdev->pdev->dev;
	unsigned int slot;
	struct vrnic_reply head;
	int ret;

	mutex_lock(&aq->lock);
	if (aq->broken) {
		ret = -EIO;
		goto unlock;
	}
	slot = aq->index++ & (VRNIC_ADMIN_ENTRIES - 1);
	memcpy(&aq->commands[slot], command, VRNIC_ADMIN_ENTRY_SIZE);
	reinit_completion(&aq->interrupt);
	/* writel() orders the doorbell after the command. */
	vrnic_write(vdev, VRNIC_REG_ADMIN_DOORBELL, aq->index);
	atomic64_inc(&vdev->counters.admin_commands);

	ret = vrnic_admin_wait(vdev, &aq->replies[slot], aq->index);
	if (ret) {
		aq->broken = true;
		dev_err(dev, "admin command %u got no reply (%s); only a reset helps\n",
			le16_to_cpu(cmd->opcode),
			ret == -ENODEV ? "the device is gone" : "timeout");
		goto unlock;
	}
	memcpy(&head, &aq->replies[slot], sizeof(head));
	memcpy(reply, &head, sizeof(head));
	ret = vrnic_admin_errno(le16_to_cpu(head.status));
	if (verdict) {
		verdict->status = le16_to_cpu(head.status);
		verdict->refused = le16_to_cpu(head.refused);
	}
	if (ret) {
		atomic64_inc(&vdev->counters.admin_refused);
		dev_dbg(dev, "admin command %u refused: %s at byte %u\n",
			le16_to_cpu(cmd->opcode),
			vrnic_admin_status_name(le16_to_cpu(head.status)),
			le16_to_cpu(head.refused));
	}
unlock:
	mutex_unlock(&aq->lock);
	return ret;
}

/* A command that names one object and wants nothing but success. */
int vrnic_admin_object(struct vrnic_dev *vdev, enum vrnic_admin_opcode opcode, u32 object,
		       struct vrnic_verdict *verdict)
{
	struct vrnic_cmd_object command = {
		.opcode = cpu_to_le16(opcode),
		.object = cpu_to_le32(object),
	};
	struct vrnic_reply reply;

	return vrnic_admin_call(vdev, &command, &reply, verdict);
}
