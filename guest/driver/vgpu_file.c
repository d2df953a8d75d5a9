// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* An open /dev/vgpuN: its calls, and the end of what it owned. */

#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "vgpu.h"

static int vgpu_open(struct inode *inode, struct file *file)
{
	struct vgpu_dev *gpu = container_of(file->private_data, struct vgpu_dev, misc);
	struct vgpu_file *owner;

	owner = kzalloc(sizeof(*owner), GFP_KERNEL_ACCOUNT);
	if (!owner)
		return -ENOMEM;
	vgpu_dev_get(gpu);
	owner->gpu = gpu;
	owner->mapping = file->f_mapping;
	INIT_LIST_HEAD(&owner->allocations);
	mutex_lock(&gpu->lock);
	list_add_tail(&owner->node, &gpu->files);
	mutex_unlock(&gpu->lock);
	file->private_data = owner;
	return nonseekable_open(inode, file);
}

/* Mappings and exports hold the file, so none is left here. */
static int vgpu_release(struct inode *inode, struct file *file)
{
	struct vgpu_file *owner = file->private_data;
	struct vgpu_dev *gpu = owner->gpu;
	struct vgpu_allocation *allocation, *next;

	mutex_lock(&gpu->lock);
	list_for_each_entry_safe(allocation, next, &owner->allocations, node)
		vgpu_vram_free(allocation);
	list_del(&owner->node);
	mutex_unlock(&gpu->lock);
	vgpu_dev_put(gpu);
	kfree(owner);
	return 0;
}

/* The device goes: user mappings become SIGBUS, calls ENODEV. */
void vgpu_files_revoke(struct vgpu_dev *gpu)
{
	struct vgpu_file *owner;

	mutex_lock(&gpu->lock);
	gpu->gone = true;
	list_for_each_entry(owner, &gpu->files, node)
		unmap_mapping_range(owner->mapping, 0, 0, 1);
	mutex_unlock(&gpu->lock);
}

static int vgpu_info(struct vgpu_file *owner, struct vgpu_info __user *user)
{
	struct vgpu_dev *gpu = owner->gpu;
	struct vgpu_info info = {
		.vram_size = (u64)gpu->page_count << PAGE_SHIFT,
		.bus_address = gpu->vram_bus,
	};

	mutex_lock(&gpu->lock);
	info.vram_free = (u64)vgpu_vram_free_pages(gpu) << PAGE_SHIFT;
	mutex_unlock(&gpu->lock);
	return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
}

static int vgpu_alloc(struct vgpu_file *owner, struct vgpu_alloc __user *user)
{
	struct vgpu_dev *gpu = owner->gpu;
	struct vgpu_allocation *allocation;
	struct vgpu_alloc arg;
	int ret = 0;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.offset)
		return -EINVAL;
	mutex_lock(&gpu->lock);
	allocation = vgpu_vram_alloc(owner, arg.size);
	if (IS_ERR(allocation)) {
		ret = PTR_ERR(allocation);
	} else {
		arg.offset = (u64)allocation->first << PAGE_SHIFT;
		arg.size = vgpu_allocation_size(allocation);
	}
	mutex_unlock(&gpu->lock);
	if (ret)
		return ret;
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static int vgpu_free(struct vgpu_file *owner, struct vgpu_alloc __user *user)
{
	struct vgpu_dev *gpu = owner->gpu;
	struct vgpu_allocation *allocation;
	struct vgpu_alloc arg;
	int ret = 0;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.size)
		return -EINVAL;
	mutex_lock(&gpu->lock);
	allocation = vgpu_vram_find(owner, arg.offset);
	if (!allocation)
		ret = -ENOENT;
	else if (allocation->users)
		ret = -EBUSY;
	else
		vgpu_vram_free(allocation);
	mutex_unlock(&gpu->lock);
	return ret;
}

static struct dma_buf *vgpu_export_find(struct file *file, u64 offset)
{
	struct vgpu_file *owner = file->private_data;
	struct vgpu_allocation *allocation;
	struct dma_buf *dmabuf;

	mutex_lock(&owner->gpu->lock);
	allocation = vgpu_vram_find(owner, offset);
	if (owner->gpu->gone)
		dmabuf = ERR_PTR(-ENODEV);
	else if (allocation)
		dmabuf = vgpu_dmabuf_export(file, allocation);
	else
		dmabuf = ERR_PTR(-ENOENT);
	mutex_unlock(&owner->gpu->lock);
	return dmabuf;
}

static int vgpu_export(struct file *file, struct vgpu_export __user *user)
{
	struct vgpu_export arg;
	struct dma_buf *dmabuf;
	int fd, ret;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.fd || arg.flags & ~(u32)O_CLOEXEC)
		return -EINVAL;
	fd = get_unused_fd_flags(arg.flags);
	if (fd < 0)
		return fd;
	dmabuf = vgpu_export_find(file, arg.offset);
	if (IS_ERR(dmabuf)) {
		ret = PTR_ERR(dmabuf);
		goto err_fd;
	}
	if (put_user(fd, &user->fd)) {
		ret = -EFAULT;
		goto err_dmabuf;
	}
	fd_install(fd, dmabuf->file);
	return 0;

err_dmabuf:
	dma_buf_put(dmabuf);
err_fd:
	put_unused_fd(fd);
	return ret;
}

static long vgpu_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case VGPU_IOC_INFO:
		return vgpu_info(file->private_data, user);
	case VGPU_IOC_ALLOC:
		return vgpu_alloc(file->private_data, user);
	case VGPU_IOC_FREE:
		return vgpu_free(file->private_data, user);
	case VGPU_IOC_EXPORT:
		return vgpu_export(file, user);
	default:
		return -ENOTTY;
	}
}

static int vgpu_mmap(struct file *file, struct vm_area_struct *vma)
{
	return vgpu_vram_mmap(file->private_data, vma);
}

const struct file_operations vgpu_fops = {
	.owner = THIS_MODULE,
	.open = vgpu_open,
	.release = vgpu_release,
	.mmap = vgpu_mmap,
	.unlocked_ioctl = vgpu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
