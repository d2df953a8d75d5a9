# SPDX-License-Identifier: Apache-2.0
"""The other end of ``vrnic-simt --device mlx5 --harness``: an mlx5-compatible NIC for each rank.

Its driver's steps are those of a direct submitter's host side: user memory for rings, queues that lie in it,
memory keys for payload.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from emu.chaos import Profile
from emu.clock import US
from emu.fabric.port import Port
from emu.nic.work import QpState
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.identity import UAR_SIZE
from emu.personality.vrnic.contract.codes import CqMode, CqOverrun
from tests.personality.mlx5.machine import ALL_RIGHTS, Machine
from tests.simt.harness import SHARED_BASE, Harness, Outcome, Rank, run_kernel

__all__ = ["run_mlx5_kernel"]

PAGE_SHIFT = 12
LARGE_SHIFT = 21
VARIANT = 0x42
CQE_BYTES = 64
CQ_RECORD_BEHIND = 16
"""Where the program keeps a CQ's record: that far behind its entries."""
NO_RECEIVES = 3


class Program:
    """What the driver made for a rank."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.uar, self.pd = machine.uar(), machine.pd()
        self.eq, _ = machine.eq(vector=1)
        self.umems: dict[int, tuple[int, int]] = {}
        """Number and size of user memory by its address."""
        self.gid = b""

    def register(self, address: int, size: int) -> int:
        """Make ``size`` contiguous bytes usable for queues and for payload; their key."""
        machine = self.machine
        umem = machine.do(
            Op.CREATE_UMEM, tail=machine.pages(address, size), umem__num_of_mtt=size >> PAGE_SHIFT
        )["umem_id"]
        self.umems[address] = umem, size
        first = address >> LARGE_SHIFT
        pages = [page << LARGE_SHIFT for page in range(first, (address + size - 1 >> LARGE_SHIFT) + 1)]
        reply = machine.do(
            Op.CREATE_MKEY,
            tail=b"".join(page.to_bytes(8, "big") for page in pages),
            memory_key_mkey_entry__access_mode_1_0=1,
            memory_key_mkey_entry__pd=self.pd,
            memory_key_mkey_entry__start_addr=address,
            memory_key_mkey_entry__len=size,
            memory_key_mkey_entry__log_page_size=LARGE_SHIFT,
            memory_key_mkey_entry__translations_octword_size=(len(pages) + 1) // 2,
            memory_key_mkey_entry__mkey_7_0=VARIANT,
            **{f"memory_key_mkey_entry__{name}": value for name, value in ALL_RIGHTS.items()},
        )
        return reply["mkey_index"] << 8 | VARIANT

    def place(self, address: int) -> tuple[int, int]:
        """User memory and offset of an address in it."""
        for start, (umem, size) in self.umems.items():
            if start <= address < start + size:
                return umem, address - start
        raise AssertionError(f"{address:#x} is in no user memory")


class Mlx5Harness(Harness):
    """Ranks with mlx5-compatible NICs that take turns."""

    # Nothing hints at lanes that still run: to the NIC, a WQE without a doorbell for seconds is forgotten.
    idle_limit = 100

    def _make(self, number: int, port: Port, seed: int, chaos: Profile | None) -> tuple[Any, Any]:
        assert chaos is None
        machine = Machine(clock=self.clock, port=port, mac=bytes((2, 0, 0, 0, 0, number + 1)))
        program = Program(machine)
        program.gid = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number + 1))
        machine.address(0, program.gid)
        return machine, program

    def _memory(self, rank: Rank, size: int) -> tuple[int, int, int]:
        descriptor = os.memfd_create("simt")
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        base = SHARED_BASE + sum(len(other) for other in rank.memories)
        rank.memories.append(memory)
        rank.machine.bus.pieces[base] = memory
        return base, rank.driver.register(base, size), descriptor

    def _cq(self, rank: Rank, *texts: str) -> list[str]:
        address, _, mode, overrun, log_size = (int(text, 16) for text in texts)
        umem, at = rank.driver.place(address)
        reply = rank.machine.do(
            Op.CREATE_CQ,
            cq_context__cc=int(mode == CqMode.COLLAPSED),
            cq_context__oi=int(overrun == CqOverrun.IGNORE),
            cq_context__log_cq_size=log_size,
            cq_context__uar_page=rank.driver.uar,
            cq_context__c_eqn_or_apu_element=rank.driver.eq,
            cq_context__dbr_umem_valid=1,
            cq_context__dbr_umem_id=umem,
            cq_context__dbr_addr=at + (CQE_BYTES << log_size) + CQ_RECORD_BEHIND,
            cq_umem_valid=1,
            cq_umem_id=umem,
            cq_umem_offset=at,
        )
        return [f"{reply['cqn']:x}"]

    def _qp(self, rank: Rank, *texts: str) -> list[str]:
        sq, dbr, _, cqn, _, log_size, _, _, start = (int(text, 16) for text in texts)
        umem, at = rank.driver.place(sq)
        record = rank.driver.place(dbr)[1] if dbr else 0
        reply = rank.machine.do(
            Op.CREATE_QP,
            qpc__pd=rank.driver.pd,
            qpc__uar_page=rank.driver.uar,
            qpc__cqn_snd=cqn,
            qpc__cqn_rcv=cqn,
            qpc__rq_type=NO_RECEIVES,
            qpc__log_sq_size=log_size,
            qpc__send_dbr_mode=int(not dbr),
            qpc__hw_sq_wqebb_counter=start & 0xFFFF,
            qpc__sw_sq_wqebb_counter=start & 0xFFFF,
            qpc__dbr_umem_valid=1,
            qpc__dbr_umem_id=umem,
            qpc__dbr_addr=record,
            wq_umem_valid=1,
            wq_umem_id=umem,
            wq_umem_offset=at,
        )
        return [f"{reply['qpn']:x}", "0"]

    def _identify(self, rank: Rank) -> list[str]:
        return [rank.driver.gid.hex(), rank.machine.mac.hex()]

    def _connect(self, rank: Rank, *words: str) -> list[str]:
        *lines, retries = " ".join(words).split("|")
        own, other = (dict(field.split("=") for field in line.split()[1:]) for line in lines)
        qpn = int(own["qpn"], 16)
        mac = bytes.fromhex(other["mac"])
        path = "qpc__primary_address_path__"
        machine: Machine = rank.machine
        machine.do(Op.RST2INIT_QP, qpn=qpn, qpc__rre=1, qpc__rwe=1, qpc__rae=1)
        machine.do(
            Op.INIT2RTR_QP,
            0,
            b"",
            qpn=qpn,
            qpc__mtu=3,
            qpc__remote_qpn=int(other["qpn"], 16),
            qpc__min_rnr_nak=12,
            qpc__log_rra_max=2,
            qpc__next_rcv_psn=int(other["psn"], 16),
            **{
                path + "rgid_rip": int(other["gid"], 16),
                path + "rmac_47_32": int.from_bytes(mac[:2], "big"),
                path + "rmac_31_0": int.from_bytes(mac[2:], "big"),
                path + "hop_limit": 64,
            },
        )
        machine.do(
            Op.RTR2RTS_QP,
            qpn=qpn,
            qpc__retry_count=int(retries, 16),
            qpc__rnr_retry=7,
            qpc__log_sra_max=2,
            qpc__next_send_psn=int(own["psn"], 16),
            qpc__primary_address_path__ack_timeout=14,
        )
        return []

    def _store(self, rank: Rank, offset: str, value: str, size: str) -> list[str]:
        address = rank.driver.uar * UAR_SIZE + int(offset, 16)
        rank.machine.registers.write(address, int(value, 16).to_bytes(int(size, 16), "little"))
        self.clock.run(until=self.clock.now())
        return self._now()

    def _query(self, rank: Rank, qpn: str) -> list[str]:
        self.clock.run(until=self.clock.now() + 100 * US)
        qp = rank.machine.nic.qps.items[int(qpn, 16)]
        if qp.state is not QpState.ERR:
            return []
        error = qp.first_error
        if error is None:
            return ["peer"]
        return [f"first error {error.status.name} at index {error.index}"]


def run_mlx5_kernel(
    program: Path, arguments: str, *, ranks: int = 2, seed: int = 1, loss: float = 0.0
) -> Outcome:
    """As :func:`run_kernel`, on mlx5-compatible NICs."""
    return run_kernel(
        program, f"{arguments} --device mlx5", ranks=ranks, seed=seed, loss=loss, kind=Mlx5Harness
    )
