# SPDX-License-Identifier: Apache-2.0
"""Why an inbound packet was dropped, by the name of the counter that tells. All add to ``rx_dropped`` too."""

from __future__ import annotations

import enum

__all__ = ["DropReason"]


class DropReason(enum.StrEnum):
    """Counters that Linux does not have; where it has one (ICRC, P_Key, Q_Key, sequence), that one counts."""

    FOREIGN = "rx_drop_foreign"
    """No packet that anything here takes."""
    LENGTH = "rx_drop_length"
    """Truncated, or a length that cannot be."""
    CHECKSUM = "rx_drop_checksum"
    """IPv4 or UDP checksum."""
    VERSION = "rx_drop_version"
    """Transport version."""
    QPN = "rx_drop_qpn"
    """A queue pair that does not exist, or 0; a group without members."""
    OPCODE = "rx_drop_opcode"
    """Unknown, or of another transport than the queue pair's."""
    STATE = "rx_drop_state"
    """The queue pair is not in a state for it."""
    ADDRESS = "rx_drop_address"
    """Source or destination is not that of the connection, or of the port."""
    RESPONSE = "rx_drop_response"
    """A response to nothing that waits for one, or that means nothing."""
    REPEAT = "rx_drop_repeat"
    """A repeated request whose answer is not remembered."""
    REFUSED = "rx_drop_refused"
    """An unreliable message that cannot be carried out: key, length, sequence of opcodes."""
