/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * /dev/vrnicN: what user space asks of the NIC driver.
 *
 * An open file is a context: it has its own doorbell page (mmap one page at offset 0, shared), and
 * it owns the protection domains, memory regions, completion queues and queue pairs it makes. The
 * numbers the calls return are the device's (PDN, key, CQN, QPN); another file's number is ENOENT.
 * Everything goes away with the last close.
 *
 * read() returns whole struct vrnic_event_record, poll() says when there is one. After a device
 * reset or removal every call returns ENODEV and poll() says POLLERR | POLLHUP; close and open
 * again.
 *
 * Reserved fields must be 0. Numbers are in host byte order. When the device refuses a command the
 * call fails with an errno and struct vrnic_verdict says which rule.
 */

#ifndef VRNIC_UAPI_H
#define VRNIC_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VRNIC_UAPI_VERSION	2

/**
 * struct vrnic_verdict - Why a call failed, filled in by the driver
 * @status: enum vrnic_admin_status of the device's reply, 0 when the driver itself refused
 * @refused: byte offset in the admin command of the field that was refused, else 0
 * @reserved: 0
 */
struct vrnic_verdict {
	__u16 status;
	__u16 refused;
	__u32 reserved;
};

/**
 * struct vrnic_query - Limits of the device and counters of this file
 * @uapi_version: VRNIC_UAPI_VERSION
 * @abi_version: the device's, major << 16 | minor
 * @ctx: context number, which is the doorbell page
 * @vectors: event queues, completion vectors 0 to @vectors - 1
 * @max_pd: protection domains of the device
 * @max_mr: memory regions of the device
 * @max_cq: completion queues of the device
 * @max_qp: queue pairs of the device
 * @max_log_ring: log2 of the deepest ring
 * @max_inline: bytes of payload that fit a WQE
 * @max_message: bytes of the longest message
 * @port_state: 1 down, 4 active
 * @port_mtu: largest path MTU, payload bytes
 * @port_speed: Mb/s
 * @mac: the port's address
 * @reserved: 0
 * @syscalls: ioctl, read, poll and mmap calls on this file so far, this one included
 * @doorbell_maps: times the doorbell page was mapped by a page fault
 * @admin_commands: commands sent to the device for this file
 * @events: events queued for this file
 * @events_lost: events lost because nobody read them
 */
struct vrnic_query {
	__u32 uapi_version;
	__u32 abi_version;
	__u32 ctx;
	__u32 vectors;
	__u32 max_pd;
	__u32 max_mr;
	__u32 max_cq;
	__u32 max_qp;
	__u32 max_log_ring;
	__u32 max_inline;
	__u32 max_message;
	__u32 port_state;
	__u32 port_mtu;
	__u32 port_speed;
	__u8 mac[6];
	__u8 reserved[2];
	__u64 syscalls;
	__u64 doorbell_maps;
	__u64 admin_commands;
	__u64 events;
	__u64 events_lost;
};

/**
 * struct vrnic_gid - Read or set an entry of the GID table
 * @verdict: why it failed
 * @index: 0 to VRNIC_GID_TABLE_SIZE - 1
 * @reserved: 0
 * @gid: network byte order, an IPv4 address as ::ffff:a.b.c.d
 */
struct vrnic_gid {
	struct vrnic_verdict verdict;
	__u32 index;
	__u32 reserved;
	__u8 gid[16];
};

/**
 * struct vrnic_object - Make a protection domain (@number out) or destroy an object (@number in)
 * @verdict: why it failed
 * @number: PDN, key, CQN, QPN or AHN
 * @reserved: 0
 */
struct vrnic_object {
	struct vrnic_verdict verdict;
	__u32 number;
	__u32 reserved;
};

/* struct vrnic_reg_mr flags. */
#define VRNIC_REG_ATOMIC	0x1	/* remote atomics may target it */
#define VRNIC_REG_GPU		0x2	/* dma-buf only: the memory is a GPU's */
#define VRNIC_REG_RELAXED	0x4	/* payload may be written with PCIe relaxed ordering */

