# SPDX-License-Identifier: Apache-2.0
"""The other end of ``vrnic-simt --harness``: a NIC for each rank, on one switch, in virtual time.

A rank is a process of the guest's own program. It maps the memory its NIC reaches and asks over a socket for
everything else; the requests are listed in ``guest/kernels/simt/harness.cpp``. One rank runs at a time, from
the answer to its last request to its next one, so a run depends on its seeds alone.
"""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import random
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from emu.chaos import Profile
from emu.checks.rule import Action, Rule
from emu.clock import MS, US, VirtualScheduler
from emu.events import Event, EventBus, Kind
from emu.fabric.port import Port
from emu.fabric.switch import Switch
from emu.nic.work import Cause, QpState, Status
from emu.personality.vrnic.contract.codes import AdminOpcode, MrFlags
from emu.personality.vrnic.contract.commands import NO_EQ, NO_RECEIVE_RING
from emu.personality.vrnic.contract.identity import DOORBELL_PAGE_SIZE
from emu.roce import create_engine, parse
from emu.uet import Fep
from tests.personality.bare_machine import BareMachine
from tests.personality.driver import Driver, Qp

__all__ = ["SHARED_BASE", "Harness", "Outcome", "Rank", "run_kernel"]

SHARED_BASE = 0x4000_0000
LINK_DELAY = 1500
"""Nanoseconds. Not 0, so that nothing completes before the submitter lets time pass."""
PATIENCE = 30.0
"""Seconds a rank may compute between two requests."""
SYNC_DELAY = 1 * MS
LINGER = 3000 * MS
"""How long NICs go on after the last program has ended."""
IDLE_ROUNDS = 24
"""Idle requests in a row, of each rank, before time jumps to the next timer."""


@dataclass
class Outcome:
    """What became of a run.

    ``statuses`` and ``records`` (the programs' JSON lines) are by rank; ``device_rules`` the rules that NICs
    reported, in order; ``shim_rules`` those the programs reported; ``machines`` the NICs afterwards;
    ``memories`` what each rank's NIC reached, by offset in the regions in the order they were made.
    """

    statuses: list[int]
    records: list[dict[str, Any]]
    errors: list[str]
    machines: list[Any]
    memories: list[list[mmap.mmap]]
    device_rules: list[str] = field(default_factory=list)

    @property
    def shim_rules(self) -> list[str]:
        """Rules that the ranks' own side reported."""
        return [entry["rule"] for record in self.records for entry in record.get("violations", ())]

    def counter(self, name: str) -> int:
        """A NIC counter, over all ranks."""
        return sum(int(getattr(machine.nic.counters, name)) for machine in self.machines)


