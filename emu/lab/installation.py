# SPDX-License-Identifier: Apache-2.0
"""What the set-up left on this machine, as far as running a lab needs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from emu.lab.image import SHARE_MODULES, GuestImage, build_image, module_closure
from emu.setup.accelerator import choose_accelerator
from emu.setup.cache import CHECKOUT, Cache, content_key
from emu.setup.error import SetupError
from emu.setup.modules import Modules, build_modules
from emu.setup.programs import build_programs
from emu.setup.suite import DEFAULT_KERNEL, SERIES
from emu.setup.tree import Kernel, Tree

__all__ = ["FLAVOUR", "Installation", "live_modules", "publish_modules"]

FLAVOUR = "full"
"""Kernel flavour of every guest: from a small image it boots as fast as "cloud", and it can mount shares."""

_ACCELERATORS = ("auto", "tcg", "kvm")
_CHANNEL_MODULES = ("virtio_pci", "virtio_console")
"""What the agent speaks through; some kernels have it built in."""
_STOCK_MODULES = {
    "mlx5": ("mlx5_core", "mlx5_ib", "ib_uverbs", "ib_umad", "rdma_ucm"),
    # rxe takes its CRC from the crypto interface, which no module dependency names.
    "virtio": ("virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "ib_umad", "rdma_ucm"),
}
"""Drivers of the distribution by kind of NIC; a vrnic has none there."""


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

    ``tree`` is where QEMU and the guests' tools come from; ``qemu`` is QEMU with its data paths; ``drivers``
    are the modules built from ``guest/driver`` for ``kernel`` and ``programs`` the folder with the agent and
    the test programs; ``accelerator`` is "kvm" or "tcg".
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
    def require(
        cls, accelerator: str = "auto", cache: Cache | None = None, *, kernel: str = DEFAULT_KERNEL
    ) -> Installation:
        """Find everything, building drivers and programs whose sources changed.

        ``accelerator`` "auto" takes KVM where a guest really boots under it. ``kernel`` is one of
        :data:`emu.setup.suite.SERIES`; whatever the kernel, the tools are those of the main tree.

        :raises SetupError: something is missing or does not compile, or there is no such accelerator or
            kernel.
        """
        if kernel not in SERIES:
            raise SetupError(f"There is no kernel {kernel!r}.", f"Known: {', '.join(SERIES)}.")
        if accelerator not in _ACCELERATORS:
            raise SetupError(
                f"There is no accelerator {accelerator!r}.", f"Known: {', '.join(_ACCELERATORS)}."
            )
        chosen = cache or Cache.default()
        tree = Tree.require(cache=chosen)
        tree.check_qemu()
        source = Tree.require(SERIES[kernel], chosen)
        modules = build_modules(source, FLAVOUR, cache=chosen)
        if source == tree:
            publish_modules(modules, chosen)
        return cls(
            tree=tree,
            qemu=tuple(tree.qemu_command()),
            kernel=source.kernel(FLAVOUR),
            drivers=modules.files,
            programs=build_programs(tree, cache=chosen),
            accelerator=choose_accelerator(tree, chosen).name if accelerator == "auto" else accelerator,
            images=chosen.root / "images",
        )

    def image(self, *, stock: Collection[str] = (), shares: bool = False) -> Path:
        """The guest's image.

        ``stock`` are kinds of NIC; for all but a vrnic the distribution's drivers are added. With ``shares``
        it can mount shared folders.

        :raises LabFailure: it cannot be built.
        """
        programs = tuple(path for path in sorted(self.programs.iterdir()) if not path.name.startswith("."))
        modules = (*_CHANNEL_MODULES, *(SHARE_MODULES if shares else ()))
        modules += tuple(name for device in sorted(stock) for name in _STOCK_MODULES.get(device, ()))
        image = GuestImage(
            busybox=self.tree.path / "usr/bin/busybox",
            agent=self.programs / "agent",
            init=CHECKOUT / "guest/init",
            modules=module_closure(self.kernel.modules, modules),
            drivers=self.drivers,
            programs=tuple(path for path in programs if path.name != "agent"),
        )
        return build_image(image, self.images)
