# SPDX-License-Identifier: Apache-2.0
"""``python -m emu.setup``: make what is missing, in the order it is needed.

Exit code 0 when everything is there, 1 when something failed (one sentence and a hint on standard error), 130
when interrupted. What was finished before a failure is kept.
"""

from __future__ import annotations

import argparse
import sys

from emu.setup.accelerator import choose_accelerator
from emu.setup.bootstrap import obtain_tree
from emu.setup.cache import CHECKOUT, Cache
from emu.setup.checkpatch import obtain_checkpatch
from emu.setup.error import BuildError, SetupError
from emu.setup.library import obtain_extension
from emu.setup.modules import build_modules
from emu.setup.programs import build_programs
from emu.setup.progress import step
from emu.setup.suite import KERNELS_6_1, KERNELS_7, MAIN
from emu.setup.tree import Tree
from emu.setup.verbs_tests import obtain_verbs_tests

__all__ = ["main"]


def prepare(*, kernels: bool, accelerator: bool) -> None:
    """Make everything the demo and the tests need.

    :param kernels: also the trees with the oldest and the newest supported kernel, the modules for them, the
        kernel's style checker, and the tests that come with the distribution's verbs.
    :param accelerator: also find out whether KVM works.
    :raises SetupError: a part cannot be made.
    """
    cache = Cache.default()
    if Tree.find(MAIN, cache) is None:
        with step("Private Debian tree: QEMU, kernels, compiler, tools", "a few minutes"):
            obtain_tree(MAIN, cache)
    tree = obtain_tree(MAIN, cache)
    with step("libvfio-user for Python"):
        obtain_extension(tree, cache)
    if has_driver():
        for flavour in ("cloud", "full"):
            with step(f"Guest kernel modules ({flavour} kernel)"):
                build_modules(tree, flavour, cache=cache)
        with step("Guest programs"):
            build_programs(tree, cache=cache)
    if kernels:
        for suite in (KERNELS_6_1, KERNELS_7):
            if Tree.find(suite, cache) is None:
                with step(f"Other supported kernel ({suite.name})", "about a minute"):
                    obtain_tree(suite, cache)
            other = obtain_tree(suite, cache)
            for flavour in ("cloud", "full"):
                with step(f"Guest kernel modules for {other.kernel(flavour).release}"):
                    build_modules(other, flavour, cache=cache)
        with step("The kernel's style checker", "about a minute"):
            obtain_checkpatch(tree, cache)
        with step("The verbs binding's own tests"):
            obtain_verbs_tests(tree, cache)
    if accelerator:
        with step("Accelerator probe"):
            choose_accelerator(tree, cache)


def has_driver() -> bool:
    """Whether the checkout carries guest sources (an installed package may not)."""
    return (CHECKOUT / "guest/driver/Kbuild").is_file()


def main(arguments: list[str] | None = None) -> int:
    """Command line; see the module's documentation."""
    parser = argparse.ArgumentParser(
        prog="python -m emu.setup", description="Make what vrnic needs on this machine."
    )
    parser.add_argument(
        "--kernels", action="store_true", help="also the other supported kernels with headers"
    )
    parser.add_argument("--no-accelerator", action="store_true", help="do not probe for a working KVM")
    options = parser.parse_args(arguments)
    try:
        prepare(kernels=options.kernels, accelerator=not options.no_accelerator)
    except BuildError as error:
        print(f"{error.output}\nsetup: {error.message}", file=sys.stderr)
        return 1
    except SetupError as error:
        print(f"setup: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"setup: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; finished parts are kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
