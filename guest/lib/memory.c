// SPDX-License-Identifier: Apache-2.0
/* Protection domains and memory regions. */
#include "call.h"
#include "libvrnic.h"

int vrnic_alloc_pd(struct vrnic *nic, uint32_t *pd)
{
	struct vrnic_object object = { 0 };
	int ret;

	ret = vrnic_call(nic, VRNIC_IOC_ALLOC_PD, &object, &object.verdict, "allocate PD");
	if (!ret)
		*pd = object.number;
	return ret;
}

int vrnic_free_pd(struct vrnic *nic, uint32_t pd)
{
	struct vrnic_object object = { .number = pd };

	return vrnic_call(nic, VRNIC_IOC_FREE_PD, &object, &object.verdict, "free PD");
}

static int vrnic_reg(struct vrnic *nic, unsigned long request, struct vrnic_reg_mr *argument,
		     struct vrnic_region *region)
{
	int ret;

	if (argument->access & VRNIC_ACCESS_REMOTE_ATOMIC)
		argument->flags |= VRNIC_REG_ATOMIC;
	if (argument->access & VRNIC_RELAXED_ORDERING) {
		argument->flags |= VRNIC_REG_RELAXED;
		argument->access &= ~VRNIC_RELAXED_ORDERING;
	}
	ret = vrnic_call(nic, request, argument, &argument->verdict, "register memory");
	if (ret)
		return ret;
	region->key = argument->key;
	region->address = argument->iova;
	region->length = argument->length;
	return 0;
}

int vrnic_reg_mr(struct vrnic *nic, uint32_t pd, void *memory, size_t length, uint32_t access,
		 struct vrnic_region *region)
{
	struct vrnic_reg_mr argument = {
		.start = (uintptr_t)memory,
		.length = length,
		.iova = (uintptr_t)memory,
		.pd = pd,
		.access = access,
	};

	return vrnic_reg(nic, VRNIC_IOC_REG_MR, &argument, region);
}

int vrnic_reg_dmabuf(struct vrnic *nic, uint32_t pd, int fd, uint64_t offset, size_t length,
		     const void *address, uint32_t access, struct vrnic_region *region)
{
	struct vrnic_reg_mr argument = {
		.start = offset,
		.length = length,
		.iova = (uintptr_t)address,
		.fd = fd,
		.pd = pd,
		.access = access,
		.flags = VRNIC_REG_GPU,
	};

	return vrnic_reg(nic, VRNIC_IOC_REG_MR_DMABUF, &argument, region);
}

int vrnic_dereg_mr(struct vrnic *nic, const struct vrnic_region *region)
{
	struct vrnic_object object = { .number = region->key };

	return vrnic_call(nic, VRNIC_IOC_DEREG_MR, &object, &object.verdict, "deregister memory");
}
