/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a guest may rely on: registers, admin commands, descriptors, doorbells.
 *
 * Generated from emu/personality/vrnic/contract; do not edit. Write it anew with
 *	python -m emu.personality.vrnic.generate
 * Meaning and misuse of everything here: emu/personality/vrnic/REGISTERS.md.
 */

#ifndef VRNIC_CONTRACT_H
#define VRNIC_CONTRACT_H

#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#else
#include <assert.h>
#include <stddef.h>
#endif
#include <linux/types.h>

/* What the small functions below are: a compiler for other processors may need more words. */
#ifndef VRNIC_INLINE
#define VRNIC_INLINE static inline
#endif

/* Identity and BAR layout. */
#define VRNIC_ABI_MAJOR				1
#define VRNIC_ABI_MINOR				1
#define VRNIC_VENDOR_ID				0x7672
#define VRNIC_DEVICE_ID				0x6e01
#define VGPU_DEVICE_ID				0x6e02
#define VRNIC_REGISTER_BAR			0
#define VRNIC_REGISTER_SIZE			0x10000
#define VRNIC_DOORBELL_BAR			2
#define VRNIC_DOORBELL_PAGE_SIZE		0x1000
#define VRNIC_DOORBELL_BLOCK_BASE		0x400
#define VRNIC_DOORBELL_BLOCK_SIZE		64
#define VRNIC_MSIX_BAR				4
#define VGPU_REGISTER_BAR			0
#define VGPU_REGISTER_SIZE			0x1000
#define VGPU_VRAM_BAR				2

/* NIC registers: byte offsets in BAR0. */
#define VRNIC_REG_MAGIC				0x000
#define VRNIC_REG_ABI_VERSION			0x004
#define VRNIC_REG_VECTORS			0x008
#define VRNIC_REG_DOORBELL_PAGES		0x00c
#define VRNIC_REG_MAX_PD			0x010
#define VRNIC_REG_MAX_MR			0x014
#define VRNIC_REG_MAX_EQ			0x018
#define VRNIC_REG_MAX_CQ			0x01c
#define VRNIC_REG_MAX_QP			0x020
#define VRNIC_REG_MAX_LOG_RING			0x024
#define VRNIC_REG_MAX_INLINE			0x028
#define VRNIC_REG_MAX_MESSAGE			0x02c
#define VRNIC_REG_PORT_STATE			0x040
#define VRNIC_REG_PORT_MTU			0x044
#define VRNIC_REG_PORT_SPEED			0x048
#define VRNIC_REG_DOORBELL_MODE			0x04c
#define VRNIC_REG_MAC_LOW			0x050
#define VRNIC_REG_MAC_HIGH			0x054
#define VRNIC_REG_CONTROL			0x080
#define VRNIC_REG_STATUS			0x084
#define VRNIC_REG_FATAL_CAUSE			0x088
#define VRNIC_REG_ADMIN_SQ_BASE			0x100
#define VRNIC_REG_ADMIN_RQ_BASE			0x108
#define VRNIC_REG_ADMIN_LOG_SIZE		0x110
#define VRNIC_REG_ADMIN_DOORBELL		0x114
#define VRNIC_REG_ADMIN_HEAD			0x118
#define VRNIC_REG_CHECK_COUNT			0x800
#define VRNIC_REG_CHECK_ID			0x808
#define VRNIC_REG_CHECK_QPN			0x80c
#define VRNIC_REG_CHECK_INDEX			0x810
#define VRNIC_REG_CHECK_SELECT			0x814
#define VRNIC_REG_CHECK_ACTION			0x818
#define VRNIC_REG_CHECK_SELECTED		0x820
#define VRNIC_REG_EQ_CONSUMER			0x200
#define VRNIC_REG_EQ_CONSUMER_STRIDE		8
#define VRNIC_REG_COUNTER			0x400
#define VRNIC_REG_COUNTER_STRIDE		8
#define VRNIC_MAGIC				0x434e5256

/* vGPU registers: byte offsets in BAR0. */
#define VGPU_REG_MAGIC				0x000
#define VGPU_REG_ABI_VERSION			0x004
#define VGPU_REG_VRAM_SIZE			0x008
#define VGPU_MAGIC				0x55504756

/* Sizes and positions. */
#define VRNIC_ADMIN_ENTRY_SIZE			64
#define VRNIC_GID_TABLE_SIZE			16
#define VRNIC_WQE_SIZE				64
#define VRNIC_RECV_WQE_SIZE			32
#define VRNIC_CQE_SIZE				64
#define VRNIC_EQE_SIZE				32
#define VRNIC_MAX_INLINE			32
#define VRNIC_WQE_INLINE_OFFSET			32
#define VRNIC_HINT_SIZE				64
#define VRNIC_HINT_HEADER_SIZE			64
#define VRNIC_NO_HINTS				255
#define VRNIC_NO_EQ				0xffffffff
#define VRNIC_NO_RECV_RING			255
#define VRNIC_DB_QPN_SHIFT			32
#define VRNIC_DB_QPN_MASK			0xffffff
#define VRNIC_DB_TYPE_SHIFT			56
#define VRNIC_DB_VALID				0x8000000000000000ULL

/* Bits of CONTROL. */
/*
 * Write 1: every object is destroyed, every register returns to its reset value, the bit reads
 * 0 again.
 */
#define VRNIC_CONTROL_RESET			0x1
/* Admin queue runs. Latches the admin registers: change them only while 0. */
#define VRNIC_CONTROL_ENABLE			0x2

/* Bits of STATUS. */
/* Reset is over; registers are valid. */
#define VRNIC_STATUS_READY			0x1
/* The admin queue runs. */
#define VRNIC_STATUS_ENABLED			0x2
/* The device gave up (FATAL_CAUSE says why); only a reset helps. */
#define VRNIC_STATUS_FATAL			0x4

/* FATAL_CAUSE. */
enum vrnic_fatal_cause {
	VRNIC_FATAL_NONE = 0,
	VRNIC_FATAL_ADMIN_LOG_SIZE = 1,
	VRNIC_FATAL_ADMIN_BASE = 2,
	VRNIC_FATAL_ADMIN_DOORBELL = 3,
	VRNIC_FATAL_ADMIN_DMA = 4,
	VRNIC_FATAL_INTERNAL = 5,
};

/* Rules a driver or kernel can break (CHECK_ID). */
enum vrnic_check {
	/* Nothing since the last reset. */
	VRNIC_CHECK_NONE = 0,
	/* A WQE carries the running index of the slot it is in. */
	VRNIC_CHECK_C01_INDEX = 1,
	/*
	 * A WQE carries the number of its own queue pair, and a doorbell comes through its
	 * owner's page.
	 */
	VRNIC_CHECK_C02_OWNER = 2,
	/* Every slot that a doorbell covers was written in this pass of the ring. */
	VRNIC_CHECK_C03_STALE = 3,
	/* A WQE does not change between its doorbell and its completion. */
	VRNIC_CHECK_C04_CHANGED = 4,
	/* Slots, payload and result buffers are not reused before their completion was seen. */
	VRNIC_CHECK_C05_REUSE = 5,
	/* A doorbell is at most a ring ahead of what completed. */
	VRNIC_CHECK_C06_AHEAD = 6,
	/* Doorbells of a queue pair come in the order of their indices. */
	VRNIC_CHECK_C07_OLDER = 7,
	/*
	 * The doorbell record agrees with the doorbell: not behind it when the queue pair is
	 * idle, and stored before it where the policy is STRICT. The receive dword is not the
	 * send index.
	 */
	VRNIC_CHECK_C08_DBR = 8,
	/*
	 * Each store to a WQE, its payload and the doorbell record happens before the doorbell
	 * that covers it.
	 */
	VRNIC_CHECK_C09_ORDER = 9,
	/*
	 * Fences and atomics between threads have a scope that holds both of them, and the NIC
	 * where it reads.
	 */
	VRNIC_CHECK_C10_SCOPE = 10,
	/*
	 * Fields have the contract's byte order: index, QPN and keys make sense as they are,
	 * not swapped.
	 */
	VRNIC_CHECK_C11_BYTE_ORDER = 11,
	/* A doorbell is one aligned 64-bit store. */
	VRNIC_CHECK_C12_WIDTH = 12,
	/* A lost doorbell loses no work: the record tells of it, or it is rung again. */
	VRNIC_CHECK_C13_LOST_DOORBELL = 13,
	/* WQEs that are written and published are rung when nobody does anything else. */
	VRNIC_CHECK_C14_UNRUNG = 14,
	/* A CQ has room for every completion, unless it may overrun. */
	VRNIC_CHECK_C15_CQ_OVERRUN = 15,
	/* The memory of a queue is zero, or all ones, when the queue is made. */
	VRNIC_CHECK_C16_UNPREPARED = 16,
	/*
	 * Who gets an error completion stops posting and polling, and resets or ends the queue
	 * pair.
	 */
	VRNIC_CHECK_C17_IGNORED_ERROR = 17,
	/*
	 * Indices keep all their bits, and the phase follows the whole index, also where they
	 * wrap.
	 */
	VRNIC_CHECK_C18_WRAP = 18,
	/* A consumer index is never ahead of the producer's, and never goes back. */
	VRNIC_CHECK_C19_CONSUMER = 19,
	/* Who stores doorbell record and doorbell holds the queue pair's lock. */
	VRNIC_CHECK_C20_LOCK = 20,
	/* Work is rung on queue pairs in RTS, receives from INIT on. */
	VRNIC_CHECK_C21_STATE = 21,
	/* Every access is inside a region whose key, domain and rights allow it. */
	VRNIC_CHECK_C22_KEY = 22,
	/* An atomic's target is aligned, and in a region that was registered for atomics. */
	VRNIC_CHECK_C23_ATOMIC = 23,
	/*
	 * A receiver relies only on order that the transport promises: within a queue pair, or
	 * behind a fence.
	 */
	VRNIC_CHECK_C24_UNORDERED = 24,
	/* A declared signal changes as declared: its whole width, by adding or by setting. */
	VRNIC_CHECK_C25_SIGNAL = 25,
	/*
	 * Both ends of a connection agree: numbers, addresses, path MTU, first PSN, partition,
	 * READ depth.
	 */
	VRNIC_CHECK_C26_PATH = 26,
	/* A connection stands the loss of a packet: it has a timeout, and retries. */
	VRNIC_CHECK_C27_RETRY = 27,
	/* A queue pair is used for the rank it was declared for. */
	VRNIC_CHECK_C28_PEER = 28,
	/* Operations, flags and modes are ones that this device and queue pair offer. */
	VRNIC_CHECK_C29_UNSUPPORTED = 29,
	/*
	 * Objects end in the order of their use: work, queue pairs, CQs, regions, domains,
	 * context; none is left.
	 */
	VRNIC_CHECK_C30_LIFECYCLE = 30,
	/* Nobody polls a bit that cannot change any more. */
	VRNIC_CHECK_C31_SPIN = 31,
	/*
	 * Software touches registers that exist, with their width, and writes only those that
	 * take it.
	 */
	VRNIC_CHECK_C32_REGISTER = 32,
	/* Whoever handles an interrupt arms it again after its last look at the queue. */
	VRNIC_CHECK_C33_REARM = 33,
	/* Hints are well formed and speak of queue pairs of their own process. */
	VRNIC_CHECK_C34_HINT = 34,
};

