// SPDX-License-Identifier: Apache-2.0
// What a kernel that lost its mind does: random bytes into rings, records, hints and the doorbell page. Nothing is
// promised but that the NIC, its other queue pairs and the peers go on.
#include "watcher.h"

namespace kernels {

namespace {

// A WQE of the right index and number, of any opcode, with any flags, lengths and keys.
void plausible_slot(Qp &qp, simt::Random &random)
{
	uint64_t index = qp.start + random.below(2 * qp.depth);
	uint64_t *slot = qp.sq + (index & (qp.depth - 1)) * (VRNIC_WQE_SIZE / 8);
	auto opcode = static_cast<vrnic_opcode>(random.below(10));

	for (int pair = 1; pair < 4; pair++)
		simt::st16(slot + 2 * pair, random.next() >> random.below(64), random.next() >> random.below(64));
	auto flags = static_cast<uint8_t>(random.next());

	simt::st16(slot, htole64(vrnic_wqe_commit(opcode, flags, static_cast<uint32_t>(index))), htole64(qp.qpn));
}

void random_doorbell(Qp &qp, simt::Random &random)
{
	static const uint32_t offsets[] = { VRNIC_DB_SQ, VRNIC_DB_RQ, VRNIC_DB_CQ_CONSUMER, VRNIC_DB_CQ_ARM };
	auto type = static_cast<vrnic_doorbell_type>(random.below(6));
	uint32_t number = random.below(4) ? qp.qpn : random.below(1 << 24);
	uint32_t index = static_cast<uint32_t>(random.below(4) ? qp.start + random.below(2 * qp.depth) : random.next());
	volatile uint64_t *target = qp.doorbells + offsets[random.below(4)] / 8;

	if (random.below(8) == 0)
		simt::mmio_st64(target, random.next());
	else if (random.below(8) == 0)
		simt::mmio_st32(reinterpret_cast<volatile uint32_t *>(target) + random.below(2), index);
	else
		simt::mmio_st64(target, htole64(vrnic_doorbell(type, number, index)));
}

void lane(Job &job)
{
	simt::Random random(pattern(job.options.seed, job.shmem.pe, simt::thread_id(), 0));

	for (uint32_t i = 0; i < job.options.messages / simt::threads(); i++) {
		Qp &qp = job.shmem.peers[job.next_pe()].qps[random.below(job.shmem.qps)];

		switch (random.below(4)) {
		case 0:
			simt::st16(qp.sq + 2 * random.below(qp.depth * VRNIC_WQE_SIZE / 16), random.next(), random.next());
			break;
		case 1:
			plausible_slot(qp, random);
			break;
		case 2:
			simt::st(qp.dbr + random.below(2), static_cast<uint32_t>(random.next() >> random.below(64)));
			break;
		default:
			random_doorbell(qp, random);
		}
		if (random.below(16) == 0)
			job.watcher.spoil(random);
		if (random.below(8) == 0)
			simt::pause();
	}
	simt::fence(simt::Scope::sys);
}

} // namespace

const Kernel garbage_kernel = {
	"garbage",
	"random bytes into rings, records, hints and doorbells",
	[](Options &options, uint32_t) { return common_defaults(options, 1024, 1, 1); },
	[](const Options &, uint32_t) { return size_t{ 4096 }; },
	[](Job &job) { job.messages = job.options.messages; },
	lane,
	[](Job &) { return std::string(); },
};

} // namespace kernels
