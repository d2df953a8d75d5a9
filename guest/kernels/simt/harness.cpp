// SPDX-License-Identifier: Apache-2.0
// A NIC without a guest: its owner is at the other end of a sequenced-packet socket.
//
// One text packet asks, one answers: "ok" and values, or a sentence. Time stands still between them, so
// that a run depends on its seeds alone. Numbers are hexadecimal.
//
//   hello                                   pe pes
//   memory SIZE                             address key, and the memory's descriptor
//   cq ADDRESS KEY MODE OVERRUN LOG         cqn
//   qp SQ DBR KEY CQN TRANSPORT LOG POLICY FLAGS START  qpn
//   hints ADDRESS KEY LOG
//   identify                                gid mac, as in an endpoint line
//   meet PEER ENDPOINT                      the peer's endpoint line
//   connect ENDPOINT                        (of the own side, then of the peer, then retries, separated by "|")
//   sync                                    when every rank has asked
//   store OFFSET VALUE SIZE                 now; a store to the doorbell page
//   idle                                    now; nothing goes on before the NIC or a peer does something
//   query QPN                               what went wrong first, "peer" if the peer did, or nothing
#include "machine.h"

#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>

namespace kernels {

namespace {

constexpr size_t PACKET = 2048;

class HarnessMachine : public Machine {
public:
	bool open(const Options &options) override
	{
		socket_ = options.harness;
		if (!ask("hello"))
			return false;
		return sscanf(reply_, "ok %" SCNx32 " %" SCNx32, &pe, &pes) == 2 || confused();
	}

	bool make_region(size_t size, Place, uint32_t, Region &region) override
	{
		void *map;

		size = (size + 4095) & ~static_cast<size_t>(4095);
		if (!ask("memory %zx", size))
			return false;
		if (sscanf(reply_, "ok %" SCNx64 " %" SCNx32, &region.address, &region.key) != 2 || received_ < 0)
			return confused();
		map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, received_, 0);
		if (map == MAP_FAILED)
			return fail(std::string("the NIC's memory: ") + strerror(errno));
		region.map = static_cast<uint8_t *>(map);
		region.size = size;
		return true;
	}

	bool create_cq(struct vrnic_create_cq &cq) override
	{
		return ask("cq %" PRIx64 " %" PRIx32 " %x %x %x", static_cast<uint64_t>(cq.ring_address), cq.ring_key,
			   cq.mode, cq.overrun, cq.log_size) &&
		       (sscanf(reply_, "ok %" SCNx32, &cq.cqn) == 1 || confused());
	}

	bool create_qp(struct vrnic_create_qp &qp) override
	{
		return ask("qp %" PRIx64 " %" PRIx64 " %" PRIx32 " %" PRIx32 " %x %x %x %" PRIx32 " %" PRIx32,
			   static_cast<uint64_t>(qp.sq_address), static_cast<uint64_t>(qp.dbr_address), qp.ring_key,
			   qp.send_cq, qp.transport, qp.sq_log_size, qp.dbr_policy, qp.flags, qp.start_index) &&
		       (sscanf(reply_, "ok %" SCNx32, &qp.qpn) == 1 || confused());
	}

	bool has_hints() const override
	{
		return true;
	}

	bool set_hints(const Region &ring, uint8_t log_size) override
	{
		return ask("hints %" PRIx64 " %" PRIx32 " %x", ring.address, ring.key, log_size);
	}

	bool identify(vrnic_endpoint &self) override
	{
		char gid[33], mac[13], text[VRNIC_ENDPOINT_TEXT];
		vrnic_endpoint known;

		if (!ask("identify"))
			return false;
		if (sscanf(reply_, "ok %32s %12s", gid, mac) != 2)
			return confused();
		snprintf(text, sizeof(text), "vrnic1 qpn=0x0 psn=0x0 gid=%s mac=%s rkey=0x0 addr=0x0 len=0x0", gid, mac);
		if (vrnic_endpoint_parse(text, &known))
			return confused();
		memcpy(self.gid, known.gid, sizeof(self.gid));
		memcpy(self.mac, known.mac, sizeof(self.mac));
		return true;
	}

	bool meet(uint32_t peer, const vrnic_endpoint &self, vrnic_endpoint &other) override
	{
		char text[VRNIC_ENDPOINT_TEXT];

		vrnic_endpoint_format(&self, text);
		return ask("meet %" PRIx32 " %s", peer, text) &&
		       (!vrnic_endpoint_parse(reply_ + strlen("ok "), &other) || confused());
	}

	bool connect(const vrnic_endpoint &self, const vrnic_endpoint &other) override
	{
		char own[VRNIC_ENDPOINT_TEXT], theirs[VRNIC_ENDPOINT_TEXT];

		vrnic_endpoint_format(&self, own);
		vrnic_endpoint_format(&other, theirs);
		return ask("connect %s|%s|%x", own, theirs, retries);
	}

	bool sync() override
	{
		return ask("sync");
	}

	void idle() override
	{
		take_time(ask("idle"));
	}

	uint64_t clock() override
	{
		return now_;
	}

	volatile uint64_t *doorbells() override
	{
		return page_;
	}

	void doorbell(volatile void *address, uint64_t value, size_t size) override
	{
		auto offset = static_cast<volatile uint8_t *>(address) - reinterpret_cast<volatile uint8_t *>(page_);

		take_time(ask("store %tx %" PRIx64 " %zx", offset, value, size));
	}

	std::string explain(uint32_t qpn) override
	{
		if (!ask("query %" PRIx32, qpn) || !strcmp(reply_, "ok"))
			return {};
		return strcmp(reply_, "ok peer") ? reply_ + strlen("ok ") : PEER_ERROR;
	}

private:
	bool confused()
	{
		return fail(std::string("the harness answered: ") + reply_);
	}

	void take_time(bool answered)
	{
		if (!answered || sscanf(reply_, "ok %" SCNx64, &now_) != 1)
			// Past every deadline: whoever waits gives up.
			now_ = INT64_MAX;
	}

	__attribute__((format(printf, 2, 3))) bool ask(const char *format, ...)
	{
		char packet[PACKET], control[CMSG_SPACE(sizeof(int))];
		iovec part = { reply_, sizeof(reply_) - 1 };
		msghdr message = {};
		va_list arguments;
		ssize_t size;

		va_start(arguments, format);
		vsnprintf(packet, sizeof(packet), format, arguments);
		va_end(arguments);
		message.msg_iov = &part;
		message.msg_iovlen = 1;
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		if (send(socket_, packet, strlen(packet), MSG_NOSIGNAL) < 0 ||
		    (size = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC)) <= 0)
			return fail(std::string("the harness is gone: ") + strerror(errno));
		reply_[size] = '\0';
		received_ = -1;
		if (cmsghdr *header = CMSG_FIRSTHDR(&message); header && header->cmsg_type == SCM_RIGHTS)
			memcpy(&received_, CMSG_DATA(header), sizeof(received_));
		return !strncmp(reply_, "ok", 2) || fail(reply_);
	}

	int socket_ = -1;
	int received_ = -1;
	uint64_t now_ = 0;
	char reply_[PACKET + 1] = {};
	// Never touched: stands for the doorbell page, so that kernels have addresses in it.
	volatile uint64_t page_[VRNIC_DOORBELL_PAGE_SIZE / 8] = {};
};

} // namespace

std::unique_ptr<Machine> make_harness_machine()
{
	return std::make_unique<HarnessMachine>();
}

} // namespace kernels
