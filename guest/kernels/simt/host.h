// SPDX-License-Identifier: Apache-2.0
// The host side of a kernel: what a CPU does once before lanes run by themselves, and the watch on what
// leaves them.
#ifndef KERNELS_SIMT_HOST_H
#define KERNELS_SIMT_HOST_H

#include <memory>
#include <string>
#include <vector>

#include "kernel.h"
#include "machine.h"
#include "proxy_thread.h"
#include "watcher.h"

namespace kernels {

class Host : public simt::Bus {
public:
	Host(const Options &options, Machine &machine);

	// Memory, queue pairs to every peer, connections. False with a sentence in error().
	bool open(size_t heap, uint32_t lanes, uint32_t ctas);
	void doorbell(volatile void *address, uint64_t value, size_t size) override;
	void drain() override;
	void storing(simt::Agent who, const void *address, const void *value, size_t size) override
	{
		watcher_.storing(who, address, value, size);
	}
	void ringing(simt::Agent who, volatile void *address, uint64_t value, size_t size) override
	{
		watcher_.ringing(who, address, value, size);
	}
	void updated(simt::Agent who, const void *address, uint64_t old, uint64_t fresh) override
	{
		watcher_.updated(who, address, old, fresh);
	}
	void violated(const char *rule, const simt::Evidence &evidence) override
	{
		watcher_.violated(rule, evidence);
	}
	void waiting(simt::Agent who, uint32_t qpn, simt::Wait wait, uint64_t index, uint64_t ready) override
	{
		watcher_.waiting(who, qpn, wait, index, ready);
	}
	void using_for(simt::Agent who, uint32_t qpn, uint64_t index, uint32_t pe) override
	{
		watcher_.using_for(who, qpn, index, pe);
	}
	// What the NIC says of the first queue pair that failed, or nothing.
	std::string explain();

	Shmem &shmem()
	{
		return *shmem_;
	}
	simt::Memory &memory()
	{
		return *memory_;
	}
	Watcher &watcher()
	{
		return watcher_;
	}
	ProxyThread &proxy()
	{
		return proxy_;
	}
	// Where the heap's part of the kernel begins.
	uint64_t base() const
	{
		return base_;
	}
	uint64_t rings() const;
	const std::string &error() const
	{
		return error_;
	}

private:
	bool failed()
	{
		error_ = machine_.error();
		return false;
	}
	bool make_qp(Qp &qp, const Region &rings, uint64_t at);
	void ring_early(const Qp &qp);

	const Options &options_;
	Machine &machine_;
	std::unique_ptr<Shmem> shmem_;
	std::unique_ptr<simt::Memory> memory_;
	std::vector<Qp *> qps_;
	Watcher watcher_;
	ProxyThread proxy_;
	uint64_t base_ = 0;
	std::string error_;
};

// Bytes of the heap that come before the kernel's part.
size_t heap_header(uint32_t lanes);

} // namespace kernels

#endif // KERNELS_SIMT_HOST_H
