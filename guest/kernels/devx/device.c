// SPDX-License-Identifier: Apache-2.0
/* Opening the NIC. */
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* This program is linked statically: libibverbs then has no other way to find its provider. */
#define RDMA_STATIC_PROVIDERS mlx5
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "command.h"

#define PORT 1
#define MOST_GIDS 256

static struct ibv_context *open_context(const char *name)
{
	struct mlx5dv_context_attr attributes = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (struct ibv_device **device = list; device && *device && !context; device++)
		if (mlx5dv_is_supported(*device) && (!name || !strcmp(name, ibv_get_device_name(*device))))
			context = mlx5dv_open_device(*device, &attributes);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* MAC of the network device with index @index. */
static int read_mac(struct devx *nic, uint32_t index)
{
	struct ifreq request = {};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret = -1;

	if (fd < 0)
		return devx_fail(nic, "a socket to ask for the MAC: %s", strerror(errno));
	if (!if_indextoname(index, request.ifr_name) || ioctl(fd, SIOCGIFHWADDR, &request))
		devx_fail(nic, "MAC of network device %u: %s", index, strerror(errno));
	else
		ret = 0;
	memcpy(nic->mac, request.ifr_hwaddr.sa_data, sizeof(nic->mac));
	close(fd);
	return ret;
}

/* The first RoCE v2 address over IPv4. */
static int find_address(struct devx *nic)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entry;

	for (uint32_t index = 0; index < MOST_GIDS; index++) {
		if (ibv_query_gid_ex(nic->context, PORT, index, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(entry.gid.raw, mapped, sizeof(mapped)))
			continue;
		memcpy(nic->gid, entry.gid.raw, sizeof(nic->gid));
		nic->gid_index = (uint8_t)index;
		return read_mac(nic, entry.ndev_ifindex);
	}
	return devx_fail(nic, "the port has no RoCE v2 address over IPv4; give its network device an address");
}

/* The kernel maps a BlueFlame page only where it found that to work. */
static int take_page(struct devx *nic)
{
	static const uint32_t kinds[] = {
		MLX5DV_UAR_ALLOC_TYPE_BF,
		MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED,
		MLX5DV_UAR_ALLOC_TYPE_NC,
	};
	struct mlx5dv_devx_uar *uar = NULL;

	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(*kinds) && !uar; i++) {
		uar = mlx5dv_devx_alloc_uar(nic->context, kinds[i]);
		nic->blueflame = uar && kinds[i] == MLX5DV_UAR_ALLOC_TYPE_BF;
	}
	if (!uar)
		return devx_fail(nic, "a doorbell page: %s", strerror(errno));
	nic->uar = uar->page_id;
	nic->page = uar->base_addr;
	return 0;
}

int devx_open(struct devx *nic, const char *name)
{
	struct mlx5dv_pd pd = { .comp_mask = 0 };
	struct mlx5dv_obj object = {};

	memset(nic, 0, sizeof(*nic));
	nic->context = open_context(name);
	if (!nic->context)
		return devx_fail(nic, "no mlx5 device could be opened for DevX (%s); is mlx5_ib loaded?",
				 strerror(errno));
	nic->pd = ibv_alloc_pd(nic->context);
	if (!nic->pd)
		return devx_fail(nic, "protection domain: %s", strerror(errno));
	object.pd.in = nic->pd;
	object.pd.out = &pd;
	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_PD))
		return devx_fail(nic, "number of the protection domain: %s", strerror(errno));
	nic->pdn = pd.pdn;
	if (mlx5dv_devx_query_eqn(nic->context, 0, &nic->eqn))
		return devx_fail(nic, "event queue: %s", strerror(errno));
	if (take_page(nic))
		return -1;
	return find_address(nic);
}
