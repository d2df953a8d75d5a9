# SPDX-License-Identifier: Apache-2.0
"""The `vrnic` contract as data: what a guest driver and a submission kernel may rely on.

Everything a guest sees is defined here once; ``guest/include/*.h`` and ``REGISTERS.md`` are generated from it
(``python -m emu.personality.vrnic.generate``) and a test fails when they are stale. All multi-byte fields are
little-endian. Formats follow the "neutral" form that GPU-initiated libraries can be ported to: a 64-byte WQE
with running index, QPN echo and phase, a self-contained 64-bit doorbell, an optional doorbell record,
ring/collapsed/counter completion.
"""

ABI_MAJOR = 1
ABI_MINOR = 1
ABI_VERSION = ABI_MAJOR << 16 | ABI_MINOR
"""A driver must refuse a device whose major number differs, and may use any greater minor number."""
