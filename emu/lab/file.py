# SPDX-License-Identifier: Apache-2.0
"""Reads a lab from a TOML file; a mistake is reported with the file, the line and the key.

::

    name = "pair"             # every key of the top level is optional
    transport = "roce-rc"     # or "uet-rud", "uet-rod"
    carry = "roce"            # or "uet-rud", "uet-rod": for device = "mlx5"
    loss = 0.02               # probability, per link and frame
    trim = 0.01               # that a link cuts the payload off a UET packet
    mark = 0.01               # that a link sets the ECN mark
    llr = true                # links repeat what they lost
    pfc = true                # pauses are of single priorities, by frames of priority flow control
    symbol_errors = 1e-6      # per code word, corrected and counted
    delay_us = 5
    speed_mbps = 200          # of links; then queues: queue_kib, ecn_min_kib, ecn_max_kib, trim_kib, pause
    secret_file = "lab.key"   # or secret = "...": 64 hexadecimal digits that protect UET packets
    seed = 7

    [checks]                  # actions of rules: off, count, log, error or stop
    all = "log"
    C08 = "stop"

    [[node]]
    name = "left"
    memory = "512M"
    cpus = 1
    tools = true              # the programs of the set-up's Debian tree; default: where no NIC is a "vrnic"

    [[node.nic]]              # mac, address (IPv4), and those of a link above
    device = "vrnic"          # or "mlx5"
    [[node.gpu]]
    vram = "64M"
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from emu.checks.catalogue import parse_choice
from emu.lab.failure import LabFailure
from emu.lab.speed import DEFAULT_QUEUE_KIB, parse_secret
from emu.lab.topology import DEFAULT_MEMORY, DEFAULT_VRAM, Gpu, Lab, LabError, Nic, Node, parse_size

__all__ = ["LabFileError", "format_lab", "load_lab", "parse_lab"]

_SIZE_MAX = 1 << 20
_SECRET_MAX = 4096

_Keys = dict[str, tuple[type, ...]]
_NUMBER = (int, float)
_TOP: _Keys = {
    "name": (str,),
    "transport": (str,),
    "carry": (str,),
    "chaos": (str,),
    "checks": (dict,),
    "loss": _NUMBER,
    "trim": _NUMBER,
    "mark": _NUMBER,
    "llr": (bool,),
    "pfc": (bool,),
    "symbol_errors": _NUMBER,
    "delay_us": _NUMBER,
    "speed_mbps": _NUMBER,
    "queue_kib": (int,),
    "ecn_min_kib": (int,),
    "ecn_max_kib": (int,),
    "trim_kib": (int,),
    "pause": (bool,),
    "secret": (str,),
    "secret_file": (str,),
    "seed": (int,),
    "node": (list,),
}
_NODE: _Keys = {
    "name": (str,),
    "memory": (str, int),
    "cpus": (int,),
    "tools": (bool,),
    "nic": (list,),
    "gpu": (list,),
}
_NIC: _Keys = {
    "device": (str,),
    "mac": (str,),
    "address": (str,),
    "loss": _NUMBER,
    "trim": _NUMBER,
    "mark": _NUMBER,
    "pfc": (bool,),
    "llr": (bool,),
    "symbol_errors": _NUMBER,
    "delay_us": _NUMBER,
    "doorbells": (str,),
    "speed_mbps": _NUMBER,
    "secret": (str,),
    "secret_file": (str,),
}
_GPU: _Keys = {"vram": (str, int)}
_TYPE_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    list: "an array of tables",
    bool: "true or false",
    dict: "a table",
}

_Value = TypeVar("_Value")
_Path = tuple[str | int, ...]


class LabFileError(LabFailure):
    """A lab file that cannot be used; the message starts with ``file:line:``."""


def load_lab(path: Path) -> Lab:
    """Read the lab at ``path``.

    :raises LabFileError: it cannot be read, is not TOML, or describes no valid lab.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_SIZE_MAX + 1)
    except OSError as error:
        raise LabFileError(f"{path}: {error.strerror}") from error
    if len(data) > _SIZE_MAX:
        raise LabFileError(f"{path}: more than {_SIZE_MAX} bytes are no lab file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise LabFileError(f"{path}:{line}: not UTF-8 text") from error
    return parse_lab(text, str(path))


def parse_lab(text: str, name: str = "lab.toml") -> Lab:
    """Read a lab from TOML ``text``; ``name`` is the file name that errors show.

    :raises LabFileError: it is not TOML or describes no valid lab.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _syntax_error(str(error), text)
        raise LabFileError(f"{name}:{line}: {message}") from error
    except RecursionError as error:
        raise LabFileError(f"{name}:1: nested too deeply") from error
    try:
        return _lab(document, Path(name).parent)
    except LabError as error:
        line = _Lines(text).find(error.where)
        subject = _subject(document, error.where)
        raise LabFileError(f"{name}:{line}: {subject}{error}") from error


def format_lab(lab: Lab) -> str:
    """TOML text from which :func:`parse_lab` makes the same lab, with nothing left to a default."""
    lines = [
        f"name = {_quote(lab.name)}",
        f"transport = {_quote(lab.transport)}",
        f"carry = {_quote(lab.carry)}",
        f"chaos = {_quote(lab.chaos)}",
        f"loss = {lab.loss}",
        f"trim = {lab.trim}",
        f"mark = {lab.mark}",
        f"llr = {str(lab.llr).lower()}",
        f"pfc = {str(lab.pfc).lower()}",
        f"symbol_errors = {lab.symbol_errors}",
        f"delay_us = {lab.delay_us}",
        f"speed_mbps = {lab.speed_mbps}",
        f"queue_kib = {lab.queue_kib}",
        f"secret = {_quote(lab.secret)}",
        f"seed = {lab.seed}",
    ]
    for name in ("ecn_min_kib", "ecn_max_kib", "trim_kib", "pause"):
        value = getattr(lab, name)
        if value is not None:
            lines.append(f"{name} = {str(value).lower()}")
    if lab.checks:
        lines += [
            "",
            "[checks]",
            *(f"{name} = {_quote(action)}" for name, action in dict(lab.checks).items()),
        ]
    for node in lab.nodes:
        lines += [
            "",
            "[[node]]",
            f"name = {_quote(node.name)}",
            f"memory = {parse_size(node.memory)}",
            f"cpus = {node.cpus}",
            f"tools = {str(node.has_tools).lower()}",
        ]
        for nic in (nic for nic in lab.nics if nic.node == node.name):
            lines += [
                "",
                "[[node.nic]]",
                f"device = {_quote(nic.device)}",
                f"mac = {_quote(nic.mac.hex(':'))}",
                f"address = {_quote(str(ipaddress.IPv4Address(nic.gids[1][12:])))}",
                f"loss = {nic.loss}",
                f"trim = {nic.trim}",
                f"mark = {nic.mark}",
                f"llr = {str(nic.llr).lower()}",
                f"pfc = {str(nic.pfc).lower()}",
                f"symbol_errors = {nic.symbol_errors}",
                f"delay_us = {nic.delay_ns / 1000}",
                f"doorbells = {_quote(nic.doorbells)}",
                f"speed_mbps = {nic.queueing.rate / 125_000}",
                f"secret = {_quote(nic.secret.hex())}",
            ]
        for gpu in (gpu for gpu in lab.gpus if gpu.node == node.name):
            lines += ["", "[[node.gpu]]", f"vram = {gpu.vram}"]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    # JSON strings are TOML basic strings, except for surrogate pairs and that TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _syntax_error(message: str, text: str) -> tuple[str, int]:
    match = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if match:
        return f"{message[: match.start()]} (column {match[2]})", int(match[1])
    return message, text.count("\n") + 1


def _subject(document: Mapping[str, object], where: _Path) -> str:
    """ "node 'a', nic 0: " for a path below the nodes."""
    if len(where) < 2 or where[0] != "node":
        return ""
    nodes = document["node"]
    index = where[1]
    assert isinstance(nodes, list) and isinstance(index, int)
    node = nodes[index]
    name = node.get("name") if isinstance(node, dict) else None
    subject = f"node {name!r}" if isinstance(name, str) else f"node {index}"
    if len(where) >= 4:
        subject += f", {where[2]} {where[3]}"
    return subject + ": "


def _lab(document: Mapping[str, object], folder: Path) -> Lab:
    _check_keys(document, _TOP, ())
    nodes = tuple(
        _node(table, ("node", index), folder) for index, table in enumerate(_tables(document, "node", ()))
    )
    return Lab(
        nodes=nodes,
        name=_get(document, "name", "lab"),
        transport=_get(document, "transport", "roce-rc"),
        carry=_get(document, "carry", "roce"),
        chaos=_get(document, "chaos", ""),
        checks=_checks(document),
        loss=_get(document, "loss", 0.0),
        trim=_get(document, "trim", 0.0),
        mark=_get(document, "mark", 0.0),
        llr=_get(document, "llr", False),
        pfc=_get(document, "pfc", False),
        symbol_errors=_get(document, "symbol_errors", 0.0),
        delay_us=_get(document, "delay_us", 0.0),
        speed_mbps=_get(document, "speed_mbps", 0.0),
        queue_kib=_get(document, "queue_kib", DEFAULT_QUEUE_KIB),
        ecn_min_kib=_get(document, "ecn_min_kib", None),
        ecn_max_kib=_get(document, "ecn_max_kib", None),
        trim_kib=_get(document, "trim_kib", None),
        pause=_get(document, "pause", None),
        secret=_secret(document, folder, ()) or "",
        seed=_get(document, "seed", 1),
    )


def _secret(table: Mapping[str, object], folder: Path, where: _Path) -> str | None:
    """The secret of a lab or NIC: in place, or in the file it names, relative to the lab's."""
    name: str | None = _get(table, "secret_file", None)
    if name is None:
        return _get(table, "secret", None)
    place = (*where, "secret_file")
    if "secret" in table:
        raise LabError("'secret' and 'secret_file' at once; keep one", place)
    try:
        with (folder / Path(name).expanduser()).open("rb") as file:
            text = file.read(_SECRET_MAX).decode("ascii").strip()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LabError(f"secret_file {name!r}: {reason}", place) from error
    except UnicodeDecodeError as error:
        raise LabError(f"secret_file {name!r} does not hold hexadecimal digits", place) from error
    try:
        parse_secret(text)
    except ValueError as error:
        raise LabError(f"secret_file {name!r}: {error}", place) from error
    return text


def _checks(document: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    table = document.get("checks", {})
    assert isinstance(table, dict)
    for name, action in table.items():
        if not isinstance(action, str):
            raise LabError(f"the action of {name!r} must be text", ("checks", name))
        try:
            parse_choice([(name, action)])
        except ValueError as error:
            raise LabError(str(error), ("checks", name)) from error
    return tuple(table.items())


def _node(table: Mapping[str, object], where: _Path, folder: Path) -> Node:
    _check_keys(table, _NODE, where)
    if "name" not in table:
        raise LabError("a node needs a name", where)
    nics: list[Nic] = []
    for index, nic in enumerate(_tables(table, "nic", where)):
        _check_keys(nic, _NIC, (*where, "nic", index))
        nics.append(
            Nic(
                mac=_get(nic, "mac", None),
                address=_get(nic, "address", None),
                loss=_get(nic, "loss", None),
                trim=_get(nic, "trim", None),
                mark=_get(nic, "mark", None),
                llr=_get(nic, "llr", None),
                pfc=_get(nic, "pfc", None),
                symbol_errors=_get(nic, "symbol_errors", None),
                delay_us=_get(nic, "delay_us", None),
                device=_get(nic, "device", "vrnic"),
                doorbells=_get(nic, "doorbells", "trapped"),
                speed_mbps=_get(nic, "speed_mbps", None),
                secret=_secret(nic, folder, (*where, "nic", index)),
            )
        )
    gpus: list[Gpu] = []
    for index, gpu in enumerate(_tables(table, "gpu", where)):
        _check_keys(gpu, _GPU, (*where, "gpu", index))
        gpus.append(Gpu(vram=_get(gpu, "vram", DEFAULT_VRAM)))
    return Node(
        name=_get(table, "name", ""),
        nics=tuple(nics),
        gpus=tuple(gpus),
        memory=_get(table, "memory", DEFAULT_MEMORY),
        cpus=_get(table, "cpus", 1),
        tools=_get(table, "tools", None),
    )


def _tables(table: Mapping[str, object], key: str, where: _Path) -> list[dict[str, object]]:
    values = table.get(key, [])
    assert isinstance(values, list)
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise LabError(
                f"{key!r} must hold tables: write [[{'node.' if where else ''}{key}]]", (*where, key, index)
            )
    return values


def _get(table: Mapping[str, object], key: str, default: _Value) -> _Value:
    # _check_keys has already compared the type with the table of keys.
    return table.get(key, default)  # type: ignore[return-value]


def _check_keys(table: Mapping[str, object], keys: _Keys, where: _Path) -> None:
    for key, value in table.items():
        place = (*where, key)
        if key not in keys:
            close = difflib.get_close_matches(key, keys, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(keys)}"
            raise LabError(f"unknown key {key!r} ({hint})", place)
        if type(value) not in keys[key]:
            wanted = " or ".join(_TYPE_NAMES[kind] for kind in keys[key])
            raise LabError(f"{key!r} must be {wanted}", place)


class _Lines:
    """Finds the line of a key, which tomllib does not tell.

    The text is known to be valid TOML. It is cut into statements: lines are joined until they parse on their
    own, which makes tomllib itself the judge of strings, arrays and comments that span lines.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[_Path, int] = {(): 1}
        table: _Path = ()
        counts: dict[_Path, int] = {}
        lines = text.split("\n")
        number = 0
        while number < len(lines):
            first = number
            statement = ""
            parsed: dict[str, object] | None = None
            while parsed is None and number < len(lines):
                statement += lines[number] + "\n"
                number += 1
                try:
                    parsed = tomllib.loads(statement)
                except tomllib.TOMLDecodeError:
                    continue
            if not parsed:
                continue
            if statement.lstrip().startswith("["):
                table = self._header(_leaf(parsed), counts, statement.lstrip().startswith("[["))
                # The path without its index too: an unknown array is named by its key alone.
                for path in _prefixes(table):
                    self._lines.setdefault(path, first + 1)
            else:
                for path in _prefixes(_leaf(parsed)):
                    self._lines.setdefault((*table, *path), first + 1)

    def find(self, path: _Path) -> int:
        """Line (from 1) of the longest known beginning of ``path``."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    @staticmethod
    def _header(keys: _Path, counts: dict[_Path, int], array: bool) -> _Path:
        """The path of a header, with the index of the current element for each array of tables on its way."""
        path: _Path = ()
        for depth, key in enumerate(keys, start=1):
            path = (*path, key)
            if depth == len(keys) and array:
                counts[path] = counts.get(path, -1) + 1
            if path in counts:
                path = (*path, counts[path])
        return path


def _leaf(parsed: Mapping[str, object]) -> _Path:
    """The key path of one parsed statement: the only key at each depth, down to the value."""
    path: _Path = ()
    value: object = parsed
    while isinstance(value, dict) and len(value) == 1:
        key, value = next(iter(value.items()))
        path = (*path, key)
        if isinstance(value, list) and value == [{}]:
            break
    return path


def _prefixes(path: _Path) -> list[_Path]:
    return [path[:end] for end in range(1, len(path) + 1)]
