// SPDX-License-Identifier: Apache-2.0
/* vrnic-selftest: runs every group, or those that are named. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "selftest.h"

static int failures;

void check(bool holds, const char *claim, const char *detail, ...)
{
	va_list arguments;

	printf("{\"check\":\"%s\",\"ok\":%s", claim, holds ? "true" : "false");
	if (!holds) {
		failures++;
		fputs(",\"detail\":\"", stdout);
		va_start(arguments, detail);
		vprintf(detail, arguments);
		va_end(arguments);
		putchar('"');
	}
	puts("}");
	fflush(stdout);
}

void refused(int fd, unsigned long request, void *argument, int error, const char *claim)
{
	int ret = ioctl(fd, request, argument);
	int found = ret ? errno : 0;

	check(found == error, claim, "%s, expected %s", strerror(found), strerror(error));
}

void need(int ret, const char *what)
{
	if (ret >= 0)
		return;
	check(false, what, "%s", strerror(-ret));
	exit(1);
}

static const struct {
	const char *name;
	void (*run)(void);
} groups[] = {
	{ "calls", test_calls },
	{ "memory", test_memory },
	{ "isolation", test_isolation },
	{ "processes", test_processes },
	{ "gpu", test_gpu },
	{ "events", test_events },
	{ "death", test_death },
	{ "reset", test_reset },
	{ "unbind", test_unbind },
};

static void run(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		if (name && strcmp(name, groups[i].name))
			continue;
		groups[i].run();
		if (name)
			return;
	}
	if (!name)
		return;
	fprintf(stderr, "vrnic-selftest: no group is called %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	if (argc == 1)
		run(NULL);
	for (int i = 1; i < argc; i++)
		run(argv[i]);
	return failures ? 1 : 0;
}
