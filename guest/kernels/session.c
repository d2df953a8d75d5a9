// SPDX-License-Identifier: Apache-2.0
/* The host side of a kernel. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "pattern.h"
#include "proxy.h"
#include "rendezvous.h"
#include "session.h"
#include "watch.h"

#define PAGE 4096ul
#define RECV_LOG_SLOTS 6
#define CALIBRATION_NS 20000000

static size_t pages(size_t size)
{
	return (size + PAGE - 1) & ~(PAGE - 1);
}

size_t session_inbox(const struct session *session)
{
	return pages(session->area) + GUARD_BYTES;
}

size_t session_cells(const struct session *session)
{
	return session_inbox(session) + pages(session->area) + GUARD_BYTES;
}

static void print_text(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		if ((unsigned char)*text >= ' ')
			putchar(*text);
	}
	putchar('"');
}

static void print_qp(struct session *session)
{
	struct vrnic_query_qp qp;

	if (!session->qp.qpn || vrnic_query_qp(&session->nic, session->qp.qpn, &qp))
		return;
	printf(",\"qp\":{\"qpn\":%u,\"state\":\"%s\",\"doorbell\":%u,\"fetched\":%u,\"completed\":%u,"
	       "\"receive\":%u,\"next_psn\":%u,\"expected_psn\":%u,\"first_error\":\"%s\",\"cause\":\"%s\","
	       "\"error_index\":%u},\"kernel_view\":{\"next\":%u,\"done\":%u,\"dbr\":%u}",
	       qp.qpn, vrnic_qp_state_name(qp.state), qp.doorbell_index, qp.fetched_index, qp.completed_index,
	       qp.receive_index, qp.next_psn, qp.expected_psn,
	       qp.first_error_status ? vrnic_wc_status_name(qp.first_error_status) : "none",
	       vrnic_cause_name(qp.first_error_cause), qp.first_error_index, session->qp.next,
	       session->qp.done, le32toh(session->qp.dbr->send));
}

void session_die(struct session *session, const char *format, ...)
{
	char text[768];
	va_list arguments;

	watch_end();
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "vrnic-kernels: %s\n", text);
	printf("{\"kernel\":\"%s\",\"role\":\"%c\",\"ok\":false,\"verified\":false,\"error\":",
	       session->options->kernel, session->options->role);
	print_text(text);
	print_qp(session);
	puts("}");
	fflush(stdout);
	exit(1);
}

static double seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint64_t measure_clock(void)
{
	struct timespec pause = { .tv_nsec = CALIBRATION_NS };
	uint64_t ticks = dev_clock();
	double start = seconds();

	nanosleep(&pause, NULL);
	return (uint64_t)((double)(dev_clock() - ticks) / (seconds() - start));
}

static void make_buffer(struct session *session, struct buffer *buffer, size_t size, enum placement placement,
			uint32_t access)
{
	int fd;

	buffer->placement = placement;
	buffer->size = pages(size);
	if (placement == IN_HOST) {
		buffer->map = mmap(NULL, buffer->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (buffer->map == MAP_FAILED)
			session_die(session, "%zu bytes of memory: %s", buffer->size, strerror(errno));
		if (vrnic_reg_mr(&session->nic, session->pd, buffer->map, buffer->size, access, &buffer->region))
			session_die(session, "%s", vrnic_error(&session->nic));
		return;
	}
	if (vgpu_alloc(&session->gpu, buffer->size, &buffer->vram))
		session_die(session, "%s", vgpu_error(&session->gpu));
	buffer->map = buffer->vram.map;
	fd = vgpu_export(&session->gpu, &buffer->vram);
	if (fd < 0)
		session_die(session, "%s", vgpu_error(&session->gpu));
	if (vrnic_reg_dmabuf(&session->nic, session->pd, fd, 0, buffer->size, buffer->map, access, &buffer->region))
		session_die(session, "%s", vrnic_error(&session->nic));
	/* The region keeps the dma-buf. */
	close(fd);
}