/* What CHECK_ACTION takes. */
enum vrnic_check_action {
	/* Nothing is looked for or counted. */
	VRNIC_CHECK_ACTION_OFF = 0,
	/* It is counted. */
	VRNIC_CHECK_ACTION_COUNT = 1,
	/* It gives an event with its sentence, in capture and trace. */
	VRNIC_CHECK_ACTION_LOG = 2,
	/*
	 * The queue pair goes to ERR; its oldest element completes with LOC_QP_OP_ERR, cause
	 * RULE_BROKEN.
	 */
	VRNIC_CHECK_ACTION_ERROR = 3,
	/*
	 * The NIC stands still, with a dump of what led there, until it is told to go on or
	 * reset.
	 */
	VRNIC_CHECK_ACTION_STOP = 4,
};

/* What a hint is about. */
enum vrnic_hint_kind {
	/*
	 * A lane is about to ring: what it knows of the latest store that its doorbell covers.
	 */
	VRNIC_HINT_ORDER = 1,
	/* A lane is about to store over what a WQE still uses, as far as the lane knows. */
	VRNIC_HINT_REUSE = 2,
	/* Two CTAs update one word with atomics, at least one of them with CTA scope. */
	VRNIC_HINT_SCOPE = 3,
	/* Every lane waits, and one of them for this queue pair. */
	VRNIC_HINT_STALL = 4,
	/* A lane is about to store doorbell record and doorbell. */
	VRNIC_HINT_LOCK = 5,
	/* A lane saw a flag, but not the data it stands for. */
	VRNIC_HINT_MISSING = 6,
	/* Declared: which rank a queue pair leads to. */
	VRNIC_HINT_PEER = 7,
	/* A WQE is meant for a rank. */
	VRNIC_HINT_USE = 8,
	/* Declared: a word that peers signal, its width and how. */
	VRNIC_HINT_SIGNAL = 9,
};

/* Which of a WQE's memories (HintPart). */
enum vrnic_hint_part {
	VRNIC_HINT_PART_WQE = 1,
	VRNIC_HINT_PART_PAYLOAD = 2,
	VRNIC_HINT_PART_RECORD = 3,
	VRNIC_HINT_PART_RESULT = 4,
};

/* What a lane waits for (HintWait). */
enum vrnic_hint_wait {
	VRNIC_HINT_WAIT_COMPLETION = 1,
	VRNIC_HINT_WAIT_TURN = 2,
	VRNIC_HINT_WAIT_DOORBELL = 3,
	VRNIC_HINT_WAIT_LOCK = 4,
};

/* How a signal changes (HintSignal). */
enum vrnic_hint_signal {
	VRNIC_HINT_SIGNAL_ADD = 1,
	VRNIC_HINT_SIGNAL_SET = 2,
};

/* Admin opcodes. */
enum vrnic_admin_opcode {
	VRNIC_CMD_NOP = 0,
	VRNIC_CMD_ALLOC_CTX = 1,
	VRNIC_CMD_FREE_CTX = 2,
	VRNIC_CMD_ALLOC_PD = 3,
	VRNIC_CMD_FREE_PD = 4,
	VRNIC_CMD_REG_MR = 5,
	VRNIC_CMD_DEREG_MR = 6,
	VRNIC_CMD_CREATE_EQ = 7,
	VRNIC_CMD_DESTROY_EQ = 8,
	VRNIC_CMD_CREATE_CQ = 9,
	VRNIC_CMD_DESTROY_CQ = 10,
	VRNIC_CMD_CREATE_QP = 11,
	VRNIC_CMD_MODIFY_QP = 12,
	VRNIC_CMD_QUERY_QP = 13,
	VRNIC_CMD_DESTROY_QP = 14,
	VRNIC_CMD_QUERY_GID = 15,
	VRNIC_CMD_SET_GID = 16,
	VRNIC_CMD_QUERY_OBJECTS = 17,
	VRNIC_CMD_SET_HINTS = 32,
	VRNIC_CMD_CREATE_AH = 18,
	VRNIC_CMD_DESTROY_AH = 19,
	VRNIC_CMD_ATTACH_MULTICAST = 20,
	VRNIC_CMD_DETACH_MULTICAST = 21,
};

/* Admin reply statuses. */
enum vrnic_admin_status {
	VRNIC_ADMIN_OK = 0,
	/* No such command. */
	VRNIC_ADMIN_BAD_OPCODE = 1,
	/*
	 * A field has a value that is not allowed; the reply's refused is its byte offset in
	 * the command.
	 */
	VRNIC_ADMIN_BAD_FIELD = 2,
	/* A field names an object that does not exist; refused is its byte offset. */
	VRNIC_ADMIN_BAD_OBJECT = 3,
	/* The object exists but belongs to another context or protection domain. */
	VRNIC_ADMIN_NOT_OWNER = 4,
	/* The object is still used by others (destroy those first). */
	VRNIC_ADMIN_BUSY = 5,
	/* The table is full. */
	VRNIC_ADMIN_NO_RESOURCE = 6,
	/*
	 * The queue pair is in a state that does not allow it, or a required attribute is
	 * missing.
	 */
	VRNIC_ADMIN_BAD_STATE = 7,
	/* A bus address in the command cannot be reached. */
	VRNIC_ADMIN_DMA_ERROR = 8,
	/* Valid, but this device does not offer it (see the limits). */
	VRNIC_ADMIN_UNSUPPORTED = 9,
};

/* Event types. */
enum vrnic_event {
	VRNIC_EVENT_CQ_ERR = 0,
	VRNIC_EVENT_QP_FATAL = 1,
	VRNIC_EVENT_QP_REQ_ERR = 2,
	VRNIC_EVENT_QP_ACCESS_ERR = 3,
	VRNIC_EVENT_COMM_EST = 4,
	VRNIC_EVENT_SQ_DRAINED = 5,
	VRNIC_EVENT_DEVICE_FATAL = 8,
	VRNIC_EVENT_PORT_ACTIVE = 9,
	VRNIC_EVENT_PORT_ERR = 10,
	/* A completion arrived on an armed CQ; object is its CQN. The CQ is disarmed. */
	VRNIC_EVENT_COMPLETION = 32,
};

/* Where a region's pages are. */
enum vrnic_mr_kind {
	VRNIC_MR_KIND_HOST = 0,
	VRNIC_MR_KIND_GPU = 1,
};

/* REG_MR flags. */
/* pages is a list of bus addresses of 4 KiB blocks, each holding 512 page addresses. */
#define VRNIC_MR_INDIRECT			0x1
/* Remote atomics may target it. */
#define VRNIC_MR_ATOMIC_CAPABLE			0x2
/* pages is itself the bus address of one contiguous range of length bytes; there is no list. */
#define VRNIC_MR_CONTIGUOUS			0x4
/* A peer's SEND_INV may take the key out of use; DEREG_MR is still due. */
#define VRNIC_MR_INVALIDATABLE			0x8
/*
 * Payload may be written with PCIe relaxed ordering: it may be seen after what was written
 * later.
 */
#define VRNIC_MR_RELAXED_ORDERING		0x10

/* How a CQ reports. */
enum vrnic_cq_mode {
	/* Entries go round the ring; each pass flips the phase bit (first pass 1). */
	VRNIC_CQ_MODE_RING = 0,
	/*
	 * Every entry goes to slot 0 with phase 1; software reads the 16-bit index, or the
	 * running index.
	 */
	VRNIC_CQ_MODE_COLLAPSED = 1,
	/* No entries: two u64 counters (success, error) at the ring's address. */
	VRNIC_CQ_MODE_COUNTER = 2,
};

/* What happens when a ring CQ is full. */
enum vrnic_cq_overrun {
	/* CQ_ERR event, the CQ stops, its QPs go to ERR. */
	VRNIC_CQ_OVERRUN_ERROR = 0,
	/* Overwrite; software answers for it. */
	VRNIC_CQ_OVERRUN_IGNORE = 1,
};

/* What the doorbell record means. */
enum vrnic_dbr_policy {
	/* Not read. */
	VRNIC_DBR_NONE = 0,
	/* Read after a stall; it may be ahead of lost doorbells. */
	VRNIC_DBR_RECOVERY = 1,
	/* Read at each doorbell; the doorbell is only a hint. */
	VRNIC_DBR_AUTHORITATIVE = 2,
	/* A doorbell ahead of the record is a violation and is ignored. */
	VRNIC_DBR_STRICT = 3,
};

/* CREATE_QP flags. */
/*
 * Slots carry a phase bit: 1 when (index - start_index) / slots is even, else 0; a slot with
 * the wrong one is stale. So the first write to each slot of a zeroed ring carries 1, wherever
 * the ring starts.
 */
#define VRNIC_QP_PHASE				0x1
/* Every send WQE completes, flagged or not. */
#define VRNIC_QP_SIGNAL_ALL			0x2

/* enum vrnic_transport service of a QP. */
enum vrnic_transport {
	VRNIC_TRANSPORT_ROCE_RC = 0,
	VRNIC_TRANSPORT_ROCE_UC = 1,
	VRNIC_TRANSPORT_ROCE_UD = 2,
	VRNIC_TRANSPORT_UET_ROD = 8,
	VRNIC_TRANSPORT_UET_RUD = 9,
	VRNIC_TRANSPORT_UET_RUDI = 10,
	VRNIC_TRANSPORT_UET_UUD = 11,
	/* No wire: elements work on the NIC itself. */
	VRNIC_TRANSPORT_LOCAL = 16,
	/* Reliable connection to the shared receive queues of a domain. */
	VRNIC_TRANSPORT_ROCE_XRC = 17,
};

/* QP states (enum ibv_qp_state). */
enum vrnic_qp_state {
	VRNIC_QPS_RESET = 0,
	VRNIC_QPS_INIT = 1,
	VRNIC_QPS_RTR = 2,
	VRNIC_QPS_RTS = 3,
	VRNIC_QPS_SQD = 4,
	VRNIC_QPS_SQE = 5,
	VRNIC_QPS_ERR = 6,
};

/* MODIFY_QP mask (enum ibv_qp_attr_mask). */
#define VRNIC_ATTR_STATE			0x1
#define VRNIC_ATTR_CUR_STATE			0x2
#define VRNIC_ATTR_EN_SQD_ASYNC_NOTIFY		0x4
#define VRNIC_ATTR_ACCESS_FLAGS			0x8
#define VRNIC_ATTR_PKEY_INDEX			0x10
#define VRNIC_ATTR_PORT				0x20
#define VRNIC_ATTR_QKEY				0x40
#define VRNIC_ATTR_AV				0x80
#define VRNIC_ATTR_PATH_MTU			0x100
#define VRNIC_ATTR_TIMEOUT			0x200
#define VRNIC_ATTR_RETRY_CNT			0x400
#define VRNIC_ATTR_RNR_RETRY			0x800
#define VRNIC_ATTR_RQ_PSN			0x1000
#define VRNIC_ATTR_MAX_RD_ATOMIC		0x2000
#define VRNIC_ATTR_ALT_PATH			0x4000
#define VRNIC_ATTR_MIN_RNR_TIMER		0x8000
#define VRNIC_ATTR_SQ_PSN			0x10000
#define VRNIC_ATTR_MAX_DEST_RD_ATOMIC		0x20000
#define VRNIC_ATTR_PATH_MIG_STATE		0x40000
#define VRNIC_ATTR_DEST_QPN			0x100000

/* VRNIC_ACCESS_* rights (enum ibv_access_flags). */
#define VRNIC_ACCESS_LOCAL_WRITE		0x1
#define VRNIC_ACCESS_REMOTE_WRITE		0x2
#define VRNIC_ACCESS_REMOTE_READ		0x4
#define VRNIC_ACCESS_REMOTE_ATOMIC		0x8

