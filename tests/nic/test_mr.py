# SPDX-License-Identifier: Apache-2.0
"""Keys: what each check says, and that a freed key never works again."""

from __future__ import annotations

import tracemalloc

import pytest

from emu.nic.context import Context, ProtectionDomain
from emu.nic.engine import ProtectionError
from emu.nic.errors import ErrorKind, NicError
from emu.nic.mr import MemoryKeys, MemoryKind, MemoryRegion
from emu.nic.pages import PageList
from emu.nic.work import Access, Cause

BASE, LENGTH = 0x7000_0000, 0x1000
LOCAL = Access.LOCAL_WRITE


@pytest.fixture
def pd() -> ProtectionDomain:
    return ProtectionDomain(1, Context(1))


@pytest.fixture
def keys() -> MemoryKeys:
    return MemoryKeys(4)


def add(keys: MemoryKeys, pd: ProtectionDomain, access: Access = LOCAL) -> MemoryRegion:
    return keys.add(pd, access, BASE, PageList.contiguous(0x4000, LENGTH), MemoryKind.HOST, True)


def refusal(
    keys: MemoryKeys,
    pd: ProtectionDomain,
    key: int,
    address: int = BASE,
    length: int = 8,
    access: Access = Access.NONE,
    *,
    remote: bool = False,
) -> ProtectionError:
    with pytest.raises(ProtectionError) as caught:
        keys.check(key, address, length, pd, access, remote=remote)
    return caught.value


def test_an_allowed_access_finds_its_region(keys: MemoryKeys, pd: ProtectionDomain) -> None:
    region = add(keys, pd)
    assert keys.check(region.key, BASE, LENGTH, pd, LOCAL, remote=False) is region
    assert region.translate(BASE + 0x10, 0x20) == [(0x4010, 0x20)]


@pytest.mark.parametrize(
    ("address", "length"),
    [
        (BASE - 1, 1),
        (BASE + LENGTH, 1),
        (BASE, LENGTH + 1),
        (BASE + LENGTH - 1, 2),
        ((1 << 64) - 1, 2),
        (0, 8),
    ],
)
@pytest.mark.parametrize("remote", [False, True])
def test_bounds(keys: MemoryKeys, pd: ProtectionDomain, address: int, length: int, remote: bool) -> None:
    error = refusal(keys, pd, add(keys, pd).key, address, length, remote=remote)
    assert error.cause == (Cause.RKEY_BOUNDS if remote else Cause.LKEY_BOUNDS)
    assert "0x70000000..0x70001000" in error.rule


@pytest.mark.parametrize("remote", [False, True])
def test_another_domain(keys: MemoryKeys, pd: ProtectionDomain, remote: bool) -> None:
    other = ProtectionDomain(2, pd.context)
    error = refusal(keys, other, add(keys, pd).key, remote=remote)
    assert error.cause == (Cause.RKEY_PD if remote else Cause.LKEY_PD)
    assert "PD 1" in error.rule
    assert "PD 2" in error.rule


@pytest.mark.parametrize(
    ("needed", "remote", "cause"),
    [
        (Access.REMOTE_WRITE, True, Cause.RKEY_ACCESS),
        (Access.REMOTE_READ, True, Cause.RKEY_ACCESS),
        (Access.REMOTE_ATOMIC, True, Cause.RKEY_ACCESS),
        (Access.LOCAL_WRITE, False, Cause.LKEY_ACCESS),
    ],
)
def test_a_missing_right(
    keys: MemoryKeys, pd: ProtectionDomain, needed: Access, remote: bool, cause: Cause
) -> None:
    everything = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
    error = refusal(keys, pd, add(keys, pd, everything & ~needed).key, access=needed, remote=remote)
    assert error.cause == cause
    assert str(needed.name) in error.rule


def test_a_key_that_never_was(keys: MemoryKeys, pd: ProtectionDomain) -> None:
    assert refusal(keys, pd, 0).cause == Cause.LKEY_UNKNOWN
    assert "never given out" in refusal(keys, pd, 0x12345).rule


def test_a_freed_key(keys: MemoryKeys, pd: ProtectionDomain) -> None:
    region = add(keys, pd)
    keys.remove(region)
    error = refusal(keys, pd, region.key, remote=True)
    assert error.cause == Cause.RKEY_UNKNOWN
    assert "was deregistered" in error.rule
    assert pd.empty


def test_a_reused_index_has_another_key_and_the_old_one_is_named_stale(pd: ProtectionDomain) -> None:
    keys = MemoryKeys(1)
    table_size = 1
    first = add(keys, pd)
    keys.remove(first)
    seen = {first.key}
    # Indices go round a large range; force the reuse by going round it.
    keys._table._next = first.key >> 8
    second = add(keys, pd)
    assert second.key >> 8 == first.key >> 8
    assert second.key not in seen
    assert f"{second.key:#x}" in refusal(keys, pd, first.key).rule
    assert len(keys) == table_size


def test_the_variant_of_an_index_goes_round(pd: ProtectionDomain) -> None:
    keys = MemoryKeys(1)
    seen = []
    for _ in range(257):
        keys._table._next = 1
        region = add(keys, pd)
        keys.remove(region)
        seen.append(region.key & 0xFF)
    assert sorted(seen[:256]) == list(range(256))
    assert seen[256] == seen[0]


def test_registering_for_ever_takes_no_memory(keys: MemoryKeys, pd: ProtectionDomain) -> None:
    keys.remove(add(keys, pd))
    tracemalloc.start()
    try:
        for _ in range(20_000):
            keys.remove(add(keys, pd))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


def test_a_full_table_refuses(keys: MemoryKeys, pd: ProtectionDomain) -> None:
    for _ in range(4):
        add(keys, pd)
    with pytest.raises(NicError) as caught:
        add(keys, pd)
    assert caught.value.kind is ErrorKind.NO_RESOURCE


def test_clearing_keeps_old_keys_invalid(keys: MemoryKeys, pd: ProtectionDomain) -> None:
    old = add(keys, pd)
    keys.clear()
    new = add(keys, pd)
    assert new.key >> 8 != old.key >> 8
