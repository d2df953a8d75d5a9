# SPDX-License-Identifier: Apache-2.0
"""How programs of the tree are run, and how a tree that cannot be used is recognised."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from emu.setup import bootstrap
from emu.setup import tree as tree_module
from emu.setup.bootstrap import mmdebstrap_command
from emu.setup.cache import Cache
from emu.setup.error import SetupError
from emu.setup.suite import KERNELS_6_1, MAIN
from emu.setup.tree import Bind, Tree, qemu_version


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int, *, mounts: bool = True) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(tree_module, "may_mount", lambda: mounts)


def test_complete_tree_is_found(tree: Tree, cache: Cache) -> None:
    assert Tree.find(cache=cache) == tree


def test_tree_without_its_qemu_is_not_found(tree: Tree, cache: Cache) -> None:
    (tree.path / "usr/bin/qemu-system-x86_64").unlink()
    assert Tree.find(cache=cache) is None
    with pytest.raises(SetupError, match="missing or damaged") as caught:
        Tree.require(cache=cache)
    assert caught.value.hint == "Run scripts/setup."


def test_missing_kernel_tree_names_the_option_that_makes_it(cache: Cache) -> None:
    with pytest.raises(SetupError) as caught:
        Tree.require(KERNELS_6_1, cache)
    assert "--kernels" in caught.value.hint


def test_newest_kernel_of_a_flavour_is_chosen_by_number(tree: Tree) -> None:
    kernel = tree.kernel("cloud")
    assert kernel.release == "6.12.118+deb13-cloud-amd64"
    assert kernel.image.is_file()
    assert kernel.headers == "/usr/src/linux-headers-6.12.118+deb13-cloud-amd64"
    assert tree.kernel("full").release == "6.12.118+deb13-amd64"


def test_unknown_flavour_is_refused(tree: Tree) -> None:
    with pytest.raises(SetupError, match="'rt'"):
        tree.kernel("rt")


def test_qemu_uses_nothing_of_the_host(tree: Tree) -> None:
    words = tree.qemu_command()
    path = str(tree.path)
    assert words[0] == "env"
    assert words[1] == f"QEMU_MODULE_DIR={path}/usr/lib/x86_64-linux-gnu/qemu"
    assert words[2] == f"{path}/lib64/ld-linux-x86-64.so.2"
    assert f"{path}/usr/bin/qemu-system-x86_64" in words
    assert words.count("-L") == 3
    assert all(words[index + 1].startswith(path) for index, word in enumerate(words) if word == "-L")


def test_unknown_program_is_refused(tree: Tree) -> None:
    with pytest.raises(SetupError, match="no program nosuch"):
        tree.host_command("nosuch")


def test_root_uses_chroot_with_proc(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 0)
    words = tree.command(["make", "x"], cwd="/build")
    assert words[:4] == ["unshare", "--mount", "--propagation", "private"]
    assert "/proc" in words[words.index("-c") + 1]
    inner = words[words.index("chroot") :]
    assert inner[:4] == ["chroot", str(tree.path), "env", "--chdir=/build"]
    assert inner[-2:] == ["make", "x"]


def test_root_that_may_not_mount_uses_chroot_alone(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 0, mounts=False)
    assert tree.command(["true"])[0] == "chroot"
    with pytest.raises(SetupError, match="may not mount"):
        tree.command(["true"], binds=[Bind(Path("/tmp"), "/mnt/x")])


def test_binds_are_read_only_unless_asked_otherwise(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    binds = [Bind(Path("/a b"), "/mnt/r"), Bind(Path("/c"), "/mnt/w", writable=True)]
    as_user(monkeypatch, 0)
    script = tree.command(["true"], binds=binds)[6]
    assert script.count("remount,bind,ro") == 1
    assert "'/a b'" in script
    as_user(monkeypatch, 1000)
    words = tree.command(["true"], binds=binds)
    assert words[words.index("--ro-bind") :][:3] == ["--ro-bind", "/a b", "/mnt/r"]
    assert words[words.index("/c") - 1 :][:3] == ["--bind", "/c", "/mnt/w"]


def test_ordinary_user_uses_bubblewrap(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 1000)
    words = tree.command(["make"], cwd="/build")
    assert words[:4] == ["bwrap", "--bind", str(tree.path), "/"]
    assert words[words.index("--chdir") + 1] == "/build"
    assert words[-1] == "make"


@pytest.mark.parametrize(
    ("debian", "numbers"),
    [
        ("1:11.1.3+ds-1~bpo13+1", (11, 1, 3)),
        ("10.0.13", (10, 0, 13)),
        ("1:7.2+dfsg-7+deb12u18", (7, 2)),
        ("x", ()),
    ],
)
def test_upstream_version_is_read_out_of_debians(debian: str, numbers: tuple[int, ...]) -> None:
    assert qemu_version(debian) == numbers


def test_old_qemu_is_refused_with_the_version_needed(tree: Tree) -> None:
    assert tree.check_qemu() == "1:11.1.3+ds-1~bpo13+1"
    status = tree.path / "var/lib/dpkg/status"
    status.write_text(status.read_text().replace("1:11.1.3+ds-1~bpo13+1", "1:10.0.13+ds-0+deb13u1"))
    with pytest.raises(SetupError, match=r"10\.1\.1 or newer"):
        tree.check_qemu()


@pytest.fixture(autouse=True)
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive's keys, which not every host has."""
    path = tmp_path / "keys.gpg"
    path.touch()
    monkeypatch.setattr(bootstrap, "_KEYRINGS", (tmp_path / "absent.gpg", path))
    return path