/* Send WQE opcodes. */
enum vrnic_opcode {
	VRNIC_OP_NOP = 0,
	VRNIC_OP_WRITE = 1,
	VRNIC_OP_WRITE_IMM = 2,
	VRNIC_OP_READ = 3,
	VRNIC_OP_SEND = 4,
	VRNIC_OP_SEND_IMM = 5,
	VRNIC_OP_ATOMIC_ADD = 6,
	VRNIC_OP_ATOMIC_CAS = 7,
	VRNIC_OP_SEND_INV = 8,
};

/* Send WQE flags. */
/* Write a completion. */
#define VRNIC_WQE_SIGNAL			0x1
/* Mark the message solicited. */
#define VRNIC_WQE_SOLICITED			0x2
/*
 * enum vrnic_hint_wait until earlier READs and atomics of this QP are complete; on UET_RUD,
 * whose messages may overtake each other, until every earlier element is. A WRITE that is a
 * flag for the data before it needs this.
 */
#define VRNIC_WQE_FENCE				0x4
/* Payload is in the WQE. */
#define VRNIC_WQE_INLINE			0x10
/*
 * Atomic on 4 bytes; length is 4 then. ROCE_RC has them; between two of these devices only, as
 * the standard's atomics are on 8.
 */
#define VRNIC_WQE_OPERAND_4B			0x20
/* Phase bit. */
#define VRNIC_WQE_PHASE				0x80

/* CQE opcodes. */
enum vrnic_wc_opcode {
	VRNIC_WC_OP_SEND = 0,
	VRNIC_WC_OP_WRITE = 1,
	VRNIC_WC_OP_READ = 2,
	VRNIC_WC_OP_ATOMIC_CAS = 3,
	VRNIC_WC_OP_ATOMIC_ADD = 4,
	VRNIC_WC_OP_NOP = 5,
	VRNIC_WC_OP_RECV = 8,
	VRNIC_WC_OP_RECV_WRITE_IMM = 9,
};

/* CQE statuses (enum ibv_wc_status). */
enum vrnic_wc_status {
	VRNIC_WC_SUCCESS = 0,
	VRNIC_WC_LOC_LEN_ERR = 1,
	VRNIC_WC_LOC_QP_OP_ERR = 2,
	VRNIC_WC_LOC_PROT_ERR = 4,
	VRNIC_WC_WR_FLUSH_ERR = 5,
	VRNIC_WC_MW_BIND_ERR = 6,
	VRNIC_WC_BAD_RESP_ERR = 7,
	VRNIC_WC_LOC_ACCESS_ERR = 8,
	VRNIC_WC_REM_INV_REQ_ERR = 9,
	VRNIC_WC_REM_ACCESS_ERR = 10,
	VRNIC_WC_REM_OP_ERR = 11,
	VRNIC_WC_RETRY_EXC_ERR = 12,
	VRNIC_WC_RNR_RETRY_EXC_ERR = 13,
	VRNIC_WC_FATAL_ERR = 19,
	VRNIC_WC_GENERAL_ERR = 21,
};

/* Cause of an error completion. */
enum vrnic_cause {
	VRNIC_CAUSE_NONE = 0,
	VRNIC_CAUSE_INDEX_MISMATCH = 1,
	VRNIC_CAUSE_QPN_MISMATCH = 2,
	VRNIC_CAUSE_PHASE_STALE = 3,
	VRNIC_CAUSE_BAD_OPCODE = 4,
	VRNIC_CAUSE_BAD_LENGTH = 5,
	VRNIC_CAUSE_BAD_FLAGS = 6,
	VRNIC_CAUSE_HANDLE_UNKNOWN = 7,
	VRNIC_CAUSE_LKEY_UNKNOWN = 16,
	VRNIC_CAUSE_LKEY_BOUNDS = 17,
	VRNIC_CAUSE_LKEY_ACCESS = 18,
	VRNIC_CAUSE_LKEY_PD = 19,
	VRNIC_CAUSE_RKEY_UNKNOWN = 20,
	VRNIC_CAUSE_RKEY_BOUNDS = 21,
	VRNIC_CAUSE_RKEY_ACCESS = 22,
	VRNIC_CAUSE_RKEY_PD = 23,
	VRNIC_CAUSE_BUS_ERROR = 24,
	VRNIC_CAUSE_REMOTE_NAK = 32,
	VRNIC_CAUSE_ACK_TIMEOUT = 33,
	VRNIC_CAUSE_SEQUENCE_RETRIES = 34,
	VRNIC_CAUSE_RNR_RETRIES = 35,
	VRNIC_CAUSE_FLUSHED = 48,
	VRNIC_CAUSE_RULE_BROKEN = 49,
};

/* CQE flags. */
#define VRNIC_CQE_WITH_IMM			0x1
#define VRNIC_CQE_SOLICITED			0x2
#define VRNIC_CQE_WITH_INV			0x4
/*
 * Datagrams received: the first 40 bytes of the buffer, which length counts, are the network
 * header: an IPv6 header, or 20 zero bytes and an IPv4 header.
 */
#define VRNIC_CQE_GRH				0x8

/* Doorbell queue type. */
enum vrnic_doorbell_type {
	VRNIC_DB_TYPE_SQ = 0,
	VRNIC_DB_TYPE_RQ = 1,
	VRNIC_DB_TYPE_CQ_CONSUMER = 2,
	/*
	 * Index is the consumer index; the next completion beyond it raises one COMPLETION
	 * event.
	 */
	VRNIC_DB_TYPE_CQ_ARM = 3,
	VRNIC_DB_TYPE_CQ_ARM_SOLICITED = 4,
	/* Look at the process's hint ring now; number and index do not matter. */
	VRNIC_DB_TYPE_HINTS = 5,
};

/* Byte offsets in a doorbell page. */
#define VRNIC_DB_SQ				0x0
#define VRNIC_DB_RQ				0x8
#define VRNIC_DB_CQ_CONSUMER			0x10
#define VRNIC_DB_CQ_ARM				0x20
#define VRNIC_DB_HINTS				0x30

/* Index of each counter: its register is VRNIC_REG_COUNTER + 8 * index. */
enum vrnic_counter {
	/* register reads */
	VRNIC_COUNTER_MMIO_READS,
	/* register writes, doorbells apart */
	VRNIC_COUNTER_MMIO_WRITES,
	/* ignored accesses: wrong size, alignment, offset or value */
	VRNIC_COUNTER_BAD_MMIO,
	/* admin commands carried out */
	VRNIC_COUNTER_ADMIN_COMMANDS,
	/* admin commands refused */
	VRNIC_COUNTER_ADMIN_ERRORS,
	/* doorbell writes accepted */
	VRNIC_COUNTER_DOORBELLS,
	/* doorbell writes ignored: foreign page, unknown QP, stale or absurd index */
	VRNIC_COUNTER_DOORBELLS_IGNORED,
	/* reads of the send ring, each a burst */
	VRNIC_COUNTER_WQE_FETCHES,
	/* send WQEs executed */
	VRNIC_COUNTER_WQES,
	/* completions written */
	VRNIC_COUNTER_CQES,
	/* completions written with an error status */
	VRNIC_COUNTER_CQE_ERRORS,
	/* completions lost because a CQ was full */
	VRNIC_COUNTER_CQ_OVERRUNS,
	/* events written */
	VRNIC_COUNTER_EQES,
	/* events lost because an EQ was full */
	VRNIC_COUNTER_EQ_OVERRUNS,
	/* interrupts raised */
	VRNIC_COUNTER_MSIX,
	/* bytes read from guest memory and VRAM */
	VRNIC_COUNTER_DMA_READ_BYTES,
	/* bytes written to guest memory and VRAM */
	VRNIC_COUNTER_DMA_WRITE_BYTES,
	/* accesses to bus addresses nothing answers */
	VRNIC_COUNTER_DMA_ERRORS,
	/* frames sent */
	VRNIC_COUNTER_TX_PACKETS,
	/* bytes of frames sent */
	VRNIC_COUNTER_TX_BYTES,
	/* frames received for a queue pair */
	VRNIC_COUNTER_RX_PACKETS,
	/* bytes of frames received for a queue pair */
	VRNIC_COUNTER_RX_BYTES,
	/* frames dropped, for any reason */
	VRNIC_COUNTER_RX_DROPPED,
	/* frames dropped for a wrong ICRC */
	VRNIC_COUNTER_RX_ICRC_ENCAPSULATED,
	/* request packets sent again */
	VRNIC_COUNTER_RETRANSMITTED_PACKETS,
	/* payload bytes sent again */
	VRNIC_COUNTER_RETRANSMITTED_BYTES,
	/* local ACK timeouts */
	VRNIC_COUNTER_LOCAL_ACK_TIMEOUT_ERR,
	/* NAK sequence errors received */
	VRNIC_COUNTER_PACKET_SEQ_ERR,
	/* requests ahead of the expected PSN */
	VRNIC_COUNTER_OUT_OF_SEQUENCE,
	/* requests behind the expected PSN */
	VRNIC_COUNTER_DUPLICATE_REQUEST,
	/* RNR NAKs sent: no receive element */
	VRNIC_COUNTER_SEND_RNR_ERR,
	/* RNR NAKs received */
	VRNIC_COUNTER_RNR_NAK_RETRY_ERR,
	/* accesses refused: key, bounds, domain or right */
	VRNIC_COUNTER_PROTECTION_ERRORS,
	/* UC and UD messages dropped for want of a receive element */
	VRNIC_COUNTER_OUT_OF_BUFFER,
	/* packets of another partition */
	VRNIC_COUNTER_BAD_PKEY_CNTR,
	/* datagrams with another Q_Key */
	VRNIC_COUNTER_QKEY_VIOL_CNTR,
	/* answers that show that an earlier READ or atomic response was lost */
	VRNIC_COUNTER_IMPLIED_NAK_SEQ_ERR,
	/* RoCE packets that came with the mark of a congested switch */
	VRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS,
	/* congestion notifications sent */
	VRNIC_COUNTER_NP_CNP_SENT,
	/* congestion notifications that slowed a queue pair down */
	VRNIC_COUNTER_RP_CNP_HANDLED,
	/* congestion notifications too soon after another to count */
	VRNIC_COUNTER_RP_CNP_IGNORED,
	/* UET packet delivery contexts opened, by either end */
	VRNIC_COUNTER_PDCS_OPENED,
	/* UET packets of no packet delivery context */
	VRNIC_COUNTER_UNKNOWN_PDC,
	/* UET NACKs sent */
	VRNIC_COUNTER_NACKS_SENT,
	/* UET NACKs received */
	VRNIC_COUNTER_NACKS_RECEIVED,
	/* rule violations, all kinds */
	VRNIC_COUNTER_CHECK_VIOLATIONS,
	/* WQEs taken from a doorbell page instead of the ring */
	VRNIC_COUNTER_PUSHED_WQES,
	/* UET packets dropped: not secured where that is asked for */
	VRNIC_COUNTER_TSS_UNSECURED,
	/* UET packets dropped: secured with a domain that is not known */
	VRNIC_COUNTER_TSS_UNKNOWN_DOMAIN,
	/* UET packets dropped: seen before */
	VRNIC_COUNTER_TSS_REPLAYS,
	/* UET packets dropped: wrong key or changed on the way */
	VRNIC_COUNTER_TSS_AUTH_FAILURES,
	/* times the link went down */
	VRNIC_COUNTER_LINK_DOWNED,
	/* WRITE messages received */
	VRNIC_COUNTER_RX_WRITE_REQUESTS,
	/* READ requests received */
	VRNIC_COUNTER_RX_READ_REQUESTS,
	/* atomic requests received */
	VRNIC_COUNTER_RX_ATOMIC_REQUESTS,
	/* requests refused: key, bounds, domain or right */
	VRNIC_COUNTER_RESP_REMOTE_ACCESS_ERRORS,
	/* receives that ended for want of room */
	VRNIC_COUNTER_RESP_LOCAL_LENGTH_ERROR,
	/* receives that ended in error */
	VRNIC_COUNTER_RESP_CQE_ERROR,
	/* receives flushed */
	VRNIC_COUNTER_RESP_CQE_FLUSH_ERROR,
	/* send WQEs that ended in error */
	VRNIC_COUNTER_REQ_CQE_ERROR,
	/* send WQEs flushed */
	VRNIC_COUNTER_REQ_CQE_FLUSH_ERROR,
	/* send WQEs that the peer called invalid */
	VRNIC_COUNTER_REQ_REMOTE_INVALID_REQUEST,
	/* send WQEs that the peer's memory refused */
	VRNIC_COUNTER_REQ_REMOTE_ACCESS_ERRORS,
	/* send WQEs that nobody answered in time */
	VRNIC_COUNTER_REQ_TRANSPORT_RETRIES_EXCEEDED,
	/* send WQEs for which the peer never had a receive */
	VRNIC_COUNTER_REQ_RNR_RETRIES_EXCEEDED,
	/* frames dropped: nothing here takes them */
	VRNIC_COUNTER_RX_DROP_FOREIGN,
	/* packets dropped: truncated, or a length that cannot be */
	VRNIC_COUNTER_RX_DROP_LENGTH,
	/* packets dropped: wrong IPv4 or UDP checksum */
	VRNIC_COUNTER_RX_DROP_CHECKSUM,
	/* packets dropped: transport version */
	VRNIC_COUNTER_RX_DROP_VERSION,
	/* packets dropped: no such QP */
	VRNIC_COUNTER_RX_DROP_QPN,
	/* packets dropped: opcode unknown, or of another transport than the QP's */
	VRNIC_COUNTER_RX_DROP_OPCODE,
	/* packets dropped: the QP is not in a state for them */
	VRNIC_COUNTER_RX_DROP_STATE,
	/* packets dropped: addresses are not the connection's, or the port's */
	VRNIC_COUNTER_RX_DROP_ADDRESS,
	/* responses dropped: nothing waits for them, or they mean nothing */
	VRNIC_COUNTER_RX_DROP_RESPONSE,
	/* repeated requests dropped: their answer is not remembered */
	VRNIC_COUNTER_RX_DROP_REPEAT,
	/* unreliable messages dropped: they cannot be carried out */
	VRNIC_COUNTER_RX_DROP_REFUSED,
	VRNIC_COUNTERS
};

