# SPDX-License-Identifier: Apache-2.0
"""What the set-up left on this machine, as far as running a lab needs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from emu.lab.image import SHARE_MODULES, GuestImage, build_image, module_closure, program_closure
from emu.setup.accelerator import choose_accelerator
from emu.setup.cache import CHECKOUT, Cache, content_key
from emu.setup.error import SetupError
from emu.setup.modules import Modules, build_modules
from emu.setup.programs import build_programs
from emu.setup.tree import Kernel, Tree

__all__ = ["FLAVOUR", "Installation", "live_modules", "publish_modules"]

FLAVOUR = "full"
"""Kernel flavour of every guest: from a small image it boots as fast as "cloud", and it can mount shares."""

_ACCELERATORS = ("auto", "tcg", "kvm")
_TOOLS = ("/usr/bin/lspci",)
_TOOL_DATA = ("/usr/share/misc/pci.ids",)

_STOCK_MODULES = {
    "mlx5": ("mlx5_core", "mlx5_ib", "ib_uverbs", "ib_umad", "rdma_ucm"),
    # rxe takes its CRC from the crypto interface, which no module dependency names.
    "virtio": ("virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "ib_umad", "rdma_ucm"),
}
"""Drivers of the distribution by kind of NIC; a vrnic has none there."""
_STOCK_TOOLS = (
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_srq_pingpong",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong",
    "ibv_xsrq_pingpong",
    "ib_atomic_bw",
    "ib_atomic_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "rdma",
    "lspci",
)
_STOCK_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so",
    "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
)
_STOCK_DATA = ("/etc/libibverbs.d/mlx5.driver", "/etc/libibverbs.d/rxe.driver", "/usr/share/misc/pci.ids")
"""What a guest needs to use RDMA with the distribution's drivers: tools, the libraries that libibverbs loads,
their configuration. All of it is the distribution's own."""


def live_modules(cache: Cache | None = None) -> Path:
    """The folder interactive guests see as ``/build``: the modules this checkout built last."""
    chosen = cache or Cache.default()
    return chosen.root / "live" / content_key({"checkout": str(CHECKOUT)})


def publish_modules(modules: Modules, cache: Cache | None = None) -> Path:
    """Copy freshly built modules to where running guests find them; return that folder."""
    folder = live_modules(cache)
    folder.mkdir(parents=True, exist_ok=True)
    for path in modules.files:
        fresh = folder / f".{path.name}.{os.getpid()}"
        shutil.copyfile(path, fresh)
        fresh.rename(folder / path.name)
    for path in folder.glob("*.ko"):
        if path.name not in {file.name for file in modules.files}:
            path.unlink()
    return folder


@dataclass(frozen=True)
class Installation:
    """The pieces of a guest, ready to use.

    ``qemu`` is QEMU with its data paths; ``drivers`` are the modules built from ``guest/driver`` and
    ``programs`` the folder with the agent and the test programs; ``accelerator`` is "kvm" or "tcg".
    """

    tree: Tree
    qemu: tuple[str, ...]
    kernel: Kernel
    drivers: tuple[Path, ...]
    programs: Path
    accelerator: str
    images: Path
    """The folder images are kept in."""

    @classmethod
    def require(cls, accelerator: str = "auto", cache: Cache | None = None) -> Installation:
        """Find everything, building drivers and programs whose sources changed.

        ``accelerator`` "auto" takes KVM where a guest really boots under it.

        :raises SetupError: something is missing or does not compile, or there is no such accelerator.
        """
        if accelerator not in _ACCELERATORS:
            raise SetupError(
                f"There is no accelerator {accelerator!r}.", f"Known: {', '.join(_ACCELERATORS)}."
            )
        chosen = cache or Cache.default()
        tree = Tree.require(cache=chosen)
        tree.check_qemu()
        modules = build_modules(tree, FLAVOUR, cache=chosen)
        publish_modules(modules, chosen)
        return cls(
            tree=tree,
            qemu=tuple(tree.qemu_command()),
            kernel=tree.kernel(FLAVOUR),
            drivers=modules.files,
            programs=build_programs(tree, cache=chosen),
            accelerator=choose_accelerator(tree, chosen).name if accelerator == "auto" else accelerator,
            images=chosen.root / "images",
        )

    def image(self, interactive: bool = False, *, stock: Collection[str] = ()) -> Path:
        """The guest's image; an interactive one also holds tools and can mount shared folders.

        ``stock`` are kinds of NIC; for all but a vrnic the distribution's RDMA drivers and tools are added.

        :raises LabFailure: it cannot be built.
        """
        programs = tuple(path for path in sorted(self.programs.iterdir()) if not path.name.startswith("."))
        files: dict[str, Path] = {}
        if interactive:
            files |= program_closure(self.tree.path, _TOOLS)
            files |= {name: self.tree.path / name.lstrip("/") for name in _TOOL_DATA}
        modules: tuple[str, ...] = SHARE_MODULES if interactive else ()
        drivers = [name for device in sorted(stock) for name in _STOCK_MODULES.get(device, ())]
        if drivers:
            modules += tuple(drivers)
            tools = [
                f"/usr/bin/{name}" for name in _STOCK_TOOLS if (self.tree.path / "usr/bin" / name).exists()
            ]
            files |= program_closure(self.tree.path, [*tools, *_STOCK_LIBRARIES])
            files |= {name: self.tree.path / name.lstrip("/") for name in _STOCK_DATA}
        image = GuestImage(
            busybox=self.tree.path / "usr/bin/busybox",
            agent=self.programs / "agent",
            init=CHECKOUT / "guest/init",
            modules=module_closure(self.kernel.modules, modules) if modules else (),
            drivers=self.drivers,
            programs=tuple(path for path in programs if path.name != "agent"),
            files=files,
        )
        return build_image(image, self.images)
