# SPDX-License-Identifier: Apache-2.0
"""The security sublayer (TSS): whole frames in, whole frames out.

It stands between an endpoint and its port. What follows UDP (or the entropy header) is encrypted with
AES-256-GCM, a header that tells domain, association number and counter goes before it, the tag (ICV) behind.
Authenticated beside it is everything from the IP source address on, up to the crypt offset; DSCP and ECN
may change on the way.

Every packet takes a new counter, a repeated one too. Choices where sources are silent: secured data travels
under a DSCP that switches do not trim, since what is left of a trimmed packet would prove nothing; a source
that starts anew takes the next epoch. A NIC's counters start at 0 with its process, so a secret should not
serve anything else.
"""

from __future__ import annotations

import struct
from collections import OrderedDict

from cryptography.exceptions import InvalidTag

from emu.clock import Scheduler
from emu.nic.endpoint import EndpointHost
from emu.nic.engine import Drop
from emu.uet.path import ENTROPY_SIZE
from emu.uet.tss_keys import DerivedKey, KeyMode, KeyStore, SecureDomain
from emu.uet.tss_replay import ReplayWindow
from emu.wire.frame import ETHERNET_SIZE, ETHERTYPE_IPV4, ETHERTYPE_IPV6
from emu.wire.headers import UDP_SIZE
from emu.wire.uet_names import UET_PORT, PdsType
from emu.wire.uet_profile import DEFAULT, Profile
from emu.wire.uet_tss import ICV_SIZE

__all__ = ["SecuredHost", "Tss"]

_HALF = struct.Struct(">H")
_IPV4 = ETHERTYPE_IPV4.to_bytes(2, "big")
_IPV6 = ETHERTYPE_IPV6.to_bytes(2, "big")
_UDP_PROTOCOL = 17
_TYPE = PdsType.TSS << 3
_SP, _AN = 4, 1
_EPOCHS = 1 << 16
_TSC = 1 << 64
_PORT = UET_PORT.to_bytes(2, "big")
_SOURCES_KEPT = 4096


class _Layout:
    """Where the parts of an IP packet with UET are in a frame: source and destination address, the first byte
    behind UDP or entropy header, the end of the packet.
    """

    __slots__ = ("dest", "end", "source", "uet")

    def __init__(self, source: slice, dest: slice, uet: int, end: int) -> None:
        self.source, self.dest, self.uet, self.end = source, dest, uet, end


