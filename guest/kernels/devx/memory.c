// SPDX-License-Identifier: Apache-2.0
/* Memory for queues and for payload. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "command.h"

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define LOG_PAGE 12
#define ACCESS_MODE_MTT 1
#define ANY_QP 0xffffff
#define VARIANT 0x5a  /* low byte of a key, the owner's to choose */

static int take_umem(struct devx *nic, void *map, size_t size, int dmabuf, uint32_t *id)
{
	struct mlx5dv_devx_umem_in in = {
		.addr = dmabuf < 0 ? map : NULL,
		.size = size,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.pgsz_bitmap = 1ull << LOG_PAGE,
		.comp_mask = dmabuf < 0 ? 0 : MLX5DV_UMEM_MASK_DMABUF,
		.dmabuf_fd = dmabuf < 0 ? 0 : dmabuf,
	};
	struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg_ex(nic->context, &in);

	if (!umem)
		return devx_fail(nic, "%zu bytes of %s as user memory: %s", size, dmabuf < 0 ? "own memory" : "a dma-buf",
				 strerror(errno));
	*id = umem->umem_id;
	return 0;
}

int devx_register_queues(struct devx *nic, void *map, size_t size, int dmabuf, struct devx_memory *memory)
{
	*memory = (struct devx_memory){ .map = map, .size = size, .address = (uintptr_t)map, .how = "umem" };
	return take_umem(nic, map, size, dmabuf, &memory->umem);
}

/* A memory key whose pages are those of user memory. */
static int make_key(struct devx *nic, struct devx_memory *memory)
{
	/* Two page addresses of 8 bytes in each octword. */
	uint64_t octwords = ((memory->size >> LOG_PAGE) + 1) / 2;
	uint8_t in[DEVX_COMMAND_BYTES] = {}, out[16] = {};

	devx_set(in, DEVX_OPCODE, DEVX_OP_CREATE_MKEY);
	devx_set(in, CREATE_MKEY_access_mode_1_0, ACCESS_MODE_MTT);
	devx_set(in, CREATE_MKEY_lr, 1);
	devx_set(in, CREATE_MKEY_lw, 1);
	devx_set(in, CREATE_MKEY_rr, 1);
	devx_set(in, CREATE_MKEY_rw, 1);
	devx_set(in, CREATE_MKEY_a, 1);
	devx_set(in, CREATE_MKEY_qpn, ANY_QP);
	devx_set(in, CREATE_MKEY_mkey_7_0, VARIANT);
	devx_set(in, CREATE_MKEY_pd, nic->pdn);
	devx_set(in, CREATE_MKEY_start_addr, memory->address);
	devx_set(in, CREATE_MKEY_len, memory->size);
	devx_set(in, CREATE_MKEY_log_page_size, LOG_PAGE);
	devx_set(in, CREATE_MKEY_translations_octword_size, octwords);
	devx_set(in, CREATE_MKEY_translations_octword_actual_size, octwords);
	devx_set(in, CREATE_MKEY_mkey_umem_valid, 1);
	devx_set(in, CREATE_MKEY_mkey_umem_id, memory->umem);
	if (!mlx5dv_devx_obj_create(nic->context, in, CREATE_MKEY_BYTES, out, sizeof(out)))
		return devx_refused(nic, "memory key", out);
	memory->key = (uint32_t)devx_get(out, CREATE_MKEY_OUT_mkey_index) << 8 | VARIANT;
	return 0;
}

int devx_register_payload(struct devx *nic, void *map, size_t size, int dmabuf, struct devx_memory *memory)
{
	struct ibv_mr *mr;

	*memory = (struct devx_memory){ .map = map, .size = size, .address = (uintptr_t)map };
	if (dmabuf < 0) {
		memory->how = "mr";
		mr = ibv_reg_mr(nic->pd, map, size, RIGHTS);
		if (!mr)
			return devx_fail(nic, "register %zu bytes: %s", size, strerror(errno));
	} else {
		memory->how = "dmabuf-mr";
		mr = ibv_reg_dmabuf_mr(nic->pd, 0, size, (uintptr_t)map, dmabuf, RIGHTS);
	}
	if (mr) {
		memory->key = mr->lkey;
		return 0;
	}
	memory->how = "umem-mkey";
	return take_umem(nic, map, size, dmabuf, &memory->umem) ? -1 : make_key(nic, memory);
}