/**
 * struct vrnic_cmd - Any admin command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @body: 0
 */
struct vrnic_cmd {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__u8 body[56];
};

static_assert(sizeof(struct vrnic_cmd) == 64, "vrnic_cmd");
static_assert(offsetof(struct vrnic_cmd, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd, body) == 8, "body");

/**
 * struct vrnic_reply - Any admin reply, 64 bytes
 * @status: commit word: enum vrnic_admin_status
 * @refused: commit word: byte offset in the command of the field that was refused, else 0
 * @sequence: commit word: running index of the command plus 1
 * @body: 0
 */
struct vrnic_reply {
	__le16 status;
	__le16 refused;
	__le32 sequence;
	__u8 body[56];
};

static_assert(sizeof(struct vrnic_reply) == 64, "vrnic_reply");
static_assert(offsetof(struct vrnic_reply, refused) == 2, "refused");
static_assert(offsetof(struct vrnic_reply, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_reply, body) == 8, "body");

/**
 * struct vrnic_cmd_object - Command that names one object, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @object: object to destroy or query
 * @reserved: 0
 */
struct vrnic_cmd_object {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 object;
	__le32 reserved[13];
};

static_assert(sizeof(struct vrnic_cmd_object) == 64, "vrnic_cmd_object");
static_assert(offsetof(struct vrnic_cmd_object, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_object, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_object, object) == 8, "object");

/**
 * struct vrnic_reply_object - Reply that names the new object, 64 bytes
 * @status: commit word: enum vrnic_admin_status
 * @refused: commit word: byte offset in the command of the field that was refused, else 0
 * @sequence: commit word: running index of the command plus 1
 * @object: number of the new object (PDN, key, EQN, CQN, QPN, AHN)
 * @reserved: 0
 */
struct vrnic_reply_object {
	__le16 status;
	__le16 refused;
	__le32 sequence;
	__le32 object;
	__le32 reserved[13];
};

static_assert(sizeof(struct vrnic_reply_object) == 64, "vrnic_reply_object");
static_assert(offsetof(struct vrnic_reply_object, refused) == 2, "refused");
static_assert(offsetof(struct vrnic_reply_object, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_reply_object, object) == 8, "object");

/**
 * struct vrnic_reply_alloc_ctx - ALLOC_CTX reply, 64 bytes
 * @status: commit word: enum vrnic_admin_status
 * @refused: commit word: byte offset in the command of the field that was refused, else 0
 * @sequence: commit word: running index of the command plus 1
 * @ctx: context number = doorbell page in BAR2
 * @reserved: 0
 */
struct vrnic_reply_alloc_ctx {
	__le16 status;
	__le16 refused;
	__le32 sequence;
	__le32 ctx;
	__le32 reserved[13];
};

static_assert(sizeof(struct vrnic_reply_alloc_ctx) == 64, "vrnic_reply_alloc_ctx");
static_assert(offsetof(struct vrnic_reply_alloc_ctx, refused) == 2, "refused");
static_assert(offsetof(struct vrnic_reply_alloc_ctx, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_reply_alloc_ctx, ctx) == 8, "ctx");

/**
 * struct vrnic_cmd_free_ctx - FREE_CTX command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @ctx: context
 * @force: 1: destroy what it still owns
 * @reserved: 0
 */
struct vrnic_cmd_free_ctx {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 ctx;
	__le32 force;
	__le32 reserved[12];
};

static_assert(sizeof(struct vrnic_cmd_free_ctx) == 64, "vrnic_cmd_free_ctx");
static_assert(offsetof(struct vrnic_cmd_free_ctx, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_free_ctx, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_free_ctx, ctx) == 8, "ctx");
static_assert(offsetof(struct vrnic_cmd_free_ctx, force) == 12, "force");

/**
 * struct vrnic_cmd_alloc_pd - ALLOC_PD command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @ctx: owner
 * @reserved: 0
 */
struct vrnic_cmd_alloc_pd {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 ctx;
	__le32 reserved[13];
};

static_assert(sizeof(struct vrnic_cmd_alloc_pd) == 64, "vrnic_cmd_alloc_pd");
static_assert(offsetof(struct vrnic_cmd_alloc_pd, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_alloc_pd, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_alloc_pd, ctx) == 8, "ctx");

/**
 * struct vrnic_cmd_reg_mr - REG_MR command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @pd: protection domain
 * @access: enum ibv_access_flags
 * @kind: enum vrnic_mr_kind
 * @page_shift: log2 of the page size, 12..21
 * @flags: VRNIC_MR_*
 * @page_count: pages in the list
 * @address: virtual address of the first byte
 * @length: bytes; the first page is used from address modulo page size on
 * @pages: bus address of the page list (u64 entries), or see VRNIC_MR_*
 * @reserved: 0
 */
struct vrnic_cmd_reg_mr {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 pd;
	__le32 access;
	__u8 kind;
	__u8 page_shift;
	__le16 flags;
	__le32 page_count;
	__le64 address;
	__le64 length;
	__le64 pages;
	__le32 reserved[4];
};

static_assert(sizeof(struct vrnic_cmd_reg_mr) == 64, "vrnic_cmd_reg_mr");
static_assert(offsetof(struct vrnic_cmd_reg_mr, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_reg_mr, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_reg_mr, pd) == 8, "pd");
static_assert(offsetof(struct vrnic_cmd_reg_mr, access) == 12, "access");
static_assert(offsetof(struct vrnic_cmd_reg_mr, kind) == 16, "kind");
static_assert(offsetof(struct vrnic_cmd_reg_mr, page_shift) == 17, "page_shift");
static_assert(offsetof(struct vrnic_cmd_reg_mr, flags) == 18, "flags");
static_assert(offsetof(struct vrnic_cmd_reg_mr, page_count) == 20, "page_count");
static_assert(offsetof(struct vrnic_cmd_reg_mr, address) == 24, "address");
static_assert(offsetof(struct vrnic_cmd_reg_mr, length) == 32, "length");
static_assert(offsetof(struct vrnic_cmd_reg_mr, pages) == 40, "pages");

/**
 * struct vrnic_cmd_create_eq - CREATE_EQ command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @vector: MSI-X vector
 * @log_size: log2 of the entries, 1..16
 * @reserved0: 0
 * @reserved1: 0
 * @base: bus address of the ring, contiguous, 64-byte aligned, zeroed by the driver
 * @reserved: 0
 */
struct vrnic_cmd_create_eq {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le16 vector;
	__u8 log_size;
	__u8 reserved0;
	__le32 reserved1;
	__le64 base;
	__le32 reserved[10];
};

static_assert(sizeof(struct vrnic_cmd_create_eq) == 64, "vrnic_cmd_create_eq");
static_assert(offsetof(struct vrnic_cmd_create_eq, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_create_eq, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_create_eq, vector) == 8, "vector");
static_assert(offsetof(struct vrnic_cmd_create_eq, log_size) == 10, "log_size");
static_assert(offsetof(struct vrnic_cmd_create_eq, base) == 16, "base");

/**
 * struct vrnic_cmd_create_cq - CREATE_CQ command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @ctx: owner
 * @eq: event queue for completions and errors, 0xffffffff none
 * @mode: enum vrnic_cq_mode
 * @overrun: enum vrnic_cq_overrun
 * @log_size: log2 of the entries, 0..MAX_LOG_RING
 * @reserved0: 0
 * @ring_key: lkey of the region that holds the ring (LOCAL_WRITE)
 * @ring_address: virtual address of the ring in it, 64-byte aligned
 * @reserved: 0
 */
struct vrnic_cmd_create_cq {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 ctx;
	__le32 eq;
	__u8 mode;
	__u8 overrun;
	__u8 log_size;
	__u8 reserved0;
	__le32 ring_key;
	__le64 ring_address;
	__le32 reserved[8];
};

static_assert(sizeof(struct vrnic_cmd_create_cq) == 64, "vrnic_cmd_create_cq");
static_assert(offsetof(struct vrnic_cmd_create_cq, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_create_cq, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_create_cq, ctx) == 8, "ctx");
static_assert(offsetof(struct vrnic_cmd_create_cq, eq) == 12, "eq");
static_assert(offsetof(struct vrnic_cmd_create_cq, mode) == 16, "mode");
static_assert(offsetof(struct vrnic_cmd_create_cq, overrun) == 17, "overrun");
static_assert(offsetof(struct vrnic_cmd_create_cq, log_size) == 18, "log_size");
static_assert(offsetof(struct vrnic_cmd_create_cq, ring_key) == 20, "ring_key");
static_assert(offsetof(struct vrnic_cmd_create_cq, ring_address) == 24, "ring_address");

