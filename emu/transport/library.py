# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the compiled half of the transport (see :mod:`emu.transport.build_ffi`)."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.setup.cache import EXTENSION, Cache

__all__ = ["LibraryError", "Native", "find", "load"]

ENVIRONMENT = "VRNIC_VFU_DIR"
"""Environment variable that names the module's folder and goes before the cache."""

_MODULE = "_vfu"


class LibraryError(Exception):
    """The extension is missing or does not load; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Native:
    """The loaded extension: cffi's two handles, which have no static types."""

    ffi: Any
    lib: Any


def find() -> Path:
    """Path of the extension module.

    :raises LibraryError: it is not where it should be.
    """
    name = _MODULE + str(sysconfig.get_config_var("EXT_SUFFIX"))
    chosen = os.environ.get(ENVIRONMENT)
    folder = Path(chosen) if chosen else Cache.default().current(EXTENSION)
    if folder is None:
        raise LibraryError("libvfio-user is not built for this checkout: run scripts/setup")
    path = folder / name
    if not path.is_file():
        if chosen:
            raise LibraryError(f"{ENVIRONMENT}={chosen} holds no {name}: unset it and run scripts/setup")
        raise LibraryError(f"{path} is missing: run scripts/setup")
    return path


@functools.cache
def load() -> Native:
    """Load the extension once per process.

    :raises LibraryError: it is missing, or does not load (another Python, a library it needs is gone).
    """
    path = find()
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise LibraryError(f"{path} does not load ({error}): run scripts/setup") from None
    sys.modules[_MODULE] = module
    return Native(module.ffi, module.lib)
