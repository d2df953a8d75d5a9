// SPDX-License-Identifier: Apache-2.0
/* Bytes this program would write, for a test to compare: one step of a mixture-of-experts dispatch. */
#include <stdio.h>

#include "direct.h"
#include "vectors.h"

#define QPN 0x000123
#define REMOTE_KEY 0x1100
#define LOCAL_KEY 0x2200
#define SINK_KEY 0x3300
#define DATA_INDEX 5
#define COUNT_INDEX 6
#define NEXT_INDEX 7

static void print(const char *name, const void *bytes, size_t size, const char *behind)
{
	printf("\"%s\":\"", name);
	for (size_t i = 0; i < size; i++)
		printf("%02x", ((const uint8_t *)bytes)[i]);
	printf("\"%s", behind);
}

void print_vectors(void)
{
	uint32_t wqe[MLX5_MOST_WORDS] = { 0 }, record = mlx5_record(NEXT_INDEX);
	uint64_t next = mlx5_doorbell_next(NEXT_INDEX, QPN), last;

	putchar('{');
	/* 7408 bytes of a token, without a completion. */
	mlx5_put_control(wqe, 0, DATA_INDEX, MLX5_WQE_WRITE, QPN, 3, 0);
	mlx5_put_remote(wqe + MLX5_UNIT_WORDS, 0x7f1234560000, REMOTE_KEY);
	mlx5_put_data(wqe + 2 * MLX5_UNIT_WORDS, 7408, LOCAL_KEY, 0x7f5678900000);
	print("write", wqe, MLX5_BLOCK, ",");
	/* 16 tokens, announced as -17. */
	memset(wqe, 0, sizeof(wqe));
	mlx5_put_control(wqe, MLX5_ATOMIC_4, COUNT_INDEX, MLX5_WQE_MASKED_FA, QPN, 4, MLX5_WQE_CQE);
	mlx5_put_remote(wqe + MLX5_UNIT_WORDS, 0x7f1234000040, REMOTE_KEY);
	mlx5_put_masked_fa4(wqe + 2 * MLX5_UNIT_WORDS, (uint32_t)-17, 0);
	mlx5_put_data(wqe + 3 * MLX5_UNIT_WORDS, 4, SINK_KEY, 0x7f9a00000000);
	print("masked_fa", wqe, MLX5_BLOCK, ",");
	last = mlx5_doorbell_last(wqe);
	print("record", &record, sizeof(record), ",");
	print("doorbell_next", &next, sizeof(next), ",");
	print("doorbell_last", &last, sizeof(last), "}\n");
}
