// SPDX-License-Identifier: Apache-2.0
/* Posting, ringing, completing. */
#include <stdio.h>
#include <sys/prctl.h>

#include "direct.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif

/* What the kernel reads at each system call: 0 lets it through, 1 raises SIGSYS. */
static volatile char blocked;
static bool watched;

bool direct_begin(void)
{
	if (!watched)
		watched = !prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0L, 0L, &blocked);
	blocked = watched;
	return watched;
}

void direct_end(void)
{
	blocked = 0;
}

uint64_t direct_ticks(void)
{
	return __builtin_ia32_rdtsc();
}

/* Video memory is write-combining: only a full fence empties those buffers. */
static void fence(void)
{
	__sync_synchronize();
}

static int failed_completion(struct direct *queue, const volatile uint8_t *cqe, uint16_t counter)
{
	snprintf(queue->error, sizeof(queue->error), "index %u completed with %s (syndrome %#x, vendor %#x)", counter,
		 mlx5_syndrome_name(cqe[MLX5_CQE_SYNDROME]), cqe[MLX5_CQE_SYNDROME], cqe[MLX5_CQE_VENDOR]);
	return -1;
}

/* Look at the CQ once. */
static int poll_once(struct direct *queue)
{
	uint32_t slot = queue->collapsed ? 0 : queue->consumed & (queue->cq_slots - 1);
	const volatile uint8_t *cqe = queue->cq + (uint64_t)slot * MLX5_CQE_BYTES;
	struct mlx5_cqe_end end = mlx5_cqe_end_of(*(const volatile uint64_t *)(cqe + MLX5_CQE_BYTES - 8));
	uint16_t advance;

	if (end.opcode == MLX5_CQE_INVALID)
		return 0;
	if (!queue->collapsed && end.owner != (queue->consumed / queue->cq_slots & 1))
		return 0;
	fence();
	if (end.opcode != MLX5_CQE_DONE)
		return failed_completion(queue, cqe, end.counter);
	if (!queue->collapsed)
		queue->cq_record[0] = mlx5_be32(++queue->consumed & 0xffffff);
	/* A collapsed CQ shows the last completion again and again. */
	advance = (uint16_t)(end.counter + 1 - queue->done);
	if (advance <= queue->depth)
		queue->done += advance;
	return 0;
}

static int wait_done(struct direct *queue, uint32_t index)
{
	while ((int32_t)(queue->done - index) < 0) {
		if (poll_once(queue))
			return -1;
		if ((int64_t)(direct_ticks() - queue->deadline) > 0) {
			snprintf(queue->error, sizeof(queue->error),
				 "gave up waiting for index %u of QP %#x (written %u, rung %u, complete %u)", index - 1,
				 queue->qpn, queue->next, queue->rung, queue->done);
			return -1;
		}
		__builtin_ia32_pause();
	}
	return 0;
}

static void store(struct direct *queue, const uint32_t *words, uint32_t blocks)
{
	for (uint32_t block = 0; block < blocks; block++, queue->next++) {
		uint32_t slot = queue->next & (queue->depth - 1);
		volatile uint32_t *place = (volatile uint32_t *)(queue->sq + (uint64_t)slot * MLX5_BLOCK);

		for (uint32_t i = 0; i < MLX5_BLOCK / 4; i++)
			place[i] = words[block * (MLX5_BLOCK / 4) + i];
	}
}

int direct_post(struct direct *queue, uint8_t modifier, uint8_t opcode, const uint32_t *segments, uint32_t units,
		uint8_t flags)
{
	uint32_t blocks = mlx5_blocks(units);
	bool chaser = blocks > 1 && flags & MLX5_WQE_CQE;
	uint32_t *words = queue->control;

	/* Nobody else rings for what is written: do so before waiting for it. */
	if (queue->next + blocks + chaser - queue->done > queue->depth) {
		direct_ring(queue);
		if (wait_done(queue, queue->next + blocks + chaser - queue->depth))
			return -1;
	}
	memset(words, 0, sizeof(queue->control));
	mlx5_put_control(words, modifier, (uint16_t)queue->next, opcode, queue->qpn, units,
			 chaser ? flags & (uint8_t)~MLX5_WQE_CQE : flags);
	if (units > 1)
		memcpy(words + MLX5_UNIT_WORDS, segments, (units - 1) * MLX5_UNIT);
	store(queue, words, blocks);
	if (chaser)
		return direct_post(queue, 0, MLX5_WQE_NOP, NULL, 1, MLX5_WQE_CQE);
	return 0;
}

static void store_doorbell(struct direct *queue)
{
	uint64_t value = queue->convention == DOORBELL_NEXT ? mlx5_doorbell_next(queue->next, queue->qpn) :
							       mlx5_doorbell_last(queue->control);

	*queue->doorbell = value;
	queue->rings++;
}

/* The whole WQE into the doorbell page, which needs no fetch then. */
static void store_blueflame(struct direct *queue)
{
	for (uint32_t i = 0; i < MLX5_BLOCK / 8; i++) {
		uint64_t value;

		memcpy(&value, queue->control + 2 * i, sizeof(value));
		queue->doorbell[i] = value;
	}
	queue->rings++;
}

void direct_ring(struct direct *queue)
{
	if (queue->rung == queue->next)
		return;
	fence();
	if (queue->order == DOORBELL_RECORD_DOORBELL)
		store_doorbell(queue);
	if (queue->order != DOORBELL_ONLY) {
		queue->record[1] = mlx5_record(queue->next);
		fence();
	}
	if (queue->convention == DOORBELL_BLUEFLAME && queue->next - queue->rung == 1)
		store_blueflame(queue);
	else
		store_doorbell(queue);
	queue->rung = queue->next;
}

int direct_quiet(struct direct *queue)
{
	direct_ring(queue);
	return wait_done(queue, queue->rung);
}