/**
 * struct vrnic_reg_mr - Register memory
 * @verdict: why it failed
 * @start: VRNIC_IOC_REG_MR: address of the memory in this process, which is pinned.
 *	VRNIC_IOC_REG_MR_DMABUF: byte offset in the dma-buf
 * @length: bytes
 * @iova: address of the first byte in the key's address space, what WQEs name; equal to @start
 *	modulo the page size
 * @fd: dma-buf, 0 for VRNIC_IOC_REG_MR
 * @pd: protection domain
 * @access: VRNIC_ACCESS_*
 * @flags: VRNIC_REG_*
 * @key: out: lkey and rkey
 * @reserved: 0
 */
struct vrnic_reg_mr {
	struct vrnic_verdict verdict;
	__u64 start;
	__u64 length;
	__u64 iova;
	__s32 fd;
	__u32 pd;
	__u32 access;
	__u32 flags;
	__u32 key;
	__u32 reserved;
};

/* struct vrnic_create_cq flags. */
#define VRNIC_CQ_EVENTS		0x1	/* completions and errors come as events */

/**
 * struct vrnic_create_cq - Make a completion queue
 * @verdict: why it failed
 * @ring_address: address of the ring in @ring_key's address space, 64-byte aligned; software fills
 *	it with 0xff, and zeroes the counters of a counter CQ
 * @ring_key: the region that holds the ring
 * @mode: enum vrnic_cq_mode
 * @overrun: enum vrnic_cq_overrun
 * @log_size: log2 of the entries
 * @reserved0: 0
 * @flags: VRNIC_CQ_*
 * @vector: completion vector, taken modulo the event queues
 * @cqn: out: the CQ's number
 * @reserved: 0
 */
struct vrnic_create_cq {
	struct vrnic_verdict verdict;
	__u64 ring_address;
	__u32 ring_key;
	__u8 mode;
	__u8 overrun;
	__u8 log_size;
	__u8 reserved0;
	__u32 flags;
	__u32 vector;
	__u32 cqn;
	__u32 reserved;
};

/**
 * struct vrnic_create_qp - Make a queue pair
 * @verdict: why it failed
 * @sq_address: address of the send ring in @ring_key's address space, 64-byte aligned
 * @rq_address: address of the receive ring, 32-byte aligned
 * @dbr_address: address of the doorbell record, 8-byte aligned; 0 with VRNIC_DBR_NONE
 * @ring_key: the region that holds them
 * @pd: protection domain
 * @send_cq: CQN for the send ring
 * @recv_cq: CQN for the receive ring
 * @transport: enum vrnic_transport
 * @sq_log_size: log2 of the send slots
 * @rq_log_size: log2 of the receive slots, VRNIC_NO_RECV_RING for none
 * @dbr_policy: enum vrnic_dbr_policy
 * @flags: VRNIC_QP_*
 * @start_index: first running index of both rings
 * @qpn: out: the QP's number
 * @doorbell: out: byte offset of the QP's own registers in the doorbell page, 0: the page's start
 * @reserved: 0
 */
struct vrnic_create_qp {
	struct vrnic_verdict verdict;
	__u64 sq_address;
	__u64 rq_address;
	__u64 dbr_address;
	__u32 ring_key;
	__u32 pd;
	__u32 send_cq;
	__u32 recv_cq;
	__u8 transport;
	__u8 sq_log_size;
	__u8 rq_log_size;
	__u8 dbr_policy;
	__u32 flags;
	__u32 start_index;
	__u32 qpn;
	__u32 doorbell;
	__u32 reserved;
};

