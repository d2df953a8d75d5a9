# SPDX-License-Identifier: Apache-2.0
"""Golden bytes of a direct submitter's step on the mlx5 formats, in both directions.

The step is one of a mixture-of-experts dispatch: queue pair 0x123, a token of 7408 bytes written at running
index 5 without a completion, then a masked 4-byte fetch-and-add of -17 (16 tokens) at index 6 that asks for
one; the next free index is 7. The program's encoder must give these bytes, and the device must read them as
that.
"""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import cast

import pytest

from emu.nic.atomics import AtomicMasks
from emu.nic.cq import CompletionQueue, CqMode
from emu.nic.qp import QueuePair
from emu.nic.work import Cause, Completion, CompletionOpcode, Opcode, SendRequest, Sge, Status, Transport
from emu.personality.mlx5.codes import WqeOpcode
from emu.personality.mlx5.doorbells import queue_number
from emu.personality.mlx5.formats.cqe import CompletionFormat
from emu.personality.mlx5.formats.record import Record
from emu.personality.mlx5.formats.wqe import SendFormat
from emu.personality.mlx5.identity import LIMITS
from emu.personality.mlx5.mkey import MkeyTable
from emu.setup.programs import build_programs
from emu.setup.suite import MAIN
from tests.guest_sources.conftest import require_tree

QPN = 0x123
WRITE = bytes.fromhex(
    "00000508000123030000000000000000"
    "00007f12345600000000110000000000"
    "00001cf00000220000007f5678900000"
    "00000000000000000000000000000000"
)
MASKED_FA = bytes.fromhex(
    "08000615000123040000000800000000"
    "00007f12340000400000110000000000"
    "ffffffef000000000000000000000000"
    "000000040000330000007f9a00000000"
)
RECORD = bytes.fromhex("00000007")
DOORBELL_NEXT = bytes.fromhex("0000070000012300")
DOORBELL_LAST = bytes.fromhex("0800061500012304")
CQE_END = bytes.fromhex("1500012300060000")
ERROR_END = bytes.fromhex("831508000123000500d0")


@pytest.fixture(scope="module")
def encoded() -> dict[str, bytes]:
    """What the guest's program writes."""
    program = build_programs(require_tree(MAIN)) / "vrnic-devx"
    done = subprocess.run([program, "--vectors"], capture_output=True, text=True, timeout=20, check=True)
    return {name: bytes.fromhex(text) for name, text in json.loads(done.stdout).items()}


def test_the_program_writes_these_bytes(encoded: dict[str, bytes]) -> None:
    assert encoded == {
        "write": WRITE,
        "masked_fa": MASKED_FA,
        "record": RECORD,
        "doorbell_next": DOORBELL_NEXT,
        "doorbell_last": DOORBELL_LAST,
    }


def test_doorbells_are_these_integers() -> None:
    assert int.from_bytes(DOORBELL_NEXT, "little") == 0x0023010000070000
    assert int.from_bytes(DOORBELL_LAST, "little") == 0x0423010015060008
    assert int.from_bytes(RECORD, "little") == 0x07000000


def test_the_device_reads_them_as_these_operations() -> None:
    qp = cast("QueuePair", SimpleNamespace(number=QPN, transport=Transport.ROCE_RC))
    form = SendFormat(LIMITS, {}, MkeyTable())
    write, add = form.decode(WRITE + MASKED_FA, 5, 2, qp)
    assert write == SendRequest(
        index=5,
        opcode=Opcode.WRITE,
        length=7408,
        sges=[Sge(0x7F5678900000, 7408, 0x2200)],
        remote_address=0x7F1234560000,
        rkey=0x1100,
        cookie=WqeOpcode.RDMA_WRITE,
    )
    assert add == SendRequest(
        index=6,
        opcode=Opcode.ATOMIC_ADD,
        length=4,
        sges=[Sge(0x7F9A00000000, 4, 0x3300)],
        remote_address=0x7F1234000040,
        rkey=0x1100,
        swap_add=-17 & 0xFFFFFFFF,
        masks=AtomicMasks(boundary=0),
        signaled=True,
        cookie=WqeOpcode.ATOMIC_MASKED_FA,
    )


def test_the_device_reads_record_and_doorbells() -> None:
    assert Record().send(bytes(4) + RECORD, 5) == 7
    assert queue_number(0x800, DOORBELL_NEXT) == queue_number(0x900, DOORBELL_LAST) == QPN


def encode(completion: Completion) -> bytes:
    """A CQE in a collapsed CQ of 64-byte entries."""
    ring = SimpleNamespace(slot_size=64, log_size=0)
    cq = cast("CompletionQueue", SimpleNamespace(mode=CqMode.COLLAPSED, producer=9, ring=ring))
    body, commit = CompletionFormat().encode(completion, cq, 0)
    # Counter and opcode are seen together or not at all.
    assert len(commit) == 8
    return body + commit


def test_the_device_writes_this_completion() -> None:
    done = Completion(
        QPN, 6, CompletionOpcode.ATOMIC_ADD, Status.SUCCESS, length=4, cookie=WqeOpcode.ATOMIC_MASKED_FA
    )
    assert encode(done)[56:] == CQE_END


def test_the_device_writes_this_error() -> None:
    failed = Completion(
        QPN,
        5,
        CompletionOpcode.WRITE,
        Status.RETRY_EXC_ERR,
        cause=Cause.SEQUENCE_RETRIES,
        cookie=WqeOpcode.RDMA_WRITE,
    )
    assert encode(failed)[54:] == ERROR_END


@pytest.mark.parametrize(
    ("counter", "pending"),
    [(0xFFFF, True), (0xFFFE, True), (0, True), (5, True), (6, False)],
)
def test_serial_comparison_of_a_collapsed_counter(counter: int, pending: bool) -> None:
    """Depth 8, wanted index 7: as submitters tell "not yet" from "done" with sixteen bits."""
    assert ((7 - counter - 2) % 0x10000 < 8) is pending