static uint32_t make_cq(struct session *session, size_t offset, bool collapsed, uint8_t log_size)
{
	struct vrnic_create_cq cq = {
		.ring_address = session->rings.region.address + offset,
		.ring_key = session->rings.region.key,
		.mode = collapsed ? VRNIC_CQ_MODE_COLLAPSED : VRNIC_CQ_MODE_RING,
		.overrun = collapsed ? VRNIC_CQ_OVERRUN_IGNORE : VRNIC_CQ_OVERRUN_ERROR,
		.log_size = collapsed ? 0 : log_size,
	};

	if (vrnic_create_cq(&session->nic, &cq))
		session_die(session, "%s", vrnic_error(&session->nic));
	return cq.cqn;
}

/* Rings, CQs and the queue pair on them. */
static void make_queues(struct session *session)
{
	const struct options *options = session->options;
	struct dev_qp *qp = &session->qp;
	uint8_t cq_log = options->log_slots > RECV_LOG_SLOTS ? options->log_slots : RECV_LOG_SLOTS;
	size_t sq = 0;
	size_t rq = sq + ((size_t)VRNIC_WQE_SIZE << options->log_slots);
	size_t send_cq = pages(rq + ((size_t)VRNIC_RECV_WQE_SIZE << RECV_LOG_SLOTS));
	size_t recv_cq = send_cq + ((size_t)VRNIC_CQE_SIZE << cq_log);
	size_t dbr = recv_cq + ((size_t)VRNIC_CQE_SIZE << cq_log);
	uint8_t *map;
	struct vrnic_create_qp create = {
		.pd = session->pd,
		.transport = options->transport,
		.sq_log_size = options->log_slots,
		.rq_log_size = RECV_LOG_SLOTS,
		.dbr_policy = options->dbr_policy,
		.flags = VRNIC_QP_PHASE,
		.start_index = options->start,
	};

	make_buffer(session, &session->rings, dbr + sizeof(struct vrnic_dbr), options->ring,
		    VRNIC_ACCESS_LOCAL_WRITE);
	map = session->rings.map;
	memset(map, 0, session->rings.size);
	memset(map + send_cq, 0xff, dbr - send_cq);

	*qp = (struct dev_qp){
		.sq = (volatile uint64_t *)(void *)(map + sq),
		.rq = (volatile struct vrnic_recv_wqe *)(void *)(map + rq),
		.dbr = (volatile struct vrnic_dbr *)(void *)(map + dbr),
		.send_cq = (volatile struct vrnic_cqe *)(void *)(map + send_cq),
		.recv_cq = (volatile struct vrnic_cqe *)(void *)(map + recv_cq),
		.doorbells = session->nic.doorbells,
		.start = options->start,
		.next = options->start,
		.done = options->start,
		.recv_next = options->start,
		.sq_log_size = options->log_slots,
		.rq_log_size = RECV_LOG_SLOTS,
		.cq_log_size = cq_log,
		.collapsed = !options->ring_cq,
		.phase = true,
	};
	qp->dbr->send = htole32(options->start);
	qp->dbr->receive = htole32(options->start);
	qp->send_cqn = make_cq(session, send_cq, qp->collapsed, cq_log);
	qp->recv_cqn = make_cq(session, recv_cq, false, cq_log);

	create.ring_key = session->rings.region.key;
	create.sq_address = session->rings.region.address + sq;
	create.rq_address = session->rings.region.address + rq;
	create.dbr_address = options->dbr_policy == VRNIC_DBR_NONE ? 0 : session->rings.region.address + dbr;
	create.send_cq = qp->send_cqn;
	create.recv_cq = qp->recv_cqn;
	if (vrnic_create_qp(&session->nic, &create))
		session_die(session, "%s", vrnic_error(&session->nic));
	qp->qpn = create.qpn;
	qp->doorbells += create.doorbell / sizeof(*qp->doorbells);
}

static void make_data(struct session *session)
{
	uint32_t access = VRNIC_ACCESS_LOCAL_WRITE | VRNIC_ACCESS_REMOTE_WRITE | VRNIC_ACCESS_REMOTE_READ |
			  VRNIC_ACCESS_REMOTE_ATOMIC;
	size_t inbox = session_inbox(session), cells = session_cells(session);

	make_buffer(session, &session->data, cells + CELLS * 8, session->options->data, access);
	memset(session->data.map, 0, session->data.size);
	memset(session_at(session, inbox - GUARD_BYTES), GUARD, cells - inbox + GUARD_BYTES);
}

