// SPDX-License-Identifier: Apache-2.0
// A guest's mlx5-compatible NIC, driven by the distribution's driver and libmlx5, and its GPU.
#include "machine.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mlx5_format.h"

extern "C" {
#include "rendezvous.h"
}
#include "../devx/devx.h"

namespace kernels {

namespace {

constexpr long CALIBRATION_NS = 20000000;
constexpr uint8_t STATE_ERROR = 6;

double seconds()
{
	timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Mlx5Machine : public Machine {
public:
	bool open(const Options &options) override
	{
		timespec wait = { 0, CALIBRATION_NS };
		uint64_t ticks = clock();
		double start = seconds();

		timeout_ = options.timeout;
		pe = options.role == 'a' ? 0 : 1;
		gpu_.fd = -1;
		if (devx_open(&nic_, nullptr))
			return nic_failed();
		if ((options.ring == Place::vram || options.data == Place::vram) && vgpu_open(&gpu_, nullptr))
			return fail(std::string(vgpu_error(&gpu_)) + " (--ring host --data host needs no GPU)");
		nanosleep(&wait, nullptr);
		ticks_per_second = static_cast<uint64_t>(static_cast<double>(clock() - ticks) / (seconds() - start));
		return true;
	}

	// Memory that peers may reach is payload; queues are in what they may not.
	bool make_region(size_t size, Place place, uint32_t access, Region &region) override
	{
		devx_memory memory;
		void *map;
		int dmabuf = -1, ret;

		size = (size + 4095) & ~static_cast<size_t>(4095);
		if (place == Place::host) {
			map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (map == MAP_FAILED)
				return fail(std::to_string(size) + " bytes of memory: " + strerror(errno));
		} else {
			vgpu_buffer buffer;

			if (vgpu_alloc(&gpu_, size, &buffer))
				return fail(vgpu_error(&gpu_));
			dmabuf = vgpu_export(&gpu_, &buffer);
			if (dmabuf < 0)
				return fail(vgpu_error(&gpu_));
			map = buffer.map;
		}
		if (access & VRNIC_ACCESS_REMOTE_WRITE)
			ret = devx_register_payload(&nic_, map, size, dmabuf, &memory);
		else
			ret = devx_register_queues(&nic_, map, size, dmabuf, &memory);
		// The registration keeps the dma-buf.
		if (dmabuf >= 0)
			close(dmabuf);
		if (ret)
			return nic_failed();
		memories_.push_back(memory);
		region = { memory.map, memory.address, memory.key, memory.size };
		return true;
	}

	bool create_cq(struct vrnic_create_cq &cq) override
	{
		const devx_memory *memory = memory_of(cq.ring_address);
		uint64_t at = memory ? cq.ring_address - memory->address : 0;
		devx_cq made = {};

		if (!memory)
			return fail("a CQ outside the memory for queues");
		made.memory = memory;
		made.at = at;
		made.record = at + (static_cast<uint64_t>(MLX5_CQE_BYTES) << cq.log_size) + MLX5_CQ_RECORD_BEHIND;
		made.log_size = cq.log_size;
		made.collapsed = cq.mode == VRNIC_CQ_MODE_COLLAPSED;
		made.ignore_overrun = cq.overrun == VRNIC_CQ_OVERRUN_IGNORE;
		if (devx_create_cq(&nic_, &made))
			return nic_failed();
		cq.cqn = made.number;
		return true;
	}

	bool create_qp(struct vrnic_create_qp &qp) override
	{
		const devx_memory *memory = memory_of(qp.sq_address);
		devx_qp made = {};

		if (!memory)
			return fail("a send ring outside the memory for queues");
		made.memory = memory;
		made.at = qp.sq_address - memory->address;
		made.no_record = !qp.dbr_address;
		made.record = made.no_record ? 0 : qp.dbr_address - memory->address;
		made.log_size = qp.sq_log_size;
		made.cqn = qp.send_cq;
		made.start = qp.start_index;
		if (devx_create_qp(&nic_, &made))
			return nic_failed();
		qp.qpn = made.number;
		qps_.push_back(made);
		return true;
	}

	bool identify(vrnic_endpoint &self) override
	{
		memcpy(self.mac, nic_.mac, sizeof(self.mac));
		memcpy(self.gid, nic_.gid, sizeof(self.gid));
		return true;
	}

	bool meet(uint32_t, const vrnic_endpoint &self, vrnic_endpoint &other) override
	{
		return rendezvous_meet(&self, &other, timeout_) ? fail(rendezvous_error) : true;
	}

	bool connect(const vrnic_endpoint &self, const vrnic_endpoint &other) override
	{
		devx_qp *qp = qp_of(self.qpn);

		return qp && !devx_connect(&nic_, qp, &self, &other) ? true : nic_failed();
	}

	bool sync() override
	{
		return rendezvous_sync(++syncs_, timeout_) ? fail(rendezvous_error) : true;
	}

	void idle() override
	{
		__builtin_ia32_pause();
	}

	uint64_t clock() override
	{
		return __builtin_ia32_rdtsc();
	}

	volatile uint64_t *doorbells() override
	{
		return reinterpret_cast<volatile uint64_t *>(nic_.page);
	}

	void doorbell(volatile void *address, uint64_t value, size_t size) override
	{
		if (size == 8)
			*static_cast<volatile uint64_t *>(address) = value;
		else
			*static_cast<volatile uint32_t *>(address) = static_cast<uint32_t>(value);
	}

	std::string explain(uint32_t qpn) override
	{
		devx_qp *qp = qp_of(qpn);
		uint8_t state;

		if (!qp || devx_query_qp(&nic_, qp, &state) || state != STATE_ERROR)
			return {};
		return "it is in error";
	}

private:
	bool nic_failed()
	{
		return fail(nic_.error);
	}

	const devx_memory *memory_of(uint64_t address) const
	{
		for (const devx_memory &memory : memories_)
			if (address - memory.address < memory.size)
				return &memory;
		return nullptr;
	}

	devx_qp *qp_of(uint32_t qpn)
	{
		for (devx_qp &qp : qps_)
			if (qp.number == qpn)
				return &qp;
		return nullptr;
	}

	devx nic_ = {};
	vgpu gpu_ = {};
	// Queues keep pointers to them.
	std::deque<devx_memory> memories_;
	std::deque<devx_qp> qps_;
	unsigned int syncs_ = 0;
	double timeout_ = 0;
};

} // namespace

std::unique_ptr<Machine> make_mlx5_machine()
{
	return std::make_unique<Mlx5Machine>();
}

} // namespace kernels
