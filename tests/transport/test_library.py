# SPDX-License-Identifier: Apache-2.0
"""The extension is found, its generation recognized, and what is missing is named with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.transport import build_ffi, library
from emu.transport.build_ffi import BuildError, build, detect_api
from emu.transport.library import LibraryError, find

REST = "vfu_dma_register_cb_t *dma_register,\n    vfu_dma_unregister_cb_t *dma_unregister);\n"
OLD = f"int\nvfu_setup_device_dma(vfu_ctx_t *ctx, {REST}"
NEW = f"int\nvfu_setup_device_dma(vfu_ctx_t *ctx, size_t max_regions, {REST}"
MENTION = "/* vfu_setup_device_dma() must have been called */\n"


def header(folder: Path, text: str) -> Path:
    """A folder with a libvfio-user.h."""
    (folder / "libvfio-user.h").write_text(text)
    return folder


@pytest.mark.parametrize(("text", "api"), [(MENTION + OLD, 1), (MENTION + NEW, 2)])
def test_the_header_tells_the_generation(tmp_path: Path, text: str, api: int) -> None:
    assert detect_api(header(tmp_path, text)) == api


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not declare"),
        ("int vfu_setup_device_dma(void *a);", "takes 1 arguments, known are 3 and 4"),
    ],
)
def test_an_unknown_header_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        detect_api(header(tmp_path, text))


def test_a_missing_header_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"no libvfio-user header: .*libvfio-user\.h"):
        detect_api(tmp_path)


def test_a_build_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    include = header(tmp_path, OLD)
    sources = tmp_path / "lib"
    sources.mkdir()
    with pytest.raises(BuildError, match="one of the two"):
        build(include, tmp_path / "out", sources=None, library=None, api=None)
    with pytest.raises(BuildError, match="no C files"):
        build(include, tmp_path / "out", sources=sources, library=None, api=None)
    (sources / "dma.c").write_text("")
    with pytest.raises(BuildError, match=r"lacks dma\.h, irq\.h, private\.h"):
        build(include, tmp_path / "out", sources=sources, library=None, api=None)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match="no C compiler: no-such-compiler not found"):
        build(include, tmp_path / "out", sources=None, library="vfio-user", api=1)


def test_a_compiler_error_is_shown_and_leaves_no_module(tmp_path: Path) -> None:
    include = header(tmp_path, OLD + '#error "deliberate"\n')
    with pytest.raises(BuildError, match="deliberate"):
        build(include, tmp_path / "out", sources=None, library="vfio-user", api=None)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_module_is_where_the_set_up_put_it() -> None:
    path = find()
    assert path.name.startswith(build_ffi.MODULE)
    assert library.load().lib.VRNIC_QUEUE > 0


def test_a_missing_module_says_run_the_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRNIC_VFU_DIR", str(tmp_path))
    with pytest.raises(LibraryError, match=r"holds no _vfu.*: unset it and run scripts/setup"):
        find()
    monkeypatch.delenv("VRNIC_VFU_DIR")
    monkeypatch.setenv("VRNIC_CACHE", str(tmp_path))
    with pytest.raises(LibraryError, match="not built for this checkout: run scripts/setup"):
        find()
