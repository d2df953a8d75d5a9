// SPDX-License-Identifier: Apache-2.0
/* Watches a thread for system calls. */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

#include "watch.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif

#define ALLOW 0
#define BLOCK 1

static volatile char selector = ALLOW;
static volatile uint64_t caught;

static void on_sigsys(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	(void)context;
	caught++;
	/* The return from this handler is a system call itself. */
	selector = ALLOW;
}

bool watch_prepare(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_sigsys;
	action.sa_flags = SA_SIGINFO;
	return !sigaction(SIGSYS, &action, NULL) &&
	       !prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector);
}

void watch_begin(void)
{
	caught = 0;
	selector = BLOCK;
}

uint64_t watch_end(void)
{
	selector = ALLOW;
	return caught;
}
