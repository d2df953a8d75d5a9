// SPDX-License-Identifier: Apache-2.0
/* Processes that die, devices that are reset, drivers that are unbound: with files open. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest.h"

#define NIC_SYSFS "/sys/class/misc/vrnic0/device"

static sigjmp_buf back;

static void on_sigbus(int number)
{
	siglongjmp(back, number);
}

/* Whether a store to the doorbell page is SIGBUS. */
static bool doorbell_faults(struct vrnic *nic)
{
	bool faulted = true;

	signal(SIGBUS, on_sigbus);
	if (!sigsetjmp(back, 1)) {
		nic->doorbells[VRNIC_DB_SQ / 8] = 0;
		faulted = false;
	}
	signal(SIGBUS, SIG_DFL);
	return faulted;
}

/* Lines of the driver's list of open files. */
static int open_files(void)
{
	char command[] = "cat /sys/kernel/debug/vrnic/*/contexts", line[256];
	FILE *list = popen(command, "r");
	int count = -1;

	while (list && fgets(line, sizeof(line), list))
		count++;
	if (list)
		pclose(list);
	return count;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	ssize_t size = fd < 0 ? -1 : write(fd, text, strlen(text));

	need(size < 0 ? -errno : 0, path);
	close(fd);
}

/* A reset must find the device usable: open, make everything, close. */
static void check_usable(const char *claim)
{
	struct fixture fixture;

	fixture_open(&fixture);
	check(fixture.qpn, claim, "no QP");
	fixture_close(&fixture);
}

static void check_dead(struct fixture *fixture, const char *what)
{
	struct pollfd wait = { .fd = fixture->nic.fd, .events = POLLIN };
	struct vrnic_event_record record;
	struct vrnic_object object = { 0 };
	char claim[96];

	snprintf(claim, sizeof(claim), "after a %s a call is ENODEV", what);
	refused(fixture->nic.fd, VRNIC_IOC_ALLOC_PD, &object, ENODEV, claim);
	while (read(fixture->nic.fd, &record, sizeof(record)) > 0)
		;
	snprintf(claim, sizeof(claim), "after a %s read is ENODEV", what);
	check(errno == ENODEV, claim, "%s", strerror(errno));
	poll(&wait, 1, 0);
	snprintf(claim, sizeof(claim), "after a %s poll says so", what);
	check((wait.revents & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP), claim, "%#x", wait.revents);
	snprintf(claim, sizeof(claim), "after a %s a doorbell store is SIGBUS", what);
	check(doorbell_faults(&fixture->nic), claim, "it went through");
}

void test_death(void)
{
	struct fixture fixture;
	int pipes[2], status;
	char ready;
	pid_t child;

	need(pipe(pipes), "a pipe");
	child = fork();
	if (!child) {
		fixture_open(&fixture);
		if (write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	need(child < 0 ? -errno : 0, "a child");
	need(read(pipes[0], &ready, 1) == 1 ? 0 : -EIO, "the child's objects");
	check(open_files() == 1, "the driver lists the child's file", "%d files", open_files());
	kill(child, SIGKILL);
	need(waitpid(child, &status, 0), "the child's end");
	check(open_files() == 0, "a killed process leaves no context", "%d files", open_files());
	close(pipes[0]);
	close(pipes[1]);
	check_usable("after a killed process everything can be made again");
}

void test_reset(void)
{
	struct fixture fixture;

	fixture_open(&fixture);
	check(!doorbell_faults(&fixture.nic), "a doorbell store goes through", "SIGBUS");
	write_file(NIC_SYSFS "/reset", "1");
	check_dead(&fixture, "reset");
	check_usable("after a reset a new file works, beside one that is dead");
	fixture_close(&fixture);
	check_usable("after the dead one closed, too");
}

void test_unbind(void)
{
	char target[256], *name;
	struct fixture fixture;
	ssize_t size;

	size = readlink(NIC_SYSFS, target, sizeof(target) - 1);
	need(size < 0 ? -errno : 0, "the NIC's address");
	target[size] = '\0';
	name = strrchr(target, '/') + 1;
	fixture_open(&fixture);
	check(!doorbell_faults(&fixture.nic), "a doorbell store goes through", "SIGBUS");
	write_file("/sys/bus/pci/drivers/vrnic/unbind", name);
	check(access("/dev/vrnic0", F_OK), "an unbound driver has no device file", "it is there");
	check_dead(&fixture, "unbind");
	fixture_close(&fixture);
	write_file("/sys/bus/pci/drivers/vrnic/bind", name);
	check_usable("bound again it works");
}
