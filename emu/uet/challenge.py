# SPDX-License-Identifier: Apache-2.0
"""Start PSNs of the target's choice: who can name it has heard the NACK that told, so its address is its own.

Nothing is kept of who asked. The PSN follows from the PDC's key, a secret of the endpoint and a coarse time;
the last period's is still good.
"""

from __future__ import annotations

import hashlib

__all__ = ["Challenge"]

_PERIOD_NS = 1 << 36


class Challenge:
    """Makes and checks start PSNs.

    :param secret: up to 64 bytes that nobody else knows
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def starts(self, key: tuple[bytes, bytes, int], now: int) -> tuple[int, int]:
        """The start PSNs that are good at time ``now`` (ns) for a PDC of this source address, destination
        address and source PDC id: the one to tell, and the one told before.
        """
        period = now // _PERIOD_NS
        return self._start(key, period), self._start(key, period - 1)

    def _start(self, key: tuple[bytes, bytes, int], period: int) -> int:
        source, dest, number = key
        octets = b"".join((source, dest, number.to_bytes(2, "big"), period.to_bytes(9, "big", signed=True)))
        digest = hashlib.blake2b(octets, key=self._secret, digest_size=4).digest()
        return int.from_bytes(digest, "big")
