// SPDX-License-Identifier: Apache-2.0
/* Arguments that must be refused, and the doorbell mapping. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "selftest.h"

static void mapping(int fd, size_t size, int protection, int flags, off_t offset, const char *claim)
{
	void *map = mmap(NULL, size, protection, flags, fd, offset);
	int error = map == MAP_FAILED ? errno : 0;

	if (map != MAP_FAILED)
		munmap(map, size);
	check(error == EINVAL, claim, "%s", strerror(error));
}

static void test_mmap(int fd)
{
	mapping(fd, 8192, PROT_WRITE, MAP_SHARED, 0, "two doorbell pages are refused");
	mapping(fd, 4096, PROT_WRITE, MAP_SHARED, 4096, "another context's doorbell page is refused");
	mapping(fd, 4096, PROT_WRITE, MAP_PRIVATE, 0, "a private doorbell page is refused");
	mapping(fd, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, 0, "an executable doorbell page is refused");
}

static void test_reserved(struct fixture *fixture)
{
	int fd = fixture->nic.fd;
	struct vrnic_object object = { .reserved = 1 };
	struct vrnic_gid gid = { .index = VRNIC_GID_TABLE_SIZE };
	struct vrnic_create_cq cq = { .ring_key = fixture->region.key, .flags = 0x80 };
	struct vrnic_create_qp qp = { .qpn = 1 };
	struct vrnic_modify_qp modify = { .qpn = fixture->qpn, .mask = 0x80000000 };
	struct vrnic_event_record record;
	ssize_t size;

	refused(fd, _IO(VRNIC_IOC_MAGIC, 0x7f), NULL, ENOTTY, "an unknown call is refused");
	refused(fd, _IOWR(VRNIC_IOC_MAGIC, 0x10, struct vrnic_gid), &gid, ENOTTY, "a call of another size is refused");
	refused(fd, VRNIC_IOC_ALLOC_PD, NULL, EFAULT, "a null argument is refused");
	refused(fd, VRNIC_IOC_ALLOC_PD, &object, EINVAL, "a reserved field is refused");
	refused(fd, VRNIC_IOC_QUERY_GID, &gid, EINVAL, "a GID index beyond the table is refused");
	check(gid.verdict.status == VRNIC_ADMIN_BAD_FIELD, "the device's verdict comes back",
	      "status %u", gid.verdict.status);
	refused(fd, VRNIC_IOC_CREATE_CQ, &cq, EINVAL, "an unknown CQ flag is refused");
	refused(fd, VRNIC_IOC_CREATE_QP, &qp, EINVAL, "a QP number given is refused");
	refused(fd, VRNIC_IOC_MODIFY_QP, &modify, EINVAL, "an unknown attribute is refused");
	size = read(fd, &record, sizeof(record) - 1);
	check(size < 0 && errno == EINVAL, "a read shorter than an event is refused", "%zd", size);
	size = read(fd, &record, sizeof(record));
	check(size < 0 && errno == EAGAIN, "without events a read would block", "%zd", size);
}

static void test_verdicts(struct fixture *fixture)
{
	int fd = fixture->nic.fd;
	struct vrnic_create_cq cq = {
		.ring_address = fixture->region.address + FIXTURE_BYTES - 64,
		.ring_key = fixture->region.key,
		.log_size = 4,
	};
	struct vrnic_create_qp qp = {
		.sq_address = fixture->region.address + 1,
		.ring_key = fixture->region.key,
		.pd = fixture->pd,
		.send_cq = fixture->cqn,
		.recv_cq = fixture->cqn,
		.sq_log_size = 4,
		.rq_log_size = VRNIC_NO_RECV_RING,
	};
	struct vrnic_modify_qp modify = {
		.qpn = fixture->qpn,
		.mask = VRNIC_ATTR_STATE,
		.state = VRNIC_QPS_INIT,
	};
	struct vrnic_object object = { .number = fixture->region.key };

	check(ioctl(fd, VRNIC_IOC_CREATE_CQ, &cq) && cq.verdict.status, "a ring beyond its region is refused",
	      "status %u", cq.verdict.status);
	refused(fd, VRNIC_IOC_CREATE_QP, &qp, EINVAL, "a ring that is not aligned is refused");
	refused(fd, VRNIC_IOC_MODIFY_QP, &modify, EBADFD, "RTS to INIT is refused");
	refused(fd, VRNIC_IOC_DEREG_MR, &object, EBUSY, "a region under a ring cannot go");
	object = (struct vrnic_object){ .number = fixture->cqn };
	refused(fd, VRNIC_IOC_DESTROY_CQ, &object, EBUSY, "a CQ under a QP cannot go");
	object = (struct vrnic_object){ .number = fixture->pd };
	refused(fd, VRNIC_IOC_FREE_PD, &object, EBUSY, "a PD in use cannot go");
}

static void test_handles(struct fixture *fixture)
{
	int fd = fixture->nic.fd;
	struct vrnic_create_ah ah = { .pd = fixture->pd, .reserved = 1 };
	struct vrnic_multicast group = { .qpn = fixture->qpn, .gid = { 0xff, 0x0e, [15] = 1 } };
	struct vrnic_object object = { .number = 0xffffff };

	refused(fd, VRNIC_IOC_CREATE_AH, &ah, EINVAL, "a reserved field of an address handle is refused");
	ah = (struct vrnic_create_ah){ .pd = fixture->pd + 1000 };
	refused(fd, VRNIC_IOC_CREATE_AH, &ah, ENOENT, "an address handle of no PD is refused");
	ah = (struct vrnic_create_ah){ .pd = fixture->pd, .gid_index = 1, .dest_mac = { 2, 0, 0, 0, 0, 1 } };
	refused(fd, VRNIC_IOC_CREATE_AH, &ah, EINVAL, "an address handle to nowhere is refused");
	memcpy(ah.dest_gid, group.gid, sizeof(ah.dest_gid));
	refused(fd, VRNIC_IOC_CREATE_AH, &ah, EINVAL, "a group's GID behind a port's MAC is refused");
	refused(fd, VRNIC_IOC_DESTROY_AH, &object, ENOENT, "an address handle nobody made cannot go");
	refused(fd, VRNIC_IOC_ATTACH_MULTICAST, &group, EBADFD, "a connected QP cannot listen to a group");
	group.qpn = 0xffffff;
	refused(fd, VRNIC_IOC_DETACH_MULTICAST, &group, ENOENT, "a QP nobody made listens to no group");
}

void test_calls(void)
{
	struct fixture fixture;

	fixture_open(&fixture);
	test_mmap(fixture.nic.fd);
	test_reserved(&fixture);
	test_verdicts(&fixture);
	test_handles(&fixture);
	fixture_close(&fixture);
}
