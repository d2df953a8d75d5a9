# SPDX-License-Identifier: Apache-2.0
"""Entries appear whole or not at all, and their keys follow the content of what they were made from."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from emu.setup.cache import STAMP, Cache, content_key, tree_digest
from emu.setup.error import SetupError


def make_file(fresh: Path) -> Mapping[str, object]:
    (fresh / "file").write_text("made")
    return {"who": "test"}


def test_key_does_not_depend_on_the_order_of_the_inputs() -> None:
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
    assert content_key({"a": 1}) != content_key({"a": 2})


def test_digest_changes_with_content_name_and_appearance(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    digests = [tree_digest([folder])]
    (folder / "a").write_text("1")
    digests.append(tree_digest([folder]))
    (folder / "a").write_text("2")
    digests.append(tree_digest([folder]))
    (folder / "a").rename(folder / "b")
    digests.append(tree_digest([folder]))
    digests.append(tree_digest([folder, tmp_path / "absent"]))
    assert len(set(digests)) == 4
    assert digests[3] == digests[4]


def test_digest_does_not_depend_on_where_the_checkout_lies(tmp_path: Path) -> None:
    for home in ("one", "two"):
        (tmp_path / home / "driver").mkdir(parents=True)
        (tmp_path / home / "driver/main.c").write_text("int x;")
    assert tree_digest([tmp_path / "one/driver"]) == tree_digest([tmp_path / "two/driver"])


def test_entry_is_made_once(cache: Cache) -> None:
    calls: list[Path] = []

    def make(fresh: Path) -> Mapping[str, object]:
        calls.append(fresh)
        return make_file(fresh)

    entry = cache.obtain("kind", "key", make)
    assert cache.obtain("kind", "key", make) == entry
    assert len(calls) == 1
    assert (entry / "file").read_text() == "made"
    assert cache.stamp(entry) == {"who": "test"}


def test_failed_make_leaves_no_entry(cache: Cache) -> None:
    def make(fresh: Path) -> Mapping[str, object]:
        (fresh / "half").touch()
        raise SetupError("no")

    with pytest.raises(SetupError, match="no"):
        cache.obtain("kind", "key", make)
    assert list((cache.root / "kind").iterdir()) == []


def test_leftover_of_a_killed_set_up_is_replaced(cache: Cache) -> None:
    leftover = cache.root / "kind/.new-key"
    leftover.mkdir(parents=True)
    (leftover / "half").touch()
    entry = cache.obtain("kind", "key", make_file)
    assert not (entry / "half").exists()
    assert not leftover.exists()


def test_entry_without_stamp_is_made_again(cache: Cache) -> None:
    entry = cache.obtain("kind", "key", make_file)
    (entry / STAMP).write_text("{ damaged")
    (entry / "file").write_text("stale")
    assert (cache.obtain("kind", "key", make_file) / "file").read_text() == "made"


def test_entry_that_is_not_intact_is_made_again(cache: Cache) -> None:
    entry = cache.obtain("kind", "key", make_file)
    (entry / "file").unlink()
    cache.obtain("kind", "key", make_file, intact=lambda path: (path / "file").exists())
    assert (entry / "file").read_text() == "made"


def test_two_set_ups_at_once_make_an_entry_once(cache: Cache) -> None:
    calls: list[int] = []
    began = threading.Barrier(2)

    def make(fresh: Path) -> Mapping[str, object]:
        calls.append(1)
        return make_file(fresh)

    def obtain() -> None:
        began.wait()
        cache.obtain("kind", "key", make)

    threads = [threading.Thread(target=obtain) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_lock_excludes_another_process(cache: Cache) -> None:
    program = (
        "import fcntl, sys\n"
        "try:\n"
        "    fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError:\n"
        "    sys.exit(7)\n"
    )
    argv = [sys.executable, "-c", program, str(cache.root / "locks/name")]
    with cache.lock("name"):
        assert subprocess.run(argv, check=False).returncode == 7
    assert subprocess.run(argv, check=False).returncode == 0


def test_checkouts_point_at_their_own_entries(cache: Cache, tmp_path: Path) -> None:
    one, two = (cache.obtain("kind", key, make_file) for key in ("1", "2"))
    cache.point("name", one, checkout=tmp_path / "a")
    cache.point("name", two, checkout=tmp_path / "b")
    assert cache.current("name", checkout=tmp_path / "a") == one
    cache.point("name", two, checkout=tmp_path / "a")
    assert cache.current("name", checkout=tmp_path / "a") == two
    assert cache.current("other", checkout=tmp_path / "a") is None


def test_pointer_to_a_removed_entry_is_none(cache: Cache, tmp_path: Path) -> None:
    entry = cache.obtain("kind", "key", make_file)
    cache.point("name", entry, checkout=tmp_path)
    (entry / STAMP).unlink()
    assert cache.current("name", checkout=tmp_path) is None


def test_prune_tolerates_another_that_is_faster(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("a", "b"):
        cache.obtain("kind", key, lambda fresh: {})
    rmtree = shutil.rmtree

    def race(path: Path) -> None:
        rmtree(path)
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", race)
    cache.prune("kind", keep=0)
    assert not list((cache.root / "kind").iterdir())


def test_prune_keeps_entries_in_use(cache: Cache, tmp_path: Path) -> None:
    entries = [cache.obtain("kind", str(number), make_file) for number in range(4)]
    cache.point("name", entries[0], checkout=tmp_path)
    cache.prune("kind", keep=0)
    assert [path.name for path in (cache.root / "kind").iterdir()] == ["0"]


@pytest.mark.parametrize(
    ("number", "sentence"),
    [(errno.ENOSPC, "is full"), (errno.EDQUOT, "is full"), (errno.EROFS, "cannot be written")],
)
def test_disk_errors_become_sentences(cache: Cache, number: int, sentence: str) -> None:
    def make(fresh: Path) -> Mapping[str, object]:
        raise OSError(number, "refused")

    with pytest.raises(SetupError, match=sentence) as caught:
        cache.obtain("kind", "key", make)
    assert "VRNIC_CACHE" in caught.value.hint


def test_cache_below_a_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="cannot be written"):
        Cache(tmp_path / "file/cache").obtain("kind", "key", make_file)


def test_default_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRNIC_CACHE", str(tmp_path / "x"))
    assert Cache.default().root == tmp_path / "x"
    monkeypatch.delenv("VRNIC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.default().root == tmp_path / "vrnic"
