# SPDX-License-Identifier: Apache-2.0
"""tshark reads UET as the scapy layers do, links requests with answers and names what is impossible."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from emu.capture.generate import UET_SCRIPT
from emu.capture.pcapng import LinkType
from emu.capture.writer import PcapngWriter
from emu.wire import uet, uet_pds, uet_ses
from emu.wire.uet_names import AtomicOp, NextHeader, PdsType, RequestOpcode
from emu.wire.uet_profile import DEFAULT, Profile, Trailer
from tests.capture.tshark_program import require_scripts, require_tshark, run_tshark
from tests.capture.uet_comparison import FILTERS, assert_tshark_agrees, complaints_of, fields, number
from tests.wire.uet_vectors import FRAMES, HEADERS

A = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2", flags="DF")
B = Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:01") / IP(src="10.0.0.2", dst="10.0.0.1", flags="DF")
A6 = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IPv6(src="2001:db8::1", dst="2001:db8::2")
EV = 0xC001


def capture(path: Path, frames: Iterable[bytes | Packet], interfaces: int = 1) -> Path:
    """A capture of ``frames`` one microsecond apart, seen on each of ``interfaces`` in turn."""
    with PcapngWriter(path, application="t") as writer:
        ports = [writer.add_interface(LinkType.ETHERNET, f"port{n}") for n in range(interfaces)]
        for number, frame in enumerate(frames, 1):
            for port in ports:
                writer.add_packet(port, number * 1000, bytes(frame))
    return path


def over_udp(packet: Packet | bytes, below: Packet = A) -> Packet:
    return below / UDP(sport=EV, dport=4793, chksum=0) / packet


def counts(path: Path, queries: list[str]) -> dict[str, int]:
    """How many frames each display filter passes, from one run of tshark."""
    lines = run_tshark(path, "-q", "-z", ",".join(["io,stat,0", *queries]))
    cells = next(line for line in lines if "<>" in line).split("|")[2:-1]
    return {query: int(cells[2 * column]) for column, query in enumerate(queries)}


def random_packet(random: Random, kind: int) -> bytes:
    """A packet of ``kind`` with a complete header chain and every other bit at random."""
    octets = bytearray(random.randbytes(160))
    following = random.choice(list(NextHeader))
    octets[0] = kind << 3 | following >> 1
    octets[1] = (following & 1) << 7 | random.getrandbits(7)
    if kind == PdsType.TSS:
        octets[0] = kind << 3 | random.getrandbits(3)
        return bytes(octets)
    if kind not in uet_pds.BY_TYPE:
        return bytes(octets)
    size = uet_pds.BY_TYPE[kind].size(bytes(octets))
    if kind == PdsType.ACK_CC:
        octets[12] = random.choice([0, 1, random.getrandbits(4)]) << 4
    # Opcodes with conditions and extensions come often enough.
    octets[size] = random.getrandbits(2) << 6 | random.choice([*RequestOpcode, random.getrandbits(6)])
    if following in uet_ses.BY_NEXT_HEADER:
        after = size + uet_ses.BY_NEXT_HEADER[following].size(bytes(octets[size:]))
        octets[after] = random.choice([*AtomicOp, random.getrandbits(8)])
    return bytes(octets[: size + 80 + random.randrange(40)])


def test_every_field_that_scapy_decodes_equals_what_tshark_prints(tmp_path: Path) -> None:
    require_scripts()
    random = Random(4793)
    packets = [random_packet(random, kind) for kind in range(32) for _ in range(40 if kind < 15 else 3)]
    frames = []
    for index, packet in enumerate(packets):
        carrier = [A / UDP(sport=EV, chksum=0), A6 / UDP(sport=EV, chksum=1), A / uet.Entropy(entropy=index)]
        frames.append(Ether(bytes(carrier[index % 3] / uet.UET(packet))))
    path = capture(tmp_path / "a.pcapng", frames)
    assert assert_tshark_agrees(path, frames) == set(FILTERS)
    assert sum(len(complaints_of(frame)) for frame in frames) > 1000


def test_payload_and_trailer_are_where_scapy_has_them(tmp_path: Path) -> None:
    require_scripts()
    uet.use(Profile(trailer=Trailer.CRC))
    frames = [Ether(frame) for frame in FRAMES.values()]
    uet.use(DEFAULT)
    frames += [Ether(bytes(over_udp(header))) for header in HEADERS.values()]
    found = fields(
        capture(tmp_path / "a.pcapng", frames), "uet.payload", "uet.crc", "uet.crc_bad", "uet.short"
    )
    for frame, (payload, crc, *experts) in zip(frames, found, strict=True):
        assert payload == [layer.load.hex() for layer in frame.iterpayloads() if type(layer) is Raw]
        assert [number(text) for text in crc] == ([] if frame[uet.UET].crc is None else [frame[uet.UET].crc])
        assert experts == [[], []]


def middle_of_message(length: int) -> Packet:
    """A first packet of a longer message: only its CRC tells where the payload ends."""
    return (
        uet.Request(spdcid=1, dpdcid=2, psn=3)
        / uet.StdRequest(opcode="WRITE", eom=0, request_length=9000)
        / Raw(bytes(range(length)))
    )


def test_a_wrong_crc_is_told_and_checking_can_be_switched_off(tmp_path: Path) -> None:
    require_scripts()
    damaged = [FRAMES[name][:-1] + b"\x01" for name in ("E1N", "E3", "E6")]
    path = capture(tmp_path / "a.pcapng", damaged)
    assert fields(path, "uet.crc_bad", "_ws.expert.message") == [
        [["1"], ["the CRC should be 0xcb11259a"]],
        [["1"], ["the CRC should be 0x1ef10717"]],
        [["1"], ["the CRC should be 0x94c7586a"]],
    ]
    quiet = fields(path, "uet.crc_bad", "uet.crc", more=("-o", "uet.check_crc:FALSE"))
    assert [cells[0] for cells in quiet] == [[], [], []]
    assert all(cells[1] for cells in quiet)


def test_a_crc_behind_a_payload_of_unknown_length_is_known_by_its_value(tmp_path: Path) -> None:
    require_scripts()
    uet.use(Profile(trailer=Trailer.CRC))
    with_crc = [bytes(over_udp(middle_of_message(64), below)) for below in (A, A6)]
    uet.use(DEFAULT)
    path = capture(tmp_path / "a.pcapng", [*with_crc, bytes(over_udp(middle_of_message(64)))])
    payload = bytes(range(64)).hex()
    assert [cells[0] for cells in fields(path, "uet.payload")] == [[payload]] * 3
    assert [bool(cells[0]) for cells in fields(path, "uet.crc")] == [True, True, False]
    always = fields(path, "uet.crc", more=("-o", "uet.trailer:Always"))
    assert [bool(cells[0]) for cells in always] == [True, True, True]
    never = fields(path, "uet.crc", "uet.payload", more=("-o", "uet.trailer:Never"))
    assert [cells[0] for cells in never] == [[], [], []]
    assert [len(cells[1][0]) for cells in never] == [136, 136, 128]


def request(psn: int, **more: Any) -> Packet:
    return over_udp(uet.Request(**({"spdcid": 1, "dpdcid": 2, "psn": psn} | more)))


def ack(cack: int, **more: Any) -> Packet:
    return over_udp(uet.Ack(**({"spdcid": 2, "dpdcid": 1, "cack_psn": cack} | more)), B)


STORY = [
    over_udp(uet.Request(syn=1, ar=1, psn=10, spdcid=1)),  # 1
    over_udp(uet.Request(syn=1, psn=11, psn_offset=1, spdcid=1)),  # 2
    ack(10),  # 3
    request(12),  # 4, lost
    request(13),  # 5
    ack(11, type="ACK_CC", ack_psn_offset=2, sack_psn_offset=1, sack_bitmap=2),  # 6: 13 by its bit
    over_udp(uet.Nack(nack_code="TRIMMED", nack_psn=12, spdcid=2, dpdcid=1), B),  # 7
    request(12, retx=1),  # 8
    ack(13, ack_psn_offset=-1),  # 9
    request(9, retx=1),  # 10: first sent before the capture
    over_udp(uet.Control(ctl_type="PROBE", probe_opaque=7, spdcid=1, dpdcid=2)),  # 11
    ack(13, p=1, probe_opaque=7),  # 12
    over_udp(uet.Control(ctl_type="CLOSE_CMD", psn=14, spdcid=1, dpdcid=2)),  # 13
    ack(14),  # 14
    over_udp(uet.Rudi(pkt_id=5)),  # 15
    over_udp(uet.Nack(nt=1, nack_pkt_id=5), B),  # 16
    over_udp(uet.Rudi(pkt_id=5, retx=1)),  # 17
    over_udp(uet.Rudi(type="RUDI_RESP", pkt_id=5), B),  # 18
    over_udp(uet.Request(syn=1, psn=12, spdcid=1)),  # 19: the PDC id again, other start
    ack(12),  # 20
    request(12),  # 21: sent again without saying so
    over_udp(uet.Control(ctl_type="CLEAR_CMD", spdcid=1, dpdcid=2)),  # 22
    over_udp(uet.Control(ctl_type="CLEAR_CMD", spdcid=1, dpdcid=2)),  # 23: no PSN of its own
    ack(12, dpdcid=77),  # 24: of a PDC not in this capture
]
LINKS = {
    "uet.pds.request_in": {3: 1, 6: 5, 7: 4, 9: 4, 12: 11, 14: 13, 16: 15, 18: 15, 20: 19},
    "uet.pds.acked_in": {1: 3, 2: 6, 4: 9, 5: 6, 8: 9, 11: 12, 13: 14, 15: 18, 17: 18, 19: 20, 21: 20},
    "uet.pds.nacked_in": {4: 7, 8: 7, 15: 16, 17: 16},
    "uet.pds.retransmission_of": {8: 4, 17: 15, 21: 19},
}


@pytest.mark.parametrize("interfaces", [1, 2])
def test_requests_and_answers_are_linked(tmp_path: Path, interfaces: int) -> None:
    require_scripts()
    path = capture(tmp_path / "a.pcapng", STORY, interfaces)
    found = fields(path, *LINKS, "uet.pds.ack_time", more=("-2", "-R", "frame"))
    for port in range(interfaces):
        for position, (name, links) in enumerate(LINKS.items()):
            there = {
                frame // interfaces + 1: (int(cells[position][0]) - 1) // interfaces + 1
                for frame, cells in enumerate(found)
                if frame % interfaces == port and cells[position]
            }
            assert there == links, name
    # Counted from the newest transmission.
    assert float(found[8 * interfaces][-1][0]) == pytest.approx(1e-6)


def test_one_pass_links_answers_to_earlier_requests(tmp_path: Path) -> None:
    require_scripts()
    found = fields(capture(tmp_path / "a.pcapng", STORY), "uet.pds.request_in", "uet.pds.retransmission_of")
    for position, name in enumerate(("uet.pds.request_in", "uet.pds.retransmission_of")):
        there = {frame: int(cells[position][0]) for frame, cells in enumerate(found, 1) if cells[position]}
        assert there == LINKS[name]


def test_retransmissions_are_marked(tmp_path: Path) -> None:
    require_scripts()
    path = capture(tmp_path / "a.pcapng", STORY)
    shown = run_tshark(
        path, "-T", "fields", "-e", "frame.number", "-e", "_ws.expert.message", "-Y", "uet.retransmission"
    )
    assert shown == [
        "8\tretransmission of frame 4",
        "10\tretransmission of a packet that was not seen here",
        "17\tretransmission of frame 15",
        "21\tretransmission of frame 19 without RETX",
    ]
    info = run_tshark(path, "-T", "fields", "-e", "_ws.col.Info", "-Y", "frame.number == 8")
    assert info == ["[retransmission] RUD_REQ psn=0xc spdc=0x1 dpdc=0x2 RETX"]


def test_the_info_column_is_scapys_summary(tmp_path: Path) -> None:
    require_scripts()
    frames = [Ether(bytes(over_udp(header))) for name, header in HEADERS.items() if name != "U6"]
    shown = run_tshark(capture(tmp_path / "a.pcapng", frames), "-T", "fields", "-e", "_ws.col.Info")
    for frame, info in zip(frames, shown, strict=True):
        assert info.removeprefix("[retransmission] ") in frame.summary()


def test_filters_of_wiresharks_development_branch_work(tmp_path: Path) -> None:
    require_scripts()
    frames = [*FRAMES.values(), *(bytes(over_udp(header)) for header in HEADERS.values())]
    path = capture(tmp_path / "a.pcapng", frames)
    expected = {
        "uet": 26,
        "uet.pds": 26,
        "uet.ses": 16,
        "uet.pds.type == 7": 3,
        'uet.pds.type == "RUD_REQ"': 6,
        "uet.pds.nh == 3": 5,
        "uet.pds.ctl_type == 4": 1,
        "uet.pds.flags == 0x0c": 3,
        "uet.pds.flags.m == 1": 1,
        "uet.pds.flags.syn == 1 && uet.pds.start_psn == 0x10000": 2,
        "uet.pds.clear_psn == 0xffff": 2,
        "uet.pds.ack_psn == 0x10007": 1,
        "uet.pds.nack.code == 13 && uet.pds.nack.max_recv_psn_plus_1 == 0x20006": 1,
        "uet.pds.ack.sack_bitmap == 0x26": 1,
        "uet.pds.ack.cc_state.rcvd_bytes == 19": 1,
        "uet.pds.ack.cc_state": 3,
        "uet.pds.ack.cc_state.credit == 0x200": 1,
        "uet.pds.cc_state.credit_target == 0x100": 1,
        "uet.pds.ctrl_probe_opaque == 0xbeef": 2,
        "uet.pds.rudi.pkt_id == 0xa1b2c3d4": 2,
        'uet.ses.std.opcode == "WRITE"': 3,
        "uet.ses.std.mem_key_match_bits == 0x1122334455667788": 3,
        "uet.ses.small_req.req_length == 4": 2,
        "uet.ses.med_req.header_data == 0x123456789abcdef": 1,
        "uet.ses.rsp.return_code == 1": 5,
        "uet.pds.entropy == 0xc001": 20,
        # Three of the examples end before their payload.
        "uet.length": 3,
        "uet.impossible || uet.reserved || uet.short || _ws.malformed || _ws.lua.error": 0,
    }
    assert counts(path, list(expected)) == expected


def test_lengths_that_do_not_fit_are_told(tmp_path: Path) -> None:
    require_scripts()
    small = uet.SmallRequest(opcode="WRITE", request_length=8)
    frames = [request(length) / small / bytes(length) for length in (7, 8, 11, 12, 13)]
    path = capture(tmp_path / "a.pcapng", frames)
    assert [cells[0] for cells in fields(path, "_ws.expert.message", more=("-o", "uet.check_crc:FALSE"))] == [
        ["7 payload bytes, the headers announce 8"],
        [],
        ["11 payload bytes, the headers announce 8"],
        [],
        ["13 payload bytes, the headers announce 8"],
    ]


def test_payload_that_opcodes_announce(tmp_path: Path) -> None:
    require_scripts()
    there: dict[str, Any] = {"spdcid": 1, "dpdcid": 2}
    whole = [
        uet.StdRequest(opcode="READ", request_length=500),
        uet.StdRequest(opcode="RENDEZVOUS_SEND", request_length=500)
        / uet.Rendezvous(eager_length=3)
        / b"abc",
        uet.StdRequest(opcode="FETCHING_ATOMIC", request_length=8) / uet.CompareSwap(),
        uet.StdRequest(opcode="ATOMIC", request_length=8) / uet.Atomic() / bytes(8),
        uet.StdRequest(opcode="SEND", som=0, payload_length=5, request_length=500) / b"12345",
        uet.ResponseData(payload_length=5) / b"12345",
        uet.Response(modified_length=7),
    ]
    frames = [over_udp(uet.Request(psn=psn, **there) / header) for psn, header in enumerate(whole)]
    path = capture(tmp_path / "a.pcapng", frames)
    assert [cells[0] for cells in fields(path, "_ws.expert.message")] == [[]] * len(whole)


def trimmed(below: Packet) -> bytes:
    """What a switch leaves of a write: 24 bytes of IP payload, lengths of UDP as they were."""
    whole = uet.Request(spdcid=1, dpdcid=2, psn=9) / uet.StdRequest(request_length=800) / bytes(800)
    octets = bytearray(bytes(over_udp(whole, below)))
    size = DEFAULT.trim_size
    cut = Ether(bytes(octets[: 14 + (20 if IP in below else 40) + size]))
    if IP in cut:
        cut[IP].len, cut[IP].tos = 20 + size, DEFAULT.dscp_trimmed << 2
        del cut[IP].chksum
    else:
        cut[IPv6].plen, cut[IPv6].tc = size, DEFAULT.dscp_trimmed << 2
    return bytes(cut)


def test_a_trimmed_packet_is_named_and_no_error(tmp_path: Path) -> None:
    require_scripts()
    path = capture(tmp_path / "a.pcapng", [trimmed(A), trimmed(A6)])
    names = ("uet.pds.psn", "uet.trimmed", "uet.trim", "uet.short", "uet.crc", "_ws.col.Info")
    for psn, flag, note, short, crc, info in fields(path, *names):
        assert (psn, flag, bool(note), short, crc) == (["9"], ["True"], True, [], [])
        assert info == ["[trimmed] RUD_REQ psn=0x9 spdc=0x1 dpdc=0x2"]


def test_cut_headers_and_noise_are_named_and_break_nothing(tmp_path: Path) -> None:
    require_scripts()
    random = Random(7)
    cut = [header[:length] for header in HEADERS.values() for length in range(len(header))]
    noise = [random.randbytes(random.randrange(120)) for _ in range(300)]
    plain = A / UDP(sport=EV, dport=4793, chksum=0)
    tagged = Ether(src=A.src, dst=A.dst) / Dot1Q(vlan=3) / plain[IP].copy()
    native = A.copy()
    native[IP].proto = DEFAULT.native_protocol
    carriers = [plain, tagged, native]
    frames = [carriers[n % 3] / Raw(octets) for n, octets in enumerate([*cut, *noise])]
    path = capture(tmp_path / "a.pcapng", frames)
    text = "\n".join(run_tshark(path, "-V"))
    assert "Lua Error" not in text
    assert text.count("cut short") > 300
    assert text.count("Ultra Ethernet Transport,") > 600


def test_a_wireshark_that_knows_uet_keeps_its_own(tmp_path: Path) -> None:
    require_scripts()
    known = tmp_path / "known.lua"
    known.write_text(
        'local uet = Proto("uet", "UET of Wireshark itself")\n'
        "function uet.dissector(buffer, pinfo, tree) pinfo.cols.info = 'from elsewhere' end\n"
        'DissectorTable.get("udp.port"):add(4793, uet)\n'
    )
    path = capture(tmp_path / "a.pcapng", [FRAMES["E1"]])
    words = ["-X", f"lua_script:{known}", "-X", f"lua_script:{UET_SCRIPT}", "-X", f"lua_script:{UET_SCRIPT}"]
    done = subprocess.run(
        [*require_tshark(), "-r", str(path), *words, "-T", "fields", "-e", "_ws.col.Info"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "from elsewhere\n"
    assert "Lua" not in done.stderr


def test_the_protocol_number_without_udp_is_a_preference(tmp_path: Path) -> None:
    require_scripts()
    frame = bytearray(FRAMES["E1N"])
    frame[23] = 254
    path = capture(tmp_path / "a.pcapng", [bytes(frame), FRAMES["E1N"]])
    assert [cells[0] for cells in fields(path, "uet.pds.psn")] == [[], ["65536"]]
    moved = fields(path, "uet.pds.psn", more=("-o", "uet.native_protocol:254"))
    assert [cells[0] for cells in moved] == [["65536"], []]
