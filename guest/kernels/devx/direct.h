/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a GPU kernel does, by one thread: WQEs, record and doorbell by stores, completions by loads.
 *
 * Between direct_begin() and direct_end() the kernel ends the program at the first system call.
 */
#ifndef DEVX_DIRECT_H
#define DEVX_DIRECT_H

#include "devx.h"
#include "mlx5_format.h"

/* How to ring: what the doorbell says, and in which order with the record. */
enum doorbell { DOORBELL_NEXT, DOORBELL_LAST, DOORBELL_BLUEFLAME };
enum order { RECORD_DOORBELL, DOORBELL_RECORD_DOORBELL, DOORBELL_ONLY };

struct direct {
	volatile uint8_t *sq;
	volatile uint32_t *record;  /* dword 0 receive, dword 1 send */
	volatile uint8_t *cq;
	volatile uint32_t *cq_record;
	volatile uint64_t *doorbell;
	uint32_t qpn;
	uint32_t depth;
	uint32_t cq_slots;
	bool collapsed;
	enum doorbell convention;
	enum order order;
	uint32_t next;  /* index of the next free block */
	uint32_t rung;
	uint32_t done;  /* every block before it is complete */
	uint32_t consumed;  /* CQEs read, of a ring */
	uint64_t deadline;  /* in ticks of rdtsc */
	uint64_t rings;
	uint32_t control[MLX5_MOST_WORDS];  /* of the WQE written last */
	char error[256];
};

/* From here on system calls end the program; false when the kernel cannot do that. */
bool direct_begin(void);
void direct_end(void);
uint64_t direct_ticks(void);

/*
 * Write a WQE: @opcode and the segments after the control segment, @units with it. Waits for free
 * blocks. A WQE of two blocks that asks for a completion gets it from a NOP behind it, as a CQE names the
 * first block only. 0, or -1 with a sentence.
 */
int direct_post(struct direct *queue, uint8_t modifier, uint8_t opcode, const uint32_t *segments, uint32_t units,
		uint8_t flags);
/* Record and doorbell for everything written. */
void direct_ring(struct direct *queue);
/* Wait until every block that was rung is complete. 0, or -1 with a sentence. */
int direct_quiet(struct direct *queue);

#endif /* DEVX_DIRECT_H */
