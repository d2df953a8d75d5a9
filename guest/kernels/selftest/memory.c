// SPDX-License-Identifier: Apache-2.0
/* Registration: ranges that are none, limits, and the sizes that take another page list. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest.h"

#define ALL (VRNIC_ACCESS_LOCAL_WRITE | VRNIC_ACCESS_REMOTE_WRITE | VRNIC_ACCESS_REMOTE_READ)

static void register_refused(struct vrnic *nic, struct vrnic_reg_mr argument, int error, const char *claim)
{
	refused(nic->fd, VRNIC_IOC_REG_MR, &argument, error, claim);
}

static void test_ranges(struct vrnic *nic, uint32_t pd, uint8_t *memory)
{
	uint64_t at = (uintptr_t)memory;
	struct vrnic_reg_mr good = { .start = at, .length = 4096, .iova = at, .pd = pd, .access = ALL };
	struct vrnic_reg_mr bad;

	bad = good, bad.length = 0;
	register_refused(nic, bad, EINVAL, "an empty region is refused");
	bad = good, bad.iova = at + 1;
	register_refused(nic, bad, EINVAL, "an address space that is shifted within the page is refused");
	bad = good, bad.length = UINT64_MAX;
	register_refused(nic, bad, EOVERFLOW, "a region that wraps is refused");
	bad = good, bad.start = bad.iova = UINT64_MAX - 4095, bad.length = 4095;
	register_refused(nic, bad, EOVERFLOW, "a region at the end of all addresses is refused");
	bad = good, bad.length = 1ull << 46;
	register_refused(nic, bad, E2BIG, "a region of 64 TiB is refused");
	bad = good, bad.access = 0x100;
	register_refused(nic, bad, EINVAL, "an unknown right is refused");
	bad = good, bad.access = VRNIC_ACCESS_REMOTE_WRITE;
	register_refused(nic, bad, EINVAL, "remote write without local write is refused");
	bad = good, bad.fd = 3;
	register_refused(nic, bad, EINVAL, "a descriptor with host memory is refused");
	bad = good, bad.pd = pd + 1;
	register_refused(nic, bad, ENOENT, "a PD that is not there is refused");
	bad = good, bad.start = bad.iova = 4096;
	register_refused(nic, bad, EFAULT, "memory that is not there is refused");
	need(mprotect(memory, 4096, PROT_READ) ? -errno : 0, "read-only memory");
	register_refused(nic, good, EFAULT, "writing to read-only memory is refused");
	need(mprotect(memory, 4096, PROT_READ | PROT_WRITE) ? -errno : 0, "writable memory");
}

/* Sizes and offsets on both sides of each form of the page list. */
static void test_sizes(struct vrnic *nic, uint32_t pd, uint8_t *memory)
{
	static const struct {
		size_t offset, length;
	} cases[] = {
		{ 0, 1 }, { 4095, 2 }, { 100, 8192 }, { 0, 512 * 4096ul }, { 1, 512 * 4096ul }, { 0, 1300 * 4096ul },
	};
	struct vrnic_region region;
	int ret;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char claim[80];

		snprintf(claim, sizeof(claim), "%zu bytes at page offset %zu register and go", cases[i].length,
			 cases[i].offset);
		ret = vrnic_reg_mr(nic, pd, memory + cases[i].offset, cases[i].length, ALL, &region);
		if (!ret)
			ret = vrnic_dereg_mr(nic, &region);
		check(!ret, claim, "%s", vrnic_error(nic));
	}
}

static void test_dmabuf_arguments(struct vrnic *nic, uint32_t pd)
{
	struct vrnic_reg_mr argument = { .length = 4096, .fd = -1, .pd = pd, .access = ALL };
	int null = open("/dev/null", O_RDWR);

	refused(nic->fd, VRNIC_IOC_REG_MR_DMABUF, &argument, EBADF, "a dma-buf that is no descriptor is refused");
	argument.fd = null;
	refused(nic->fd, VRNIC_IOC_REG_MR_DMABUF, &argument, EINVAL, "a descriptor that is no dma-buf is refused");
	close(null);
}

/* An ordinary user may pin what the limit says, counted over all regions. */
static void limited(uint8_t *memory)
{
	struct rlimit limit = { .rlim_cur = 8 * 4096, .rlim_max = 8 * 4096 };
	struct vrnic_region region;
	struct vrnic nic;
	uint32_t pd;

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534) || vrnic_open(&nic, NULL) ||
	    vrnic_alloc_pd(&nic, &pd))
		_exit(2);
	if (vrnic_reg_mr(&nic, pd, memory, 8 * 4096, ALL, &region))
		_exit(3);
	if (vrnic_reg_mr(&nic, pd, memory, 1, ALL, &region) != -ENOMEM)
		_exit(4);
	_exit(0);
}

static void test_limit(uint8_t *memory)
{
	pid_t child = fork();
	int status;

	if (!child)
		limited(memory);
	need(child < 0 || waitpid(child, &status, 0) < 0 ? -errno : 0, "a child");
	check(WIFEXITED(status) && !WEXITSTATUS(status), "RLIMIT_MEMLOCK bounds what a user pins", "status %#x",
	      status);
}

void test_memory(void)
{
	struct vrnic nic;
	uint8_t *memory;
	uint32_t pd;

	need(vrnic_open(&nic, NULL), "opening the NIC");
	need(vrnic_alloc_pd(&nic, &pd), "a PD");
	memory = mmap(NULL, 2048 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(memory == MAP_FAILED ? -errno : 0, "memory");
	test_ranges(&nic, pd, memory);
	test_sizes(&nic, pd, memory);
	test_dmabuf_arguments(&nic, pd);
	vrnic_close(&nic);
	test_limit(memory);
	munmap(memory, 2048 * 4096);
}
