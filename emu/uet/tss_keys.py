# SPDX-License-Identifier: Apache-2.0
"""Keys of a secure domain: from one shared secret to a key for each source, epoch and rekey period.

Section 7 of the wire reference gives cipher, labels, contexts and sizes, from one source. Where it says
nothing, the choices are here: the input of the key derivation has the usual form of SP 800-108 (a zero byte
between label and context, the length in bits after them, :data:`LENGTH_BYTES` long), and a rekey value is
the masked counter bits moved down to bit 0.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC, CounterLocation, Mode

__all__ = [
    "KEY_SIZE",
    "REKEY_MASK",
    "DerivedKey",
    "KeyMode",
    "KeyStore",
    "SecureDomain",
    "derive",
    "kdf_context",
    "rekey_of",
]

KEY_SIZE = 32
"""AES-256."""
IV_SIZE = 12
LENGTH_BYTES = 2
"""Size of the length field in the key derivation's input."""
REKEY_MASK = 0x0000_FFFF_0000_0000
"""Bits of the timestamp counter (TSC, 64 bits with its epoch) that choose a key: one for 2^32 packets."""
_KEYS_KEPT = 1024


class KeyMode(enum.Enum):
    """How the key of a packet follows from the secret; the value is the derivation's label.

    In a cluster it depends on the source, between clients and a server on the destination. ``DIRECT`` takes
    the secret itself.
    """

    CLUSTER = b"U1"
    SERVER = b"U2"
    DIRECT = b""


@dataclass(frozen=True, slots=True)
class SecureDomain:
    """Who shares a secret.

    ``secrets`` are 32 bytes each, by association number: senders use that of ``an``, receivers accept both,
    which is how a domain changes its secret. ``sdi`` is the domain's identifier on the wire (24 bits), and
    ``ssi`` one of the source (32 bits), None to be known by its IP address. No two sources may have the same
    one: key and IV follow from it.

    :raises ValueError: sizes or ranges other than these
    """

    secrets: tuple[bytes, ...]
    sdi: int = 1
    an: int = 0
    ssi: int | None = None
    mode: KeyMode = KeyMode.CLUSTER
    rekey_mask: int = REKEY_MASK

    def __post_init__(self) -> None:
        if not 1 <= len(self.secrets) <= 2 or any(len(secret) != KEY_SIZE for secret in self.secrets):
            raise ValueError(f"a secure domain has one or two secrets of {KEY_SIZE} bytes")
        if not 0 <= self.an < len(self.secrets):
            raise ValueError(f"there is no secret with association number {self.an}")
        if not 0 <= self.sdi < 1 << 24:
            raise ValueError(f"SDI {self.sdi} is not in 0..2^24-1")
        if self.ssi is not None and not 0 <= self.ssi < 1 << 32:
            raise ValueError(f"SSI {self.ssi} is not in 0..2^32-1")
        if not 0 <= self.rekey_mask < 1 << 64:
            raise ValueError(f"rekey mask {self.rekey_mask:#x} is not in 0..2^64-1")


def rekey_of(tsc: int, mask: int) -> int:
    """The rekey value (32 bits) of a 64-bit ``tsc``."""
    return (tsc & mask) >> (mask & -mask).bit_length() - 1 & 0xFFFFFFFF if mask else 0


def kdf_context(mode: KeyMode, epoch: int, rekey: int, address: bytes) -> bytes:
    """Context of the derivation: 10 bytes for a ``address`` of 4 (IPv4 or SSI), 26 for IPv6."""
    rekey = 0 if mode is KeyMode.SERVER else rekey
    padding = b"" if len(address) == 4 else bytes(4)
    return padding + epoch.to_bytes(2, "big") + rekey.to_bytes(4, "big") + address


def derive(secret: bytes, label: bytes, context: bytes) -> tuple[bytes, bytes]:
    """Key (32 bytes) and IV mask (12 bytes) by SP 800-108 in counter mode over AES-CMAC."""
    octets = KBKDFCMAC(
        algorithm=AES,
        mode=Mode.CounterMode,
        length=KEY_SIZE + IV_SIZE,
        rlen=1,
        llen=LENGTH_BYTES,
        location=CounterLocation.BeforeFixed,
        label=label,
        context=context,
        fixed=None,
    ).derive(secret)
    return octets[:KEY_SIZE], octets[KEY_SIZE:]


class DerivedKey:
    """One AES-GCM key and its IV mask."""

    __slots__ = ("cipher", "mask")

    def __init__(self, key: bytes, mask: bytes) -> None:
        self.cipher = AESGCM(key)
        self.mask = int.from_bytes(mask, "big")

    def iv(self, source: bytes, tsc: int) -> bytes:
        """The 12-byte IV: 4 bytes of the source, the TSC, both masked."""
        return (int.from_bytes(source + tsc.to_bytes(8, "big"), "big") ^ self.mask).to_bytes(IV_SIZE, "big")


class KeyStore:
    """Derived keys of one domain; those used last are remembered."""

    def __init__(self, domain: SecureDomain) -> None:
        self._domain = domain
        self._keys: OrderedDict[tuple[int, bytes, int, int], DerivedKey] = OrderedDict()

    def find(self, an: int, address: bytes, tsc: int) -> DerivedKey | None:
        """The key for association number ``an`` and an address (or SSI) at ``tsc``; None without a secret."""
        domain = self._domain
        if an >= len(domain.secrets):
            return None
        place = (an, address, tsc >> 48, rekey_of(tsc, domain.rekey_mask))
        key = self._keys.get(place)
        if key is None:
            secret = domain.secrets[an]
            if domain.mode is KeyMode.DIRECT:
                key = DerivedKey(secret, bytes(IV_SIZE))
            else:
                context = kdf_context(domain.mode, tsc >> 48, place[3], address)
                key = DerivedKey(*derive(secret, domain.mode.value, context))
            if len(self._keys) >= _KEYS_KEPT:
                self._keys.popitem(last=False)
            self._keys[place] = key
        else:
            self._keys.move_to_end(place)
        return key
