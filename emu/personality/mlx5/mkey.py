# SPDX-License-Identifier: Apache-2.0
"""Memory keys of the mlx5 interface: how one is made, and how descriptors of queue pairs change it.

A key is "free" while its driver has not enabled it, or once it was invalidated. Its translation is a list of
64-bit words: of pages one each (the low two bits say that it is there), of pieces of other keys two each
(bytes << 32 | key, address). Source: ``mkc``, ``klm`` and ``mtt`` structures of ``mlx5_ifc.h`` and
``mlx5_wqe_umr_*`` of rdma-core's ``mlx5dv.h``; what a change is refused for is this project's reading of how
drivers use it.
"""

from __future__ import annotations

import enum
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from emu.nic.device import Nic
from emu.nic.engine import ProtectionError
from emu.nic.errors import ErrorKind, NicError
from emu.nic.indirect import Indirect, KeyedList, Strided
from emu.nic.mr import MemoryKind, MemoryRegion
from emu.nic.pages import Memory, PageList
from emu.nic.qp import QueuePair
from emu.nic.work import Access, Cause, Sge, Transport
from emu.pcie.bus import BusError

__all__ = ["ALL_MEMORY", "AccessMode", "Check", "KeyChange", "Mkey", "MkeyTable", "word_list"]

ALL_MEMORY = 1 << 64
ANY_QPN = 0xFFFFFF
MIN_SHIFT, MAX_SHIFT = 3, 47
OCTOWORD = 16
UNIT = 8
"""Words of a list's unit."""
PRESENT = 0b11
ABSENT = 0xFFFF_F000_0000_0000
"""Stands for the bus address of a page that is not there: nothing answers it."""
MAX_WORDS = 1 << 22
"""Words of all translations together: 8 bytes of the server's memory each."""
REPEAT = 0x400
"""In the place of a first piece's key: the pieces behind it come over and over."""

RIGHTS = {
    "lw": Access.LOCAL_WRITE,
    "rw": Access.REMOTE_WRITE,
    "rr": Access.REMOTE_READ,
    "a": Access.REMOTE_ATOMIC,
}
_CHANGING = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


class AccessMode(enum.IntEnum):
    """What a key's translation is made of."""

    PHYSICAL = 0
    """Bus addresses as they are."""
    PAGES = 1
    PIECES = 2
    """Pieces of other keys."""
    BLOCKS = 3
    """Pieces of one size."""


class Check(enum.IntFlag):
    """Flags of a change."""

    SAME_QPN = 1 << 3
    OFFSET = 1 << 4
    """The list goes to an offset of the translation."""
    FREE = 1 << 5
    IN_USE = 1 << 6
    INLINE = 1 << 7
    """The list is in the descriptor."""