/**
 * struct vrnic_modify_qp - Change a queue pair; only what @mask names is read
 * @verdict: why it failed
 * @qpn: queue pair
 * @mask: VRNIC_ATTR_*
 * @state: enum vrnic_qp_state
 * @path_mtu: 1 for 256 bytes to 5 for 4096
 * @timeout: local ACK timeout, 4.096 us * 2^n, 0 for ever
 * @retry_cnt: 0 to 7
 * @rnr_retry: 0 to 7, 7 for ever
 * @min_rnr_timer: RNR timer code, 0 to 31
 * @max_rd_atomic: READs and atomics in flight as requester
 * @max_dest_rd_atomic: READs and atomics in flight as responder
 * @dest_qpn: peer's QP; with VRNIC_ATTR_QKEY the Q_Key
 * @rq_psn: first PSN expected, 24 bits
 * @sq_psn: first PSN sent, 24 bits
 * @access: VRNIC_ACCESS_*
 * @traffic_class: IP traffic class
 * @hop_limit: IP hop limit, 0 reads as 64
 * @gid_index: own GID
 * @dest_gid: peer's GID, network byte order
 * @dest_mac: MAC address of the next hop
 * @udp_source_port: 0: derived from the QP numbers
 */
struct vrnic_modify_qp {
	struct vrnic_verdict verdict;
	__u32 qpn;
	__u32 mask;
	__u8 state;
	__u8 path_mtu;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
	__u8 min_rnr_timer;
	__u8 max_rd_atomic;
	__u8 max_dest_rd_atomic;
	__u32 dest_qpn;
	__u32 rq_psn;
	__u32 sq_psn;
	__u8 access;
	__u8 traffic_class;
	__u8 hop_limit;
	__u8 gid_index;
	__u8 dest_gid[16];
	__u8 dest_mac[6];
	__u16 udp_source_port;
};

/**
 * struct vrnic_query_qp - What the device knows about a queue pair
 * @verdict: why it failed
 * @qpn: in: queue pair
 * @state: enum vrnic_qp_state
 * @transport: enum vrnic_transport
 * @first_error_status: enum vrnic_wc_status of the element that failed first, 0 if none
 * @reserved0: 0
 * @first_error_index: its running index
 * @first_error_cause: its enum vrnic_cause
 * @doorbell_index: last send doorbell that was accepted
 * @fetched_index: next send slot to fetch
 * @completed_index: every send slot before it is done
 * @receive_index: next receive slot to use
 * @receive_doorbell: last receive doorbell that was accepted
 * @next_psn: requester's next PSN
 * @expected_psn: responder's expected PSN
 */
struct vrnic_query_qp {
	struct vrnic_verdict verdict;
	__u32 qpn;
	__u8 state;
	__u8 transport;
	__u8 first_error_status;
	__u8 reserved0;
	__u32 first_error_index;
	__u32 first_error_cause;
	__u32 doorbell_index;
	__u32 fetched_index;
	__u32 completed_index;
	__u32 receive_index;
	__u32 receive_doorbell;
	__u32 next_psn;
	__u32 expected_psn;
	__u32 reserved;
};

/**
 * struct vrnic_set_hints - Name the ring in which the process tells the device's checks of itself
 * @verdict: why it failed
 * @ring_address: address of the ring in @ring_key's address space, 64-byte aligned
 * @ring_key: the region that holds the ring
 * @log_size: log2 of the entries; VRNIC_NO_HINTS: no more hints, the other fields are 0
 * @reserved: 0
 */
struct vrnic_set_hints {
	struct vrnic_verdict verdict;
	__u64 ring_address;
	__u32 ring_key;
	__u8 log_size;
	__u8 reserved[3];
};

/**
 * struct vrnic_event_record - What read() returns
 * @type: enum vrnic_event
 * @object: CQN or QPN, by type
 * @timestamp: nanoseconds on the device's clock
 */
struct vrnic_event_record {
	__u32 type;
	__u32 object;
	__u64 timestamp;
};

