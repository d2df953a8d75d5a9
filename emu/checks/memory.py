# SPDX-License-Identifier: Apache-2.0
"""Keys and atomics: what an access may touch."""

from __future__ import annotations

from emu.checks.check import Check
from emu.checks.rule import Rule

__all__ = ["CHECKS"]

CHECKS = (
    Check(
        Rule.C22_KEY,
        "Every access is inside a region whose key, domain and rights allow it.",
        "QPN, key, address range, what the key covers",
        "Error completion LOC_PROT_ERR, or a NAK that the peer reports as REM_ACCESS_ERR; QP to ERR.",
        "Check key, address and length; a request must not cross the end of a registration.",
    ),
    Check(
        Rule.C23_ATOMIC,
        "An atomic's target is aligned, and in a region that was registered for atomics.",
        "QPN, key, address",
        "NAK that the peer reports as REM_INV_REQ_ERR or REM_ACCESS_ERR; QP to ERR.",
        "Align the target to the operand; register its memory as atomic-capable.",
    ),
)