/**
 * struct vrnic_cmd_create_qp - CREATE_QP command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @ctx: owner; doorbells come through its page
 * @pd: protection domain
 * @send_cq: CQ of the send ring
 * @recv_cq: CQ of the receive ring
 * @transport: enum vrnic_transport
 * @sq_log_size: log2 of the send slots, 1..MAX_LOG_RING
 * @rq_log_size: log2 of the receive slots; 255: no receive ring
 * @dbr_policy: enum vrnic_dbr_policy
 * @ring_key: lkey of the region that holds rings and doorbell record
 * @sq_address: virtual address of the send ring, 64-byte aligned
 * @rq_address: virtual address of the receive ring, 32-byte aligned
 * @dbr_address: virtual address of the doorbell record, 8-byte aligned; unused with NONE
 * @flags: VRNIC_QP_*
 * @start_index: first running index of both rings
 */
struct vrnic_cmd_create_qp {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 ctx;
	__le32 pd;
	__le32 send_cq;
	__le32 recv_cq;
	__u8 transport;
	__u8 sq_log_size;
	__u8 rq_log_size;
	__u8 dbr_policy;
	__le32 ring_key;
	__le64 sq_address;
	__le64 rq_address;
	__le64 dbr_address;
	__le32 flags;
	__le32 start_index;
};

static_assert(sizeof(struct vrnic_cmd_create_qp) == 64, "vrnic_cmd_create_qp");
static_assert(offsetof(struct vrnic_cmd_create_qp, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_create_qp, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_create_qp, ctx) == 8, "ctx");
static_assert(offsetof(struct vrnic_cmd_create_qp, pd) == 12, "pd");
static_assert(offsetof(struct vrnic_cmd_create_qp, send_cq) == 16, "send_cq");
static_assert(offsetof(struct vrnic_cmd_create_qp, recv_cq) == 20, "recv_cq");
static_assert(offsetof(struct vrnic_cmd_create_qp, transport) == 24, "transport");
static_assert(offsetof(struct vrnic_cmd_create_qp, sq_log_size) == 25, "sq_log_size");
static_assert(offsetof(struct vrnic_cmd_create_qp, rq_log_size) == 26, "rq_log_size");
static_assert(offsetof(struct vrnic_cmd_create_qp, dbr_policy) == 27, "dbr_policy");
static_assert(offsetof(struct vrnic_cmd_create_qp, ring_key) == 28, "ring_key");
static_assert(offsetof(struct vrnic_cmd_create_qp, sq_address) == 32, "sq_address");
static_assert(offsetof(struct vrnic_cmd_create_qp, rq_address) == 40, "rq_address");
static_assert(offsetof(struct vrnic_cmd_create_qp, dbr_address) == 48, "dbr_address");
static_assert(offsetof(struct vrnic_cmd_create_qp, flags) == 56, "flags");
static_assert(offsetof(struct vrnic_cmd_create_qp, start_index) == 60, "start_index");

/**
 * struct vrnic_reply_create_qp - CREATE_QP reply, 64 bytes
 * @status: commit word: enum vrnic_admin_status
 * @refused: commit word: byte offset in the command of the field that was refused, else 0
 * @sequence: commit word: running index of the command plus 1
 * @object: queue pair number
 * @doorbell: byte offset of its block in the doorbell page; 0: it has none, use the page's
 *    start
 * @reserved: 0
 */
struct vrnic_reply_create_qp {
	__le16 status;
	__le16 refused;
	__le32 sequence;
	__le32 object;
	__le32 doorbell;
	__le32 reserved[12];
};

static_assert(sizeof(struct vrnic_reply_create_qp) == 64, "vrnic_reply_create_qp");
static_assert(offsetof(struct vrnic_reply_create_qp, refused) == 2, "refused");
static_assert(offsetof(struct vrnic_reply_create_qp, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_reply_create_qp, object) == 8, "object");
static_assert(offsetof(struct vrnic_reply_create_qp, doorbell) == 12, "doorbell");

/**
 * struct vrnic_cmd_modify_qp - MODIFY_QP command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @qpn: queue pair
 * @mask: attributes given: enum ibv_qp_attr_mask; port and partition are implied
 * @state: new state in bits 3:0; with CUR_STATE the state it is expected to be in, in bits 7:4
 * @path_mtu: 1=256 .. 5=4096
 * @timeout: local ACK timeout exponent, 0..31
 * @retry_cnt: 0..7
 * @rnr_retry: 0..7, 7 = for ever
 * @min_rnr_timer: RNR timer code, 0..31
 * @max_rd_atomic: outstanding READs and atomics as requester
 * @max_dest_rd_atomic: outstanding READs and atomics as responder
 * @dest_qpn: peer's QP; with QKEY the Q_Key: datagrams have no one peer
 * @rq_psn: 24 bits
 * @sq_psn: 24 bits
 * @access: enum ibv_access_flags
 * @traffic_class: IP traffic class (AV)
 * @hop_limit: IP TTL (AV); 0 reads as 64
 * @gid_index: own GID (AV)
 * @dest_gid: peer's GID, ::ffff:a.b.c.d for IPv4 (AV)
 * @dest_mac: next hop's MAC address (AV)
 * @udp_source_port: 0: derived from the QP numbers (AV)
 */
struct vrnic_cmd_modify_qp {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 qpn;
	__le32 mask;
	__u8 state;
	__u8 path_mtu;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
	__u8 min_rnr_timer;
	__u8 max_rd_atomic;
	__u8 max_dest_rd_atomic;
	__le32 dest_qpn;
	__le32 rq_psn;
	__le32 sq_psn;
	__u8 access;
	__u8 traffic_class;
	__u8 hop_limit;
	__u8 gid_index;
	__u8 dest_gid[16];
	__u8 dest_mac[6];
	__le16 udp_source_port;
};

static_assert(sizeof(struct vrnic_cmd_modify_qp) == 64, "vrnic_cmd_modify_qp");
static_assert(offsetof(struct vrnic_cmd_modify_qp, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_modify_qp, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_modify_qp, qpn) == 8, "qpn");
static_assert(offsetof(struct vrnic_cmd_modify_qp, mask) == 12, "mask");
static_assert(offsetof(struct vrnic_cmd_modify_qp, state) == 16, "state");
static_assert(offsetof(struct vrnic_cmd_modify_qp, path_mtu) == 17, "path_mtu");
static_assert(offsetof(struct vrnic_cmd_modify_qp, timeout) == 18, "timeout");
static_assert(offsetof(struct vrnic_cmd_modify_qp, retry_cnt) == 19, "retry_cnt");
static_assert(offsetof(struct vrnic_cmd_modify_qp, rnr_retry) == 20, "rnr_retry");
static_assert(offsetof(struct vrnic_cmd_modify_qp, min_rnr_timer) == 21, "min_rnr_timer");
static_assert(offsetof(struct vrnic_cmd_modify_qp, max_rd_atomic) == 22, "max_rd_atomic");
static_assert(offsetof(struct vrnic_cmd_modify_qp, max_dest_rd_atomic) == 23, "max_dest_rd_atomic");
static_assert(offsetof(struct vrnic_cmd_modify_qp, dest_qpn) == 24, "dest_qpn");
static_assert(offsetof(struct vrnic_cmd_modify_qp, rq_psn) == 28, "rq_psn");
static_assert(offsetof(struct vrnic_cmd_modify_qp, sq_psn) == 32, "sq_psn");
static_assert(offsetof(struct vrnic_cmd_modify_qp, access) == 36, "access");
static_assert(offsetof(struct vrnic_cmd_modify_qp, traffic_class) == 37, "traffic_class");
static_assert(offsetof(struct vrnic_cmd_modify_qp, hop_limit) == 38, "hop_limit");
static_assert(offsetof(struct vrnic_cmd_modify_qp, gid_index) == 39, "gid_index");
static_assert(offsetof(struct vrnic_cmd_modify_qp, dest_gid) == 40, "dest_gid");
static_assert(offsetof(struct vrnic_cmd_modify_qp, dest_mac) == 56, "dest_mac");
static_assert(offsetof(struct vrnic_cmd_modify_qp, udp_source_port) == 62, "udp_source_port");

/**
 * struct vrnic_reply_query_qp - QUERY_QP reply, 64 bytes
 * @status: commit word: enum vrnic_admin_status
 * @refused: commit word: byte offset in the command of the field that was refused, else 0
 * @sequence: commit word: running index of the command plus 1
 * @state: enum vrnic_qp_state
 * @transport: enum vrnic_transport
 * @sq_draining: 1: moved to SQD, and what had begun is not finished
 * @reserved0: 0
 * @doorbell_index: last accepted send doorbell
 * @fetched_index: next slot to fetch
 * @completed_index: every slot before it is done
 * @receive_index: next receive slot to use
 * @receive_doorbell: last accepted receive doorbell
 * @first_error_index: element that failed first
 * @first_error_status: its status, 0 if none
 * @reserved1: 0
 * @first_error_cause: its enum vrnic_cause
 * @next_psn: requester's next PSN
 * @expected_psn: responder's expected PSN
 * @reserved: 0
 */
struct vrnic_reply_query_qp {
	__le16 status;
	__le16 refused;
	__le32 sequence;
	__u8 state;
	__u8 transport;
	__u8 sq_draining;
	__u8 reserved0;
	__le32 doorbell_index;
	__le32 fetched_index;
	__le32 completed_index;
	__le32 receive_index;
	__le32 receive_doorbell;
	__le32 first_error_index;
	__u8 first_error_status;
	__u8 reserved1;
	__le16 first_error_cause;
	__le32 next_psn;
	__le32 expected_psn;
	__le32 reserved[4];
};

static_assert(sizeof(struct vrnic_reply_query_qp) == 64, "vrnic_reply_query_qp");
static_assert(offsetof(struct vrnic_reply_query_qp, refused) == 2, "refused");
static_assert(offsetof(struct vrnic_reply_query_qp, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_reply_query_qp, state) == 8, "state");
static_assert(offsetof(struct vrnic_reply_query_qp, transport) == 9, "transport");
static_assert(offsetof(struct vrnic_reply_query_qp, sq_draining) == 10, "sq_draining");
static_assert(offsetof(struct vrnic_reply_query_qp, doorbell_index) == 12, "doorbell_index");
static_assert(offsetof(struct vrnic_reply_query_qp, fetched_index) == 16, "fetched_index");
static_assert(offsetof(struct vrnic_reply_query_qp, completed_index) == 20, "completed_index");
static_assert(offsetof(struct vrnic_reply_query_qp, receive_index) == 24, "receive_index");
static_assert(offsetof(struct vrnic_reply_query_qp, receive_doorbell) == 28, "receive_doorbell");
static_assert(offsetof(struct vrnic_reply_query_qp, first_error_index) == 32, "first_error_index");
static_assert(offsetof(struct vrnic_reply_query_qp, first_error_status) == 36,
	      "first_error_status");
static_assert(offsetof(struct vrnic_reply_query_qp, first_error_cause) == 38, "first_error_cause");
static_assert(offsetof(struct vrnic_reply_query_qp, next_psn) == 40, "next_psn");
static_assert(offsetof(struct vrnic_reply_query_qp, expected_psn) == 44, "expected_psn");

/**
 * struct vrnic_cmd_gid - QUERY_GID and SET_GID command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @gid_index: 0..GID_TABLE_SIZE-1
 * @reserved0: 0
 * @gid: SET_GID: network byte order
 * @reserved: 0
 */
struct vrnic_cmd_gid {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 gid_index;
	__le32 reserved0;
	__u8 gid[16];
	__le32 reserved[8];
};

static_assert(sizeof(struct vrnic_cmd_gid) == 64, "vrnic_cmd_gid");
static_assert(offsetof(struct vrnic_cmd_gid, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_gid, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_gid, gid_index) == 8, "gid_index");
static_assert(offsetof(struct vrnic_cmd_gid, gid) == 16, "gid");

