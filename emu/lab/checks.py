# SPDX-License-Identifier: Apache-2.0
"""The rules of a running lab's NICs, as the control socket offers them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from emu.checks.catalogue import parse_choice
from emu.checks.dump import dump_nic, render_dump
from emu.checks.recorder import Violation
from emu.control.server import ControlError, ControlServer
from emu.nic.device import Nic

if TYPE_CHECKING:
    from emu.lab.devices import NicDevice

__all__ = ["LabChecks"]

log = logging.getLogger(__name__)


class LabChecks:
    """Sets rules as a lab says, and answers about them. Dumps of stopped NICs go to ``directory``."""

    def __init__(
        self, devices: Mapping[str, NicDevice], choice: tuple[tuple[str, str], ...], directory: Path
    ) -> None:
        self._nics: dict[str, Nic] = {name: device.nic for name, device in devices.items()}
        self._directory = directory
        neighbours = tuple(self._nics.values())
        for nic in neighbours:
            nic.checks.configure(parse_choice(choice))
            nic.checks.join(neighbours)
            nic.checks.on_stop = partial(self._stopped, nic)

    def serve(self, control: ControlServer) -> None:
        """Offer the methods."""
        control.method("checks", self._list)
        control.method("checks_set", self._set)
        control.method("checks_dump", self._dump)
        control.method("checks_resume", self._resume)

    def _chosen(self, params: dict[str, object]) -> list[Nic]:
        name = params.get("function")
        if name is None:
            return list(self._nics.values())
        if not isinstance(name, str) or name not in self._nics:
            raise ControlError(f"no NIC {name!r}", "NICs: " + ", ".join(self._nics))
        return [self._nics[name]]

    def _list(self, _: dict[str, object]) -> object:
        return {
            name: {
                "rules": nic.checks.snapshot(),
                "stopped_by": None if nic.checks.stopped is None else nic.checks.stopped.to_json(),
                "violations": [violation.to_json() for violation in nic.checks.violations],
            }
            for name, nic in self._nics.items()
        }

    def _set(self, params: dict[str, object]) -> object:
        nics = self._chosen(params)
        try:
            actions = parse_choice([(str(params.get("rule")), str(params.get("action")))])
        except ValueError as error:
            raise ControlError(str(error), "`vrnic checks list` shows rules") from None
        for nic in nics:
            for rule, action in actions.items():
                nic.checks.set(rule, action)
        return {"functions": [nic.name for nic in nics]}

    def _dump(self, params: dict[str, object]) -> object:
        qpn = params.get("qpn")
        if qpn is not None and not isinstance(qpn, int):
            raise ControlError(f"QP number {qpn!r} is not a number")
        nics = self._chosen(params)
        dumps = [dump_nic(nic, qpn) for nic in nics if qpn is None or qpn in nic.qps.items]
        if not dumps:
            raise ControlError(
                f"no queue pair {qpn:#x}" if qpn is not None else "no NIC", "`vrnic qp` lists them"
            )
        return dumps

    def _resume(self, params: dict[str, object]) -> object:
        return {"functions": [nic.name for nic in self._chosen(params) if nic.checks.resume()]}

    def _stopped(self, nic: Nic, violation: Violation) -> None:
        path = self._directory / f"{nic.name}.{violation.rule.code}.dump.txt"
        try:
            path.write_text(render_dump(dump_nic(nic)))
        except OSError as error:
            log.warning("the dump %s cannot be written: %s", path, error.strerror)
        else:
            log.warning("%s stopped by %s; dump in %s", nic.name, violation.rule.code, path)
