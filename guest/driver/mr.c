// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Memory regions: where the pages come from is umem.c's and dmabuf.c's matter. */

#include <linux/overflow.h>
#include <linux/slab.h>

#include "vrnic.h"

#define VRNIC_ACCESS_ALL	(VRNIC_ACCESS_LOCAL_WRITE | VRNIC_ACCESS_REMOTE_WRITE | \
				 VRNIC_ACCESS_REMOTE_READ | VRNIC_ACCESS_REMOTE_ATOMIC)
#define VRNIC_ACCESS_WRITES	(VRNIC_ACCESS_LOCAL_WRITE | VRNIC_ACCESS_REMOTE_WRITE | \
				 VRNIC_ACCESS_REMOTE_ATOMIC)

/* Give back the memory of a region the device no longer knows. */
static void vrnic_mr_free(struct vrnic_dev *vdev, struct vrnic_mr *mr)
{
	vrnic_page_list_free(vdev, &mr->list);
	if (mr->attach)
		vrnic_dmabuf_release(mr);
	else if (mr->pages)
		vrnic_umem_unpin(vdev, mr);
	kfree(mr);
}

/* The first byte's page is used from its offset on, so both views of it must agree on that. */
static int vrnic_range_check(const struct vrnic_reg_mr *arg, size_t *count)
{
	u64 start = arg->start & PAGE_MASK;
	u64 end;

	if (!arg->length || (arg->start ^ arg->iova) & ~PAGE_MASK)
		return -EINVAL;
	if (check_add_overflow(arg->iova, arg->length, &end))
		return -EOVERFLOW;
	if (check_add_overflow(arg->start, arg->length, &end) ||
	    check_add_overflow(end, (u64)PAGE_SIZE - 1, &end))
		return -EOVERFLOW;
	end = (end - start) >> PAGE_SHIFT;
	/* sg tables and dma-buf count pages and bytes of a segment in 32 bits. */
	if (end > INT_MAX)
		return -E2BIG;
	*count = end;
	return 0;
}

static int vrnic_mr_register(struct vrnic_context *ctx, struct vrnic_mr *mr,
			     struct vrnic_reg_mr *arg, size_t count)
{
	struct vrnic_dev *vdev = ctx->vdev;
	struct vrnic_page_list *list = &mr->list;
	struct vrnic_cmd_reg_mr command = {
		.opcode = cpu_to_le16(VRNIC_CMD_REG_MR),
		.pd = cpu_to_le32(arg->pd),
		.access = cpu_to_le32(arg->access),
		.kind = arg->flags & VRNIC_REG_GPU ? VRNIC_MR_KIND_GPU : VRNIC_MR_KIND_HOST,
		.page_shift = PAGE_SHIFT,
		.page_count = cpu_to_le32(count),
		.address = cpu_to_le64(arg->iova),
		.length = cpu_to_le64(arg->length),
	};
	struct vrnic_reply_object reply;
	u16 flags = 0;
	u64 skip = mr->attach ? arg->start & PAGE_MASK : 0;
	int ret;

	ret = vrnic_page_list_build(vdev, list, mr->sgt, skip, count);
	if (ret)
		return ret;
	if (arg->flags & VRNIC_REG_ATOMIC)
		flags |= VRNIC_MR_ATOMIC_CAPABLE;
	if (arg->flags & VRNIC_REG_RELAXED)
		flags |= VRNIC_MR_RELAXED_ORDERING;
	if (list->contiguous) {
		flags |= VRNIC_MR_CONTIGUOUS;
		/* Of the first byte, not of its page; and there are no pages to count. */
		command.pages = cpu_to_le64(list->first + (arg->iova & ~PAGE_MASK));
		command.page_count = 0;
	} else if (list->root) {
		flags |= VRNIC_MR_INDIRECT;
		command.pages = cpu_to_le64(list->root_dma);
	} else {
		command.pages = cpu_to_le64(list->block_dma[0]);
	}
	command.flags = cpu_to_le16(flags);
	ret = vrnic_context_call(ctx, &command, &reply, &arg->verdict);
	if (ret)
		return ret;
	mr->key = le32_to_cpu(reply.object);
	mr->length = arg->length;
	ret = xa_err(xa_store(&ctx->mrs, mr->key, mr, GFP_KERNEL_ACCOUNT));
	if (ret) {
		vrnic_admin_object(vdev, VRNIC_CMD_DEREG_MR, mr->key, NULL);
		return ret;
	}
	arg->key = mr->key;
	return 0;
}