/**
 * struct vrnic_reply_gid - QUERY_GID reply, 64 bytes
 * @status: commit word: enum vrnic_admin_status
 * @refused: commit word: byte offset in the command of the field that was refused, else 0
 * @sequence: commit word: running index of the command plus 1
 * @gid: network byte order
 * @mac: port's MAC
 * @reserved0: 0
 * @reserved: 0
 */
struct vrnic_reply_gid {
	__le16 status;
	__le16 refused;
	__le32 sequence;
	__u8 gid[16];
	__u8 mac[6];
	__le16 reserved0;
	__le32 reserved[8];
};

static_assert(sizeof(struct vrnic_reply_gid) == 64, "vrnic_reply_gid");
static_assert(offsetof(struct vrnic_reply_gid, refused) == 2, "refused");
static_assert(offsetof(struct vrnic_reply_gid, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_reply_gid, gid) == 8, "gid");
static_assert(offsetof(struct vrnic_reply_gid, mac) == 24, "mac");

/**
 * struct vrnic_cmd_create_ah - CREATE_AH command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @pd: protection domain; only its QPs can use the handle
 * @traffic_class: IP traffic class
 * @hop_limit: IP TTL; 0 reads as 64
 * @gid_index: own GID
 * @reserved0: 0
 * @dest_gid: GID to send to, ::ffff:a.b.c.d for IPv4; may be a multicast group
 * @dest_mac: next hop's MAC address, or the group's
 * @udp_source_port: 0: derived from the QP numbers
 * @reserved: 0
 */
struct vrnic_cmd_create_ah {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 pd;
	__u8 traffic_class;
	__u8 hop_limit;
	__u8 gid_index;
	__u8 reserved0;
	__u8 dest_gid[16];
	__u8 dest_mac[6];
	__le16 udp_source_port;
	__le32 reserved[6];
};

static_assert(sizeof(struct vrnic_cmd_create_ah) == 64, "vrnic_cmd_create_ah");
static_assert(offsetof(struct vrnic_cmd_create_ah, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_create_ah, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_create_ah, pd) == 8, "pd");
static_assert(offsetof(struct vrnic_cmd_create_ah, traffic_class) == 12, "traffic_class");
static_assert(offsetof(struct vrnic_cmd_create_ah, hop_limit) == 13, "hop_limit");
static_assert(offsetof(struct vrnic_cmd_create_ah, gid_index) == 14, "gid_index");
static_assert(offsetof(struct vrnic_cmd_create_ah, dest_gid) == 16, "dest_gid");
static_assert(offsetof(struct vrnic_cmd_create_ah, dest_mac) == 32, "dest_mac");
static_assert(offsetof(struct vrnic_cmd_create_ah, udp_source_port) == 38, "udp_source_port");

/**
 * struct vrnic_cmd_multicast - ATTACH_MULTICAST and DETACH_MULTICAST command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @qpn: queue pair of datagrams
 * @reserved0: 0
 * @gid: the group's GID, ::ffff:a.b.c.d for IPv4
 * @reserved: 0
 */
struct vrnic_cmd_multicast {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 qpn;
	__le32 reserved0;
	__u8 gid[16];
	__le32 reserved[8];
};

static_assert(sizeof(struct vrnic_cmd_multicast) == 64, "vrnic_cmd_multicast");
static_assert(offsetof(struct vrnic_cmd_multicast, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_multicast, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_multicast, qpn) == 8, "qpn");
static_assert(offsetof(struct vrnic_cmd_multicast, gid) == 16, "gid");

/**
 * struct vrnic_reply_query_objects - QUERY_OBJECTS reply, 64 bytes
 * @status: commit word: enum vrnic_admin_status
 * @refused: commit word: byte offset in the command of the field that was refused, else 0
 * @sequence: commit word: running index of the command plus 1
 * @contexts: contexts alive
 * @pds: protection domains alive
 * @mrs: memory regions alive
 * @eqs: event queues alive
 * @cqs: completion queues alive
 * @qps: queue pairs alive
 * @ahs: address handles alive
 * @reserved: 0
 */
struct vrnic_reply_query_objects {
	__le16 status;
	__le16 refused;
	__le32 sequence;
	__le32 contexts;
	__le32 pds;
	__le32 mrs;
	__le32 eqs;
	__le32 cqs;
	__le32 qps;
	__le32 ahs;
	__le32 reserved[7];
};

static_assert(sizeof(struct vrnic_reply_query_objects) == 64, "vrnic_reply_query_objects");
static_assert(offsetof(struct vrnic_reply_query_objects, refused) == 2, "refused");
static_assert(offsetof(struct vrnic_reply_query_objects, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_reply_query_objects, contexts) == 8, "contexts");
static_assert(offsetof(struct vrnic_reply_query_objects, pds) == 12, "pds");
static_assert(offsetof(struct vrnic_reply_query_objects, mrs) == 16, "mrs");
static_assert(offsetof(struct vrnic_reply_query_objects, eqs) == 20, "eqs");
static_assert(offsetof(struct vrnic_reply_query_objects, cqs) == 24, "cqs");
static_assert(offsetof(struct vrnic_reply_query_objects, qps) == 28, "qps");
static_assert(offsetof(struct vrnic_reply_query_objects, ahs) == 32, "ahs");

/**
 * struct vrnic_cmd_set_hints - SET_HINTS command, 64 bytes
 * @opcode: enum vrnic_admin_opcode
 * @command_flags: 0
 * @tag: any value; echoed in traces
 * @ctx: owner
 * @ring_key: lkey of the region that holds the ring (LOCAL_WRITE)
 * @ring_address: virtual address of the ring in it, 64-byte aligned
 * @log_size: log2 of the entries, 0..16; 255: no more hints
 * @reserved0: 0
 * @reserved: 0
 */
struct vrnic_cmd_set_hints {
	__le16 opcode;
	__le16 command_flags;
	__le32 tag;
	__le32 ctx;
	__le32 ring_key;
	__le64 ring_address;
	__u8 log_size;
	__u8 reserved0[3];
	__le32 reserved[9];
};

static_assert(sizeof(struct vrnic_cmd_set_hints) == 64, "vrnic_cmd_set_hints");
static_assert(offsetof(struct vrnic_cmd_set_hints, command_flags) == 2, "command_flags");
static_assert(offsetof(struct vrnic_cmd_set_hints, tag) == 4, "tag");
static_assert(offsetof(struct vrnic_cmd_set_hints, ctx) == 8, "ctx");
static_assert(offsetof(struct vrnic_cmd_set_hints, ring_key) == 12, "ring_key");
static_assert(offsetof(struct vrnic_cmd_set_hints, ring_address) == 16, "ring_address");
static_assert(offsetof(struct vrnic_cmd_set_hints, log_size) == 24, "log_size");

/**
 * struct vrnic_hint_header - Start of a hint ring, 64 bytes
 * @producer: running index of the next entry software will write
 * @reserved0: 0
 * @consumer: device: running index of the next entry it will read
 * @reserved1: 0
 */
struct vrnic_hint_header {
	__le32 producer;
	__le32 reserved0[7];
	__le32 consumer;
	__le32 reserved1[7];
};

static_assert(sizeof(struct vrnic_hint_header) == 64, "vrnic_hint_header");
static_assert(offsetof(struct vrnic_hint_header, consumer) == 32, "consumer");

/**
 * struct vrnic_hint - Hint, 64 bytes
 * @kind: enum vrnic_hint_kind
 * @detail: by kind: HintPart, HintWait, HintSignal, or 1 for a lock that is held
 * @cta: CTA of the lane that hints
 * @sequence: running index of this entry
 * @lane: lane that hints, in the grid
 * @qpn: queue pair it is about, 0 if none
 * @index: running WQE index it is about
 * @length: bytes at address; of a signal its width
 * @address: virtual address of what was stored, is reused, shared, missing or a signal
 * @writer: lane that stored; for LOCK the holder (0xffffffff nobody); PEER and USE: the rank
 * @writer_cta: its CTA
 * @scope: ORDER: widest fence between, 0 none, 1 CTA, 2 GPU, 3 system
 * @needed: ORDER: scope that the NIC needs there
 * @writer_clock: ORDER: the writer's clock at the store
 * @known_clock: ORDER: clock of the writer up to which its stores are known to be visible
 * @loose_clock: ORDER: the same if every fence and atomic had been wide enough
 * @reserved: 0
 * @value: STALL: ready index; REUSE: first index not complete; MISSING: the flag's address
 */
struct vrnic_hint {
	__u8 kind;
	__u8 detail;
	__le16 cta;
	__le32 sequence;
	__le32 lane;
	__le32 qpn;
	__le32 index;
	__le32 length;
	__le64 address;
	__le32 writer;
	__le16 writer_cta;
	__u8 scope;
	__u8 needed;
	__le32 writer_clock;
	__le32 known_clock;
	__le32 loose_clock;
	__le32 reserved;
	__le64 value;
};

static_assert(sizeof(struct vrnic_hint) == 64, "vrnic_hint");
static_assert(offsetof(struct vrnic_hint, detail) == 1, "detail");
static_assert(offsetof(struct vrnic_hint, cta) == 2, "cta");
static_assert(offsetof(struct vrnic_hint, sequence) == 4, "sequence");
static_assert(offsetof(struct vrnic_hint, lane) == 8, "lane");
static_assert(offsetof(struct vrnic_hint, qpn) == 12, "qpn");
static_assert(offsetof(struct vrnic_hint, index) == 16, "index");
static_assert(offsetof(struct vrnic_hint, length) == 20, "length");
static_assert(offsetof(struct vrnic_hint, address) == 24, "address");
static_assert(offsetof(struct vrnic_hint, writer) == 32, "writer");
static_assert(offsetof(struct vrnic_hint, writer_cta) == 36, "writer_cta");
static_assert(offsetof(struct vrnic_hint, scope) == 38, "scope");
static_assert(offsetof(struct vrnic_hint, needed) == 39, "needed");
static_assert(offsetof(struct vrnic_hint, writer_clock) == 40, "writer_clock");
static_assert(offsetof(struct vrnic_hint, known_clock) == 44, "known_clock");
static_assert(offsetof(struct vrnic_hint, loose_clock) == 48, "loose_clock");
static_assert(offsetof(struct vrnic_hint, value) == 56, "value");

/**
 * struct vrnic_wqe - Send WQE, 64 bytes
 * @opcode: operation
 * @flags: VRNIC_WQE_*
 * @blocks: slots taken; 1 for every operation of this version (0 reads as 1)
 * @index: running index of this slot
 * @qpn: own QP number
 * @immediate: immediate data for the peer's CQE, or a tag
 * @remote_address: virtual address at the peer; datagrams: AHN in bits 31:0, QPN in bits 55:32
 * @rkey: the peer's key; SEND_INV: the key to invalidate there; datagrams: Q_Key, or the QP's
 *    own when bit 31 is set
 * @length: payload bytes; atomics: 8, with OPERAND_4B 4
 * @local_address: payload or READ destination; ATOMIC_ADD: addend; ATOMIC_CAS: swap value
 * @lkey: key of local_address; ATOMIC_CAS: compare value bits 31:0
 * @compare_high: ATOMIC_CAS: compare value bits 63:32
 * @result_address: atomics: where the old value goes (as many bytes as the atomic works on)
 * @result_lkey: atomics: its key
 * @reserved: 0
 */
