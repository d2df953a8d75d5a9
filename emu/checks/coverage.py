# SPDX-License-Identifier: Apache-2.0
"""Mistakes that people reported in public, and what shows or names each of them here.

One entry a report: where it is, what went wrong in a few words, the rules that name it, and what brings it
about: mutations of ``vrnic-simt``, chaos profiles, or nothing with the reason. Reports are of the projects'
public trackers; words are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REPORTS", "Report"]


@dataclass(frozen=True, slots=True)
class Report:
    """``mutations`` and ``profiles`` reproduce it, ``rules`` (as "C09 C10") name it; ``why_not`` says why
    nothing does.
    """

    where: str
    mistake: str
    rules: str = ""
    mutations: str = ""
    profiles: str = ""
    why_not: str = ""


_CONTROL = "a set-up step outside the NIC"
_LAYOUT = "a layout that host and kernel share, not seen by a NIC"

REPORTS: dict[str, tuple[Report, ...]] = {
    "Order, fences, visibility": (
        Report("openucx/ucx 10900", "ready index published before its WQE", "C09 C03", "drop-publish-fence"),
        Report("openucx/ucx 10984", "a lock taken without acquire", "C09 C20", "drop-lock"),
        Report("openucx/ucx 10994", "a doorbell in two stores", "C12", "split-doorbell"),
        Report("openucx/ucx 11539", "no acquire around CQ and index reads", "C09", "drop-publish-fence"),
        Report("ROCm/rocSHMEM 133, 395", "several lanes ring at once", "C20 C07", "ring-all-lanes"),
        Report("ROCm/rocSHMEM 363", "doorbells of one peer in any order", "C20 C07", "drop-lock"),
        Report("ROCm/mori 14", "record and doorbell without a lock", "C20 C07", "drop-lock"),
        Report("ROCm/mori 31af7e7, 016a329", "flag and data by two initiators", "C24", "signal-on-other-qp"),
        Report("deepseek-ai/DeepEP 20, 2d0cf41", "a flag overtakes its data", "C24", "drop-signal-fence"),
        Report("NVIDIA/nvshmem 84", "cumulative signals across queue pairs", "C24", "signal-on-other-qp"),
        Report("NVIDIA/nvshmem 36", "no fence on an unordered fabric", "C24", "drop-signal-fence drop-fence"),
        Report("uccl-project/uccl 374", "order expected where there is none", "C24", "drop-signal-fence"),
        Report(
            "NVIDIA/nccl 2399",
            "completions counted where they come in any order",
            why_not="completions of a queue pair come in order here, on every transport",
        ),
        Report("linux-rdma/rdma-core 1062", "the last doorbell is skipped", "C14", "forget-last-doorbell"),
        Report(
            "ROCm/rocm-systems 4698, 6290", "quiet returns too early", "C05", "reuse-payload reuse-result"
        ),
        Report("ROCm/mori 404", "quiet looks at the wrong index", "C05", "reuse-payload"),
        Report(
            "DeepEP eager branch",
            "a tag is visible before its tile",
            "C24",
            profiles="torn-writes pcie-order",
        ),
    ),
    "Rings, indices, doorbells": (
        Report("deepseek-ai/DeepEP 180", "no check for a free slot", "C05 C06", "skip-slot-check"),
        Report(
            "deepseek-ai/DeepEP 164c82d", "more in flight than a proxy's ring", "C05 C06", "skip-slot-check"
        ),
        Report("deepseek-ai/DeepEP eaa2d0d", "index arithmetic of several WQEs", "C01", "masked-index"),
        Report("openucx/ucx 10881", "a wide index in a narrow field", "C18 C11", "narrow-index swap-index"),
        Report("openucx/ucx 10927", "more reserved than there is room", "C05 C06", "skip-slot-check"),
        Report("deepseek-ai/DeepEP 371", "the first completion at a small depth", "C16"),
        Report(
            "deepseek-ai/DeepEP 5c4f2b8, 677, 509", "ready, but nobody rings", "C14", "forget-last-doorbell"
        ),
        Report("ROCm/rocm-xio 100", "send index in the receive dword", "C08", "dbr-dword0"),
        Report("NVSHMEM, CPU-assisted progress", "another address for the record", "C08", "dbr-dword0"),
        Report("ROCm/mori 298", "phase from the masked index", "C18", "masked-phase"),
        Report(
            "ROCm/mori 653, 626",
            "a narrow number used as a wide one",
            "C18 C19",
            "narrow-doorbell consumer-ahead",
        ),
        Report("ROCm/rocSHMEM 357", "consumer overtakes producer", "C19", "consumer-ahead"),
        Report("ROCm/rocSHMEM 372", "a lock that is not released", "C14", "keep-lock"),
        Report("ROCm/rocm-xio 81", "a lock that does not exclude", "C20", "drop-lock"),
        Report(
            "ROCm/mori 32", "phase after the second pass of a CQ", "C18 C19", "masked-phase consumer-ahead"
        ),
        Report("ROCm/rocSHMEM 364", "halves of a doorbell swapped", "C11", "swap-doorbell"),
        Report("ROCm/rocm-xio 68", "the CQ's consumer doorbell is never rung", "C15", "forget-consumer"),
        Report(
            "deepseek-ai/DeepEP 558", "polling goes on after an error", "C17", "ignore-errors", "failed-work"
        ),
        Report("ROCm/TransferBench 239", "a shared CQ too small", "C15", "forget-consumer"),
        Report("aws/aws-ofi-nccl 1279", "CTA scope on a shared queue pair", "C10", "cta-scope-on-shared"),
        Report("MORI, atomics", "masked index in descriptors", "C01", "masked-index"),
    ),
    "Completions": (
        Report(
            "NVIDIA/nccl 2383", "a retry error taken for `not yet`", "C17", "ignore-errors", "failed-work"
        ),
        Report(
            "deepseek-ai/DeepEP 308",
            "one slot for all completions",
            why_not="no mistake: the mode is documented",
        ),
        Report("ROCm/mori 366", "a buffer reused too early", "C05", "reuse-payload"),
        Report(
            "ROCm/mori 435", "slow polling", why_not="a matter of speed; counters show polls and completions"
        ),
        Report("ROCm/rocSHMEM 313", "queue memory not cleared", "C16", "unclean-cq unclean-ring"),
        Report(
            "ROCm/rocSHMEM 279, rocm-systems 4574",
            "depth and mode of a CQ do not fit",
            "C15",
            "forget-consumer",
        ),
        Report(
            "ROCm/rocm-xio 127",
            "a cached completion is read again",
            why_not="caches of a GPU are not modelled",
        ),
        Report("openucx/ucx 10935", "a completion read before it is whole", profiles="torn-writes"),
        Report("torchcomms 4022", "unsupported and broken look the same", "C29", "four-byte-atomic"),
        Report("ROCm/mori 60", "status of a completion misread", "C17", "ignore-errors", "failed-work"),
        Report("NVIDIA/nccl 2119", "a full queue taken for an error", "C06", "skip-slot-check"),
    ),
    "Paths and retries": (
        Report("NVIDIA/nccl 1957, 2255", "path MTU above the port's", "C26"),
        Report("NVIDIA/nccl 2237", "a flag of the port ignored", why_not="InfiniBand ports are not modelled"),
        Report("NVIDIA/nccl 769", "an address that leads nowhere", "C26"),
        Report("deepseek-ai/DeepEP 17, 38", "addresses out of reach", "C26"),
        Report("deepseek-ai/DeepEP 268", "attributes that do not fit", "C26"),
        Report(
            "deepseek-ai/DeepEP 82, nvshmem 27",
            "one path of many",
            why_not="flows by port are in the capture",
        ),
        Report(
            "NVIDIA/nvshmem 45", "RoCE attributes on InfiniBand", why_not="InfiniBand ports are not modelled"
        ),
        Report("NVIDIA/nvshmem 82", "partition index 0 assumed", "C26"),
        Report(
            "NVIDIA/nvshmem 21", "uninitialised attributes", why_not="refused by the command, with the field"
        ),
        Report("ROCm/mori 298, 588", "hop limit 1", why_not="there are no routers on the way"),
        Report(
            "ROCm/mori 362",
            "no priority, one port",
            why_not="priorities are in the capture, nothing is wrong",
        ),
        Report("NVIDIA/nvshmem 97", "data of connections in the wrong order", "C26", "stale-psn"),
        Report("deepseek-ai/DeepEP 137, 74", "loss on many queue pairs", profiles="path-loss path-reorder"),
        Report("ROCm/mori 655", "one lost answer ends a connection", "C27", "no-retries", "lost-acks"),
        Report("uccl-project/uccl 617, 799", "timeouts too short", "C27", "no-retries"),
        Report(
            "ai-dynamo/nixl 952",
            "the first error is hidden by flushes",
            "C17",
            "ignore-errors",
            "failed-work",
        ),
        Report("deepseek-ai/DeepEP 0f6a826", "a peer is slow, not dead", profiles="peer-pause"),
    ),
    "Memory, atomics, capabilities": (
        Report("deepseek-ai/DeepEP 163, 139, 128", "doorbells cannot be mapped", why_not=_CONTROL),
        Report("sgl-project/sglang 12533", "no rights for doorbell pages", why_not=_CONTROL),
        Report("openucx/ucx 11103", "larger pages", why_not="guests have pages of 4 KiB"),
        Report("openucx/ucx 11374, mori 509", "an offset is ignored", "C22", "stray-key"),
        Report("openucx/ucx 11099", "READ depth not set", "C26"),
        Report("ROCm/mori 497", "a right that is refused", why_not="refused by the command, with the field"),
        Report("ROCm/mori 588", "doorbells are ignored", "C21 C29", "ring-before-connect"),
        Report("ROCm/rocm-systems 9465", "a combination that is refused", why_not="refused by the command"),
        Report("ROCm/MAD 191", "no atomics on the way", "C23", "misaligned-atomic", "no-atomics"),
        Report(
            "open-mpi/ompi 1241", "atomics to memory without them", "C23", "misaligned-atomic", "no-atomics"
        ),
        Report("NVIDIA/nvshmem 7", "a queue pair to oneself", "C02", "neighbour-qpn"),
        Report("NVIDIA/nvshmem 33", "a crash on a new platform", why_not=_CONTROL),
        Report("NVIDIA/nccl 1943", "an error of a driver", why_not=_CONTROL),
        Report("NVIDIA/nccl 2181", "no counters of queue pairs", why_not="counters are always on"),
        Report(
            "deepseek-ai/DeepEP 628, f36b0ec", "ranks have other capabilities", "C23", profiles="no-atomics"
        ),
        Report(
            "deepseek-ai/DeepEP 202, 759", "formats of one vendor only", why_not="what the contract is for"
        ),
    ),
    "Layouts, widths, life": (
        Report("deepseek-ai/DeepEP 564, d268280, 2c70ee1", "queue pairs in another order", "C28", "pe-major"),
        Report("deepseek-ai/DeepEP 650, 288", "keys of several NICs", "C22", "stray-key"),
        Report("deepseek-ai/DeepEP 548, 1202da5", "8 bytes where signals have 4", "C25", "narrow-signal"),
        Report("ROCm/rocm-systems 7820", "a signal's number is cut", "C25", "narrow-signal"),
        Report("ROCm/mori 475, 546", "an index layout does not fit", why_not=_LAYOUT),
        Report("ROCm/rocm-systems 5635", "a result cell reused early", "C05", "reuse-result"),
        Report("openucx/ucx 11517, 11665", "a queue pair left in RTS", "C26 C30", "stale-psn"),
        Report("NVIDIA/nvshmem 81", "a child object is left", "C30"),
        Report("aws/aws-ofi-nccl 1250", "a context is never ended", "C30"),
        Report("deepseek-ai/DeepEP 294", "sizes beyond the time allowed", why_not="a matter of speed"),
        Report(
            "NVIDIA/nvshmem 26, 16", "deadlocks of a proxy", why_not="proxies of libraries do not run here"
        ),
    ),
}
