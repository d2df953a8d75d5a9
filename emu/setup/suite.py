# SPDX-License-Identifier: Apache-2.0
"""What a private Debian tree is made of: suite, packages, and which of them come from backports."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_KERNEL", "KERNELS_6_1", "KERNELS_7", "MAIN", "SERIES", "TREES", "Suite"]


@dataclass(frozen=True)
class Suite:
    """The recipe of one tree.

    :param name: short name; the tree's kind in the cache.
    :param release: Debian code name.
    :param packages: installed with their dependencies, without recommended packages.
    :param backported: source packages (shell patterns) taken from the release's backports.
    :param needs: files, as patterns below the tree, without which it is broken.
    """

    name: str
    release: str
    packages: tuple[str, ...]
    backported: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inputs(self) -> dict[str, object]:
        """What the tree's content depends on: its cache key is made from this."""
        return {
            "release": self.release,
            "packages": sorted(self.packages),
            "backported": sorted(self.backported),
            "needs": sorted(self.needs),
        }


MAIN = Suite(
    name="tree",
    release="trixie",
    packages=(
        # the machine
        "qemu-system-x86",
        "qemu-utils",
        "linux-image-cloud-amd64",
        "linux-image-amd64",
        # building for it
        "linux-headers-cloud-amd64",
        "linux-headers-amd64",
        "bc",
        "g++",
        "gcc",
        "libc6-dev",
        "libelf-dev",
        "make",
        "perl",
        "sparse",
        # inside it
        "busybox-static",
        "ethtool",
        "ibverbs-providers",
        "ibverbs-utils",
        "iperf3",
        "iproute2",
        "kmod",
        "libfabric-bin",
        "libibverbs-dev",
        "librdmacm-dev",
        "pciutils",
        "perftest",
        "python3-pyverbs",
        "rdma-core",
        "rdmacm-utils",
        "ucx-utils",
        # looking at its wire
        "tshark",
    ),
    # Only these: with all of backports preferred, libelf moves ahead of the version the kernel headers need.
    backported=("qemu", "seabios", "ipxe"),
    needs=(
        "lib64/ld-linux-x86-64.so.2",
        "usr/bin/qemu-system-x86_64",
        "usr/bin/gcc",
        "usr/bin/busybox",
        "usr/bin/tshark",
        "usr/share/seabios/bios-256k.bin",
        "boot/vmlinuz-*-cloud-amd64",
        "usr/src/linux-headers-*-cloud-amd64",
    ),
)
"""The tree everything runs out of: Debian 13 with the QEMU of its backports."""

_KERNELS = ("linux-headers-cloud-amd64", "linux-headers-amd64", "linux-image-amd64")

KERNELS_6_1 = Suite(
    name="kernels-6.1",
    release="bookworm",
    packages=(*_KERNELS, "gcc", "libc6-dev", "make"),
    needs=("usr/bin/make", "usr/src/linux-headers-*-cloud-amd64", "boot/vmlinuz-*-amd64"),
)
"""Oldest kernel the guest modules support, with the compiler it was built by."""

KERNELS_7 = Suite(
    name="kernels-7",
    release="trixie",
    packages=(*_KERNELS, "gcc", "libc6-dev", "make"),
    backported=("linux", "linux-signed-amd64", "linux-base"),
    needs=("usr/bin/make", "usr/src/linux-headers-*-cloud-amd64", "boot/vmlinuz-*-amd64"),
)
"""Newest kernel Debian 13 offers."""

TREES = {suite.name: suite for suite in (MAIN, KERNELS_6_1, KERNELS_7)}

DEFAULT_KERNEL = "6.12"
SERIES = {"6.1": KERNELS_6_1, DEFAULT_KERNEL: MAIN, "7": KERNELS_7}
"""Series of kernels a guest can run, and the tree that holds each."""
