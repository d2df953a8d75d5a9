// SPDX-License-Identifier: Apache-2.0
/* Lines to and from the peer. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous.h"

char rendezvous_error[512];

static char pending[1024];
static size_t pending_size;

__attribute__((format(printf, 1, 2))) static int fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(rendezvous_error, sizeof(rendezvous_error), format, arguments);
	va_end(arguments);
	return -1;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool take_line(char *line, size_t size)
{
	char *end = memchr(pending, '\n', pending_size);
	size_t length;

	if (!end)
		return false;
	length = (size_t)(end - pending);
	snprintf(line, size, "%.*s", (int)length, pending);
	pending_size -= length + 1;
	memmove(pending, end + 1, pending_size);
	return true;
}

static int read_line(char *line, size_t size, const char *what, double timeout)
{
	struct pollfd wait = { .fd = STDIN_FILENO, .events = POLLIN };
	double deadline = now() + timeout;
	ssize_t got;
	int ready;

	while (!take_line(line, size)) {
		if (pending_size == sizeof(pending))
			return fail("a line from the peer is longer than %zu bytes", sizeof(pending));
		double left = deadline - now();

		ready = left > 0 ? poll(&wait, 1, (int)(left * 1000) + 1) : 0;
		if (!ready)
			return fail("the peer sent no %s line in %.1f s", what, timeout);
		if (ready < 0 && errno != EINTR)
			return fail("standard input: %s", strerror(errno));
		if (ready < 0)
			continue;
		got = read(STDIN_FILENO, pending + pending_size, sizeof(pending) - pending_size);
		if (got < 0 && errno != EINTR)
			return fail("standard input: %s", strerror(errno));
		if (!got)
			return fail("standard input ended while waiting for the peer's %s line", what);
		if (got > 0)
			pending_size += (size_t)got;
	}
	return 0;
}

static int say(const char *word, const char *text)
{
	if (printf("%s %s\n", word, text) < 0 || fflush(stdout))
		return fail("standard output: %s", strerror(errno));
	return 0;
}

/* The rest of the line after @word and a space. */
static int await(const char *word, char *text, size_t size, double timeout)
{
	size_t length = strlen(word);
	char line[1024];

	if (read_line(line, sizeof(line), word, timeout))
		return -1;
	if (strncmp(line, word, length) || line[length] != ' ')
		return fail("expected a %s line, got: %.200s", word, line);
	snprintf(text, size, "%s", line + length + 1);
	return 0;
}

int rendezvous_meet(const struct vrnic_endpoint *self, struct vrnic_endpoint *peer, double timeout)
{
	char text[VRNIC_ENDPOINT_TEXT];

	vrnic_endpoint_format(self, text);
	if (say("ENDPOINT", text) || await("PEER", text, sizeof(text), timeout))
		return -1;
	if (vrnic_endpoint_parse(text, peer))
		return fail("not an endpoint: %.200s", text);
	return 0;
}

int rendezvous_sync(unsigned int number, double timeout)
{
	char own[16], theirs[VRNIC_ENDPOINT_TEXT];

	snprintf(own, sizeof(own), "%u", number);
	if (say("SYNC", own) || await("SYNC", theirs, sizeof(theirs), timeout))
		return -1;
	if (strcmp(own, theirs))
		return fail("the peer is at step %.100s, not %s: do both run the same kernel?", theirs, own);
	return 0;
}