class Rank:
    """One program and its NIC, whose driver runs here."""

    def __init__(self, number: int, machine: Any, driver: Any, argv: Sequence[str]) -> None:
        self.number = number
        self.machine = machine
        self.driver = driver
        self.memories: list[mmap.mmap] = []
        self.offers: dict[int, list[str]] = {}
        self.taken: dict[int, int] = {}
        self.syncs = 0
        self.pending: str | None = None
        self.ended = False
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE)
        with theirs:
            self.process = subprocess.Popen(
                [*argv, "--harness", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def listen(self) -> None:
        """Wait for the next request, or the end."""
        with contextlib.suppress(ConnectionResetError):
            packet = self.socket.recv(4096)
            if packet:
                self.pending = packet.decode()
                return
        self.ended = True

    def answer(self, text: str, descriptors: Sequence[int] = ()) -> None:
        """Let the rank go on."""
        self.pending = None
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendmsg([text.encode()], rights)

    def close(self) -> tuple[int, str, str]:
        """Status, standard output and standard error of the program, which is ended if it has not."""
        self.socket.close()
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
        return self.process.returncode, out, err


class Harness:
    """Ranks that take turns."""

    idle_limit = IDLE_ROUNDS

    def __init__(
        self,
        argv: Sequence[str],
        ranks: int,
        seed: int,
        loss: float,
        chaos: Profile | None,
        relaxed: bool,
        off: Sequence[Rule] = (),
    ) -> None:
        self.clock = VirtualScheduler()
        self.random = random.Random(seed)
        self.idle_rounds = 0
        self.flags = MrFlags.CONTIGUOUS | MrFlags.ATOMIC_CAPABLE
        if relaxed:
            self.flags |= MrFlags.RELAXED_ORDERING
        self.device_rules: list[str] = []
        switch = Switch(self.clock, EventBus())
        self.ranks: list[Rank] = []
        for number in range(ranks):
            port = switch.port(f"nic{number}", loss=loss, seed=seed, delay_ns=LINK_DELAY)
            machine, driver = self._make(number, port, seed, chaos)
            machine.event_bus.subscribe(self._note, [Kind.CHECK])
            machine.event_bus.mask = Kind.CHECK.bit
            self.ranks.append(Rank(number, machine, driver, argv))

        nics = [rank.machine.nic for rank in self.ranks]
        for nic in nics:
            nic.checks.join(nics)
            nic.checks.configure(dict.fromkeys(off, Action.OFF))

    def _make(self, number: int, port: Port, seed: int, chaos: Profile | None) -> tuple[Any, Any]:
        """The NIC of one rank and its driver."""
        machine = BareMachine(
            mac=bytes((2, 0, 0, 0, 0, number + 1)),
            gid=bytes(10) + b"\xff\xff" + bytes((10, 77, 0, number + 1)),
            clock=self.clock,
            port=port,
            create_engine=create_engine,
            parse=parse,
            create_endpoint=partial(Fep, seed=seed),
            chaos=chaos,
            seed=seed,
        )
        driver = Driver(machine)
        driver.up()
        return machine, driver

    def _note(self, event: Event) -> None:
        assert event.value is not None
        self.device_rules.append(Rule(event.value).code)

    def run(self) -> None:
        """Until every rank has ended."""
        while True:
            for rank in self.ranks:
                if rank.pending is None and not rank.ended:
                    rank.listen()
            live = [rank for rank in self.ranks if not rank.ended]
            if not live:
                # What programs left behind is looked at some time later.
                self.clock.run(until=self.clock.now() + LINGER)
                return
            able = [rank for rank in live if self._able(rank)]
            assert able, f"nobody can go on: {[rank.pending for rank in live]}"
            self._serve(self.random.choice(able))

    def _deserted(self, rank: Rank, word: str) -> bool:
        """Whether somebody this request waits for has ended."""
        if word == "sync":
            return any(other.ended and other.syncs <= rank.syncs for other in self.ranks)
        return word == "meet" and any(other.ended for other in self.ranks)

    def _able(self, rank: Rank) -> bool:
        word, *rest = (rank.pending or "").split(maxsplit=2)
        if word == "meet":
            peer = self.ranks[int(rest[0], 16)]
            if len(rank.offers.setdefault(peer.number, [])) == rank.taken.get(peer.number, 0):
                rank.offers[peer.number].append(rest[1])
            return peer.ended or len(peer.offers.get(rank.number, ())) > rank.taken.get(peer.number, 0)
        if word == "sync":
            return self._deserted(rank, word) or all(
                other.syncs > rank.syncs
                or (other.syncs == rank.syncs and (other.pending or "").startswith("sync"))
                for other in self.ranks
            )
        return True

    def _serve(self, rank: Rank) -> None:
        assert rank.pending is not None
        word, _, rest = rank.pending.partition(" ")
        if word != "idle":
            self.idle_rounds = 0
        if word == "memory":
            address, key, descriptor = self._memory(rank, int(rest, 16))
            rank.answer(f"ok {address:x} {key:x}", [descriptor])
            os.close(descriptor)
        elif self._deserted(rank, word):
            rank.answer("another rank has ended")
        else:
            rank.answer(" ".join(("ok", *getattr(self, f"_{word}")(rank, *rest.split()))))

    def _hello(self, rank: Rank) -> list[str]:
        return [f"{rank.number:x}", f"{len(self.ranks):x}"]

    def _memory(self, rank: Rank, size: int) -> tuple[int, int, int]:
        descriptor = os.memfd_create("simt")
        os.ftruncate(descriptor, size)
        memory = mmap.mmap(descriptor, size)
        base = SHARED_BASE + sum(len(other) for other in rank.memories)
        rank.memories.append(memory)
        rank.machine.bus.pieces[base] = memory
        return rank.driver.virtual(base), rank.driver.register(base, size, flags=self.flags), descriptor

    def _cq(self, rank: Rank, *texts: str) -> list[str]:
        address, key, mode, overrun, log_size = (int(text, 16) for text in texts)
        reply = rank.driver.command(
            AdminOpcode.CREATE_CQ,
            ctx=rank.driver.ctx,
            eq=NO_EQ,
            mode=mode,
            overrun=overrun,
            log_size=log_size,
            ring_key=key,
            ring_address=address,
        )
        return [f"{reply.object:x}"]

    def _qp(self, rank: Rank, *texts: str) -> list[str]:
        sq, dbr, key, cqn, transport, log_size, policy, flags, start = (int(text, 16) for text in texts)
        reply = rank.driver.command(
            AdminOpcode.CREATE_QP,
            ctx=rank.driver.ctx,
            pd=rank.driver.pd,
            send_cq=cqn,
            recv_cq=cqn,
            transport=transport,
            sq_log_size=log_size,
            rq_log_size=NO_RECEIVE_RING,
            dbr_policy=policy,
            ring_key=key,
            sq_address=sq,
            dbr_address=dbr,
            flags=flags,
            start_index=start,
        )
        return [f"{reply.object:x}"]

    def _hints(self, rank: Rank, *texts: str) -> list[str]:
        address, key, log_size = (int(text, 16) for text in texts)
        rank.driver.command(
            AdminOpcode.SET_HINTS,
            ctx=rank.driver.ctx,
            ring_address=address,
            ring_key=key,
            log_size=log_size,
        )
        return []

    def _identify(self, rank: Rank) -> list[str]:
        found = rank.driver.gid()
        return [found.gid.hex(), found.mac.hex()]

    def _meet(self, rank: Rank, peer: str, *_: str) -> list[str]:
        number = int(peer, 16)
        taken = rank.taken.get(number, 0)
        rank.taken[number] = taken + 1
        return [self.ranks[number].offers[rank.number][taken]]

    def _connect(self, rank: Rank, *words: str) -> list[str]:
        *lines, retries = " ".join(words).split("|")
        own, other = (dict(field.split("=") for field in line.split()[1:]) for line in lines)
        qp = Qp(rank.driver, int(own["qpn"], 16), 0, 0, 0, 0, 0, 0, True)
        rank.driver.to_init(qp)
        rank.driver.to_rtr(
            qp,
            dest_qpn=int(other["qpn"], 16),
            dest_gid=bytes.fromhex(other["gid"]),
            dest_mac=bytes.fromhex(other["mac"]),
            rq_psn=int(other["psn"], 16),
        )
        rank.driver.to_rts(qp, sq_psn=int(own["psn"], 16), retry_cnt=int(retries, 16))
        return []

    def _sync(self, rank: Rank) -> list[str]:
        # A message by another way takes its time; what was written when it was sent is there when it arrives.
        self.clock.run(until=self.clock.now() + SYNC_DELAY)
        rank.syncs += 1
        return []

    def _store(self, rank: Rank, offset: str, value: str, size: str) -> list[str]:
        address = rank.driver.ctx * DOORBELL_PAGE_SIZE + int(offset, 16)
        rank.machine.write(2, address, int(value, 16).to_bytes(int(size, 16), "little"))
        self.clock.run(until=self.clock.now())
        return self._now()

    def _idle(self, rank: Rank) -> list[str]:
        ran = self.clock.run(until=self.clock.now() + self.random.randrange(200, 2000))
        self.idle_rounds = 0 if ran else self.idle_rounds + 1
        if self.idle_rounds > self.idle_limit * len(self.ranks) and not self.clock.step():
            self.clock.run(until=self.clock.now() + 10 * MS)
        return self._now()

    def _now(self) -> list[str]:
        return [f"{self.clock.now():x}"]

    def _query(self, rank: Rank, qpn: str) -> list[str]:
        # What is still on its way may be what tells.
        self.clock.run(until=self.clock.now() + 100 * US)
        if int(qpn, 16) not in rank.machine.nic.qps.items:
            return ["the NIC was reset"]
        reply = rank.driver.command(AdminOpcode.QUERY_QP, object=int(qpn, 16))
        if reply.state != QpState.ERR:
            return []
        if not reply.first_error_status:
            return ["peer"]
        status, cause = Status(reply.first_error_status), Cause(reply.first_error_cause)
        return [f"first error {status.name} ({cause.name}) at index {reply.first_error_index}"]


def run_kernel(
    program: Path,
    arguments: str,
    *,
    ranks: int = 2,
    seed: int = 1,
    loss: float = 0.0,
    chaos: Profile | None = None,
    relaxed: bool = False,
    off: Sequence[Rule] = (),
    kind: type[Harness] = Harness,
) -> Outcome:
    """Run a kernel of ``vrnic-simt`` on ``ranks`` ranks until all have ended.

    :param arguments: kernel and options, without seed.
    :param seed: of the kernel, of the order in which ranks take turns, of loss and of chaos.
    :param chaos: what all NICs are under.
    :param relaxed: register memory with relaxed ordering.
    :param off: rules that nobody looks for.
    :param kind: of the NICs.
    """
    harness = kind(
        [str(program), *arguments.split(), "--seed", str(seed)],
        ranks,
        seed,
        loss,
        chaos,
        relaxed,
        off,
    )
    try:
        harness.run()
    finally:
        ended = [rank.close() for rank in harness.ranks]
    return Outcome(
        statuses=[status for status, _, _ in ended],
        records=[json.loads(out) if out.startswith("{") else {} for _, out, _ in ended],
        errors=[err for _, _, err in ended],
        machines=[rank.machine for rank in harness.ranks],
        memories=[rank.memories for rank in harness.ranks],
        device_rules=harness.device_rules,
    )
