# SPDX-License-Identifier: Apache-2.0
"""What provokes each NACK, what each NACK makes the source do, and what bad packets change: counters."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.clock import MS
from emu.nic.work import Cause, Opcode, Status, Transport
from emu.uet import Parameters
from emu.uet.headers import PDS_REQUEST, control, nack, prologue, standard_request
from emu.uet.packet import UetPacket
from emu.uet.path import PeerPath
from emu.uet.pdc import Pdc, Role
from emu.wire.uet_names import CtlType, NackCode, NextHeader, PdsType
from tests.roce.bench import BASE, LKEY, RKEY
from tests.uet.bench import Net, Nic, Qp, connect, decode, pair, perfect

START = 0x10000
DATA, TRIMMED, TRIMMED_LASTHOP, CE = 2, 16 << 2 | 2, 18 << 2 | 2, 3
WRITE = bytes(range(16))


class Peer:
    """A hand-made source: it speaks to NIC b as if it were NIC a."""

    def __init__(
        self, transport: Transport = Transport.UET_RUD, parameters: Parameters | None = None
    ) -> None:
        self.net, self.left, self.right = pair(transport, lambda *_: [], parameters)
        a, b = self.left.nic, self.right.nic
        self.path = PeerPath(a.mac, b.mac, a.ip, b.ip)
        self.kind = PdsType.ROD_REQ if transport is Transport.UET_ROD else PdsType.RUD_REQ

    def deliver(self, header: bytes, body: bytes = b"", tos: int = DATA, ev: int = 0xC0DE) -> None:
        """Bytes arrive at b, which then has its turn."""
        self.right.nic.deliver(self.path.frame(tos, ev, header, body))
        self.net.scheduler.run(until=self.net.scheduler.now())

    def body(self, **fields: int) -> bytes:
        """A one-packet WRITE of 16 bytes to the queue pair of b; ``fields`` override."""
        qpn = self.right.engine.qpn  # type: ignore[attr-defined]
        values = {
            "message_id": 1,
            "job_id": 1,
            "pid": qpn >> 12,
            "resource_index": qpn & 0xFFF,
            "buffer_offset": BASE,
            "initiator": self.left.host.qpn,
            "key": RKEY,
            "request_length": 16,
        } | fields
        opcode, flags = values.pop("opcode", 1), values.pop("flags", 0x0B)
        return standard_request(opcode, flags, **values) + WRITE

    def write(
        self,
        psn: int,
        *,
        syn: bool = True,
        flags: int = 0,
        source: int = 0x1234,
        dest: int = 0,
        kind: PdsType | None = None,
        start: int = START,
        tos: int = DATA,
        clear: int = -1,
        **fields: int,
    ) -> None:
        """A request packet arrives at b."""
        if syn:
            flags |= 4
            dest = psn - start
        header = PDS_REQUEST.pack(
            prologue(kind or self.kind, NextHeader.REQUEST_STD, flags), clear, psn, source, dest
        )
        self.deliver(header, self.body(**fields), tos)

    @property
    def target(self) -> Pdc:
        """The PDC at b."""
        (pdc,) = [pdc for pdc in self.right.nic.fep.pdcs.values() if pdc.role is Role.TARGET]
        return pdc

    def answers(self) -> list[UetPacket]:
        """What b sent so far."""
        return self.right.nic.packets()

    def nack(self) -> tuple[NackCode, UetPacket]:
        """The NACK that b sent last."""
        last = self.answers()[-1]
        assert last.is_nack and last.ev == 0xC0DE, "NACKs carry the entropy value of their trigger"
        return NackCode(last.word >> 8), last


# At the destination


def test_the_first_packet_opens_a_context_and_is_answered_at_once() -> None:
    peer = Peer()
    peer.write(START)
    (ack,) = peer.answers()
    assert ack.kind == PdsType.ACK_CC and ack.dpdcid == 0x1234 and ack.ev == 0xC0DE
    assert (ack.psn, ack.offset, ack.mpr) == (START, 0, 8)
    assert peer.right.host.regions[RKEY].data[:16] == WRITE
    assert ack.head.dscp == 46


def test_a_context_that_nobody_opened() -> None:
    peer = Peer()
    peer.write(START, syn=False, dest=77)
    code, packet = peer.nack()
    assert code is NackCode.INV_DPDCID
    assert (packet.spdcid, packet.dpdcid, packet.psn) == (0, 0x1234, START)


def test_a_context_of_somebody_else() -> None:
    peer = Peer()
    peer.write(START)
    peer.write(START + 1, syn=False, dest=peer.target.number, source=0x4444)
    assert peer.nack()[0] is NackCode.PDC_HDR_MISMATCH
    peer.path = PeerPath(peer.path.source_mac, peer.path.dest_mac, b"\x0a\x4d\0\x09", peer.path.dest_ip)
    peer.write(START + 1, syn=False, dest=peer.target.number)
    assert peer.nack()[0] is NackCode.PDC_HDR_MISMATCH


def test_a_packet_of_the_other_mode() -> None:
    peer = Peer()
    peer.write(START)
    peer.write(START + 1, kind=PdsType.ROD_REQ)
    assert peer.nack()[0] is NackCode.PDC_MODE_MISMATCH


def test_a_syn_with_another_start() -> None:
    peer = Peer()
    peer.write(START)
    peer.write(START + 1, start=START + 1)
    assert peer.nack()[0] is NackCode.INVALID_SYN


def test_a_packet_outside_the_window() -> None:
    peer = Peer()
    peer.write(START)
    peer.write(START + 5000, syn=False, dest=peer.target.number)
    assert peer.nack()[0] is NackCode.PSN_OOR_WINDOW
    peer.write(START + 2000)
    assert peer.nack()[0] is NackCode.INVALID_SYN


def test_a_gap_on_ordered_delivery_draws_one_nack() -> None:
    peer = Peer(Transport.UET_ROD)
    peer.write(START)
    for psn in (START + 2, START + 3):
        peer.write(psn)
    code, packet = peer.nack()
    assert code is NackCode.ROD_OOO
    assert (packet.psn, packet.payload) == (START + 2, START + 1)
    assert len(peer.answers()) == 2


def test_all_contexts_in_use() -> None:
    peer = Peer(parameters=Parameters(max_pdcs=2))
    for source in (1, 2):
        peer.write(START, source=source)
    peer.write(START, source=3)
    code, packet = peer.nack()
    assert code is NackCode.NO_PDC_AVAIL and packet.dpdcid == 3
    # Contexts that nobody went on with make room once they are old.
    peer.net.scheduler.run(until=peer.net.scheduler.now() + 60 * MS)
    peer.write(START, source=3)
    assert peer.answers()[-1].is_ack
    assert len(peer.right.nic.fep.pdcs) == 2


def test_too_many_started_messages() -> None:
    peer = Peer(parameters=Parameters(max_messages=1))
    peer.write(START)
    # The first packets of two messages of two packets each.
    for number in (1, 2):
        header = PDS_REQUEST.pack(
            prologue(PdsType.RUD_REQ, NextHeader.REQUEST_STD, 4), -1, START + number, 0x1234, number
        )
        peer.deliver(header, peer.body(message_id=number, request_length=32, flags=0x09))
    assert peer.nack()[0] is NackCode.NO_SES_MSG_AVAIL
    assert not peer.target.destination.has(START + 2)


@pytest.mark.parametrize(
    ("tos", "code"), [(TRIMMED, NackCode.TRIMMED), (TRIMMED_LASTHOP, NackCode.TRIMMED_LASTHOP)]
)
def test_a_trimmed_packet(tos: int, code: NackCode) -> None:
    peer = Peer()
    peer.write(START + 1, tos=tos)
    found, packet = peer.nack()
    assert found is code and packet.spdcid == 0
    assert not peer.right.nic.fep.pdcs, "a trimmed packet opens no context"
    peer.write(START)
    peer.write(START + 1, tos=tos)
    found, packet = peer.nack()
    assert found is code and packet.spdcid == peer.target.number
    peer.write(START, tos=tos)
    assert peer.answers()[-1].is_ack, "it was received before"


def test_what_a_trimmed_packet_says_ends_no_context() -> None:
    """Nothing protects its header any more."""
    peer = Peer()
    peer.write(START)
    before = len(peer.answers())
    peer.write(START + 1, syn=False, dest=0x4001, tos=TRIMMED)
    peer.write(START + 1, syn=False, dest=peer.target.number, source=0x4444, tos=TRIMMED)
    peer.write(START + 1, start=START - 64, tos=TRIMMED)
    assert len(peer.answers()) == before


def test_asking_for_a_packet() -> None:
    peer = Peer()
    peer.write(START)
    dest = peer.target.number

    def ask(psn: int) -> None:
        peer.deliver(control(CtlType.ACK_REQUEST, 8, psn, 0x1234, dest), ev=0xC0DE)

    ask(START + 1)
    assert peer.nack()[0] is NackCode.PKT_NOT_RCVD
    ask(START)
    assert peer.answers()[-1].is_ack
    peer.write(START + 1, opcode=2, request_length=8, flags=0x0B)
    ask(START + 1)
    assert peer.nack()[0] is NackCode.ACK_WITH_DATA


def test_a_malformed_request_is_an_unexpected_event() -> None:
    peer = Peer()
    header = PDS_REQUEST.pack(prologue(PdsType.RUD_REQ, NextHeader.REQUEST_STD, 4), -1, START, 0x1234, 0)
    peer.deliver(header, bytes(20))
    assert peer.nack()[0] is NackCode.UNEXP_EVENT


def test_marks_come_back() -> None:
    peer = Peer()
    peer.write(START, tos=CE)
    assert peer.answers()[-1].flags & 0x20
    peer.write(START + 5000, syn=False, dest=peer.target.number, tos=CE)
    assert peer.nack()[1].flags & 0x20


def test_a_duplicate_is_answered_only_when_it_says_so() -> None:
    peer = Peer()
    peer.write(START)
    peer.write(START)
    assert len(peer.answers()) == 1
    peer.write(START, flags=0x10)
    assert len(peer.answers()) == 2 and peer.answers()[-1].flags & 0x10
    assert peer.right.nic.counts["duplicate_request"] == 2


def test_a_probe_is_answered_and_acknowledges_nothing() -> None:
    peer = Peer()
    peer.write(START)
    peer.write(START + 2)
    header = control(CtlType.PROBE, 8, 0, 0x1234, peer.target.number, START + 1, 0xBEEF)
    peer.deliver(header)
    answer = peer.answers()[-1]
    assert answer.flags & 8 and answer.word == 0xBEEF
    assert (answer.psn + answer.sack_offset, answer.sack_bitmap) == (START + 1, 0b10)


def test_closing_and_a_late_syn() -> None:
    peer = Peer()
    peer.write(START)
    peer.deliver(control(CtlType.CLOSE_CMD, 8, START + 1, 0x1234, peer.target.number))
    closed = peer.answers()[-1]
    assert closed.is_ack and closed.following == NextHeader.NONE and closed.psn == START + 1
    assert not peer.right.nic.fep.pdcs
    peer.write(START)
    assert peer.nack()[0] is NackCode.INVALID_SYN
    peer.net.scheduler.run(until=peer.net.scheduler.now() + 2_000 * MS)
    peer.write(START)
    assert peer.answers()[-1].is_ack


def test_closing_while_read_data_is_outstanding() -> None:
    peer = Peer()
    peer.write(START, opcode=2, request_length=1000)
    peer.deliver(control(CtlType.CLOSE_CMD, 8, START + 1, 0x1234, peer.target.number))
    code, packet = peer.nack()
    assert code is NackCode.CLOSING_IN_ERR and packet.payload == 1
    assert not peer.right.nic.fep.pdcs


# At the source


class Refused:
    """A one-packet WRITE of a that b refuses with ``code``; then the link is what ``after`` says."""

    def __init__(self, code: int, times: int = 1, transport: Transport = Transport.UET_RUD) -> None:
        self.code, self.left = code, times
        self.net, self.a, self.b = pair(transport, self._link)
        self.a.host.regions[LKEY].data[:16] = WRITE
        self.a.post(Opcode.WRITE, 16)
        self.net.scheduler.run(until=4_000 * MS)

    def _link(self, sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        packet = decode(frame)
        if sender.name == "a" and packet.is_request and self.left:
            self.left -= 1
            a, b = self.net.nics.values() if hasattr(self, "net") else (sender, sender)
            path = PeerPath(b.mac, a.mac, b.ip, a.ip)
            refusal = nack(NackCode(self.code), 0, packet.psn, 0, packet.spdcid, packet.psn)
            self.net.scheduler.call_at(
                self.net.scheduler.now() + 1000, lambda: a.deliver(path.frame(0xB8, packet.ev, refusal))
            )
            return []
        return perfect(sender, number, frame)


RETRY = [
    NackCode.TRIMMED,
    NackCode.TRIMMED_LASTHOP,
    NackCode.TRIMMED_ACK,
    NackCode.NO_PDC_AVAIL,
    NackCode.NO_CCC_AVAIL,
    NackCode.NO_BITMAP,
    NackCode.NO_PKT_BUFFER,
    NackCode.NO_GTD_DEL_AVAIL,
    NackCode.NO_SES_MSG_AVAIL,
    NackCode.NO_RESOURCE,
    NackCode.PSN_OOR_WINDOW,
    NackCode.PKT_NOT_RCVD,
    NackCode.ACK_WITH_DATA,
    NackCode.RCVR_INFER_LOSS,
    NackCode.RCVD_SES_PROCG,
    NackCode.EXP_NORMAL,
]
AGAIN = [NackCode.INV_DPDCID, NackCode.CLOSING, NackCode.INVALID_SYN]
FATAL = [
    NackCode.PDC_HDR_MISMATCH,
    NackCode.CLOSING_IN_ERR,
    NackCode.GTD_RESP_UNAVAIL,
    NackCode.PDC_MODE_MISMATCH,
    NackCode.UNEXP_EVENT,
    NackCode.EXP_ERROR,
    NackCode.EXP_FATAL,
]


def test_every_code_has_its_class() -> None:
    assert {*RETRY, *AGAIN, *FATAL, NackCode.ROD_OOO, NackCode.NEW_START_PSN} == set(NackCode)


@pytest.mark.parametrize("code", RETRY)
def test_the_packet_is_sent_again(code: NackCode) -> None:
    refused = Refused(code)
    assert refused.a.host.statuses == [(0, Status.SUCCESS)]
    assert refused.b.host.regions[RKEY].data[:16] == WRITE
    assert len(refused.a.nic.retransmitted) == 1
    assert len({packet.psn for packet in refused.a.nic.packets() if packet.is_request}) == 1


@pytest.mark.parametrize("code", AGAIN)
def test_the_message_goes_to_another_context(code: NackCode) -> None:
    refused = Refused(code)
    assert refused.a.host.statuses == [(0, Status.SUCCESS)]
    assert len({packet.spdcid for packet in refused.a.nic.packets() if packet.is_request}) == 2


@pytest.mark.parametrize("code", FATAL)
def test_the_context_ends_in_error(code: NackCode) -> None:
    refused = Refused(code)
    (completion,) = refused.a.host.completions
    assert (completion.status, completion.cause) == (Status.REM_OP_ERR, Cause.REMOTE_NAK)
    assert not refused.a.nic.fep.pdcs


def test_ordered_delivery_goes_back() -> None:
    refused = Refused(NackCode.ROD_OOO, transport=Transport.UET_ROD)
    assert refused.a.host.statuses == [(0, Status.SUCCESS)]
    assert len(refused.a.nic.retransmitted) == 1


def test_refusals_for_ever_end_it() -> None:
    refused = Refused(NackCode.NO_RESOURCE, 100)
    (completion,) = refused.a.host.completions
    assert (completion.status, completion.cause) == (Status.RETRY_EXC_ERR, Cause.SEQUENCE_RETRIES)


def test_silence_ends_it() -> None:
    net, a, _ = pair(Transport.UET_RUD, lambda *_: [])
    a.post(Opcode.WRITE, 16)
    net.scheduler.run(until=60_000 * MS)
    (completion,) = a.host.completions
    assert (completion.status, completion.cause) == (Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
    assert a.nic.counts["local_ack_timeout_err"] == 6
    assert not a.nic.fep.pdcs


@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD])
@pytest.mark.parametrize("packets", [4, 40])
def test_silence_ends_many_packets_too(transport: Transport, packets: int) -> None:
    net, a, _ = pair(transport, lambda *_: [])
    a.post(Opcode.WRITE, packets * 1024)
    net.scheduler.run(until=120_000 * MS)
    (completion,) = a.host.completions
    assert (completion.status, completion.cause) == (Status.RETRY_EXC_ERR, Cause.ACK_TIMEOUT)
    assert not a.nic.fep.pdcs


def test_a_nack_about_nothing_changes_nothing() -> None:
    net, a, b = pair()
    a.post(Opcode.WRITE, 16)
    net.scheduler.run(until=MS)
    (pdc,) = a.nic.fep.pdcs.values()
    path = PeerPath(b.nic.mac, a.nic.mac, b.nic.ip, a.nic.ip)
    a.nic.deliver(path.frame(0xB8, 0xC000, nack(NackCode.UNEXP_EVENT, 0, 12345, pdc.peer, pdc.number)))
    assert a.nic.fep.pdcs == {pdc.number: pdc}


# Anything at all


def busy(net: Net, a: Qp, b: Qp) -> None:
    """The pair still works."""
    a.post(Opcode.WRITE, 16)
    net.scheduler.run(until=net.scheduler.now() + 500 * MS)
    assert a.host.statuses[-1][1] is Status.SUCCESS


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(min_size=4, max_size=90), max_size=8), st.sampled_from([0, 2, 3, TRIMMED]))
def test_arbitrary_bytes_on_the_port_change_only_counters(bodies: list[bytes], tos: int) -> None:
    net, a, b = pair()
    a.post(Opcode.WRITE, 16)
    net.scheduler.run(until=MS)
    # From an address without a queue pair, so that no guess can hit a context.
    path = PeerPath(b"\2\0\0\0\0\x77", b.nic.mac, b"\x0a\x4d\0\x77", b.nic.ip)
    before = bytes(b.host.regions[RKEY].data)
    for body in bodies:
        b.nic.deliver(path.frame(tos, 0xC000, body))
    net.scheduler.run(until=net.scheduler.now() + 10 * MS)
    assert b.host.regions[RKEY].data == before
    assert not b.host.completions and b.host.moves == []
    busy(net, a, b)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_mutilated_packet_of_the_pair_itself_raises(data: st.DataObject) -> None:
    """Bits flip without a trailer to tell: anything may fail, nothing may raise or run for ever."""

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if data.draw(st.integers(0, 3)) == 0:
            at = data.draw(st.integers(34, len(frame) - 1))
            frame = frame[:at] + bytes((frame[at] ^ 1 << data.draw(st.integers(0, 7)),)) + frame[at + 1 :]
        return perfect(sender, number, frame)

    net, a, b = pair(Transport.UET_RUD, impair)
    b.post_receive(0, 64)
    a.post(Opcode.WRITE, 1500)
    a.post(Opcode.SEND, 64)
    a.post(Opcode.READ, 1200)
    a.post(Opcode.ATOMIC_ADD, 8, swap_add=1)
    net.scheduler.run(until=120_000 * MS)
    assert len(a.host.completions) == 4
    net.scheduler.run()


def test_after_a_reset_the_peer_opens_another_context() -> None:
    net, a, b = pair()
    busy(net, a, b)
    b.nic.fep.reset()
    a, b = connect(a.nic, b.nic)
    busy(net, a, b)
    assert b.nic.drops[0].counter == "unknown_pdc"


def test_a_full_endpoint_asks_for_the_close_of_what_is_longest_unused() -> None:
    net = Net()
    a, b, c = net.nic("a"), net.nic("b", Parameters(max_pdcs=1)), net.nic("c")
    busy(net, *connect(a, b))
    busy(net, *connect(a, b))
    (pdc,) = a.fep.pdcs.values()
    busy(net, *connect(c, b))
    assert pdc.closed and not a.fep.pdcs
    asked = [packet for packet in b.packets() if packet.following == CtlType.CLOSE_REQ and packet.kind == 11]
    assert asked and asked[0].dpdcid == pdc.number


def test_an_initiator_that_does_not_close_loses_its_context() -> None:
    peer = Peer(parameters=Parameters(max_pdcs=1))
    peer.write(START)
    peer.write(START + 1, syn=False, dest=peer.target.number)
    peer.write(START, source=9)
    assert peer.target.close_wanted
    peer.net.scheduler.run(until=peer.net.scheduler.now() + 5_000 * MS)
    assert not peer.right.nic.fep.pdcs
    peer.write(START, source=9)
    assert peer.target.peer == 9
