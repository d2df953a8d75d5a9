// SPDX-License-Identifier: Apache-2.0
/*
 * The guest's end of the lab's control channel.
 *
 * It opens the virtio-serial port named "vrnic.control" (or the device named as its argument) and runs commands the host asks for. Both directions are
 * lines of at most LINE_MAX_BYTES bytes, words separated by one space:
 *
 *   host to guest                           guest to host
 *   HELLO                                   READY 1 <kernel release>      (also once, unasked, at start)
 *   RUN <id> <timeout s> <shell command>    OUT <id> <line>, ERR <id> <line>, then EXIT <id> <status>
 *   IN <id> <line>                          REFUSED <id> <reason>         (in place of everything else)
 *   EOF <id>
 *   KILL <id> <signal>
 *   POWEROFF
 *
 * <status> is the exit status, 128 + signal for a killed command, 124 when the time ran out. A command runs in a
 * session of its own; when it ends, what it left behind in its process group is killed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT_NAME "vrnic.control"
#define LINE_MAX_BYTES 8192
#define JOBS_MAX 16
#define TIMED_OUT 124

struct line_buffer {
	char data[LINE_MAX_BYTES];
	size_t used;
};

struct job {
	bool busy;
	bool timed_out;
	unsigned long id;
	pid_t pid;
	int in;  /* write end of its standard input, -1 when closed */
	int out[2];  /* read ends of its standard output and error, -1 at end of file */
	struct line_buffer text[2];
	int64_t deadline;
	int64_t drain_until;  /* 0 while it runs */
	int status;
};

static struct job jobs[JOBS_MAX];
static int port = -1;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* While no host is connected a blocking write waits, so nothing said is lost. */
static void put_all(const char *data, size_t size)
{
	while (size) {
		ssize_t done = write(port, data, size);

		if (done < 0) {
			if (errno == EINTR)
				continue;
			if (errno == ENODEV)
				exit(1);
			poll(NULL, 0, 20);
			continue;
		}
		data += done;
		size -= (size_t)done;
	}
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char line[LINE_MAX_BYTES + 64];
	va_list arguments;
	int size;

	va_start(arguments, format);
	size = vsnprintf(line, sizeof(line) - 1, format, arguments);
	va_end(arguments);
	if (size < 0)
		return;
	if ((size_t)size > sizeof(line) - 2)
		size = sizeof(line) - 2;
	line[size++] = '\n';
	put_all(line, (size_t)size);
}

static void say_ready(void)
{
	struct utsname name;

	uname(&name);
	say("READY 1 %s", name.release);
}