/* Datagrams need no connection, but a handle for where they go. */
static int meet_peer(struct session *session)
{
	struct vrnic_create_ah ah = { .pd = session->pd, .gid_index = session->options->gid_index };
	int ret;

	memcpy(ah.dest_gid, session->peer.gid, sizeof(ah.dest_gid));
	memcpy(ah.dest_mac, session->peer.mac, sizeof(ah.dest_mac));
	ret = vrnic_qp_datagram(&session->nic, session->qp.qpn, SESSION_QKEY, session->self.psn);
	if (!ret)
		ret = vrnic_create_ah(&session->nic, &ah);
	session->ahn = ah.ahn;
	return ret;
}

static void connect_peer(struct session *session)
{
	const struct options *options = session->options;
	struct vrnic_path path = vrnic_path_default;

	path.gid_index = options->gid_index;
	path.mtu = options->mtu;
	session->self = (struct vrnic_endpoint){
		.qpn = session->qp.qpn,
		/* Any 24-bit number; one that differs between the two shows which side a capture's is. */
		.psn = (uint32_t)(options->seed * 0x10001 + (options->role == 'a' ? 0x100000 : 0x200000)) & 0xffffff,
		.rkey = session->data.region.key,
		.address = session->data.region.address,
		.length = session->data.region.length,
	};
	memcpy(session->self.mac, session->nic.limits.mac, sizeof(session->self.mac));
	if (vrnic_query_gid(&session->nic, options->gid_index, session->self.gid))
		session_die(session, "%s", vrnic_error(&session->nic));
	if (rendezvous_meet(&session->self, &session->peer, options->timeout))
		session_die(session, "%s", rendezvous_error);
	if (session->peer.length < session_cells(session) + CELLS * 8)
		session_die(session, "the peer's memory is smaller than ours: do both run with the same options?");
	if (options_datagrams(options) ?
		    meet_peer(session) :
		    vrnic_connect(&session->nic, &path, &session->self, &session->peer))
		session_die(session, "%s", vrnic_error(&session->nic));
}

void session_open(struct session *session, const struct options *options, size_t area)
{
	memset(session, 0, sizeof(*session));
	session->options = options;
	session->area = area;
	session->gpu.fd = -1;
	if (vrnic_open(&session->nic, options->nic))
		session_die(session, "%s", vrnic_error(&session->nic));
	if (options->size > session->nic.limits.max_message)
		session_die(session, "--size is %zu, the device's messages have at most %u bytes", options->size,
			    session->nic.limits.max_message);
	if ((options->ring == IN_VRAM || options->data == IN_VRAM) && vgpu_open(&session->gpu, options->gpu))
		session_die(session, "%s (--ring host --data host needs no GPU)", vgpu_error(&session->gpu));
	if (vrnic_alloc_pd(&session->nic, &session->pd))
		session_die(session, "%s", vrnic_error(&session->nic));
	session->ticks_per_second = measure_clock();
	session->path_watched = watch_prepare();
	make_queues(session);
	make_data(session);
	connect_peer(session);
	/* Until the peer is in RTS as well, what arrives there is dropped. */
	session_sync(session);
	if (options->proxy) {
		session->proxy = proxy_start(&session->qp);
		if (!session->proxy)
			session_die(session, "the proxy thread: %s", strerror(errno));
	}
}

static void drop_buffer(struct session *session, struct buffer *buffer)
{
	if (vrnic_dereg_mr(&session->nic, &buffer->region))
		session_die(session, "%s", vrnic_error(&session->nic));
	if (buffer->placement == IN_HOST)
		munmap(buffer->map, buffer->size);
	else if (vgpu_free(&session->gpu, &buffer->vram))
		session_die(session, "%s", vgpu_error(&session->gpu));
}

void session_close(struct session *session)
{
	struct vrnic *nic = &session->nic;

	if (session->proxy)
		proxy_stop(session->proxy);
	/* The peer may still wait for our acknowledgements. */
	session_sync(session);
	if (vrnic_destroy_qp(nic, session->qp.qpn) || vrnic_destroy_cq(nic, session->qp.send_cqn) ||
	    vrnic_destroy_cq(nic, session->qp.recv_cqn))
		session_die(session, "%s", vrnic_error(nic));
	session->qp.qpn = 0;
	if (session->ahn && vrnic_destroy_ah(nic, session->ahn))
		session_die(session, "%s", vrnic_error(nic));
	drop_buffer(session, &session->rings);
	drop_buffer(session, &session->data);
	if (vrnic_free_pd(nic, session->pd))
		session_die(session, "%s", vrnic_error(nic));
	vgpu_close(&session->gpu);
	vrnic_close(nic);
}