class Tss:
    """Secures what one endpoint sends and opens what it gets.

    :param domain: its secret and how it is known
    """

    def __init__(self, domain: SecureDomain, profile: Profile = DEFAULT) -> None:
        self.domain = domain
        self._profile = profile
        self._keys = KeyStore(domain)
        self._windows: OrderedDict[tuple[int, bytes], ReplayWindow] = OrderedDict()
        self._tsc = 0
        self._header = 12 if domain.ssi is None else 16
        first = _TYPE | (0 if domain.ssi is None else _SP) | domain.an
        self._start = bytes((first,)) + domain.sdi.to_bytes(3, "big")
        if domain.ssi is not None:
            self._start += domain.ssi.to_bytes(4, "big")

    def restart(self) -> None:
        """The endpoint was reset: its counter goes on in the next epoch. What it saw of others stays."""
        self._tsc = ((self._tsc >> 48) + 1) % _EPOCHS << 48

    def seal(self, frame: bytes) -> bytes:
        """The secured form of an endpoint's own ``frame``, 28 bytes longer, 32 with an SSI."""
        layout = self._locate(frame)
        assert layout is not None, "endpoints send UET only"
        tsc = self._tsc
        self._tsc = (tsc + 1) % _TSC
        head = self._resized(frame, layout, self._header + ICV_SIZE)
        head += self._start + tsc.to_bytes(8, "big")
        clear = self._profile.tss_crypt_offset
        head += frame[layout.uet : layout.uet + clear]
        source = frame[layout.source]
        key = self._key(self.domain.an, self.domain.ssi, source, frame[layout.dest], tsc)
        assert key is not None
        iv = key.iv(self._name(self.domain.ssi, source), tsc)
        aad = bytes(head[layout.source.start :])
        return bytes(head) + key.cipher.encrypt(iv, frame[layout.uet + clear : layout.end], aad)

    def open(self, frame: bytes) -> bytes | Drop:
        """The frame as it was before :meth:`seal`, or why it is refused. Frames of other protocols pass."""
        layout = self._locate(frame)
        if layout is None or layout.end > len(frame) or layout.uet >= layout.end:
            return frame
        first = frame[layout.uet]
        if first >> 3 != PdsType.TSS:
            return Drop(f"packet type {first >> 3} without security", "tss_unsecured")
        header = 16 if first & _SP else 12
        at = layout.uet + header + self._profile.tss_crypt_offset
        if at + ICV_SIZE > layout.end:
            return Drop("too short for a security header and its ICV", "tss_auth_failures")
        sdi = int.from_bytes(frame[layout.uet + 1 : layout.uet + 4], "big")
        an = first & _AN
        if sdi != self.domain.sdi:
            return Drop(f"secure domain {sdi} is not this NIC's ({self.domain.sdi})", "tss_unknown_domain")
        ssi = int.from_bytes(frame[layout.uet + 4 : layout.uet + 8], "big") if first & _SP else None
        tsc = int.from_bytes(frame[layout.uet + header - 8 : layout.uet + header], "big")
        source = frame[layout.source]
        key = self._key(an, ssi, source, frame[layout.dest], tsc)
        if key is None:
            return Drop(f"no secret has association number {an}", "tss_unknown_domain")
        place = (an, source if ssi is None else ssi.to_bytes(4, "big") + source)
        window = self._windows.get(place)
        if window is not None and not window.fresh(tsc):
            return Drop(f"counter {tsc:#x} of this source came before, or is too old", "tss_replays")
        try:
            plain = key.cipher.decrypt(
                key.iv(self._name(ssi, source), tsc),
                frame[at : layout.end],
                frame[layout.source.start : at],
            )
        except InvalidTag:
            return Drop("not authentic: the peer has another key, or it was changed", "tss_auth_failures")
        if window is None:
            # Only who has the key gets here, so that nobody else can push windows out.
            if len(self._windows) >= _SOURCES_KEPT:
                self._windows.popitem(last=False)
            window = self._windows[place] = ReplayWindow()
        window.note(tsc)
        return self._reopened(frame, layout, header, plain)

    def _reopened(self, frame: bytes, layout: _Layout, header: int, plain: bytes) -> bytes:
        clear = frame[layout.uet + header : layout.uet + header + self._profile.tss_crypt_offset]
        return bytes(self._resized(frame, layout, -header - ICV_SIZE)) + clear + plain

    def _locate(self, frame: bytes) -> _Layout | None:
        """The layout of a frame with UET; None for any other. Lengths are as the IP header says."""
        ethertype = frame[12:14]
        if ethertype == _IPV4 and len(frame) >= ETHERNET_SIZE + 28 and frame[14] == 0x45:
            protocol, transport = frame[23], 34
            end = ETHERNET_SIZE + int(_HALF.unpack_from(frame, 16)[0])
            addresses = slice(26, 30), slice(30, 34)
        elif ethertype == _IPV6 and len(frame) >= ETHERNET_SIZE + 48:
            protocol, transport = frame[20], 54
            end = transport + int(_HALF.unpack_from(frame, 18)[0])
            addresses = slice(22, 38), slice(38, 54)
        else:
            return None
        if protocol == _UDP_PROTOCOL and self._profile.over_udp:
            uet = transport + UDP_SIZE
            ours = frame[transport + 2 : transport + 4] == _PORT
        else:
            uet = transport + ENTROPY_SIZE
            ours = protocol == self._profile.native_protocol and not self._profile.over_udp
        return _Layout(*addresses, uet, end) if ours else None

    def _resized(self, frame: bytes, layout: _Layout, more: int) -> bytearray:
        """The headers before UET for a packet ``more`` bytes longer, under a DSCP that is not trimmed."""
        head = bytearray(frame[: layout.uet])
        profile = self._profile
        if frame[12:14] == _IPV4:
            if head[15] >> 2 == profile.dscp_data:
                head[15] = profile.dscp_no_trim << 2 | head[15] & 3
            _HALF.pack_into(head, 16, layout.end - ETHERNET_SIZE + more)
            _HALF.pack_into(head, 24, 0)
            total: int = sum(word for (word,) in _HALF.iter_unpack(head[14:34]))
            total = (total & 0xFFFF) + (total >> 16)
            _HALF.pack_into(head, 24, ~(total + (total >> 16)) & 0xFFFF)
            transport = 34
        else:
            (word,) = _HALF.unpack_from(head, 14)
            if word >> 6 & 0x3F == profile.dscp_data:
                _HALF.pack_into(head, 14, word & 0xF03F | profile.dscp_no_trim << 6)
            transport = 54
            _HALF.pack_into(head, 18, layout.end - transport + more)
        if profile.over_udp:
            _HALF.pack_into(head, transport + 4, layout.end - transport + more)
        return head

    def _key(self, an: int, ssi: int | None, source: bytes, dest: bytes, tsc: int) -> DerivedKey | None:
        """The key of a packet; by SSI, or by the address that the domain's mode asks for."""
        if ssi is not None:
            return self._keys.find(an, ssi.to_bytes(4, "big"), tsc)
        return self._keys.find(an, dest if self.domain.mode is KeyMode.SERVER else source, tsc)

    def _name(self, ssi: int | None, source: bytes) -> bytes:
        """The 4 bytes by which an IV knows the source."""
        if ssi is not None:
            return ssi.to_bytes(4, "big")
        return source if len(source) == 4 else self.domain.sdi.to_bytes(4, "big")


class SecuredHost:
    """An endpoint's host whose frames are sealed on the way out; otherwise the host itself."""

    def __init__(self, host: EndpointHost, tss: Tss) -> None:
        self._host = host
        self._tss = tss
        self.wake = host.wake
        self.note_retransmit = host.note_retransmit
        self.note_drop = host.note_drop
        self.note_timer = host.note_timer
        self.count = host.count

    @property
    def scheduler(self) -> Scheduler:
        """The clock."""
        return self._host.scheduler

    @property
    def backlog(self) -> int:
        """Frames that wait at the port."""
        return self._host.backlog

    def send(self, frame: bytes, qpn: int | None) -> None:
        """Seal a frame and hand it to the port."""
        self._host.send(self._tss.seal(frame), qpn)