struct vrnic_wqe {
	__u8 opcode;
	__u8 flags;
	__le16 blocks;
	__le32 index;
	__le32 qpn;
	__le32 immediate;
	__le64 remote_address;
	__le32 rkey;
	__le32 length;
	__le64 local_address;
	__le32 lkey;
	__le32 compare_high;
	__le64 result_address;
	__le32 result_lkey;
	__le32 reserved;
};

static_assert(sizeof(struct vrnic_wqe) == 64, "vrnic_wqe");
static_assert(offsetof(struct vrnic_wqe, flags) == 1, "flags");
static_assert(offsetof(struct vrnic_wqe, blocks) == 2, "blocks");
static_assert(offsetof(struct vrnic_wqe, index) == 4, "index");
static_assert(offsetof(struct vrnic_wqe, qpn) == 8, "qpn");
static_assert(offsetof(struct vrnic_wqe, immediate) == 12, "immediate");
static_assert(offsetof(struct vrnic_wqe, remote_address) == 16, "remote_address");
static_assert(offsetof(struct vrnic_wqe, rkey) == 24, "rkey");
static_assert(offsetof(struct vrnic_wqe, length) == 28, "length");
static_assert(offsetof(struct vrnic_wqe, local_address) == 32, "local_address");
static_assert(offsetof(struct vrnic_wqe, lkey) == 40, "lkey");
static_assert(offsetof(struct vrnic_wqe, compare_high) == 44, "compare_high");
static_assert(offsetof(struct vrnic_wqe, result_address) == 48, "result_address");
static_assert(offsetof(struct vrnic_wqe, result_lkey) == 56, "result_lkey");

/**
 * struct vrnic_recv_wqe - Receive WQE, 32 bytes
 * @index: running index of this slot
 * @qpn: own QP number
 * @address: where the message goes
 * @lkey: its key
 * @length: bytes it can take
 * @reserved: 0
 */
struct vrnic_recv_wqe {
	__le32 index;
	__le32 qpn;
	__le64 address;
	__le32 lkey;
	__le32 length;
	__le64 reserved;
};

static_assert(sizeof(struct vrnic_recv_wqe) == 32, "vrnic_recv_wqe");
static_assert(offsetof(struct vrnic_recv_wqe, qpn) == 4, "qpn");
static_assert(offsetof(struct vrnic_recv_wqe, address) == 8, "address");
static_assert(offsetof(struct vrnic_recv_wqe, lkey) == 16, "lkey");
static_assert(offsetof(struct vrnic_recv_wqe, length) == 20, "length");

/**
 * struct vrnic_cqe - Completion queue entry, 64 bytes
 * @index: running index of the completed WQE (send or receive ring, see opcode)
 * @qpn: queue pair
 * @length: bytes transferred
 * @immediate: immediate data received; with WITH_INV the key that was invalidated
 * @timestamp: nanoseconds on the device's clock
 * @cause: enum vrnic_cause; 0 on success
 * @flags: VRNIC_CQE_*
 * @source_qpn: datagrams received: the sender's QP
 * @reserved: 0
 * @producer: commit word: running index of this entry in the CQ
 * @index16: commit word: low 16 bits of index
 * @status: commit word: completion status (enum ibv_wc_status)
 * @opcode_phase: commit word: opcode in bits 7:4, phase in bit 0
 */
struct vrnic_cqe {
	__le32 index;
	__le32 qpn;
	__le32 length;
	__le32 immediate;
	__le64 timestamp;
	__le32 cause;
	__le32 flags;
	__le32 source_qpn;
	__le32 reserved[5];
	__le32 producer;
	__le16 index16;
	__u8 status;
	__u8 opcode_phase;
};

static_assert(sizeof(struct vrnic_cqe) == 64, "vrnic_cqe");
static_assert(offsetof(struct vrnic_cqe, qpn) == 4, "qpn");
static_assert(offsetof(struct vrnic_cqe, length) == 8, "length");
static_assert(offsetof(struct vrnic_cqe, immediate) == 12, "immediate");
static_assert(offsetof(struct vrnic_cqe, timestamp) == 16, "timestamp");
static_assert(offsetof(struct vrnic_cqe, cause) == 24, "cause");
static_assert(offsetof(struct vrnic_cqe, flags) == 28, "flags");
static_assert(offsetof(struct vrnic_cqe, source_qpn) == 32, "source_qpn");
static_assert(offsetof(struct vrnic_cqe, producer) == 56, "producer");
static_assert(offsetof(struct vrnic_cqe, index16) == 60, "index16");
static_assert(offsetof(struct vrnic_cqe, status) == 62, "status");
static_assert(offsetof(struct vrnic_cqe, opcode_phase) == 63, "opcode_phase");

/**
 * struct vrnic_eqe - Event queue entry, 32 bytes
 * @object: CQN or QPN, by type
 * @reserved0: 0
 * @timestamp: nanoseconds on the device's clock
 * @reserved1: 0
 * @index: commit word: running index of this entry
 * @type: commit word: enum vrnic_event
 * @reserved2: commit word: 0
 * @phase: commit word: bit 0 flips each pass (first pass 1)
 */
struct vrnic_eqe {
	__le32 object;
	__le32 reserved0;
	__le64 timestamp;
	__le64 reserved1;
	__le32 index;
	__u8 type;
	__u8 reserved2[2];
	__u8 phase;
};

static_assert(sizeof(struct vrnic_eqe) == 32, "vrnic_eqe");
static_assert(offsetof(struct vrnic_eqe, timestamp) == 8, "timestamp");
static_assert(offsetof(struct vrnic_eqe, index) == 24, "index");
static_assert(offsetof(struct vrnic_eqe, type) == 28, "type");
static_assert(offsetof(struct vrnic_eqe, phase) == 31, "phase");

/**
 * struct vrnic_dbr - Doorbell record, 8 bytes
 * @receive: running index of the next free receive slot
 * @send: running index of the next free send slot
 */
struct vrnic_dbr {
	__le32 receive;
	__le32 send;
};

static_assert(sizeof(struct vrnic_dbr) == 8, "vrnic_dbr");
static_assert(offsetof(struct vrnic_dbr, send) == 4, "send");

/*
 * Doorbell, one aligned 64-bit store of the little-endian value:
 *
 *   63    62..60    59..56      55........32   31..............0
 *   valid reserved  queue type  QPN or CQN     next running index
 */
VRNIC_INLINE __u64 vrnic_doorbell(enum vrnic_doorbell_type type, __u32 number, __u32 index)
{
	__u64 owner = (__u64)type << VRNIC_DB_TYPE_SHIFT;

	owner |= (__u64)(number & VRNIC_DB_QPN_MASK) << VRNIC_DB_QPN_SHIFT;
	return VRNIC_DB_VALID | owner | index;
}

/* Commit word of a send WQE (its first 8 bytes, little-endian): store it last, with release. */
VRNIC_INLINE __u64 vrnic_wqe_commit(enum vrnic_opcode opcode, __u8 flags, __u32 index)
{
	return (__u64)index << 32 | (__u64)1 << 16 | (__u64)flags << 8 | (__u64)opcode;
}

/* remote_address of a datagram: address handle @ahn, QP @qpn at the peer. */
VRNIC_INLINE __u64 vrnic_datagram_address(__u32 ahn, __u32 qpn)
{
	return (__u64)qpn << 32 | ahn;
}

/*
 * Phase bit of an entry in a ring of 1 << @log_size slots: 1 in the first pass. @distance is the
 * entry's running index less the ring's first one (CREATE_QP start_index; 0 for CQ and EQ).
 */
VRNIC_INLINE __u8 vrnic_phase(__u32 distance, __u8 log_size)
{
	return !((distance >> log_size) & 1);
}

/* Inline payload of a send WQE, VRNIC_MAX_INLINE bytes. */
VRNIC_INLINE __u8 *vrnic_wqe_inline(struct vrnic_wqe *wqe)
{
	return (__u8 *)wqe + VRNIC_WQE_INLINE_OFFSET;
}

VRNIC_INLINE enum vrnic_wc_opcode vrnic_cqe_opcode(const struct vrnic_cqe *cqe)
{
	return (enum vrnic_wc_opcode)(cqe->opcode_phase >> 4);
}

VRNIC_INLINE __u8 vrnic_cqe_phase(const struct vrnic_cqe *cqe)
{
	return cqe->opcode_phase & 1;
}

VRNIC_INLINE __u8 vrnic_eqe_phase(const struct vrnic_eqe *eqe)
{
	return eqe->phase & 1;
}

