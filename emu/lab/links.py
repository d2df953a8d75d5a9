# SPDX-License-Identifier: Apache-2.0
"""The cables of a lab, for people: what state each link is in, and pulling or plugging one."""

from __future__ import annotations

from emu.control.server import ControlError
from emu.fabric.switch import Switch
from emu.lab.topology import Lab

__all__ = ["Links"]


class Links:
    """Answers the control socket's ``links`` and ``link``.

    A NIC of ours hears of a change at once and tells its driver (``mlx5``: PORT_CHANGE, which moves the
    carrier of the guest's network device; ``vrnic``: an event on every event queue). QEMU's virtio network
    device has a carrier of its own, which stays: its frames are lost.
    """

    def __init__(self, lab: Lab, switch: Switch) -> None:
        self._devices = {nic.name: nic.device for nic in lab.nics}
        self._switch = switch

    def show(self, _: dict[str, object]) -> dict[str, dict[str, object]]:
        """Every link by its NIC: ``device``, ``up``, and the counters of both directions and its queue."""
        return {name: self._describe(name) for name in self._devices}

    def set(self, params: dict[str, object]) -> dict[str, object]:
        """Bring the link of NIC ``function`` ``up`` (true) or down (false); ``changed`` tells whether it was
        not so already.

        :raises ControlError: no such NIC, or ``up`` is neither.
        """
        name, up = params.get("function"), params.get("up")
        known = ", ".join(self._devices)
        if not isinstance(name, str) or name not in self._devices:
            raise ControlError(f"no NIC {name!r}", f"NICs: {known}")
        if not isinstance(up, bool):
            raise ControlError(f"link state {up!r} of {name}", '"up" is true or false')
        link = self._switch.link(name)
        changed = link.up != up
        link.set_up(up)
        return {"function": name, "changed": changed, **self._describe(name)}

    def _describe(self, name: str) -> dict[str, object]:
        link = self._switch.link(name)
        return {"device": self._devices[name], "up": link.up, "counters": self._switch.snapshot()[name]}
