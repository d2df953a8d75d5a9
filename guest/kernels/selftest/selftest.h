/* SPDX-License-Identifier: Apache-2.0 */
/* What the drivers must refuse, keep apart and survive, tried from user space in one guest. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libvrnic.h"

/* Record one claim; prints a JSON line. @detail is printed when it does not hold. */
__attribute__((format(printf, 3, 4))) void check(bool holds, const char *claim, const char *detail, ...);

/* ioctl() that must fail with @error. */
void refused(int fd, unsigned long request, void *argument, int error, const char *claim);

/* Make something the test itself needs, or leave with status 1. */
void need(int ret, const char *what);

/* A context with a PD, one region of host memory and a queue pair in it, in RTS to nobody. */
struct fixture {
	struct vrnic nic;
	uint32_t pd;
	uint8_t *memory;
	struct vrnic_region region;
	uint32_t cqn;
	uint32_t qpn;
};

#define FIXTURE_BYTES 65536ul
#define FIXTURE_SQ 0ul
#define FIXTURE_CQ 4096ul
#define FIXTURE_LOG_SLOTS 4

void fixture_open(struct fixture *fixture);
void fixture_close(struct fixture *fixture);
/* Ring number @index of the send queue of QP @qpn through the fixture's page. */
void fixture_ring(struct fixture *fixture, uint32_t qpn, uint32_t index);
/* Write a WQE that fails (no such lkey) into slot 0. */
void fixture_fill_bad(struct fixture *fixture);

/* The groups. */
void test_calls(void);
void test_memory(void);
void test_isolation(void);
void test_processes(void);
void test_gpu(void);
void test_events(void);
void test_death(void);
void test_reset(void);
void test_unbind(void);

#endif /* SELFTEST_H */
