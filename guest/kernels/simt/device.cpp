// SPDX-License-Identifier: Apache-2.0
// A guest's NIC and GPU, and a peer that whoever started both programs carries lines to.
#include "machine.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

extern "C" {
#include "rendezvous.h"
}

namespace kernels {

namespace {

constexpr long CALIBRATION_NS = 20000000;

double seconds()
{
	timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class DeviceMachine : public Machine {
public:
	bool open(const Options &options) override
	{
		timespec wait = { 0, CALIBRATION_NS };
		uint64_t ticks = clock();
		double start = seconds();

		timeout_ = options.timeout;
		pe = options.role == 'a' ? 0 : 1;
		path_ = vrnic_path_default;
		gpu_.fd = -1;
		if (vrnic_open(&nic_, nullptr))
			return nic_failed();
		if ((options.ring == Place::vram || options.data == Place::vram) && vgpu_open(&gpu_, nullptr))
			return fail(std::string(vgpu_error(&gpu_)) + " (--ring host --data host needs no GPU)");
		if (vrnic_alloc_pd(&nic_, &pd_))
			return nic_failed();
		nanosleep(&wait, nullptr);
		ticks_per_second = static_cast<uint64_t>(static_cast<double>(clock() - ticks) / (seconds() - start));
		return true;
	}

	bool make_region(size_t size, Place place, uint32_t access, Region &region) override
	{
		vrnic_region made;
		vgpu_buffer buffer;
		int fd;

		size = (size + 4095) & ~static_cast<size_t>(4095);
		if (place == Place::host) {
			void *map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (map == MAP_FAILED)
				return fail(std::to_string(size) + " bytes of memory: " + strerror(errno));
			if (vrnic_reg_mr(&nic_, pd_, map, size, access, &made))
				return nic_failed();
			region = { static_cast<uint8_t *>(map), made.address, made.key, size };
			return true;
		}
		if (vgpu_alloc(&gpu_, size, &buffer))
			return fail(vgpu_error(&gpu_));
		fd = vgpu_export(&gpu_, &buffer);
		if (fd < 0)
			return fail(vgpu_error(&gpu_));
		if (vrnic_reg_dmabuf(&nic_, pd_, fd, 0, size, buffer.map, access, &made))
			return nic_failed();
		// The region keeps the dma-buf.
		close(fd);
		region = { static_cast<uint8_t *>(buffer.map), made.address, made.key, size };
		return true;
	}

	bool create_cq(struct vrnic_create_cq &cq) override
	{
		return vrnic_create_cq(&nic_, &cq) ? nic_failed() : true;
	}

	bool create_qp(struct vrnic_create_qp &qp) override
	{
		qp.pd = pd_;
		return vrnic_create_qp(&nic_, &qp) ? nic_failed() : true;
	}

	bool has_hints() const override
	{
		return true;
	}

	bool set_hints(const Region &ring, uint8_t log_size) override
	{
		struct vrnic_set_hints hints = {};

		hints.ring_address = ring.address;
		hints.ring_key = ring.key;
		hints.log_size = log_size;
		return vrnic_set_hints(&nic_, &hints) ? nic_failed() : true;
	}

	bool identify(vrnic_endpoint &self) override
	{
		memcpy(self.mac, nic_.limits.mac, sizeof(self.mac));
		return vrnic_query_gid(&nic_, path_.gid_index, self.gid) ? nic_failed() : true;
	}

	bool meet(uint32_t, const vrnic_endpoint &self, vrnic_endpoint &other) override
	{
		return rendezvous_meet(&self, &other, timeout_) ? fail(rendezvous_error) : true;
	}

	bool connect(const vrnic_endpoint &self, const vrnic_endpoint &other) override
	{
		path_.retry_cnt = retries;
		return vrnic_connect(&nic_, &path_, &self, &other) ? nic_failed() : true;
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
		return nic_.doorbells;
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
		struct vrnic_query_qp qp;

		if (vrnic_query_qp(&nic_, qpn, &qp) || qp.state != VRNIC_QPS_ERR)
			return {};
		if (!qp.first_error_status)
			return PEER_ERROR;
		return std::string("first error ") + vrnic_wc_status_name(qp.first_error_status) + " (" +
		       vrnic_cause_name(qp.first_error_cause) + ") at index " + std::to_string(qp.first_error_index);
	}

private:
	bool nic_failed()
	{
		return fail(vrnic_error(&nic_));
	}

	vrnic nic_ = {};
	vgpu gpu_ = {};
	vrnic_path path_ = {};
	uint32_t pd_ = 0;
	unsigned int syncs_ = 0;
	double timeout_ = 0;
};

} // namespace

std::unique_ptr<Machine> make_device_machine()
{
	return std::make_unique<DeviceMachine>();
}

} // namespace kernels