def test_debians_keys_are_named(keyring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"--keyring={keyring}" in mmdebstrap_command(MAIN, "/target", mode="root")
    monkeypatch.setattr(bootstrap, "_KEYRINGS", ())
    with pytest.raises(SetupError, match="keys of the Debian archive"):
        mmdebstrap_command(MAIN, "/target", mode="root")


def test_only_the_named_sources_come_from_backports() -> None:
    words = mmdebstrap_command(MAIN, "/target", mode="root")
    hook = next(word for word in words if word.startswith("--setup-hook="))
    assert "'src:qemu src:seabios src:ipxe'" in hook
    assert "trixie-backports" in hook
    assert "://" not in " ".join(words)
    assert words[-2:] == ["trixie", "/target"]
    assert not any(w.startswith("--setup-hook") for w in mmdebstrap_command(KERNELS_6_1, "/t", mode="root"))


def test_mirror_of_the_users_choice_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRNIC_DEBIAN_MIRROR", "file:///srv/debian")
    assert mmdebstrap_command(MAIN, "/target", mode="root")[-1] == "file:///srv/debian"


@pytest.mark.parametrize(
    ("name", "text", "result", "expected"),
    [
        (
            "sources.list",
            "deb file:///m trixie main\ndeb file:///m trixie-updates main\n",
            "sources.list.d/backports.list",
            "deb file:///m trixie-backports main\n",
        ),
        (
            "sources.list.d/0000debian.sources",
            "Types: deb\nURIs: file:///m\nSuites: trixie trixie-updates\nComponents: main\n\nTypes: deb\n",
            "sources.list.d/backports.sources",
            "Types: deb\nURIs: file:///m\nSuites: trixie-backports\nComponents: main\n\n",
        ),
    ],
)
def test_backports_hook_follows_either_style_of_sources(
    tmp_path: Path, name: str, text: str, result: str, expected: str
) -> None:
    apt = tmp_path / "etc/apt"
    (apt / "sources.list.d").mkdir(parents=True)
    (apt / name).write_text(text)
    words = mmdebstrap_command(MAIN, "/target", mode="root")
    hook = next(word for word in words if word.startswith("--setup-hook=")).removeprefix("--setup-hook=")
    subprocess.run(["sh", "-c", hook, "sh", str(tmp_path)], check=True)
    assert (apt / result).read_text() == expected
    assert "Pin: release n=trixie-backports" in (apt / "preferences.d/backports").read_text()