_FIELDS: dict[int, tuple[str, ...]] = {
    0: ("len", "length64"),
    1: ("log_page_size",),
    6: ("start_addr",),
    7: ("pd",),
    8: ("en_rinval",),
    13: ("mkey_7_0",),
    14: ("qpn",),
    17: ("lr",),
    18: ("lw",),
    19: ("rr",),
    20: ("rw",),
    21: ("a",),
    23: (),
    25: ("relaxed_ordering_write",),
    29: ("free",),
    42: ("log_page_size",),
    47: (),
}
"""Fields of a key by bit of a change's mask. Empty: accepted, and of no effect here (ordering of reads)."""
_KNOWN = sum(1 << bit for bit in _FIELDS)
_PD = 1 << 7


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A descriptor that changes a key.

    ``number`` is the key, of which the index counts; ``mask`` says which fields of ``context`` to take.
    ``octowords`` of translation go to octoword ``offset``: ``inline`` or what ``source`` names.
    """

    number: int
    flags: Check
    mask: int
    context: Mapping[str, int]
    octowords: int
    offset: int
    inline: bytes
    source: Sge | None


@dataclass(slots=True)
class Mkey:
    """A key: its region in the core, its context as the driver set it, and its translation.

    ``words`` is as long as was loaded, at most ``room``. ``partial`` keys may have pages that are not there.
    """

    region: MemoryRegion
    mode: AccessMode
    context: dict[str, int]
    room: int
    words: array[int] = field(default_factory=lambda: array("Q"))
    partial: bool = False

    @property
    def free(self) -> bool:
        """True while it allows nothing."""
        return not self.region.enabled


class MkeyTable:
    """The keys of one function by index, and who may change them.

    ``registrars`` are the numbers of the queue pairs that the driver trusts with bus addresses and other
    domains' keys: those for registration, and those made with fast registration enabled. Others change keys
    over other keys, in their own domain.
    """

    def __init__(self) -> None:
        self.items: dict[int, Mkey] = {}
        self.registrars: set[int] = set()
        self._words = 0
        self._nic: Nic | None = None

    def attach(self, nic: Nic) -> None:
        """Keys are ``nic``'s from now on."""
        self._nic = nic

    def clear(self) -> None:
        """Forget all; the core forgets its own."""
        self.items.clear()
        self.registrars.clear()
        self._words = 0

    @property
    def nic(self) -> Nic:
        """The NIC they belong to."""
        assert self._nic is not None
        return self._nic

    def create(
        self,
        context: Mapping[str, int],
        words: array[int],
        *,
        partial: bool = False,
        memory: Memory | None = None,
    ) -> Mkey:
        """Make a key with translation ``words``, or over ``memory`` when that is given.

        :raises NicError: BAD_FIELD, UNSUPPORTED, BAD_OBJECT ``pd``, NO_RESOURCE.
        """
        nic = self.nic
        pd = nic.pds.get(context["pd"], "pd")
        try:
            mode = AccessMode(context["access_mode_4_2"] << 2 | context["access_mode_1_0"])
        except ValueError:
            raise NicError(ErrorKind.UNSUPPORTED, "the access mode is not offered", "access_mode") from None
        access = _access(context)
        if access & _CHANGING and not access & Access.LOCAL_WRITE and mode is AccessMode.PAGES:
            raise NicError(ErrorKind.BAD_FIELD, "rights of peers to write need lw as well", "lw")
        room = max(context["translations_octword_size"] * 2, len(words))
        self._check_words(len(words))
        free = bool(context["free"])
        whole = dict(context)
        pages: Memory = _NOTHING
        if not free:
            pages = memory if memory is not None else self._memory(mode, whole, words, partial)
        region = nic.keys.add(
            pd, access, context["start_addr"], pages, MemoryKind.HOST, bool(context["a"]), context["mkey_7_0"]
        )
        region.invalidatable = bool(context["en_rinval"])
        region.relaxed = bool(context["relaxed_ordering_write"])
        region.qpn = _bound(context)
        if free or not pages.length:
            nic.keys.disable(region)
        key = Mkey(region, mode, whole, room, words, partial)
        self._words += len(words)
        self.items[region.key >> 8] = key
        return key

    def get(self, index: int, name: str) -> Mkey:
        """A key by its index. :raises NicError: BAD_OBJECT naming ``name``."""
        key = self.items.get(index)
        if key is None:
            raise NicError(ErrorKind.BAD_OBJECT, f"there is no memory key with index {index:#x}", name)
        return key

    def destroy(self, index: int, name: str) -> None:
        """End a key. :raises NicError: BAD_OBJECT; BUSY, a ring lives in it."""
        key = self.get(index, name)
        self.nic.deregister_mr(key.region)
        self._words -= len(key.words)
        del self.items[index]

    def change(self, qp: QueuePair, change: KeyChange) -> None:
        """Carry out a change that ``qp`` asks for.

        :raises ProtectionError: it is not allowed, or its list cannot be read or does not fit. The key is as
            before then, but for one whose list is loaded and does not cover its length: that allows nothing.
        """
        key = self.items.get(change.number >> 8)
        if key is None:
            raise ProtectionError(f"there is no key {change.number:#x} to change", cause=Cause.LKEY_UNKNOWN)
        self._check(qp, key, change)
        words = self._list(qp, key, change)
        context = dict(key.context)
        context["free"] = int(key.free)
        for bit, names in _FIELDS.items():
            if change.mask >> bit & 1:
                context.update((name, change.context[name]) for name in names)
        pd = self.nic.pds.items.get(context["pd"])
        if pd is None:
            raise ProtectionError(f"there is no PD {context['pd']} for the key", cause=Cause.LKEY_PD)
        try:
            self._load(key, change.offset * 2, words)
            free = bool(context["free"])
            pages: Memory = _NOTHING if free else self._memory(key.mode, context, key.words, True)
            self.nic.keys.replace(
                key.region,
                variant=context["mkey_7_0"],
                pd=pd,
                access=_access(context),
                address=context["start_addr"],
                pages=pages,
                atomic_capable=bool(context["a"]),
                invalidatable=bool(context["en_rinval"]),
                enabled=not free,
            )
        except NicError as error:
            self.nic.keys.disable(key.region)
            raise ProtectionError(
                f"key {change.number:#x} cannot be changed so: {error.message}", cause=Cause.LKEY_BOUNDS
            ) from None
        key.context = context
        key.region.qpn = _bound(context)
        key.region.relaxed = bool(context["relaxed_ordering_write"])

    def _check(self, qp: QueuePair, key: Mkey, change: KeyChange) -> None:
        """:raises ProtectionError: this queue pair may not, or the key is not in the state it must be in."""
        number = change.number
        refusal = None
        if qp.number not in self.registrars:
            if key.region.pd is not qp.pd:
                refusal = f"it belongs to PD {key.region.pd.number}, the QP to PD {qp.pd.number}"
            elif key.mode not in (AccessMode.PIECES, AccessMode.BLOCKS):
                refusal = "only queue pairs with fast registration change keys over pages"
            elif change.mask & _PD:
                refusal = "only a registration queue pair moves keys to another PD"
        if refusal is None:
            if not key.context["umr_en"]:
                refusal = "it was not made to be changed by descriptors (umr_en)"
            elif change.mask & ~_KNOWN:
                refusal = f"mask bits {change.mask & ~_KNOWN:#x} are not offered"
            elif change.flags & Check.FREE and not key.free:
                refusal = "it is in use; invalidate it first"
            elif change.flags & Check.IN_USE and key.free:
                refusal = "it is free"
            elif change.flags & Check.SAME_QPN and key.region.qpn not in (None, qp.number):
                refusal = f"it is bound to queue pair {key.region.qpn:#x}"
        if refusal is not None:
            raise ProtectionError(f"key {number:#x} cannot be changed: {refusal}", cause=Cause.LKEY_ACCESS)

    def _list(self, qp: QueuePair, key: Mkey, change: KeyChange) -> array[int]:
        """The words to load. :raises ProtectionError: unreadable, or more than the key has room for."""
        if not change.octowords or (change.source is None and not change.inline):
            return array("Q")
        # Lists are in units of 64 bytes, what a key needs of them is not.
        if (change.offset + change.octowords) * 2 > (key.room + UNIT - 1) // UNIT * UNIT:
            raise ProtectionError(
                f"key {change.number:#x} has room for {key.room // 2} octowords of translation, not for "
                f"{change.octowords} at {change.offset}",
                cause=Cause.LKEY_BOUNDS,
            )
        size = change.octowords * OCTOWORD
        source = change.source
        return word_list(change.inline[:size] if source is None else self._fetch(qp, source, size))

    def _fetch(self, qp: QueuePair, source: Sge, size: int) -> bytes:
        """The bytes of a list in memory. :raises ProtectionError: its key does not allow it; unreachable."""
        keys, pd = self.nic.keys, qp.pd
        if qp.transport is Transport.LOCAL:
            # Drivers make the registration queue pair without a domain.
            try:
                pd = keys.get(source.lkey, "lkey").pd
            except NicError as error:
                raise ProtectionError(error.message, cause=Cause.LKEY_UNKNOWN) from None
        region = keys.check(source.lkey, source.address, size, pd, Access.NONE, remote=False)
        try:
            return region.pages.read(self.nic.platform.dma, source.address - region.address, size)
        except BusError as error:
            raise ProtectionError(f"translation list: {error}", cause=Cause.BUS_ERROR) from None

    def _load(self, key: Mkey, at: int, words: array[int]) -> None:
        """Put words into the translation. :raises NicError: NO_RESOURCE."""
        if not words:
            return
        more = max(0, at + len(words) - len(key.words))
        self._check_words(more)
        self._words += more
        key.words.extend([0] * (at - len(key.words)))
        key.words[at : at + len(words)] = words

    def _check_words(self, more: int) -> None:
        if self._words + more > MAX_WORDS:
            raise NicError(ErrorKind.NO_RESOURCE, f"all translations together have {MAX_WORDS} words at most")

    def _memory(
        self, mode: AccessMode, context: Mapping[str, int], words: array[int], partial: bool
    ) -> Memory:
        """What a key that is in use covers. :raises NicError: BAD_FIELD, the translation is too short."""
        length = ALL_MEMORY if context["length64"] else context["len"]
        address = context["start_addr"]
        if mode is AccessMode.PHYSICAL:
            return PageList.contiguous(0 if context["length64"] else address, length)
        if not length or (not words and not partial):
            return _NOTHING
        if address + length > ALL_MEMORY:
            raise NicError(ErrorKind.BAD_FIELD, f"{length:#x} bytes from {address:#x} are no range", "len")
        if mode is AccessMode.PIECES:
            return self._indirect(context, _pieces(words, length))
        shift = context["log_page_size"]
        if not MIN_SHIFT <= shift <= MAX_SHIFT:
            raise NicError(ErrorKind.BAD_FIELD, f"log_page_size {shift} is not in 3..47", "log_page_size")
        offset = address & (1 << shift) - 1
        count = (offset + length + (1 << shift) - 1) >> shift
        width = 2 if mode is AccessMode.BLOCKS else 1
        if count * width > len(words):
            raise NicError(
                ErrorKind.BAD_FIELD,
                f"{len(words) // width} pages of {1 << shift:#x} bytes hold no {length:#x}",
                "len",
            )
        if mode is AccessMode.BLOCKS:
            blocks = [Sge(words[2 * at + 1], 1 << shift, words[2 * at] & 0xFFFFFFFF) for at in range(count)]
            blocks[0].address += offset
            blocks[0].length -= offset
            return self._indirect(context, KeyedList(blocks, length))
        pages = (word & ~0xFFF if word & PRESENT or not partial else ABSENT for word in words[:count])
        return PageList(tuple(pages), shift, offset, length)

    def _indirect(self, context: Mapping[str, int], layout: KeyedList | Strided) -> Indirect:
        return Indirect(self.nic.keys, self.nic.pds.get(context["pd"], "pd"), layout)


