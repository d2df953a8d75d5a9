# SPDX-License-Identifier: Apache-2.0
"""Profiles under which a lab misbehaves on purpose: what a correct program must survive, or must notice.

A profile is chosen for a run (``--chaos NAME``), its decisions are drawn from the lab's seed, and each of
them is an event, so that the capture says what was done. Parts of a NIC do not know of it: they are given
another bus, other registers, another port.
"""

from emu.chaos.interference import NicChaos
from emu.chaos.profile import PROFILES, Profile, find_profile

__all__ = ["PROFILES", "NicChaos", "Profile", "find_profile"]
