# SPDX-License-Identifier: Apache-2.0
"""Keys behind keys: where bytes end up, and what refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.nic.engine import ProtectionError
from emu.nic.indirect import Indirect, KeyedList, Layout, Strided
from emu.nic.mr import MemoryRegion
from emu.nic.pages import PageList
from emu.nic.work import Access, Sge
from tests.nic.rig import RAM, Rig

A, B = 0x5000_0000, 0x6000_0000
"""Virtual addresses of two regions of a page each, RAM and the page behind it."""


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def inner(rig: Rig) -> list[MemoryRegion]:
    return [
        rig.nic.register_mr(
            rig.pd,
            access=Access.LOCAL_WRITE,
            address=address,
            pages=PageList.contiguous(RAM + number * 4096, 4096),
        )
        for number, address in enumerate((A, B))
    ]


def behind(rig: Rig, layout: Layout) -> MemoryRegion:
    """A key over ``layout``, from address 0 on."""
    pages = Indirect(rig.nic.keys, rig.pd, layout)
    access = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
    return rig.nic.register_mr(rig.pd, access=access, address=0, pages=pages)


def test_pieces_follow_each_other(rig: Rig, inner: list[MemoryRegion]) -> None:
    layout = KeyedList([Sge(A + 10, 5, inner[0].key), Sge(B, 7, inner[1].key)], 12)
    region = behind(rig, layout)
    dma = rig.nic.platform.dma
    region.pages.write(dma, 0, b"abcdefghijkl")
    assert rig.load(RAM + 10, 5) + rig.load(RAM + 4096, 7) == b"abcdefghijkl"
    assert region.pages.read(dma, 3, 6) == b"defghi"
    assert region.translate(4, 2) == [(RAM + 14, 1), (RAM + 4096, 1)]
    assert region.pages.contiguous_at(0, 2) is None


def test_rounds_step_on_by_their_stride(rig: Rig, inner: list[MemoryRegion]) -> None:
    layout = Strided([(Sge(A, 2, inner[0].key), 8), (Sge(B, 1, inner[1].key), 4)], 3)
    region = behind(rig, layout)
    dma = rig.nic.platform.dma
    region.pages.write(dma, 0, b"abCdeFghI")
    assert [rig.load(RAM + at, 2) for at in (0, 8, 16)] == [b"ab", b"de", b"gh"]
    assert [rig.load(RAM + 4096 + at, 1) for at in (0, 4, 8)] == [b"C", b"F", b"I"]
    assert region.pages.read(dma, 2, 5) == b"CdeFg"


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    repeat=st.integers(1, 4),
    data=st.data(),
)
def test_any_cut_is_a_part_of_the_whole(sizes: list[int], repeat: int, data: st.DataObject) -> None:
    pieces = [Sge(100 * number, size, number) for number, size in enumerate(sizes)]
    listed = KeyedList(pieces, sum(sizes))
    strided = Strided([(piece, 10) for piece in pieces], repeat)
    for layout in (listed, strided):
        whole = [
            (sge.lkey, sge.address + at) for sge in layout.cut(0, layout.length) for at in range(sge.length)
        ]
        assert len(whole) == len(set(whole)) == layout.length
        start = data.draw(st.integers(0, layout.length))
        length = data.draw(st.integers(0, layout.length - start))
        part = [(sge.lkey, sge.address + at) for sge in layout.cut(start, length) for at in range(sge.length)]
        assert part == whole[start : start + length]


def test_a_key_that_went_away_refuses(rig: Rig, inner: list[MemoryRegion]) -> None:
    region = behind(rig, KeyedList([Sge(A, 8, inner[0].key)], 8))
    rig.nic.deregister_mr(inner[0])
    with pytest.raises(ProtectionError, match="deregistered"):
        region.pages.read(rig.nic.platform.dma, 0, 8)


def test_memory_that_must_not_change_does_not(rig: Rig) -> None:
    fixed = rig.nic.register_mr(rig.pd, access=Access.NONE, address=A, pages=PageList.contiguous(RAM, 4096))
    region = behind(rig, KeyedList([Sge(A, 8, fixed.key)], 8))
    dma = rig.nic.platform.dma
    assert region.pages.read(dma, 0, 8) == bytes(8)
    with pytest.raises(ProtectionError, match="LOCAL_WRITE"):
        region.pages.write(dma, 0, b"x")


def test_a_key_of_another_domain_refuses(rig: Rig, inner: list[MemoryRegion]) -> None:
    other = rig.nic.alloc_pd(rig.pd.context)
    pages = Indirect(rig.nic.keys, other, KeyedList([Sge(A, 8, inner[0].key)], 8))
    with pytest.raises(ProtectionError, match="belongs to PD"):
        pages.read(rig.nic.platform.dma, 0, 1)


def test_a_key_behind_itself_ends(rig: Rig) -> None:
    region = rig.nic.register_mr(
        rig.pd, access=Access.LOCAL_WRITE, address=0, pages=PageList.contiguous(RAM, 8)
    )
    rig.nic.keys.replace(
        region,
        variant=7,
        pd=rig.pd,
        access=Access.LOCAL_WRITE,
        address=0,
        pages=Indirect(rig.nic.keys, rig.pd, KeyedList([Sge(0, 8, region.key & ~0xFF | 7)], 8)),
        atomic_capable=False,
        invalidatable=False,
        enabled=True,
    )
    for use in (
        lambda: region.pages.read(rig.nic.platform.dma, 0, 8),
        lambda: region.pages.write(rig.nic.platform.dma, 0, bytes(8)),
        lambda: region.translate(0, 8),
    ):
        with pytest.raises(ProtectionError, match="deep"):
            use()
    # The depth is counted per use.
    rig.nic.keys.disable(region)
    with pytest.raises(ProtectionError, match="not enabled"):
        region.pages.read(rig.nic.platform.dma, 0, 8)
