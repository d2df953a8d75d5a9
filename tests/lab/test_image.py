# SPDX-License-Identifier: Apache-2.0
"""The guest image: what is in it, that it is reproducible, and what it says when a piece is missing."""

from __future__ import annotations

import lzma
import os
from dataclasses import replace
from pathlib import Path

import pytest

from emu.lab.failure import LabFailure
from emu.lab.image import GuestImage, build_image, module_closure
from emu.setup.cache import CHECKOUT
from tests.lab.test_cpio import members


@pytest.fixture
def image(tmp_path: Path) -> GuestImage:
    busybox = tmp_path / "busybox"
    busybox.write_text("#!/bin/sh\necho busybox\necho sh\n")
    busybox.chmod(0o755)
    for name in ("agent", "vrnic.ko", "vrnic-kernels"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "9p.ko.xz").write_bytes(lzma.compress(b"stock module"))
    return GuestImage(
        busybox=busybox,
        agent=tmp_path / "agent",
        init=CHECKOUT / "guest/init",
        modules=(tmp_path / "9p.ko.xz",),
        drivers=(tmp_path / "vrnic.ko",),
        programs=(tmp_path / "vrnic-kernels",),
    )


def test_it_holds_init_agent_drivers_and_programs(image: GuestImage) -> None:
    found = {name: (header["mode"] & 0o777, data) for name, header, data in members(image.archive())}
    assert found["init"] == (0o755, (CHECKOUT / "guest/init/init").read_bytes())
    assert found["bin/agent"] == (0o755, b"agent")
    assert found["modules/vrnic.ko"] == (0o644, b"vrnic.ko")
    assert found["bin/vrnic-kernels"] == (0o755, b"vrnic-kernels")
    assert found["bin/sh"][1] == b"busybox"


def test_stock_modules_are_unpacked_and_listed_in_order(image: GuestImage) -> None:
    found = {name: data for name, _, data in members(image.archive())}
    assert found["modules/stock/9p.ko"] == b"stock module"
    assert found["etc/vrnic/modules"] == b"/modules/stock/9p.ko\n"


def test_equal_inputs_give_one_file_with_one_name(image: GuestImage, tmp_path: Path) -> None:
    first = build_image(image, tmp_path / "images")
    second = build_image(image, tmp_path / "images")
    assert first == second and first.read_bytes() == image.archive()
    (tmp_path / "agent").write_bytes(b"another agent")
    assert build_image(image, tmp_path / "images") != first


def test_a_truncated_image_is_written_again(image: GuestImage, tmp_path: Path) -> None:
    path = build_image(image, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert build_image(image, tmp_path).read_bytes() == whole


def test_images_unused_for_a_day_go(image: GuestImage, tmp_path: Path) -> None:
    old, recent = tmp_path / "old.cpio", tmp_path / "recent.cpio"
    for path in (old, recent):
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    build_image(image, tmp_path)
    assert not old.exists() and recent.exists()


def test_a_missing_piece_is_named(image: GuestImage, tmp_path: Path) -> None:
    with pytest.raises(LabFailure, match=r"nothing\.ko: No such file") as caught:
        replace(image, drivers=(tmp_path / "nothing.ko",)).archive()
    assert "scripts/setup" in caught.value.hint
    with pytest.raises(LabFailure, match="does not run"):
        replace(image, busybox=tmp_path / "agent").archive()


def test_a_folder_that_cannot_be_written_is_named(image: GuestImage, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(LabFailure, match="cannot write the guest image"):
        build_image(image, blocked / "images")


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    # The order in which depmod lists dependencies: nearest first, deepest last.
    (tmp_path / "modules.dep").write_text(
        "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n"
        "kernel/net/9p/9pnet.ko.xz: kernel/fs/netfs/netfs.ko.xz\n"
        "kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n"
        "kernel/fs/netfs/netfs.ko.xz:\n"
    )
    names = [path.name for path in module_closure(tmp_path, ("9p", "9pnet-virtio", "built_in"))]
    assert names == ["netfs.ko.xz", "9pnet.ko.xz", "9p.ko.xz", "9pnet_virtio.ko.xz"]


def test_a_kernel_without_a_module_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabFailure, match=r"modules\.dep: No such file"):
        module_closure(tmp_path, ("9p",))
