# SPDX-License-Identifier: Apache-2.0
"""What can be made to go wrong, by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from emu.clock import MS, US
from emu.nic.work import Cause, Status

__all__ = ["PROFILES", "Doorbells", "Failure", "Memory", "Path", "Profile", "find_profile"]


@dataclass(frozen=True, slots=True)
class Memory:
    """On the way from the NIC to memory, see :class:`emu.pcie.ordering.PostedWrites`.

    ``hold_ns`` is the longest time a write or an interrupt waits, ``tear`` whether its words come singly.
    """

    hold_ns: int
    tear: bool = False


@dataclass(frozen=True, slots=True)
class Doorbells:
    """On the way from the guest to the NIC: doorbells are late by up to ``late_ns``; ``lose`` and ``repeat``
    are probabilities. With ``collapse`` one that waits gives way to a newer one of the same queue.
    """

    late_ns: int = 0
    lose: float = 0.0
    repeat: float = 0.0
    collapse: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """On the way from the network to the NIC. Probabilities that a frame is lost, that it comes twice, that
    it comes up to ``late_ns`` late (and so behind others), that an acknowledgement is lost. Of every
    ``pause_every_ns`` the NIC takes no frame for the first ``pause_ns``: its peers see a slow receiver.
    """

    lose: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    late_ns: int = 0
    lose_acknowledgement: float = 0.0
    pause_ns: int = 0
    pause_every_ns: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """What fails without a reason: one descriptor of each queue pair, the ``nth`` (from 0, drawn below that
    number), completes with ``status`` and ``cause``.
    """

    nth: int
    status: Status = Status.REM_OP_ERR
    cause: Cause = Cause.REMOTE_NAK


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile. ``harmless`` says that a correct program gives the same results as without it.

    ``text`` is for a person: what happens, why it may, and what a program must do to live with it.
    ``reset_ns`` resets every function once, at a time drawn up to twice that. ``atomics`` says whether the
    NIC carries out atomics from its peers.
    """

    name: str
    summary: str
    text: str
    harmless: bool = True
    memory: Memory | None = None
    doorbells: Doorbells | None = None
    path: Path | None = None
    failure: Failure | None = None
    atomics: bool = True
    reset_ns: int = 0
    parts: tuple[str, ...] = field(default=())
    """Names of the profiles that this one joins."""


