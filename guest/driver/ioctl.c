// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The calls of vrnic_uapi.h: copying and locking here, meaning in the handlers. */

#include <linux/uaccess.h>

#include "vrnic.h"

union vrnic_argument {
	struct vrnic_verdict verdict;	/* first in every argument that goes in */
	struct vrnic_query query;
	struct vrnic_gid gid;
	struct vrnic_object object;
	struct vrnic_reg_mr reg_mr;
	struct vrnic_create_cq create_cq;
	struct vrnic_create_qp create_qp;
	struct vrnic_modify_qp modify_qp;
	struct vrnic_query_qp query_qp;
	struct vrnic_create_ah create_ah;
	struct vrnic_multicast multicast;
	struct vrnic_set_hints set_hints;
};

struct vrnic_call {
	unsigned int cmd;
	int (*handler)(struct vrnic_context *ctx, void *arg);
};

static const struct vrnic_call vrnic_calls[] = {
	{ VRNIC_IOC_QUERY, vrnic_query },
	{ VRNIC_IOC_QUERY_GID, vrnic_query_gid },
	{ VRNIC_IOC_SET_GID, vrnic_set_gid },
	{ VRNIC_IOC_ALLOC_PD, vrnic_alloc_pd },
	{ VRNIC_IOC_FREE_PD, vrnic_free_pd },
	{ VRNIC_IOC_REG_MR, vrnic_reg_mr },
	{ VRNIC_IOC_REG_MR_DMABUF, vrnic_reg_mr_dmabuf },
	{ VRNIC_IOC_DEREG_MR, vrnic_dereg_mr },
	{ VRNIC_IOC_CREATE_CQ, vrnic_create_cq },
	{ VRNIC_IOC_DESTROY_CQ, vrnic_destroy_cq },
	{ VRNIC_IOC_CREATE_QP, vrnic_create_qp },
	{ VRNIC_IOC_DESTROY_QP, vrnic_destroy_qp },
	{ VRNIC_IOC_MODIFY_QP, vrnic_modify_qp },
	{ VRNIC_IOC_QUERY_QP, vrnic_query_qp },
	{ VRNIC_IOC_CREATE_AH, vrnic_create_ah },
	{ VRNIC_IOC_DESTROY_AH, vrnic_destroy_ah },
	{ VRNIC_IOC_ATTACH_MULTICAST, vrnic_attach_multicast },
	{ VRNIC_IOC_DETACH_MULTICAST, vrnic_detach_multicast },
	{ VRNIC_IOC_SET_HINTS, vrnic_set_hints },
};

static const struct vrnic_call *vrnic_call_find(unsigned int cmd)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(vrnic_calls); i++)
		if (vrnic_calls[i].cmd == cmd)
			return &vrnic_calls[i];
	return NULL;
}

static int vrnic_call_locked(struct vrnic_context *ctx, const struct vrnic_call *call, void *arg)
{
	struct vrnic_dev *vdev = ctx->vdev;
	int ret;

	ret = down_read_killable(&vdev->state_lock);
	if (ret)
		return ret;
	if (ctx->dead) {
		ret = -ENODEV;
	} else {
		ret = mutex_lock_killable(&ctx->lock);
		if (!ret) {
			ret = call->handler(ctx, arg);
			mutex_unlock(&ctx->lock);
		}
	}
	up_read(&vdev->state_lock);
	return ret;
}

long vrnic_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct vrnic_context *ctx = file->private_data;
	const struct vrnic_call *call;
	void __user *user = (void __user *)arg;
	union vrnic_argument argument = {};
	int ret;

	atomic64_inc(&ctx->syscalls);
	call = vrnic_call_find(cmd);
	if (!call)
		return -ENOTTY;
	if (_IOC_DIR(cmd) & _IOC_WRITE) {
		if (copy_from_user(&argument, user, _IOC_SIZE(cmd)))
			return -EFAULT;
		memset(&argument.verdict, 0, sizeof(argument.verdict));
	}
	ret = vrnic_call_locked(ctx, call, &argument);
	/* On failure too, for the verdict. What a failed copy leaves behind goes with the file. */
	if (copy_to_user(user, &argument, _IOC_SIZE(cmd)) && !ret)
		return -EFAULT;
	return ret;
}
