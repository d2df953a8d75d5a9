# SPDX-License-Identifier: Apache-2.0
"""Ultra Ethernet Transport: packet delivery, semantics and congestion control, without I/O."""

from __future__ import annotations

from emu.uet.fep import TRANSPORTS, Fep
from emu.uet.parameters import NsccConfig, Parameters

__all__ = ["TRANSPORTS", "Fep", "NsccConfig", "Parameters"]
