// SPDX-License-Identifier: Apache-2.0
// The host side of a kernel.
#include "host.h"

#include <cstring>

#include "mlx5_format.h"

namespace kernels {

namespace {

constexpr size_t LINE = 64;

Machine *clock_machine;

uint64_t read_clock()
{
	return clock_machine->clock();
}

uint8_t log_cq(const Options &options)
{
	return options.completion == Completion::ring ? options.log_depth + 1 : 0;
}

size_t cq_bytes(const Options &options)
{
	return static_cast<size_t>(VRNIC_CQE_SIZE) << log_cq(options);
}

// A queue pair's send ring, CQ and doorbell record.
size_t ring_bytes(const Options &options)
{
	return (static_cast<size_t>(VRNIC_WQE_SIZE) << options.log_depth) + cq_bytes(options) + LINE;
}

struct vrnic_create_cq describe_cq(const Options &options, const Region &rings, uint64_t at)
{
	static const vrnic_cq_mode modes[] = {
		VRNIC_CQ_MODE_COLLAPSED,
		VRNIC_CQ_MODE_RING,
		VRNIC_CQ_MODE_COUNTER,
	};
	struct vrnic_create_cq cq = {};

	cq.ring_address = rings.address + at;
	cq.ring_key = rings.key;
	cq.mode = modes[static_cast<int>(options.completion)];
	cq.overrun = options.completion == Completion::ring ? VRNIC_CQ_OVERRUN_ERROR : VRNIC_CQ_OVERRUN_IGNORE;
	cq.log_size = log_cq(options);
	return cq;
}

} // namespace

size_t heap_header(uint32_t lanes)
{
	return LINE + ((8 * lanes + LINE - 1) & ~(LINE - 1));
}

Host::Host(const Options &options, Machine &machine)
	: options_(options), machine_(machine), watcher_(options, machine), proxy_(options, machine)
{
	clock_machine = &machine;
}

bool Host::make_qp(Qp &qp, const Region &rings, uint64_t at)
{
	uint64_t cq = at + (static_cast<uint64_t>(VRNIC_WQE_SIZE) << options_.log_depth), dbr = cq + cq_bytes(options_);
	struct vrnic_create_cq create_cq = describe_cq(options_, rings, cq);
	struct vrnic_create_qp create = {};

	memset(rings.map + at, 0, ring_bytes(options_));
	if (options_.completion != Completion::counter)
		memset(rings.map + cq, 0xff, cq_bytes(options_));
	if (mutated(Mutation::unclean_cq))
		for (size_t i = 0; i < cq_bytes(options_); i++)
			rings.map[cq + i] = static_cast<uint8_t>(i * 7);
	if (mutated(Mutation::unclean_ring))
		memset(rings.map + at, 0xa5, static_cast<size_t>(VRNIC_WQE_SIZE) << options_.log_depth);
	qp.sq = reinterpret_cast<uint64_t *>(rings.map + at);
	qp.cq = rings.map + cq;
	qp.completion = options_.completion;
	qp.log_cq = create_cq.log_size;
	qp.ring_twice = options_.ring_twice;
	qp.dbr = reinterpret_cast<uint32_t *>(rings.map + dbr);
	qp.dbr[0] = qp.dbr[1] = htole32(options_.start);
	qp.device = options_.device;
	qp.convention = options_.convention;
	qp.cq_record = qp.dbr + MLX5_CQ_RECORD_BEHIND / sizeof(*qp.dbr);
	qp.doorbells = machine_.doorbells();
	if (qp.device == Device::mlx5) {
		qp.dbr[0] = 0;
		qp.dbr[1] = mlx5_record(options_.start);
		qp.doorbells += MLX5_UAR_DOORBELL / sizeof(*qp.doorbells);
	}
	qp.clock = read_clock;
	qp.start = qp.reserved = qp.ready = qp.produced = qp.completed = options_.start;
	qp.log_depth = options_.log_depth;
	qp.depth = 1u << options_.log_depth;
	qp.batch = options_.batch;
	qp.nic_scope = options_.ring == Place::host || options_.data == Place::host ? simt::Scope::sys :
										      simt::Scope::gpu;
	if (!machine_.create_cq(create_cq))
		return failed();
	qp.cqn = create_cq.cqn;
	create.sq_address = rings.address + at;
	create.dbr_address = options_.dbr_policy == VRNIC_DBR_NONE ? 0 : rings.address + dbr;
	create.ring_key = rings.key;
	create.send_cq = create.recv_cq = qp.cqn;
	create.transport = options_.transport;
	create.sq_log_size = options_.log_depth;
	create.rq_log_size = VRNIC_NO_RECV_RING;
	create.dbr_policy = options_.dbr_policy;
	create.flags = VRNIC_QP_PHASE | (options_.completion == Completion::counter ? VRNIC_QP_SIGNAL_ALL : 0);
	create.start_index = options_.start;
	if (!machine_.create_qp(create))
		return failed();
	qp.qpn = create.qpn;
	qp.doorbells += create.doorbell / sizeof(*qp.doorbells);
	qps_.push_back(&qp);
	return true;
}

// Before it is connected.
void Host::ring_early(const Qp &qp)
{
	uint32_t index = options_.start + 1;

	if (qp.device == Device::mlx5)
		machine_.doorbell(qp.doorbells, mlx5_doorbell_next(index, qp.qpn), 8);
	else
		machine_.doorbell(qp.doorbells + VRNIC_DB_SQ / 8,
				  htole64(vrnic_doorbell(VRNIC_DB_TYPE_SQ, qp.qpn, index)), 8);
}

bool Host::open(size_t heap, uint32_t lanes, uint32_t ctas)
{
	constexpr uint32_t access = VRNIC_ACCESS_LOCAL_WRITE | VRNIC_ACCESS_REMOTE_WRITE | VRNIC_ACCESS_REMOTE_READ |
				    VRNIC_ACCESS_REMOTE_ATOMIC;
	size_t each = ring_bytes(options_);
	Region rings, data;
	uint64_t deadline;

	base_ = heap_header(lanes);
	if (mutated(Mutation::no_retries))
		machine_.retries = 0;
	if (options_.weak)
		memory_ = std::make_unique<simt::WeakMemory>(*this, options_.seed * 2 + 1, lanes, ctas);
	else
		memory_ = std::make_unique<simt::DirectMemory>(*this, options_.seed);
	shmem_ = std::make_unique<Shmem>();
	memset(static_cast<void *>(shmem_.get()), 0, sizeof(*shmem_));
	if (!machine_.make_region(each * options_.qps * (machine_.pes - 1), options_.ring, VRNIC_ACCESS_LOCAL_WRITE,
				  rings) ||
	    !machine_.make_region(base_ + heap, options_.data, access, data))
		return failed();
	memset(data.map, 0, data.size);
	if (options_.ring == Place::host)
		memory_->add_host_memory(rings.map, rings.size);
	if (options_.data == Place::host)
		memory_->add_host_memory(data.map, data.size);
	shmem_->pe = machine_.pe;
	shmem_->pes = machine_.pes;
	shmem_->qps = options_.qps;
	shmem_->unordered = options_.transport == VRNIC_TRANSPORT_UET_RUD;
	shmem_->heap = data.map;
	shmem_->address = data.address;
	shmem_->lkey = data.key;
	shmem_->results = LINE;

	if (!watcher_.open(*memory_, *shmem_, rings, data))
		return failed();

	uint64_t at = 0;

	// Every two ranks meet in the same order, so that neither waits for a third.
	for (uint32_t peer = 0; peer < machine_.pes; peer++) {
		for (uint32_t q = 0; peer != machine_.pe && q < options_.qps; q++, at += each) {
			Qp &qp = shmem_->peers[peer].qps[q];
			vrnic_endpoint self = {}, other = {};

			if (!make_qp(qp, rings, at))
				return false;
			watcher_.add(qp, peer);
			if (mutated(Mutation::ring_before_connect))
				ring_early(qp);
			self.qpn = qp.qpn;
			self.psn = static_cast<uint32_t>(options_.seed * 0x10001 + machine_.pe * 0x1000 + q) & 0xffffff;
			self.rkey = data.key;
			self.address = data.address;
			self.length = data.size;
			if (!machine_.identify(self) || !machine_.meet(peer, self, other))
				return failed();
			if (mutated(Mutation::stale_psn))
				other.psn = (other.psn + 1) & 0xffffff;
			if (!machine_.connect(self, other))
				return failed();
			shmem_->peers[peer].address = other.address;
			shmem_->peers[peer].rkey = other.rkey;
		}
	}
	// Until a peer is in RTS as well, what arrives there is dropped.
	if (!machine_.sync())
		return failed();
	deadline = machine_.clock() +
		   static_cast<uint64_t>(options_.timeout * static_cast<double>(machine_.ticks_per_second));
	for (Qp *qp : qps_)
		qp->deadline = deadline;
	if (options_.proxy && !proxy_.open(*memory_, *shmem_))
		return failed();
	return true;
}

void Host::doorbell(volatile void *address, uint64_t value, size_t size)
{
	machine_.doorbell(address, value, size);
}

void Host::drain()
{
	// Video memory is write-combining on the CPU: only a full fence empties those buffers.
	__sync_synchronize();
}

std::string Host::explain()
{
	for (const Qp *qp : qps_) {
		std::string text = machine_.explain(qp->qpn);

		if (!text.empty())
			return "QP " + std::to_string(qp->qpn) + ": " + text;
	}
	return {};
}

uint64_t Host::rings() const
{
	uint64_t total = 0;

	for (const Qp *qp : qps_)
		total += qp->rings;
	return total;
}

} // namespace kernels
