// SPDX-License-Identifier: Apache-2.0
/* Keys that work requests change: memory windows, keys over pieces of other keys, invalidation. */
#include <errno.h>
#include <string.h>

#include "verbs.h"

#define WINDOW_AT 4096
#define WINDOW_BYTES 100

static void fill(uint8_t *memory, size_t length, int seed)
{
	for (size_t at = 0; at < length; at++)
		memory[at] = (uint8_t)(at * 7 + seed);
}

static struct ibv_mw_bind_info window_of(struct end *end)
{
	return (struct ibv_mw_bind_info){
		.mr = end->mr,
		.addr = (uintptr_t)end->memory + WINDOW_AT,
		.length = WINDOW_BYTES,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
}

/* What a peer may do through a window, and may not. */
static int use_window(struct world *world, uint32_t rkey)
{
	struct end *near = &world->near, *far = &world->far;
	uint64_t address = (uintptr_t)far->memory + WINDOW_AT;

	fill(near->memory, WINDOW_BYTES, 3);
	if (write_to(near, 0, address, rkey, WINDOW_BYTES, IBV_WC_SUCCESS))
		return -1;
	if (memcmp(far->memory + WINDOW_AT, near->memory, WINDOW_BYTES) || far->memory[WINDOW_AT + WINDOW_BYTES])
		return failed("bytes behind the window are not those written");
	return 0;
}

int case_window_type1(struct world *world)
{
	struct end *far = &world->far;
	struct ibv_mw_bind bind = { .bind_info = window_of(far), .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mw *window = ibv_alloc_mw(world->pd, IBV_MW_TYPE_1);

	if (!window)
		return failed("window of type 1");
	if (ibv_bind_mw(far->qp, window, &bind) || expect(far->cq, IBV_WC_SUCCESS, NULL))
		return failed("bind");
	if (use_window(world, window->rkey))
		return -1;
	/* A window of no bytes is closed. */
	uint32_t old = window->rkey;
	bind.bind_info.length = 0;
	if (ibv_bind_mw(far->qp, window, &bind) || expect(far->cq, IBV_WC_SUCCESS, NULL))
		return failed("unbind");
	if (write_to(&world->near, 0, (uintptr_t)far->memory + WINDOW_AT, old, 8, IBV_WC_REM_ACCESS_ERR))
		return -1;
	return ibv_dealloc_mw(window) ? failed("free the window") : 0;
}

static int bind2(struct end *end, struct ibv_mw *window, uint32_t rkey)
{
	struct ibv_mw_bind_info info = window_of(end);

	ibv_wr_start(end->ex);
	end->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(end->ex, window, rkey, &info);
	if (ibv_wr_complete(end->ex))
		return failed("post a bind");
	return expect(end->cq, IBV_WC_SUCCESS, NULL);
}

int case_window_type2(struct world *world)
{
	struct end *far = &world->far;
	struct ibv_mw *window = ibv_alloc_mw(world->pd, IBV_MW_TYPE_2);
	uint32_t rkey;

	if (!window)
		return failed("window of type 2");
	rkey = ibv_inc_rkey(window->rkey);
	if (bind2(far, window, rkey) || use_window(world, rkey))
		return -1;
	ibv_wr_start(far->ex);
	far->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_local_inv(far->ex, rkey);
	if (ibv_wr_complete(far->ex) || expect(far->cq, IBV_WC_SUCCESS, NULL))
		return failed("local invalidation");
	/* It can be bound anew, under another key. */
	if (bind2(far, window, ibv_inc_rkey(rkey)) || use_window(world, ibv_inc_rkey(rkey)))
		return -1;
	if (write_to(&world->near, 0, (uintptr_t)far->memory + WINDOW_AT, rkey, 8, IBV_WC_REM_ACCESS_ERR))
		return -1;
	return ibv_dealloc_mw(window) ? failed("free the window") : 0;
}

int case_invalidate_remote(struct world *world)
{
	struct end *near = &world->near, *far = &world->far;
	struct ibv_sge sge = { (uintptr_t)far->memory, 64, far->mr->lkey };
	struct ibv_recv_wr *bad, receive = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_mw *window = ibv_alloc_mw(world->pd, IBV_MW_TYPE_2);
	struct ibv_wc wc;
	uint32_t rkey;

	if (!window)
		return failed("window of type 2");
	rkey = ibv_inc_rkey(window->rkey);
	if (bind2(far, window, rkey) || ibv_post_recv(far->qp, &receive, &bad))
		return -1;
	ibv_wr_start(near->ex);
	near->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_inv(near->ex, rkey);
	ibv_wr_set_sge(near->ex, near->mr->lkey, (uintptr_t)near->memory, 8);
	if (ibv_wr_complete(near->ex) || expect(near->cq, IBV_WC_SUCCESS, NULL) || expect(far->cq, IBV_WC_SUCCESS, &wc))
		return failed("send with invalidation");
	if (!(wc.wc_flags & IBV_WC_WITH_INV) || wc.invalidated_rkey != rkey)
		return failed("the receive says nothing of key %#x", rkey);
	if (write_to(near, 0, (uintptr_t)far->memory + WINDOW_AT, rkey, 8, IBV_WC_REM_ACCESS_ERR))
		return -1;
	return ibv_dealloc_mw(window) ? failed("free the window") : 0;
}

static struct mlx5dv_mkey *make_key(struct world *world)
{
	struct mlx5dv_mkey_init_attr attributes = {
		.pd = world->pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4,
	};

	return mlx5dv_create_mkey(&attributes);
}

#define KEY_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

int case_key_list(struct world *world)
{
	struct end *near = &world->near, *far = &world->far;
	uintptr_t base = (uintptr_t)far->memory;
	struct ibv_sge pieces[] = {
		{ base + 8192, 10, far->mr->lkey }, { base + 100, 20, far->mr->lkey }, { base + 4096, 30, far->mr->lkey },
	};
	struct mlx5dv_mkey *key = make_key(world);
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(far->ex);

	if (!key)
		return failed("key over keys");
	ibv_wr_start(far->ex);
	far->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mr_list(dv, key, KEY_RIGHTS, 3, pieces);
	if (ibv_wr_complete(far->ex) || expect(far->cq, IBV_WC_SUCCESS, NULL))
		return failed("list of pieces");
	fill(near->memory, 60, 9);
	if (write_to(near, 0, 0, key->rkey, 60, IBV_WC_SUCCESS))
		return -1;
	if (memcmp(far->memory + 8192, near->memory, 10) || memcmp(far->memory + 100, near->memory + 10, 20) ||
	    memcmp(far->memory + 4096, near->memory + 30, 30))
		return failed("bytes are not where the pieces say");
	return mlx5dv_destroy_mkey(key) ? failed("destroy the key") : 0;
}

int case_key_interleaved(struct world *world)
{
	struct end *near = &world->near, *far = &world->far;
	uintptr_t base = (uintptr_t)far->memory;
	struct mlx5dv_mr_interleaved pieces[] = {
		{ base, 6, 10, far->mr->lkey }, { base + 8192, 4, 4, far->mr->lkey },
	};
	struct mlx5dv_mkey *key = make_key(world);
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(far->ex);

	if (!key)
		return failed("key over keys");
	ibv_wr_start(far->ex);
	far->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mr_interleaved(dv, key, KEY_RIGHTS, 8, 2, pieces);
	if (ibv_wr_complete(far->ex) || expect(far->cq, IBV_WC_SUCCESS, NULL))
		return failed("interleaved pieces");
	fill(near->memory, 80, 5);
	if (write_to(near, 0, 0, key->rkey, 80, IBV_WC_SUCCESS))
		return -1;
	for (int turn = 0; turn < 8; turn++)
		if (memcmp(far->memory + 16 * turn, near->memory + 10 * turn, 6) ||
		    memcmp(far->memory + 8192 + 8 * turn, near->memory + 10 * turn + 6, 4))
			return failed("bytes of round %d are not where they belong", turn);
	return mlx5dv_destroy_mkey(key) ? failed("destroy the key") : 0;
}

int case_reregister(struct world *world)
{
	struct end *near = &world->near, *far = &world->far;
	uint64_t address = (uintptr_t)far->memory;

	if (write_to(near, 0, address, far->mr->rkey, 8, IBV_WC_SUCCESS))
		return -1;
	/* Fewer rights, through the driver's own queue pair. */
	if (ibv_rereg_mr(far->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE))
		return failed("register with fewer rights");
	return write_to(near, 0, address, far->mr->rkey, 8, IBV_WC_REM_ACCESS_ERR);
}
