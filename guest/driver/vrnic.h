/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The NIC driver's own structures.
 *
 * Locks, outermost first:
 *	vrnic_dev.state_lock	readers use the device, the writer brings it up or down
 *	vrnic_context.lock	one call at a time changes a file's objects
 *	mmap_lock		(the kernel's) taken when user memory is pinned or copied
 *	vrnic_context.map_lock	the doorbell page against its revocation; also taken in page faults
 *	vrnic_admin.lock	one admin command at a time
 * and the spinlocks, all of them interrupt safe: contexts_lock, the xarrays' own, event_lock.
 */

#ifndef VRNIC_H
#define VRNIC_H

#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "vrnic_contract.h"
#include "vrnic_uapi.h"

#define VRNIC_ADMIN_LOG_SIZE	6
#define VRNIC_ADMIN_ENTRIES	BIT(VRNIC_ADMIN_LOG_SIZE)
#define VRNIC_EQ_LOG_SIZE	8
#define VRNIC_EQ_ENTRIES	BIT(VRNIC_EQ_LOG_SIZE)
#define VRNIC_EQS		4	/* at most; fewer on smaller machines */
#define VRNIC_FILE_EVENTS	256	/* events a file may leave unread */

struct dma_buf_attachment;
struct vm_area_struct;
struct vrnic_dev;

/* The admin queue. A reply is recognised by its sequence number; the interrupt only wakes. */
struct vrnic_admin {
	struct mutex lock;	/* the whole struct */
	struct vrnic_cmd *commands;
	struct vrnic_reply *replies;
	dma_addr_t commands_dma;
	dma_addr_t replies_dma;
	struct completion interrupt;
	u32 index;		/* running index of the next free slot */
	bool broken;		/* a command got no answer: only a reset helps */
};

struct vrnic_eq {
	struct vrnic_dev *vdev;
	struct vrnic_eqe *ring;
	dma_addr_t ring_dma;
	unsigned int vector;
	u32 number;
	u32 consumer;		/* running index, the interrupt handler's */
	bool live;
	char name[32];
};

enum vrnic_state {
	VRNIC_DOWN,		/* not set up, or being reset */
	VRNIC_UP,
	VRNIC_GONE,		/* removed; waits for its files to close */
};

struct vrnic_limits {
	u32 abi_version;
	u32 doorbell_pages;
	u32 max_pd;
	u32 max_mr;
	u32 max_eq;
	u32 max_cq;
	u32 max_qp;
	u32 max_log_ring;
	u32 max_inline;
	u32 max_message;
};

struct vrnic_counters {
	atomic64_t admin_commands;
	atomic64_t admin_refused;
	atomic64_t admin_polled;	/* replies found without their interrupt */
	atomic64_t interrupts;
	atomic64_t events;
	atomic64_t events_unclaimed;	/* for an object that no file owns any more */
	atomic64_t resets;
};

struct vrnic_dev {
	struct kref kref;
	struct pci_dev *pdev;
	struct miscdevice misc;
	char name[16];
	int id;
	void __iomem *regs;
	phys_addr_t doorbells;
	struct rw_semaphore state_lock;
	enum vrnic_state state;
	struct vrnic_limits limits;
	struct vrnic_admin admin;
	struct vrnic_eq eqs[VRNIC_EQS];
	unsigned int eq_count;
	spinlock_t contexts_lock;	/* contexts */
	struct list_head contexts;
	struct xarray cq_owners;	/* CQN to context */
	struct xarray qp_owners;	/* QPN to context */
	struct vrnic_counters counters;
	struct dentry *debugfs;
};

/* Bus addresses of a region's pages, as the device reads them. */
struct vrnic_page_list {
	size_t count;		/* pages */
	bool contiguous;
	dma_addr_t first;	/* bus address of the first page */
	size_t blocks;
	__le64 **block;		/* 4 KiB each; NULL when the range is contiguous */
	dma_addr_t *block_dma;
	__le64 *root;		/* bus addresses of the blocks, when there is more than one */
	dma_addr_t root_dma;
};

/* A memory region: pinned user pages, or an imported dma-buf. */
struct vrnic_mr {
	u32 key;
	u64 length;
	struct sg_table *sgt;	/* DMA mapped */
	struct vrnic_page_list list;
	/* pinned user pages */
	struct sg_table umem_sgt;
	struct page **pages;
	unsigned long page_count;
	struct mm_struct *mm;	/* whose pinned_vm was charged */
	bool writable;
	/* dma-buf */
	struct dma_buf_attachment *attach;
};

/* An open file. */
struct vrnic_context {
	struct vrnic_dev *vdev;
	struct list_head node;
	u32 number;		/* its doorbell page */
	struct mutex lock;	/* the objects */
	bool dead;		/* under state_lock and map_lock: the device was reset or removed */
	struct xarray pds;	/* numbers only: the device knows the rest */
	struct xarray cqs;
	bool hints;			/* has a hint ring, which pins its region */
	struct xarray qps;
	struct xarray ahs;
	struct xarray mrs;	/* struct vrnic_mr by key */
	struct mutex map_lock;	/* dead, for page faults */
	struct address_space *mapping;
	spinlock_t event_lock;	/* the event ring below */
	struct vrnic_event_record events[VRNIC_FILE_EVENTS];
	u32 event_head;
	u32 event_tail;
	bool event_overflow;
	wait_queue_head_t wait;
	pid_t pid;
	char comm[TASK_COMM_LEN];
	atomic64_t syscalls;
	atomic64_t doorbell_maps;
	atomic64_t admin_commands;
	atomic64_t event_count;
	atomic64_t events_lost;
};

static inline u32 vrnic_read(struct vrnic_dev *vdev, unsigned int offset)
{
	return readl(vdev->regs + offset);
}

static inline void vrnic_write(struct vrnic_dev *vdev, unsigned int offset, u32 value)
{
	writel(value, vdev->regs + offset);
}

/* A device that was pulled answers every read with ones. */
static inline bool vrnic_absent(struct vrnic_dev *vdev)
{
	return vrnic_read(vdev, VRNIC_REG_MAGIC) == U32_MAX;
}

/* main.c */
void vrnic_dev_put(struct vrnic_dev *vdev);

/* device.c */
int vrnic_device_check(struct vrnic_dev *vdev);
int vrnic_device_start(struct vrnic_dev *vdev);
void vrnic_device_stop(struct vrnic_dev *vdev, enum vrnic_state state);

/* admin.c */
int vrnic_admin_init(struct vrnic_dev *vdev);
void vrnic_admin_exit(struct vrnic_dev *vdev);
int vrnic_admin_enable(struct vrnic_dev *vdev);
irqreturn_t vrnic_admin_interrupt(int irq, void *data);
int vrnic_admin_call(struct vrnic_dev *vdev, const void *command, void *reply,
		     struct vrnic_verdict *verdict);
int vrnic_admin_object(struct vrnic_dev *vdev, enum vrnic_admin_opcode opcode, u32 object,
		       struct vrnic_verdict *verdict);

/* eq.c */
int vrnic_eqs_init(struct vrnic_dev *vdev);
void vrnic_eqs_exit(struct vrnic_dev *vdev);
int vrnic_eqs_start(struct vrnic_dev *vdev);
void vrnic_eqs_stop(struct vrnic_dev *vdev);

/* context.c */
extern const struct file_operations vrnic_fops;
int vrnic_context_call(struct vrnic_context *ctx, const void *command, void *reply,
		       struct vrnic_verdict *verdict);
void vrnic_contexts_kill(struct vrnic_dev *vdev);

/* event.c */
void vrnic_event_dispatch(struct vrnic_dev *vdev, const struct vrnic_eqe *eqe);
ssize_t vrnic_event_read(struct file *file, char __user *buf, size_t size, loff_t *pos);
__poll_t vrnic_event_poll(struct file *file, struct poll_table_struct *table);

/* mmap.c */
int vrnic_mmap(struct file *file, struct vm_area_struct *vma);

/* ioctl.c */
long vrnic_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

/* queue.c: ioctl handlers for everything that is only a number here */
int vrnic_query(struct vrnic_context *ctx, void *arg);
int vrnic_query_gid(struct vrnic_context *ctx, void *arg);
int vrnic_set_gid(struct vrnic_context *ctx, void *arg);
int vrnic_alloc_pd(struct vrnic_context *ctx, void *arg);
int vrnic_free_pd(struct vrnic_context *ctx, void *arg);
int vrnic_create_cq(struct vrnic_context *ctx, void *arg);
int vrnic_set_hints(struct vrnic_context *ctx, void *arg);
int vrnic_destroy_cq(struct vrnic_context *ctx, void *arg);
int vrnic_create_qp(struct vrnic_context *ctx, void *arg);
int vrnic_modify_qp(struct vrnic_context *ctx, void *arg);
int vrnic_query_qp(struct vrnic_context *ctx, void *arg);
int vrnic_destroy_qp(struct vrnic_context *ctx, void *arg);
int vrnic_number_make(struct vrnic_context *ctx, const void *command,
		      struct vrnic_reply_object *reply, struct xarray *mine,
		      struct xarray *owners, enum vrnic_admin_opcode undo,
		      struct vrnic_verdict *verdict, u32 *number);
int vrnic_number_destroy(struct vrnic_context *ctx, enum vrnic_admin_opcode opcode,
			 struct xarray *mine, struct xarray *owners, u32 number,
			 struct vrnic_verdict *verdict);
int vrnic_queues_destroy(struct vrnic_context *ctx);
int vrnic_pds_free(struct vrnic_context *ctx);
void vrnic_queues_forget(struct vrnic_context *ctx);

/* datagram.c: ioctl handlers */
int vrnic_create_ah(struct vrnic_context *ctx, void *arg);
int vrnic_destroy_ah(struct vrnic_context *ctx, void *arg);
int vrnic_attach_multicast(struct vrnic_context *ctx, void *arg);
int vrnic_detach_multicast(struct vrnic_context *ctx, void *arg);

/* mr.c */
int vrnic_reg_mr(struct vrnic_context *ctx, void *arg);
int vrnic_reg_mr_dmabuf(struct vrnic_context *ctx, void *arg);
int vrnic_dereg_mr(struct vrnic_context *ctx, void *arg);
int vrnic_mrs_dereg(struct vrnic_context *ctx);
void vrnic_mrs_release(struct vrnic_context *ctx);
void vrnic_mrs_abandon(struct vrnic_context *ctx);

/* umem.c */
int vrnic_umem_pin(struct vrnic_dev *vdev, struct vrnic_mr *mr, u64 start, u64 length,
		   bool writable);
void vrnic_umem_unpin(struct vrnic_dev *vdev, struct vrnic_mr *mr);

/* dmabuf.c */
int vrnic_dmabuf_import(struct vrnic_dev *vdev, struct vrnic_mr *mr, int fd, u64 offset,
			u64 length);
void vrnic_dmabuf_release(struct vrnic_mr *mr);

/* pagelist.c */
int vrnic_page_list_build(struct vrnic_dev *vdev, struct vrnic_page_list *list,
			  struct sg_table *sgt, u64 skip, size_t count);
void vrnic_page_list_free(struct vrnic_dev *vdev, struct vrnic_page_list *list);

/* error.c */
extern const struct pci_error_handlers vrnic_error_handlers;

/* debugfs.c */
void vrnic_debugfs_register(void);
void vrnic_debugfs_unregister(void);
void vrnic_debugfs_add(struct vrnic_dev *vdev);
void vrnic_debugfs_remove(struct vrnic_dev *vdev);

#endif /* VRNIC_H */