/* Name of a value of enum vrnic_fatal_cause. */
VRNIC_INLINE const char *vrnic_fatal_cause_name(__u32 value)
{
	switch (value) {
	case VRNIC_FATAL_NONE:
		return "NONE";
	case VRNIC_FATAL_ADMIN_LOG_SIZE:
		return "ADMIN_LOG_SIZE";
	case VRNIC_FATAL_ADMIN_BASE:
		return "ADMIN_BASE";
	case VRNIC_FATAL_ADMIN_DOORBELL:
		return "ADMIN_DOORBELL";
	case VRNIC_FATAL_ADMIN_DMA:
		return "ADMIN_DMA";
	case VRNIC_FATAL_INTERNAL:
		return "INTERNAL";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_check. */
VRNIC_INLINE const char *vrnic_check_name(__u32 value)
{
	switch (value) {
	case VRNIC_CHECK_NONE:
		return "NONE";
	case VRNIC_CHECK_C01_INDEX:
		return "C01_INDEX";
	case VRNIC_CHECK_C02_OWNER:
		return "C02_OWNER";
	case VRNIC_CHECK_C03_STALE:
		return "C03_STALE";
	case VRNIC_CHECK_C04_CHANGED:
		return "C04_CHANGED";
	case VRNIC_CHECK_C05_REUSE:
		return "C05_REUSE";
	case VRNIC_CHECK_C06_AHEAD:
		return "C06_AHEAD";
	case VRNIC_CHECK_C07_OLDER:
		return "C07_OLDER";
	case VRNIC_CHECK_C08_DBR:
		return "C08_DBR";
	case VRNIC_CHECK_C09_ORDER:
		return "C09_ORDER";
	case VRNIC_CHECK_C10_SCOPE:
		return "C10_SCOPE";
	case VRNIC_CHECK_C11_BYTE_ORDER:
		return "C11_BYTE_ORDER";
	case VRNIC_CHECK_C12_WIDTH:
		return "C12_WIDTH";
	case VRNIC_CHECK_C13_LOST_DOORBELL:
		return "C13_LOST_DOORBELL";
	case VRNIC_CHECK_C14_UNRUNG:
		return "C14_UNRUNG";
	case VRNIC_CHECK_C15_CQ_OVERRUN:
		return "C15_CQ_OVERRUN";
	case VRNIC_CHECK_C16_UNPREPARED:
		return "C16_UNPREPARED";
	case VRNIC_CHECK_C17_IGNORED_ERROR:
		return "C17_IGNORED_ERROR";
	case VRNIC_CHECK_C18_WRAP:
		return "C18_WRAP";
	case VRNIC_CHECK_C19_CONSUMER:
		return "C19_CONSUMER";
	case VRNIC_CHECK_C20_LOCK:
		return "C20_LOCK";
	case VRNIC_CHECK_C21_STATE:
		return "C21_STATE";
	case VRNIC_CHECK_C22_KEY:
		return "C22_KEY";
	case VRNIC_CHECK_C23_ATOMIC:
		return "C23_ATOMIC";
	case VRNIC_CHECK_C24_UNORDERED:
		return "C24_UNORDERED";
	case VRNIC_CHECK_C25_SIGNAL:
		return "C25_SIGNAL";
	case VRNIC_CHECK_C26_PATH:
		return "C26_PATH";
	case VRNIC_CHECK_C27_RETRY:
		return "C27_RETRY";
	case VRNIC_CHECK_C28_PEER:
		return "C28_PEER";
	case VRNIC_CHECK_C29_UNSUPPORTED:
		return "C29_UNSUPPORTED";
	case VRNIC_CHECK_C30_LIFECYCLE:
		return "C30_LIFECYCLE";
	case VRNIC_CHECK_C31_SPIN:
		return "C31_SPIN";
	case VRNIC_CHECK_C32_REGISTER:
		return "C32_REGISTER";
	case VRNIC_CHECK_C33_REARM:
		return "C33_REARM";
	case VRNIC_CHECK_C34_HINT:
		return "C34_HINT";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_admin_status. */
VRNIC_INLINE const char *vrnic_admin_status_name(__u32 value)
{
	switch (value) {
	case VRNIC_ADMIN_OK:
		return "OK";
	case VRNIC_ADMIN_BAD_OPCODE:
		return "BAD_OPCODE";
	case VRNIC_ADMIN_BAD_FIELD:
		return "BAD_FIELD";
	case VRNIC_ADMIN_BAD_OBJECT:
		return "BAD_OBJECT";
	case VRNIC_ADMIN_NOT_OWNER:
		return "NOT_OWNER";
	case VRNIC_ADMIN_BUSY:
		return "BUSY";
	case VRNIC_ADMIN_NO_RESOURCE:
		return "NO_RESOURCE";
	case VRNIC_ADMIN_BAD_STATE:
		return "BAD_STATE";
	case VRNIC_ADMIN_DMA_ERROR:
		return "DMA_ERROR";
	case VRNIC_ADMIN_UNSUPPORTED:
		return "UNSUPPORTED";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_event. */
VRNIC_INLINE const char *vrnic_event_name(__u32 value)
{
	switch (value) {
	case VRNIC_EVENT_CQ_ERR:
		return "CQ_ERR";
	case VRNIC_EVENT_QP_FATAL:
		return "QP_FATAL";
	case VRNIC_EVENT_QP_REQ_ERR:
		return "QP_REQ_ERR";
	case VRNIC_EVENT_QP_ACCESS_ERR:
		return "QP_ACCESS_ERR";
	case VRNIC_EVENT_COMM_EST:
		return "COMM_EST";
	case VRNIC_EVENT_SQ_DRAINED:
		return "SQ_DRAINED";
	case VRNIC_EVENT_DEVICE_FATAL:
		return "DEVICE_FATAL";
	case VRNIC_EVENT_PORT_ACTIVE:
		return "PORT_ACTIVE";
	case VRNIC_EVENT_PORT_ERR:
		return "PORT_ERR";
	case VRNIC_EVENT_COMPLETION:
		return "COMPLETION";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_qp_state. */
VRNIC_INLINE const char *vrnic_qp_state_name(__u32 value)
{
	switch (value) {
	case VRNIC_QPS_RESET:
		return "RESET";
	case VRNIC_QPS_INIT:
		return "INIT";
	case VRNIC_QPS_RTR:
		return "RTR";
	case VRNIC_QPS_RTS:
		return "RTS";
	case VRNIC_QPS_SQD:
		return "SQD";
	case VRNIC_QPS_SQE:
		return "SQE";
	case VRNIC_QPS_ERR:
		return "ERR";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_opcode. */
VRNIC_INLINE const char *vrnic_opcode_name(__u32 value)
{
	switch (value) {
	case VRNIC_OP_NOP:
		return "NOP";
	case VRNIC_OP_WRITE:
		return "WRITE";
	case VRNIC_OP_WRITE_IMM:
		return "WRITE_IMM";
	case VRNIC_OP_READ:
		return "READ";
	case VRNIC_OP_SEND:
		return "SEND";
	case VRNIC_OP_SEND_IMM:
		return "SEND_IMM";
	case VRNIC_OP_ATOMIC_ADD:
		return "ATOMIC_ADD";
	case VRNIC_OP_ATOMIC_CAS:
		return "ATOMIC_CAS";
	case VRNIC_OP_SEND_INV:
		return "SEND_INV";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_wc_opcode. */
VRNIC_INLINE const char *vrnic_wc_opcode_name(__u32 value)
{
	switch (value) {
	case VRNIC_WC_OP_SEND:
		return "SEND";
	case VRNIC_WC_OP_WRITE:
		return "WRITE";
	case VRNIC_WC_OP_READ:
		return "READ";
	case VRNIC_WC_OP_ATOMIC_CAS:
		return "ATOMIC_CAS";
	case VRNIC_WC_OP_ATOMIC_ADD:
		return "ATOMIC_ADD";
	case VRNIC_WC_OP_NOP:
		return "NOP";
	case VRNIC_WC_OP_RECV:
		return "RECV";
	case VRNIC_WC_OP_RECV_WRITE_IMM:
		return "RECV_WRITE_IMM";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_wc_status. */
VRNIC_INLINE const char *vrnic_wc_status_name(__u32 value)
{
	switch (value) {
	case VRNIC_WC_SUCCESS:
		return "SUCCESS";
	case VRNIC_WC_LOC_LEN_ERR:
		return "LOC_LEN_ERR";
	case VRNIC_WC_LOC_QP_OP_ERR:
		return "LOC_QP_OP_ERR";
	case VRNIC_WC_LOC_PROT_ERR:
		return "LOC_PROT_ERR";
	case VRNIC_WC_WR_FLUSH_ERR:
		return "WR_FLUSH_ERR";
	case VRNIC_WC_MW_BIND_ERR:
		return "MW_BIND_ERR";
	case VRNIC_WC_BAD_RESP_ERR:
		return "BAD_RESP_ERR";
	case VRNIC_WC_LOC_ACCESS_ERR:
		return "LOC_ACCESS_ERR";
	case VRNIC_WC_REM_INV_REQ_ERR:
		return "REM_INV_REQ_ERR";
	case VRNIC_WC_REM_ACCESS_ERR:
		return "REM_ACCESS_ERR";
	case VRNIC_WC_REM_OP_ERR:
		return "REM_OP_ERR";
	case VRNIC_WC_RETRY_EXC_ERR:
		return "RETRY_EXC_ERR";
	case VRNIC_WC_RNR_RETRY_EXC_ERR:
		return "RNR_RETRY_EXC_ERR";
	case VRNIC_WC_FATAL_ERR:
		return "FATAL_ERR";
	case VRNIC_WC_GENERAL_ERR:
		return "GENERAL_ERR";
	default:
		return "unknown";
	}
}

/* Name of a value of enum vrnic_cause. */
VRNIC_INLINE const char *vrnic_cause_name(__u32 value)
{
	switch (value) {
	case VRNIC_CAUSE_NONE:
		return "NONE";
	case VRNIC_CAUSE_INDEX_MISMATCH:
		return "INDEX_MISMATCH";
	case VRNIC_CAUSE_QPN_MISMATCH:
		return "QPN_MISMATCH";
	case VRNIC_CAUSE_PHASE_STALE:
		return "PHASE_STALE";
	case VRNIC_CAUSE_BAD_OPCODE:
		return "BAD_OPCODE";
	case VRNIC_CAUSE_BAD_LENGTH:
		return "BAD_LENGTH";
	case VRNIC_CAUSE_BAD_FLAGS:
		return "BAD_FLAGS";
	case VRNIC_CAUSE_HANDLE_UNKNOWN:
		return "HANDLE_UNKNOWN";
	case VRNIC_CAUSE_LKEY_UNKNOWN:
		return "LKEY_UNKNOWN";
	case VRNIC_CAUSE_LKEY_BOUNDS:
		return "LKEY_BOUNDS";
	case VRNIC_CAUSE_LKEY_ACCESS:
		return "LKEY_ACCESS";
	case VRNIC_CAUSE_LKEY_PD:
		return "LKEY_PD";
	case VRNIC_CAUSE_RKEY_UNKNOWN:
		return "RKEY_UNKNOWN";
	case VRNIC_CAUSE_RKEY_BOUNDS:
		return "RKEY_BOUNDS";
	case VRNIC_CAUSE_RKEY_ACCESS:
		return "RKEY_ACCESS";
	case VRNIC_CAUSE_RKEY_PD:
		return "RKEY_PD";
	case VRNIC_CAUSE_BUS_ERROR:
		return "BUS_ERROR";
	case VRNIC_CAUSE_REMOTE_NAK:
		return "REMOTE_NAK";
	case VRNIC_CAUSE_ACK_TIMEOUT:
		return "ACK_TIMEOUT";
	case VRNIC_CAUSE_SEQUENCE_RETRIES:
		return "SEQUENCE_RETRIES";
	case VRNIC_CAUSE_RNR_RETRIES:
		return "RNR_RETRIES";
	case VRNIC_CAUSE_FLUSHED:
		return "FLUSHED";
	case VRNIC_CAUSE_RULE_BROKEN:
		return "RULE_BROKEN";
	default:
		return "unknown";
	}
}

/* Name of a counter, as every view of the device prints it. */
VRNIC_INLINE const char *vrnic_counter_name(__u32 index)
{
	static const char * const names[VRNIC_COUNTERS] = {
		"mmio_reads",
		"mmio_writes",
		"bad_mmio",
		"admin_commands",
		"admin_errors",
		"doorbells",
		"doorbells_ignored",
		"wqe_fetches",
		"wqes",
		"cqes",
		"cqe_errors",
		"cq_overruns",
		"eqes",
		"eq_overruns",
		"msix",
		"dma_read_bytes",
		"dma_write_bytes",
		"dma_errors",
		"tx_packets",
		"tx_bytes",
		"rx_packets",
		"rx_bytes",
		"rx_dropped",
		"rx_icrc_encapsulated",
		"retransmitted_packets",
		"retransmitted_bytes",
		"local_ack_timeout_err",
		"packet_seq_err",
		"out_of_sequence",
		"duplicate_request",
		"send_rnr_err",
		"rnr_nak_retry_err",
		"protection_errors",
		"out_of_buffer",
		"bad_pkey_cntr",
		"qkey_viol_cntr",
		"implied_nak_seq_err",
		"np_ecn_marked_roce_packets",
		"np_cnp_sent",
		"rp_cnp_handled",
		"rp_cnp_ignored",
		"pdcs_opened",
		"unknown_pdc",
		"nacks_sent",
		"nacks_received",
		"check_violations",
		"pushed_wqes",
		"tss_unsecured",
		"tss_unknown_domain",
		"tss_replays",
		"tss_auth_failures",
		"link_downed",
		"rx_write_requests",
		"rx_read_requests",
		"rx_atomic_requests",
		"resp_remote_access_errors",
		"resp_local_length_error",
		"resp_cqe_error",
		"resp_cqe_flush_error",
		"req_cqe_error",
		"req_cqe_flush_error",
		"req_remote_invalid_request",
		"req_remote_access_errors",
		"req_transport_retries_exceeded",
		"req_rnr_retries_exceeded",
		"rx_drop_foreign",
		"rx_drop_length",
		"rx_drop_checksum",
		"rx_drop_version",
		"rx_drop_qpn",
		"rx_drop_opcode",
		"rx_drop_state",
		"rx_drop_address",
		"rx_drop_response",
		"rx_drop_repeat",
		"rx_drop_refused",
	};

	return index < VRNIC_COUNTERS ? names[index] : "unknown";
}

#endif /* VRNIC_CONTRACT_H */