static struct job *find_job(unsigned long id)
{
	for (int i = 0; i < JOBS_MAX; i++)
		if (jobs[i].busy && jobs[i].id == id)
			return &jobs[i];
	return NULL;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void run_job(unsigned long id, unsigned long timeout, const char *command)
{
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, err[2] = { -1, -1 };
	struct job *job = NULL;

	if (find_job(id)) {
		say("REFUSED %lu this id is in use", id);
		return;
	}
	for (int i = 0; i < JOBS_MAX && !job; i++)
		if (!jobs[i].busy)
			job = &jobs[i];
	if (!job) {
		say("REFUSED %lu %d commands run already", id, JOBS_MAX);
		return;
	}
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		goto fail;
	job->pid = fork();
	if (job->pid < 0)
		goto fail;
	if (job->pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		signal(SIGPIPE, SIG_DFL);
		setsid();
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	close(err[1]);
	/* A command that does not read its input must not be able to stop the agent. */
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	job->busy = true;
	job->timed_out = false;
	job->id = id;
	job->in = in[1];
	job->out[0] = out[0];
	job->out[1] = err[0];
	job->text[0].used = 0;
	job->text[1].used = 0;
	job->deadline = now_ms() + (int64_t)timeout * 1000;
	job->drain_until = 0;
	return;
fail:
	say("REFUSED %lu %s", id, strerror(errno));
	for (int i = 0; i < 2; i++) {
		close_fd(&in[i]);
		close_fd(&out[i]);
		close_fd(&err[i]);
	}
}

static void feed_job(struct job *job, char *line)
{
	size_t size = strlen(line);

	if (job->in < 0)
		return;
	line[size++] = '\n';
	if (write(job->in, line, size) != (ssize_t)size) {
		say("ERR %lu agent: standard input is full or closed, a line was lost", job->id);
		close_fd(&job->in);
	}
}

static void handle_request(char *line)
{
	char *rest = line, *word = strsep(&rest, " ");
	unsigned long id, number;
	struct job *job;

	if (!strcmp(word, "HELLO")) {
		say_ready();
		return;
	}
	if (!strcmp(word, "POWEROFF")) {
		sync();
		reboot(RB_POWER_OFF);
		say("REFUSED 0 %s", strerror(errno));
		return;
	}
	id = rest ? strtoul(strsep(&rest, " "), NULL, 10) : 0;
	if (!id) {
		say("REFUSED 0 no such request: %s", word);
		return;
	}
	if (!strcmp(word, "RUN")) {
		number = rest ? strtoul(strsep(&rest, " "), NULL, 10) : 0;
		if (!number || number > INT_MAX / 1000 || !rest)
			say("REFUSED %lu RUN needs a timeout in seconds and a command", id);
		else
			run_job(id, number, rest);
		return;
	}
	job = find_job(id);
	if (!job)
		return;  /* It ended while the request travelled: EXIT already says so. */
	if (!strcmp(word, "IN")) {
		char text[LINE_MAX_BYTES + 1];

		snprintf(text, sizeof(text), "%s", rest ? rest : "");
		feed_job(job, text);
	} else if (!strcmp(word, "EOF")) {
		close_fd(&job->in);
	} else if (!strcmp(word, "KILL")) {
		number = rest ? strtoul(rest, NULL, 10) : SIGTERM;
		kill(-job->pid, (int)number);
	} else {
		say("REFUSED %lu no such request: %s", id, word);
	}
}

/* Returns false at end of file. Calls line() for each complete line; an over-long one is cut into pieces. */
static bool read_lines(int fd, struct line_buffer *buffer, void (*line)(void *, char *), void *context)
{
	char *start = buffer->data, *end;
	ssize_t got = read(fd, buffer->data + buffer->used, sizeof(buffer->data) - 1 - buffer->used);

	if (got <= 0)
		return got < 0 && (errno == EINTR || errno == EAGAIN);
	buffer->used += (size_t)got;
	buffer->data[buffer->used] = 0;
	while ((end = memchr(start, '\n', buffer->used - (size_t)(start - buffer->data)))) {
		*end = 0;
		line(context, start);
		start = end + 1;
	}
	buffer->used -= (size_t)(start - buffer->data);
	memmove(buffer->data, start, buffer->used);
	if (buffer->used == sizeof(buffer->data) - 1) {
		buffer->data[buffer->used] = 0;
		line(context, buffer->data);
		buffer->used = 0;
	}
	return true;
}

static void port_line(void *context, char *line)
{
	(void)context;
	if (*line)
		handle_request(line);
}

static void out_line(void *context, char *line)
{
	say("OUT %lu %s", ((struct job *)context)->id, line);
}

static void err_line(void *context, char *line)
{
	say("ERR %lu %s", ((struct job *)context)->id, line);
}

static void read_job(struct job *job, int which)
{
	void (*line)(void *, char *) = which ? err_line : out_line;

	if (read_lines(job->out[which], &job->text[which], line, job))
		return;
	if (job->text[which].used) {
		job->text[which].data[job->text[which].used] = 0;
		line(job, job->text[which].data);
	}
	close_fd(&job->out[which]);
}

static void tend_job(struct job *job)
{
	int64_t now = now_ms();
	int status;

	if (!job->drain_until) {
		if (waitpid(job->pid, &status, WNOHANG) == job->pid) {
			job->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
			if (job->timed_out)
				job->status = TIMED_OUT;
			/* Background children would keep the pipes open. */
			kill(-job->pid, SIGKILL);
			job->drain_until = now + 1000;
		} else if (now >= job->deadline && !job->timed_out) {
			job->timed_out = true;
			kill(-job->pid, SIGKILL);
		}
	}
	if (job->drain_until && ((job->out[0] < 0 && job->out[1] < 0) || now >= job->drain_until)) {
		close_fd(&job->in);
		close_fd(&job->out[0]);
		close_fd(&job->out[1]);
		job->busy = false;
		say("EXIT %lu %d", job->id, job->status);
	}
}

static int open_port(void)
{
	DIR *folder = opendir("/sys/class/virtio-ports");
	struct dirent *entry;
	int fd = -1;

	while (folder && fd < 0 && (entry = readdir(folder))) {
		char path[PATH_MAX], name[64] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file))
			name[strcspn(name, "\n")] = 0;
		fclose(file);
		if (strcmp(name, PORT_NAME))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (folder)
		closedir(folder);
	return fd;
}

static void child_ended(int signal_number)
{
	(void)signal_number;  /* Its only purpose is to interrupt poll(). */
}

int main(int count, char **arguments)
{
	struct sigaction action = { .sa_handler = child_ended };
	struct line_buffer requests = { .used = 0 };
	sigset_t blocked, while_waiting;

	for (int tries = 0;; tries++) {
		port = count > 1 ? open(arguments[1], O_RDWR | O_NOCTTY | O_CLOEXEC) : open_port();
		if (port >= 0)
			break;
		if (tries == 500) {
			fprintf(stderr, "agent: no virtio-serial port named %s\n", PORT_NAME);
			return 1;
		}
		poll(NULL, 0, 10);
	}
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_BLOCK, &blocked, &while_waiting);
	say_ready();
	for (;;) {
		struct timespec tick = { .tv_nsec = 200 * 1000000L };
		struct pollfd wait[1 + 2 * JOBS_MAX] = { { .fd = port, .events = POLLIN } };

		for (int i = 0; i < JOBS_MAX; i++)
			for (int which = 0; which < 2; which++) {
				struct pollfd *entry = &wait[1 + 2 * i + which];

				entry->fd = jobs[i].busy ? jobs[i].out[which] : -1;
				entry->events = POLLIN;
			}
		if (ppoll(wait, 1 + 2 * JOBS_MAX, &tick, &while_waiting) > 0) {
			if (wait[0].revents & POLLIN)
				read_lines(port, &requests, port_line, NULL);
			else if (wait[0].revents & POLLHUP)
				poll(NULL, 0, 20);  /* No host is connected. */
			for (int i = 0; i < JOBS_MAX; i++)
				for (int which = 0; which < 2; which++)
					if (wait[1 + 2 * i + which].revents && jobs[i].busy)
						read_job(&jobs[i], which);
		}
		for (int i = 0; i < JOBS_MAX; i++)
			if (jobs[i].busy)
				tend_job(&jobs[i]);
	}
}
