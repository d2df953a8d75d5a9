# SPDX-License-Identifier: Apache-2.0
"""What is in a descriptor: index, owner, freshness, byte order, operation."""

from __future__ import annotations

from emu.checks.check import Check
from emu.checks.rule import Action, Rule

__all__ = ["CHECKS", "swapped", "unlike_index"]

CHECKS = (
    Check(
        Rule.C01_INDEX,
        "A WQE carries the running index of the slot it is in.",
        "QPN, expected index, the index found",
        "Error completion LOC_QP_OP_ERR, cause INDEX_MISMATCH; QP to ERR.",
        "Number WQEs by running index, not by slot; publish in the order of reservation.",
        limits="mlx5 descriptors carry 16 bits of it.",
    ),
    Check(
        Rule.C02_OWNER,
        "A WQE carries the number of its own queue pair, and a doorbell comes through its owner's page.",
        "QPN, index, the number found; for doorbells the page",
        "WQE: error completion LOC_QP_OP_ERR, cause QPN_MISMATCH; QP to ERR. Doorbell: ignored.",
        "Take QPN and doorbell page from one place per queue pair.",
    ),
    Check(
        Rule.C03_STALE,
        "Every slot that a doorbell covers was written in this pass of the ring.",
        "QPN, index, phase found and expected",
        "Error completion LOC_QP_OP_ERR, cause PHASE_STALE; QP to ERR.",
        "Store a WQE's first 8 bytes last, and ring only for what is written.",
        personalities=("vrnic",),
        limits="Needs the PHASE flag. mlx5 descriptors have no phase: a slot of an earlier pass is C01.",
    ),
    Check(
        Rule.C11_BYTE_ORDER,
        "Fields have the contract's byte order: index, QPN and keys make sense as they are, not swapped.",
        "the value as found, and what it means with its bytes or halves swapped",
        "As for the rule that the value breaks as it stands: C01, C02, C12 or C22.",
        "Convert once, where the value is made; keys handed out in wire order must not be swapped again.",
        limits="A guess: a swapped value that happens to be valid is taken as it is.",
    ),
    Check(
        Rule.C18_WRAP,
        "Indices keep all their bits, and the phase follows the whole index, also where they wrap.",
        "QPN, index, what was found, the width at which it was cut",
        "As for C01, C03 or C07.",
        "Compute phase from the running index before masking; keep 32 bits until the last moment.",
        personalities=("vrnic",),
        limits="mlx5 formats have 16-bit indices and no phase.",
    ),
    Check(
        Rule.C29_UNSUPPORTED,
        "Operations, flags and modes are ones that this device and queue pair offer.",
        "QPN, index, opcode or flags; for doorbells the offset",
        "WQE: error completion LOC_QP_OP_ERR, cause BAD_OPCODE, BAD_FLAGS or BAD_LENGTH; QP to ERR. "
        "Doorbell: ignored.",
        "Ask the limits registers or capabilities before using an optional operation.",
        default=Action.LOG,
    ),
)


def swapped(value: int) -> int:
    """The 32-bit ``value`` with its bytes in the other order."""
    return int.from_bytes(value.to_bytes(4, "little"), "big")


def unlike_index(found: int, expected: int) -> tuple[Rule, str]:
    """Which rule a wrong 32-bit index in a descriptor breaks, and how it may have come about (a phrase)."""
    if swapped(found) == expected:
        return Rule.C11_BYTE_ORDER, "its bytes are swapped; write it in the contract's byte order"
    for bits in (16, 24):
        if expected >> bits and found == expected & ((1 << bits) - 1):
            return Rule.C18_WRAP, f"it was cut to {bits} bits; carry all 32"
    return Rule.C01_INDEX, "it is stale, overwritten or numbered wrongly"