static int vrnic_reg_mr_common(struct vrnic_context *ctx, struct vrnic_reg_mr *arg, bool dmabuf)
{
	struct vrnic_dev *vdev = ctx->vdev;
	struct vrnic_mr *mr;
	size_t count;
	int ret;

	if (arg->key || arg->reserved || arg->access & ~VRNIC_ACCESS_ALL)
		return -EINVAL;
	if (!xa_load(&ctx->pds, arg->pd))
		return -ENOENT;
	ret = vrnic_range_check(arg, &count);
	if (ret)
		return ret;
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return -ENOMEM;
	if (dmabuf)
		ret = vrnic_dmabuf_import(vdev, mr, arg->fd, arg->start, arg->length);
	else
		ret = vrnic_umem_pin(vdev, mr, arg->start, arg->length,
				     arg->access & VRNIC_ACCESS_WRITES);
	if (!ret)
		ret = vrnic_mr_register(ctx, mr, arg, count);
	if (ret)
		vrnic_mr_free(vdev, mr);
	return ret;
}

int vrnic_reg_mr(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_reg_mr *reg = arg;

	if (reg->fd || reg->flags & ~(VRNIC_REG_ATOMIC | VRNIC_REG_RELAXED))
		return -EINVAL;
	return vrnic_reg_mr_common(ctx, reg, false);
}

int vrnic_reg_mr_dmabuf(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_reg_mr *reg = arg;

	if (reg->flags & ~(VRNIC_REG_ATOMIC | VRNIC_REG_GPU | VRNIC_REG_RELAXED))
		return -EINVAL;
	return vrnic_reg_mr_common(ctx, reg, true);
}

static int vrnic_mr_dereg(struct vrnic_context *ctx, struct vrnic_mr *mr,
			  struct vrnic_verdict *verdict)
{
	int ret;

	atomic64_inc(&ctx->admin_commands);
	ret = vrnic_admin_object(ctx->vdev, VRNIC_CMD_DEREG_MR, mr->key, verdict);
	/* Only now is it certain that nothing writes to the pages. */
	if (ret)
		return ret;
	xa_erase(&ctx->mrs, mr->key);
	vrnic_mr_free(ctx->vdev, mr);
	return 0;
}

int vrnic_dereg_mr(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_object *object = arg;
	struct vrnic_mr *mr;

	if (object->reserved)
		return -EINVAL;
	mr = xa_load(&ctx->mrs, object->number);
	if (!mr)
		return -ENOENT;
	return vrnic_mr_dereg(ctx, mr, &object->verdict);
}

int vrnic_mrs_dereg(struct vrnic_context *ctx)
{
	struct vrnic_mr *mr;
	unsigned long key;
	int ret;

	xa_for_each(&ctx->mrs, key, mr) {
		ret = vrnic_mr_dereg(ctx, mr, NULL);
		if (ret)
			return ret;
	}
	return 0;
}

/* Free without telling the device, which was reset or has dropped the whole context. */
void vrnic_mrs_release(struct vrnic_context *ctx)
{
	struct vrnic_mr *mr;
	unsigned long key;

	xa_for_each(&ctx->mrs, key, mr) {
		xa_erase(&ctx->mrs, key);
		vrnic_mr_free(ctx->vdev, mr);
	}
}

/* The device may still write to the pages: losing them is better than lending them out again. */
void vrnic_mrs_abandon(struct vrnic_context *ctx)
{
	struct vrnic_mr *mr;
	unsigned long key;

	xa_for_each(&ctx->mrs, key, mr)
		xa_erase(&ctx->mrs, key);
}
