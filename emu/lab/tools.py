# SPDX-License-Identifier: Apache-2.0
"""Tools of the distribution that need two ends: a server in one guest, a client in the other."""

from __future__ import annotations

import contextlib
import re

from emu.lab.agent import Job, Result
from emu.lab.failure import LabFailure
from emu.lab.guest import Guest

__all__ = ["CM_LISTENS", "JUMBO_MTU", "RDMA_PORT", "bring_up_rdma", "run_tool", "tcp_listens"]

RDMA_PORT = 18515
"""TCP port where perftest and the ibv examples tell each other about their queue pairs."""

CM_LISTENS = "rdma res show cm_id | grep -q LISTEN"
"""True in a guest where a program waits for a peer with the connection manager."""

JUMBO_MTU = 4200
"""MTU of a network device with room for a path MTU of 4096 and its headers."""

_TRIES = 400
_PATIENCE = 60.0
"""Seconds a server may take to listen, and to end after its client."""
_LINES = 12
_RACES = 5
_RACE_LOST = re.compile(r"RDMA_CM_EVENT_REJECTED; error: 8\b")
"""Said by perftest's client with ``-R``. Its programs connect twice, first for their settings and then for
the test, and the server begins to listen for the second time after the first connection, without telling the
client. A client that is faster is refused: nobody offers that service (reason 8 of the connection manager).
"""


def tcp_listens(port: int = RDMA_PORT) -> str:
    """True in a guest where a program listens on TCP ``port``."""
    return f"netstat -ltn | grep -q ':{port} '"


def bring_up_rdma(guest: Guest, address: str, *, software: bool = False, mtu: int = JUMBO_MTU) -> None:
    """Have the distribution's RDMA stack of ``guest`` ready on its network device ``eth0``.

    ``software`` adds rdma_rxe on top, for a device that has no RDMA. Waits until the port is active, the
    GID of the IPv4 ``address`` is there, and the link-local address is more than tentative: until duplicate
    address detection has ended, the kernel refuses it as the source of a connection.

    :raises LabFailure: one of these does not come.
    """
    guest.run(f"ip link set eth0 mtu {mtu}", 30).check()
    if software:
        guest.run("rdma link add rxe0 type rxe netdev eth0", 30).check()
    ready = f"ibv_devinfo -v | grep -q 'GID.*{address}' && ibv_devinfo | grep -q PORT_ACTIVE"
    ready += " && ip -6 addr show dev eth0 | grep -q fe80 && ! ip -6 addr show dev eth0 | grep -q tentative"
    wait = f"for n in $(seq {_TRIES}); do {ready} && exit; sleep 0.1; done; ibv_devinfo -v; exit 1"
    guest.run(wait, _PATIENCE).check()


def run_tool(
    server: tuple[Guest, str], client: tuple[Guest, str], *, ready: str, timeout: float = 60.0
) -> tuple[Result, Result]:
    """Start the server's command, wait until the shell condition ``ready`` holds there, run the client's.

    ``timeout`` is seconds for the client. The two guests may be one. Returns the server's and the client's
    result, both with status 0. When the client was refused because the server was about to listen once more,
    which is no fault of either end, both are started again.

    :raises LabFailure: a command failed or ran out of time, or the server never listened; the hint holds what
        both printed last.
    """
    for _ in range(_RACES):
        served, asked, problem = _attempt(server, client, ready, timeout)
        if asked is None or not any(map(_RACE_LOST.search, asked.err)):
            break
    if asked is not None and not problem:
        return served, asked
    (there, serve), (here, ask) = server, client
    said = [f"--- {there.name}: {serve}", *_last(served)]
    if asked is not None:
        said += [f"--- {here.name}: {ask}", *_last(asked)]
    raise LabFailure(problem, "\n".join((*said, there.failure("").hint, here.failure("").hint)))


def _attempt(
    server: tuple[Guest, str], client: tuple[Guest, str], ready: str, timeout: float
) -> tuple[Result, Result | None, str]:
    """Both results, the client's None when it was not even started; and what went wrong, if anything."""
    there, serve = server
    here, ask = client
    job = there.spawn(serve, timeout + 2 * _PATIENCE)
    listening = there.run(f"for n in $(seq {_TRIES}); do {ready} && exit; sleep 0.1; done; exit 1", _PATIENCE)
    asked = None if listening.status else here.run(ask, timeout)
    if asked is None or asked.status:
        _kill(job)
    served = job.wait()
    problem = ""
    if asked is None:
        problem = f"`{serve}` on {there.name} does not listen"
    elif asked.status:
        problem = f"`{ask}` on {here.name} {_ended(asked)}"
    elif served.status:
        problem = f"`{serve}` on {there.name} {_ended(served)}"
    return served, asked, problem


def _ended(result: Result) -> str:
    return "ran out of time" if result.status == 124 else f"ended with status {result.status}"


def _last(result: Result) -> list[str]:
    return [*result.out, *result.err][-_LINES:]


def _kill(job: Job) -> None:
    with contextlib.suppress(LabFailure):
        job.kill(9)
