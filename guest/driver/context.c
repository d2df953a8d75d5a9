// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* An open file: a context of the device, and the end of everything it owned. */

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "vrnic.h"

/* An admin command on behalf of a file. */
int vrnic_context_call(struct vrnic_context *ctx, const void *command, void *reply,
		       struct vrnic_verdict *verdict)
{
	atomic64_inc(&ctx->admin_commands);
	return vrnic_admin_call(ctx->vdev, command, reply, verdict);
}

static struct vrnic_context *vrnic_context_alloc(struct vrnic_dev *vdev)
{
	struct vrnic_context *ctx;

	ctx = kzalloc(sizeof(*ctx), GFP_KERNEL_ACCOUNT);
	if (!ctx)
		return NULL;
	ctx->vdev = vdev;
	mutex_init(&ctx->lock);
	mutex_init(&ctx->map_lock);
	spin_lock_init(&ctx->event_lock);
	init_waitqueue_head(&ctx->wait);
	xa_init(&ctx->pds);
	xa_init(&ctx->cqs);
	xa_init(&ctx->qps);
	xa_init(&ctx->ahs);
	xa_init(&ctx->mrs);
	ctx->pid = task_tgid_nr(current);
	get_task_comm(ctx->comm, current);
	return ctx;
}

static void vrnic_context_free(struct vrnic_context *ctx)
{
	xa_destroy(&ctx->pds);
	xa_destroy(&ctx->cqs);
	xa_destroy(&ctx->qps);
	xa_destroy(&ctx->ahs);
	xa_destroy(&ctx->mrs);
	kfree(ctx);
}

static int vrnic_ctx_free_command(struct vrnic_context *ctx, bool force)
{
	struct vrnic_cmd_free_ctx command = {
		.opcode = cpu_to_le16(VRNIC_CMD_FREE_CTX),
		.ctx = cpu_to_le32(ctx->number),
		.force = cpu_to_le32(force),
	};
	struct vrnic_reply reply;

	return vrnic_context_call(ctx, &command, &reply, NULL);
}

static int vrnic_ctx_alloc_command(struct vrnic_context *ctx)
{
	struct vrnic_cmd command = { .opcode = cpu_to_le16(VRNIC_CMD_ALLOC_CTX) };
	struct vrnic_dev *vdev = ctx->vdev;
	struct vrnic_reply_alloc_ctx reply;
	int ret;

	ret = vrnic_context_call(ctx, &command, &reply, NULL);
	if (ret)
		return ret;
	ctx->number = le32_to_cpu(reply.ctx);
	if (ctx->number && ctx->number < vdev->limits.doorbell_pages)
		return 0;
	dev_err(&vdev->pdev->dev, "context %u has no doorbell page\n", ctx->number);
	vrnic_ctx_free_command(ctx, true);
	return -EPROTO;
}

static int vrnic_open(struct inode *inode, struct file *file)
{
	struct vrnic_dev *vdev = container_of(file->private_data, struct vrnic_dev, misc);
	struct vrnic_context *ctx;
	int ret = -ENODEV;

	ctx = vrnic_context_alloc(vdev);
	if (!ctx)
		return -ENOMEM;
	ctx->mapping = file->f_mapping;
	down_read(&vdev->state_lock);
	if (vdev->state == VRNIC_UP)
		ret = vrnic_ctx_alloc_command(ctx);
	if (ret)
		goto err;
	kref_get(&vdev->kref);
	spin_lock_irq(&vdev->contexts_lock);
	list_add_tail(&ctx->node, &vdev->contexts);
	spin_unlock_irq(&vdev->contexts_lock);
	up_read(&vdev->state_lock);
	file->private_data = ctx;
	return nonseekable_open(inode, file);

err:
	up_read(&vdev->state_lock);
	vrnic_context_free(ctx);
	return ret;
}

/* Destroy in the order the device wants; what is refused goes with a forced FREE_CTX. */
static void vrnic_context_destroy(struct vrnic_context *ctx)
{
	struct device *dev = &ctx->vdev->pdev->dev;
	int ret;

	ret = vrnic_queues_destroy(ctx);
	if (!ret)
		ret = vrnic_mrs_dereg(ctx);
	if (!ret)
		ret = vrnic_pds_free(ctx);
	if (!ret)
		ret = vrnic_ctx_free_command(ctx, false);
	if (ret) {
		dev_warn(dev, "%s[%d]: orderly release failed (%d), forcing\n", ctx->comm,
			 ctx->pid, ret);
		ret = vrnic_ctx_free_command(ctx, true);
	}
	vrnic_queues_forget(ctx);
	if (!ret || vrnic_absent(ctx->vdev)) {
		vrnic_mrs_release(ctx);
		return;
	}
	dev_err(dev, "%s[%d]: context %u stays with the device (%d); its pages stay pinned\n",
		ctx->comm, ctx->pid, ctx->number, ret);
	vrnic_mrs_abandon(ctx);
}

static int vrnic_release(struct inode *inode, struct file *file)
{
	struct vrnic_context *ctx = file->private_data;
	struct vrnic_dev *vdev = ctx->vdev;

	down_read(&vdev->state_lock);
	if (!ctx->dead)
		vrnic_context_destroy(ctx);
	spin_lock_irq(&vdev->contexts_lock);
	list_del(&ctx->node);
	spin_unlock_irq(&vdev->contexts_lock);
	up_read(&vdev->state_lock);
	vrnic_context_free(ctx);
	vrnic_dev_put(vdev);
	return 0;
}

static struct vrnic_context *vrnic_context_living(struct vrnic_dev *vdev)
{
	struct vrnic_context *ctx, *found = NULL;

	spin_lock_irq(&vdev->contexts_lock);
	list_for_each_entry(ctx, &vdev->contexts, node) {
		if (!ctx->dead) {
			found = ctx;
			break;
		}
	}
	spin_unlock_irq(&vdev->contexts_lock);
	return found;
}

/*
 * The device has forgotten everything: so do the files. Their memory is released now, because the
 * PCI device it is mapped for may be gone when they close. The caller holds state_lock for writing,
 * so no file comes or goes.
 */
void vrnic_contexts_kill(struct vrnic_dev *vdev)
{
	struct vrnic_context *ctx;

	while ((ctx = vrnic_context_living(vdev))) {
		mutex_lock(&ctx->map_lock);
		ctx->dead = true;
		mutex_unlock(&ctx->map_lock);
		/* From here on a store to the doorbell page is SIGBUS. */
		unmap_mapping_range(ctx->mapping, 0, 0, 1);
		vrnic_queues_forget(ctx);
		vrnic_mrs_release(ctx);
		wake_up_interruptible(&ctx->wait);
	}
}

const struct file_operations vrnic_fops = {
	.owner = THIS_MODULE,
	.open = vrnic_open,
	.release = vrnic_release,
	.read = vrnic_event_read,
	.poll = vrnic_event_poll,
	.mmap = vrnic_mmap,
	.unlocked_ioctl = vrnic_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