/**
 * struct vrnic_create_ah - Make an address handle: where datagrams go
 * @verdict: why it failed
 * @pd: protection domain, the queue pairs' that will use it
 * @traffic_class: IP traffic class
 * @hop_limit: IP hop limit, 0 reads as 64
 * @gid_index: own GID
 * @reserved: 0
 * @dest_gid: peer's or group's GID, network byte order
 * @dest_mac: MAC address of the next hop, or the group's
 * @udp_source_port: 0: derived from the QP numbers
 * @ahn: out: the handle's number
 */
struct vrnic_create_ah {
	struct vrnic_verdict verdict;
	__u32 pd;
	__u8 traffic_class;
	__u8 hop_limit;
	__u8 gid_index;
	__u8 reserved;
	__u8 dest_gid[16];
	__u8 dest_mac[6];
	__u16 udp_source_port;
	__u32 ahn;
};

/**
 * struct vrnic_multicast - Have a datagram queue pair listen to a group, or no more
 * @verdict: why it failed
 * @qpn: queue pair
 * @reserved: 0
 * @gid: the group's GID, network byte order
 */
struct vrnic_multicast {
	struct vrnic_verdict verdict;
	__u32 qpn;
	__u32 reserved;
	__u8 gid[16];
};

#define VRNIC_IOC_MAGIC		0xbc

#define VRNIC_IOC_QUERY		_IOR(VRNIC_IOC_MAGIC, 0x00, struct vrnic_query)
#define VRNIC_IOC_QUERY_GID	_IOWR(VRNIC_IOC_MAGIC, 0x01, struct vrnic_gid)
#define VRNIC_IOC_SET_GID	_IOWR(VRNIC_IOC_MAGIC, 0x02, struct vrnic_gid)
#define VRNIC_IOC_ALLOC_PD	_IOWR(VRNIC_IOC_MAGIC, 0x10, struct vrnic_object)
#define VRNIC_IOC_FREE_PD	_IOWR(VRNIC_IOC_MAGIC, 0x11, struct vrnic_object)
#define VRNIC_IOC_REG_MR	_IOWR(VRNIC_IOC_MAGIC, 0x12, struct vrnic_reg_mr)
#define VRNIC_IOC_REG_MR_DMABUF	_IOWR(VRNIC_IOC_MAGIC, 0x13, struct vrnic_reg_mr)
#define VRNIC_IOC_DEREG_MR	_IOWR(VRNIC_IOC_MAGIC, 0x14, struct vrnic_object)
#define VRNIC_IOC_SET_HINTS	_IOWR(VRNIC_IOC_MAGIC, 0x30, struct vrnic_set_hints)
#define VRNIC_IOC_CREATE_CQ	_IOWR(VRNIC_IOC_MAGIC, 0x15, struct vrnic_create_cq)
#define VRNIC_IOC_DESTROY_CQ	_IOWR(VRNIC_IOC_MAGIC, 0x16, struct vrnic_object)
#define VRNIC_IOC_CREATE_QP	_IOWR(VRNIC_IOC_MAGIC, 0x17, struct vrnic_create_qp)
#define VRNIC_IOC_DESTROY_QP	_IOWR(VRNIC_IOC_MAGIC, 0x18, struct vrnic_object)
#define VRNIC_IOC_MODIFY_QP	_IOWR(VRNIC_IOC_MAGIC, 0x19, struct vrnic_modify_qp)
#define VRNIC_IOC_QUERY_QP	_IOWR(VRNIC_IOC_MAGIC, 0x1a, struct vrnic_query_qp)
#define VRNIC_IOC_CREATE_AH	_IOWR(VRNIC_IOC_MAGIC, 0x1b, struct vrnic_create_ah)
#define VRNIC_IOC_DESTROY_AH	_IOWR(VRNIC_IOC_MAGIC, 0x1c, struct vrnic_object)
#define VRNIC_IOC_ATTACH_MULTICAST	_IOWR(VRNIC_IOC_MAGIC, 0x1d, struct vrnic_multicast)
#define VRNIC_IOC_DETACH_MULTICAST	_IOWR(VRNIC_IOC_MAGIC, 0x1e, struct vrnic_multicast)

#endif /* VRNIC_UAPI_H */