void session_sync(struct session *session)
{
	if (rendezvous_sync(++session->syncs, session->options->timeout))
		session_die(session, "%s", rendezvous_error);
}

static uint64_t driver_calls(struct session *session)
{
	struct vrnic_query query;

	if (vrnic_query(&session->nic, &query))
		session_die(session, "%s", vrnic_error(&session->nic));
	return query.syscalls;
}

void session_path_begin(struct session *session)
{
	session->path_calls = driver_calls(session);
	session->path_ticks = dev_clock();
	if (session->path_watched)
		watch_begin();
}

void session_path_end(struct session *session)
{
	session->path_syscalls = watch_end();
	session->path_ticks = dev_clock() - session->path_ticks;
	/* The question is a call as well. */
	session->path_calls = driver_calls(session) - session->path_calls - 1;
}

void session_fill(struct session *session, size_t offset, size_t size, uint64_t message)
{
	pattern_fill(session_at(session, offset), size,
		     pattern_start(session->options->seed, session->options->role, message));
}

void session_verify(struct session *session, size_t offset, size_t size, uint64_t message)
{
	char peer = session->options->role == 'a' ? 'b' : 'a';
	uint64_t state = pattern_start(session->options->seed, peer, message);
	size_t good = pattern_compare(session_at(session, offset), size, state);

	if (good == size)
		return;
	session_die(session, "message %llu: byte %zu of %zu is not what the peer sent",
		    (unsigned long long)message, good, size);
}

void session_verify_guards(struct session *session)
{
	size_t inbox = session_inbox(session), cells = session_cells(session);

	for (size_t at = inbox - GUARD_BYTES; at < cells; at++) {
		if (at == inbox)
			at += session->area;
		if (*session_at(session, at) != GUARD)
			session_die(session, "the byte %zd from the inbox's start was overwritten, the inbox has %zu",
				    (ssize_t)at - (ssize_t)inbox, session->area);
	}
}

uint64_t session_deadline(const struct session *session)
{
	return dev_clock() + (uint64_t)(session->options->timeout * (double)session->ticks_per_second);
}

void session_check(struct session *session, int status, const char *what, uint32_t index)
{
	struct vrnic_query_qp qp;

	if (!status)
		return;
	/* The path ends here: calls are allowed again. */
	watch_end();
	if (status == DEV_TIMEOUT)
		session_die(session, "%s %u did not come in %.1f s", what, index, session->options->timeout);
	if (status == VRNIC_WC_WR_FLUSH_ERR && !vrnic_query_qp(&session->nic, session->qp.qpn, &qp) &&
	    qp.first_error_status)
		session_die(session, "%s %u: flushed after %s (%s) of index %u", what, index,
			    vrnic_wc_status_name(qp.first_error_status), vrnic_cause_name(qp.first_error_cause),
			    qp.first_error_index);
	session_die(session, "%s %u: completion status %s, cause %s, at index %u", what, index,
		    vrnic_wc_status_name((uint32_t)status), vrnic_cause_name(session->qp.error_cause),
		    session->qp.error_index);
}

uint32_t session_post(struct session *session, const struct vrnic_wqe *wqe, uint64_t deadline)
{
	uint64_t ticket = 0;
	uint32_t index = 0;

	if (session->proxy) {
		session_check(session, proxy_post(session->proxy, wqe, deadline, &ticket), "a slot for command",
			      (uint32_t)session->proxy->posted);
		return (uint32_t)ticket;
	}
	session_check(session, dev_reserve(&session->qp, 1, deadline, &index), "a slot for index",
		      session->qp.next);
	dev_fill(&session->qp, index, wqe);
	return index;
}

void session_ring(struct session *session)
{
	if (session->proxy)
		proxy_ring(session->proxy);
	else
		dev_ring(&session->qp, session->qp.next);
}

void session_wait(struct session *session, uint32_t index, uint64_t deadline)
{
	int status;

	if (session->proxy)
		status = proxy_wait(session->proxy, index, deadline);
	else
		status = dev_wait_send(&session->qp, index, deadline);
	session_check(session, status, "completion of index", index);
}
