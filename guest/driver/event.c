// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Events on their way from an event queue to the file that owns the object. */

#include <linux/poll.h>
#include <linux/uaccess.h>

#include "vrnic.h"

/* Runs in interrupt context. */
static void vrnic_event_queue(struct vrnic_context *ctx, const struct vrnic_event_record *record)
{
	unsigned long flags;

	spin_lock_irqsave(&ctx->event_lock, flags);
	if (ctx->event_tail - ctx->event_head < VRNIC_FILE_EVENTS) {
		ctx->events[ctx->event_tail++ % VRNIC_FILE_EVENTS] = *record;
		atomic64_inc(&ctx->event_count);
	} else {
		ctx->event_overflow = true;
		atomic64_inc(&ctx->events_lost);
	}
	spin_unlock_irqrestore(&ctx->event_lock, flags);
	wake_up_interruptible(&ctx->wait);
}

/* The xarray's lock keeps the owner from closing meanwhile. */
static void vrnic_event_owner(struct vrnic_dev *vdev, struct xarray *owners,
			      const struct vrnic_event_record *record)
{
	struct vrnic_context *ctx;
	unsigned long flags;

	xa_lock_irqsave(owners, flags);
	ctx = xa_load(owners, record->object);
	if (ctx)
		vrnic_event_queue(ctx, record);
	else
		atomic64_inc(&vdev->counters.events_unclaimed);
	xa_unlock_irqrestore(owners, flags);
}

static void vrnic_event_everybody(struct vrnic_dev *vdev, const struct vrnic_event_record *record)
{
	struct vrnic_context *ctx;
	unsigned long flags;

	spin_lock_irqsave(&vdev->contexts_lock, flags);
	list_for_each_entry(ctx, &vdev->contexts, node)
		vrnic_event_queue(ctx, record);
	spin_unlock_irqrestore(&vdev->contexts_lock, flags);
}

void vrnic_event_dispatch(struct vrnic_dev *vdev, const struct vrnic_eqe *eqe)
{
	struct vrnic_event_record record = {
		.type = eqe->type,
		.object = le32_to_cpu(eqe->object),
		.timestamp = le64_to_cpu(eqe->timestamp),
	};

	switch (record.type) {
	case VRNIC_EVENT_COMPLETION:
	case VRNIC_EVENT_CQ_ERR:
		vrnic_event_owner(vdev, &vdev->cq_owners, &record);
		break;
	case VRNIC_EVENT_QP_FATAL:
	case VRNIC_EVENT_QP_REQ_ERR:
	case VRNIC_EVENT_QP_ACCESS_ERR:
	case VRNIC_EVENT_COMM_EST:
	case VRNIC_EVENT_SQ_DRAINED:
		vrnic_event_owner(vdev, &vdev->qp_owners, &record);
		break;
	case VRNIC_EVENT_DEVICE_FATAL:
		dev_err_ratelimited(&vdev->pdev->dev, "the device gave up: %s\n",
				    vrnic_fatal_cause_name(record.object));
		fallthrough;
	default:
		/* Port events, and what a newer minor version adds. */
		vrnic_event_everybody(vdev, &record);
		break;
	}
}

static bool vrnic_event_waiting(struct vrnic_context *ctx)
{
	return READ_ONCE(ctx->event_tail) != READ_ONCE(ctx->event_head) ||
	       READ_ONCE(ctx->event_overflow);
}

/* 1: @record is the next event; 0: there is none; -EOVERFLOW once after events were lost. */
static int vrnic_event_next(struct vrnic_context *ctx, struct vrnic_event_record *record)
{
	int ret = 0;

	spin_lock_irq(&ctx->event_lock);
	if (ctx->event_tail != ctx->event_head) {
		*record = ctx->events[ctx->event_head++ % VRNIC_FILE_EVENTS];
		ret = 1;
	} else if (ctx->event_overflow) {
		/* Reported behind the events that came before the loss. */
		ctx->event_overflow = false;
		ret = -EOVERFLOW;
	}
	spin_unlock_irq(&ctx->event_lock);
	return ret;
}

ssize_t vrnic_event_read(struct file *file, char __user *buf, size_t size, loff_t *pos)
{
	struct vrnic_context *ctx = file->private_data;
	struct vrnic_event_record record;
	size_t done = 0;
	int ret;

	atomic64_inc(&ctx->syscalls);
	if (size < sizeof(record))
		return -EINVAL;
	while (size - done >= sizeof(record)) {
		ret = vrnic_event_next(ctx, &record);
		if (ret < 0)
			return done ? done : ret;
		if (ret) {
			if (copy_to_user(buf + done, &record, sizeof(record)))
				return done ? done : -EFAULT;
			done += sizeof(record);
			continue;
		}
		if (done)
			break;
		if (READ_ONCE(ctx->dead))
			return -ENODEV;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		ret = wait_event_interruptible(ctx->wait, vrnic_event_waiting(ctx) ||
					       READ_ONCE(ctx->dead));
		if (ret)
			return ret;
	}
	return done;
}

__poll_t vrnic_event_poll(struct file *file, struct poll_table_struct *table)
{
	struct vrnic_context *ctx = file->private_data;
	__poll_t mask = 0;

	atomic64_inc(&ctx->syscalls);
	poll_wait(file, &ctx->wait, table);
	if (vrnic_event_waiting(ctx))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(ctx->dead))
		mask |= EPOLLERR | EPOLLHUP;
	return mask;
}