_SINGLE = (
    Profile(
        "pcie-order",
        "writes and interrupts of the NIC wait, and arrive in any order PCIe allows",
        "Posted writes are held for up to 200 us each, until the NIC reads or the guest reads a register. "
        "Strict writes keep their order; payload of regions with relaxed ordering may be overtaken by what "
        "comes later. A program that sees a completion and then reads what it is about lives with it in "
        "strict regions; in relaxed ones it has to read a register, or have the NIC read, before.",
        memory=Memory(hold_ns=200 * US),
    ),
    Profile(
        "torn-writes",
        "each 8-byte word of a write is seen on its own",
        "As pcie-order, and a write of more than 8 bytes appears word by word: ascending where ordering is "
        "strict, in any order where it is relaxed. A program must poll the word that is written last (the "
        "commit word of a completion), never a word in the middle.",
        memory=Memory(hold_ns=200 * US, tear=True),
    ),
    Profile(
        "late-doorbells",
        "the NIC sees doorbells late",
        "Doorbells take up to 500 us, in order: the NIC fetches descriptors long after they were posted. "
        "Descriptors must stay as they are until they complete; a posted store has no time by which it is "
        "there.",
        doorbells=Doorbells(late_ns=500 * US),
    ),
    Profile(
        "repeated-doorbells",
        "doorbells come twice, the second time late",
        "A third of the doorbells is delivered again behind later ones. They name an index, so one that "
        "brings no news is counted (C07 once a newer one was there) and ignored.",
        doorbells=Doorbells(late_ns=300 * US, repeat=0.33),
    ),
    Profile(
        "collapsed-doorbells",
        "of several doorbells of a queue that wait, the last one counts",
        "What a polled doorbell page does: the NIC sees the last value. An index covers everything before "
        "it, so nothing may depend on the number of doorbells.",
        doorbells=Doorbells(late_ns=500 * US, collapse=True),
    ),
    Profile(
        "lost-doorbells",
        "one doorbell in ten vanishes",
        "No real bus loses a posted write, but a program that rings at the wrong place, or a mapping that "
        "was taken away, looks like this. The next doorbell of the queue brings the work along; without one "
        "the last batch hangs (C14).",
        harmless=False,
        doorbells=Doorbells(lose=0.1),
    ),
    Profile(
        "path-loss",
        "frames are lost on arrival",
        "Two frames in a hundred. Reliable transports repeat them.",
        path=Path(lose=0.02),
    ),
    Profile(
        "path-reorder",
        "frames overtake each other",
        "A tenth of the frames is up to 100 us late. RoCE takes the gap for a loss and goes back; UET takes "
        "them as they come.",
        path=Path(reorder=0.1, late_ns=100 * US),
    ),
    Profile(
        "path-repeat",
        "frames come twice",
        "One in twenty. A responder must recognise a duplicate and must not carry it out again, atomics "
        "above all.",
        path=Path(repeat=0.05),
    ),
    Profile(
        "lost-acks",
        "acknowledgements are lost",
        "A fifth of them: the request was carried out, and is sent again. Atomics must answer from the "
        "responder's memory of them.",
        path=Path(lose_acknowledgement=0.2),
    ),
    Profile(
        "peer-pause",
        "NICs take no frames for a while, again and again",
        "5 ms of every 20 ms, as with a receiver that a driver or a pause frame holds up. Nothing is lost; "
        "timeouts that are too short repeat what was on its way.",
        path=Path(pause_ns=5 * MS, pause_every_ns=20 * MS),
    ),
    Profile(
        "failed-work",
        "one descriptor of each queue pair fails",
        "One of the first 64, with REM_OP_ERR. The queue pair goes to error, the rest is flushed. A program "
        "that looks at a completion's index alone takes that for success and waits, or goes on with "
        "what never arrived.",
        harmless=False,
        failure=Failure(64),
    ),
    Profile(
        "no-atomics",
        "NICs refuse atomics of their peers",
        "As a peer without that capability: NAK remote access error, the queue pair of the requester goes to "
        "error. Programs are to ask for the capability before.",
        harmless=False,
        atomics=False,
    ),
    Profile(
        "reset",
        "every NIC is reset once, under traffic",
        "A function-level reset some hundred milliseconds after its first doorbell, as an administrator or "
        "error recovery would do. Objects are gone; peers run into their retry limit.",
        harmless=False,
        reset_ns=300 * MS,
    ),
)

_HARMLESS = tuple(profile for profile in _SINGLE if profile.harmless)

_STORM = Profile(
    "storm",
    "everything a correct program survives, at once",
    f"Joins {', '.join(profile.name for profile in _HARMLESS)}.",
    memory=Memory(hold_ns=200 * US, tear=True),
    doorbells=Doorbells(late_ns=500 * US, repeat=0.33, collapse=True),
    path=Path(
        lose=0.02,
        repeat=0.05,
        reorder=0.1,
        late_ns=100 * US,
        lose_acknowledgement=0.2,
        pause_ns=5 * MS,
        pause_every_ns=20 * MS,
    ),
    parts=tuple(profile.name for profile in _HARMLESS),
)

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (*_SINGLE, _STORM)}
"""All of them, by name."""


def find_profile(name: str) -> Profile:
    """The profile called ``name``. :raises ValueError: there is none; the message tells which there are."""
    if name in PROFILES:
        return PROFILES[name]
    close = difflib.get_close_matches(name, PROFILES, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(PROFILES)}"
    raise ValueError(f"unknown chaos profile {name!r} ({hint})")
