// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Event queues: one for each MSI-X vector from 1 on. The rings live as long as the driver is bound;
 * the device's queues are made anew after every reset.
 */

#include <linux/interrupt.h>

#include "vrnic.h"

/* The counters begin where the consumer registers end. */
#define VRNIC_EQ_REGISTERS	((VRNIC_REG_COUNTER - VRNIC_REG_EQ_CONSUMER) / \
				 VRNIC_REG_EQ_CONSUMER_STRIDE)

static size_t vrnic_eq_size(void)
{
	return VRNIC_EQ_ENTRIES * VRNIC_EQE_SIZE;
}

static bool vrnic_eq_next(struct vrnic_eq *eq, struct vrnic_eqe *eqe)
{
	struct vrnic_eqe *slot = &eq->ring[eq->consumer & (VRNIC_EQ_ENTRIES - 1)];

	if ((READ_ONCE(slot->phase) & 1) != vrnic_phase(eq->consumer, VRNIC_EQ_LOG_SIZE))
		return false;
	/* The phase bit is in the word that was written last. */
	dma_rmb();
	*eqe = *slot;
	eq->consumer++;
	return true;
}

static irqreturn_t vrnic_eq_interrupt(int irq, void *data)
{
	struct vrnic_eq *eq = data;
	struct vrnic_dev *vdev = eq->vdev;
	struct vrnic_eqe eqe;
	unsigned int budget = VRNIC_EQ_ENTRIES;

	atomic64_inc(&vdev->counters.interrupts);
	/* Pairs with vrnic_eq_start(). */
	if (!smp_load_acquire(&eq->live))
		return IRQ_HANDLED;
	while (budget-- && vrnic_eq_next(eq, &eqe)) {
		atomic64_inc(&vdev->counters.events);
		vrnic_event_dispatch(vdev, &eqe);
	}
	/* Re-arms the vector; what came meanwhile raises it again. */
	vrnic_write(vdev, VRNIC_REG_EQ_CONSUMER + VRNIC_REG_EQ_CONSUMER_STRIDE * eq->number,
		    eq->consumer);
	return IRQ_HANDLED;
}

static int vrnic_eq_init(struct vrnic_dev *vdev, unsigned int index)
{
	struct vrnic_eq *eq = &vdev->eqs[index];
	struct device *dev = &vdev->pdev->dev;
	int ret;

	eq->vdev = vdev;
	eq->vector = index + 1;
	snprintf(eq->name, sizeof(eq->name), "%s-eq%u", vdev->name, index);
	eq->ring = dma_alloc_coherent(dev, vrnic_eq_size(), &eq->ring_dma, GFP_KERNEL);
	if (!eq->ring)
		return -ENOMEM;
	ret = request_irq(pci_irq_vector(vdev->pdev, eq->vector), vrnic_eq_interrupt, 0, eq->name,
			  eq);
	if (ret) {
		dev_err(dev, "no interrupt for event queue %u: %d\n", index, ret);
		dma_free_coherent(dev, vrnic_eq_size(), eq->ring, eq->ring_dma);
	}
	return ret;
}

static void vrnic_eq_exit(struct vrnic_eq *eq)
{
	struct vrnic_dev *vdev = eq->vdev;

	free_irq(pci_irq_vector(vdev->pdev, eq->vector), eq);
	dma_free_coherent(&vdev->pdev->dev, vrnic_eq_size(), eq->ring, eq->ring_dma);
}

int vrnic_eqs_init(struct vrnic_dev *vdev)
{
	unsigned int i;
	int ret;

	for (i = 0; i < vdev->eq_count; i++) {
		ret = vrnic_eq_init(vdev, i);
		if (ret)
			goto err;
	}
	return 0;

err:
	while (i--)
		vrnic_eq_exit(&vdev->eqs[i]);
	return ret;
}

void vrnic_eqs_exit(struct vrnic_dev *vdev)
{
	unsigned int i;

	for (i = 0; i < vdev->eq_count; i++)
		vrnic_eq_exit(&vdev->eqs[i]);
}

static int vrnic_eq_start(struct vrnic_eq *eq)
{
	struct vrnic_dev *vdev = eq->vdev;
	struct vrnic_cmd_create_eq command = {
		.opcode = cpu_to_le16(VRNIC_CMD_CREATE_EQ),
		.vector = cpu_to_le16(eq->vector),
		.log_size = VRNIC_EQ_LOG_SIZE,
		.base = cpu_to_le64(eq->ring_dma),
	};
	struct vrnic_reply_object reply;
	int ret;

	memset(eq->ring, 0, vrnic_eq_size());
	eq->consumer = 0;
	ret = vrnic_admin_call(vdev, &command, &reply, NULL);
	if (ret) {
		dev_err(&vdev->pdev->dev, "event queue for vector %u refused: %d\n", eq->vector,
			ret);
		return ret;
	}
	eq->number = le32_to_cpu(reply.object);
	if (eq->number >= VRNIC_EQ_REGISTERS) {
		dev_err(&vdev->pdev->dev, "event queue number %u has no register\n", eq->number);
		return -EPROTO;
	}
	/* Pairs with vrnic_eq_interrupt(), which must see consumer and number. */
	smp_store_release(&eq->live, true);
	vrnic_write(vdev, VRNIC_REG_EQ_CONSUMER + VRNIC_REG_EQ_CONSUMER_STRIDE * eq->number, 0);
	return 0;
}

int vrnic_eqs_start(struct vrnic_dev *vdev)
{
	unsigned int i;
	int ret;

	for (i = 0; i < vdev->eq_count; i++) {
		ret = vrnic_eq_start(&vdev->eqs[i]);
		if (ret)
			return ret;
	}
	return 0;
}

/* No handler looks at a ring once this returns. The device's queues go with its reset. */
void vrnic_eqs_stop(struct vrnic_dev *vdev)
{
	unsigned int i;

	for (i = 0; i < vdev->eq_count; i++) {
		WRITE_ONCE(vdev->eqs[i].live, false);
		synchronize_irq(pci_irq_vector(vdev->pdev, vdev->eqs[i].vector));
	}
}
