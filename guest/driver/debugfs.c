// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * /sys/kernel/debug/vrnic/<PCI address>/
 *	driver		what the driver counted
 *	contexts	one line for each open file
 *	device		the device's counter registers
 */

#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "vrnic.h"

static struct dentry *vrnic_debugfs_root;

static void vrnic_show_counter(struct seq_file *file, const char *name, const atomic64_t *value)
{
	seq_printf(file, "%s %lld\n", name, (long long)atomic64_read(value));
}

static int driver_show(struct seq_file *file, void *unused)
{
	struct vrnic_dev *vdev = file->private;
	const struct vrnic_counters *counters = &vdev->counters;
	static const char * const states[] = {
		[VRNIC_DOWN] = "down",
		[VRNIC_UP] = "up",
		[VRNIC_GONE] = "gone",
	};

	seq_printf(file, "state %s\n", states[READ_ONCE(vdev->state)]);
	seq_printf(file, "event_queues %u\n", vdev->eq_count);
	vrnic_show_counter(file, "admin_commands", &counters->admin_commands);
	vrnic_show_counter(file, "admin_refused", &counters->admin_refused);
	vrnic_show_counter(file, "admin_polled", &counters->admin_polled);
	vrnic_show_counter(file, "interrupts", &counters->interrupts);
	vrnic_show_counter(file, "events", &counters->events);
	vrnic_show_counter(file, "events_unclaimed", &counters->events_unclaimed);
	vrnic_show_counter(file, "resets", &counters->resets);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(driver);

static unsigned long vrnic_xa_count(struct xarray *xa)
{
	unsigned long index, count = 0;
	void *entry;

	xa_for_each(xa, index, entry)
		count++;
	return count;
}

static int contexts_show(struct seq_file *file, void *unused)
{
	struct vrnic_dev *vdev = file->private;
	struct vrnic_context *ctx;

	seq_puts(file, "ctx pid comm state pds mrs cqs qps syscalls doorbell_maps admin_commands events events_lost\n");
	spin_lock_irq(&vdev->contexts_lock);
	list_for_each_entry(ctx, &vdev->contexts, node)
		seq_printf(file, "%u %d %s %s %lu %lu %lu %lu %lld %lld %lld %lld %lld\n",
			   ctx->number, ctx->pid, ctx->comm, ctx->dead ? "dead" : "live",
			   vrnic_xa_count(&ctx->pds), vrnic_xa_count(&ctx->mrs),
			   vrnic_xa_count(&ctx->cqs), vrnic_xa_count(&ctx->qps),
			   (long long)atomic64_read(&ctx->syscalls),
			   (long long)atomic64_read(&ctx->doorbell_maps),
			   (long long)atomic64_read(&ctx->admin_commands),
			   (long long)atomic64_read(&ctx->event_count),
			   (long long)atomic64_read(&ctx->events_lost));
	spin_unlock_irq(&vdev->contexts_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(contexts);

static int device_show(struct seq_file *file, void *unused)
{
	struct vrnic_dev *vdev = file->private;
	unsigned int i, offset;
	u64 low, high;

	down_read(&vdev->state_lock);
	for (i = 0; vdev->state == VRNIC_UP && i < VRNIC_COUNTERS; i++) {
		offset = VRNIC_REG_COUNTER + i * VRNIC_REG_COUNTER_STRIDE;
		low = vrnic_read(vdev, offset);
		high = vrnic_read(vdev, offset + 4);
		seq_printf(file, "%s %llu\n", vrnic_counter_name(i), high << 32 | low);
	}
	up_read(&vdev->state_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(device);

void vrnic_debugfs_add(struct vrnic_dev *vdev)
{
	vdev->debugfs = debugfs_create_dir(pci_name(vdev->pdev), vrnic_debugfs_root);
	debugfs_create_file("driver", 0444, vdev->debugfs, vdev, &driver_fops);
	debugfs_create_file("contexts", 0444, vdev->debugfs, vdev, &contexts_fops);
	debugfs_create_file("device", 0444, vdev->debugfs, vdev, &device_fops);
}

void vrnic_debugfs_remove(struct vrnic_dev *vdev)
{
	debugfs_remove(vdev->debugfs);
}

void vrnic_debugfs_register(void)
{
	vrnic_debugfs_root = debugfs_create_dir("vrnic", NULL);
}

void vrnic_debugfs_unregister(void)
{
	debugfs_remove(vrnic_debugfs_root);
}