_NOTHING = PageList((), 12, 0, 0)


def word_list(data: bytes) -> array[int]:
    """Big-endian 64-bit words; bytes of a last one that is not whole do not count."""
    words = array("Q", data[: len(data) // 8 * 8])
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _access(context: Mapping[str, int]) -> Access:
    access = Access.NONE
    for name, right in RIGHTS.items():
        if context[name]:
            access |= right
    return access


def _bound(context: Mapping[str, int]) -> int | None:
    """The queue pair that a key in use is bound to; a context that says nothing binds to none."""
    return context["qpn"] if 0 < context["qpn"] < ANY_QPN else None


def _pieces(words: array[int], length: int) -> KeyedList | Strided:
    """Pieces of other keys, as far as ``length`` needs them. :raises NicError: BAD_FIELD, too few."""
    layout: KeyedList | Strided
    if len(words) >= 2 and words[0] & 0xFFFFFFFF == REPEAT:
        layout = _repeated(words)
        have = layout.length
        layout.length = min(have, length)
    else:
        layout = KeyedList(list(_listed(words, length)), length)
        have = layout.room
    if have < length:
        raise NicError(ErrorKind.BAD_FIELD, f"pieces of {have:#x} bytes hold no {length:#x}", "len")
    return layout


def _listed(words: array[int], length: int) -> Iterator[Sge]:
    for at in range(0, len(words) - 1, 2):
        if length <= 0:
            return
        size = words[at] >> 32
        if size:
            yield Sge(words[at + 1], size, words[at] & 0xFFFFFFFF)
            length -= size


def _repeated(words: array[int]) -> Strided:
    """A block that says how often (upper half of its second word) how many pieces (lowest 16 bits) come, then
    the pieces: stride << 48 | bytes << 32 | key, address.
    """
    repeat, count = words[1] >> 32, words[1] & 0xFFFF
    if not count or 2 * (count + 1) > len(words):
        raise NicError(ErrorKind.BAD_FIELD, f"{count} pieces over and over do not fit the list", "len")
    columns = [
        (Sge(words[at + 1], words[at] >> 32 & 0xFFFF, words[at] & 0xFFFFFFFF), words[at] >> 48)
        for at in range(2, 2 * (count + 1), 2)
    ]
    if not any(sge.length for sge, _ in columns):
        raise NicError(ErrorKind.BAD_FIELD, "pieces of no bytes over and over", "len")
    return Strided(columns, repeat)
