# SPDX-License-Identifier: Apache-2.0
"""The negative table: wrong, rare and hostile stimuli, and what they must draw.

Rows carry the numbers of the wire reference. Where implementations differ a row holds this one's choice.
"""

from __future__ import annotations

from emu.nic.work import Access, Opcode, QpState
from emu.roce.timers import RNR_DELAYS
from emu.wire.opcodes import CNP, UdOpcode
from emu.wire.opcodes import RcOpcode as Op
from tests.roce.bench import BASE, LKEY, RKEY
from tests.roce.negative_rows import (
    Arrive,
    Change,
    Forget,
    M,
    P,
    Receive,
    RequesterRow,
    ResponderRow,
    Wait,
    ack,
    add,
    cas,
    data,
    nak,
    old,
    post,
    read,
    send,
    write,
)

__all__ = ["ELSEWHERE", "REQUESTER", "RESPONDER", "ROWS"]

R, Q = ResponderRow, RequesterRow
ERR, INIT, RTR, RESET, SQD, RTS = (
    QpState.ERR,
    QpState.INIT,
    QpState.RTR,
    QpState.RESET,
    QpState.SQD,
    QpState.RTS,
)
TOS, IP_ID, TTL, IP_SUM, UDP_LENGTH, UDP_SUM, BTH_FLAGS, BTH_MARKS, BTH_PSN, RETH = (
    15, 18, 22, 24, 38, 40, 43, 46, 51, 54,
)  # fmt: skip
V6_FLOW, V6_HOPS, V6_MARKS = 15, 21, 66
TIMEOUT = 4096 << 14
V6 = {"ipv6": True}
SEND, WRITE, READ = Opcode.SEND, Opcode.WRITE, Opcode.READ
OTHER_IP = bytes(10) + b"\xff\xff" + bytes([10, 77, 0, 9])
REQ, ACC = "QP_REQ_ERR", "QP_ACCESS_ERR"
GOOD = write(P, b"data1234")


def bad(row: str, stimulus: str, *steps: object, psn: int = P, **more: object) -> ResponderRow:
    """A row that ends in NAK 0x61 and ERR, told by an event when no receive element could tell."""
    fields = {"wire": f"NAK61 {psn}", "events": REQ, "state": ERR, **more}
    return R(row, stimulus, steps, **fields)  # type: ignore[arg-type]


def refused(row: str, stimulus: str, *steps: object, **more: object) -> ResponderRow:
    """A row that ends in NAK 0x62 and ERR, with nothing written."""
    fields = {"wire": f"NAK62 {P}", "events": ACC, "state": ERR, "memory": lambda m: not any(m), **more}
    return R(row, stimulus, steps, **fields)  # type: ignore[arg-type]


RESPONDER: tuple[ResponderRow, ...] = (
    # Packet acceptance
    R("P1-payload", "ICRC wrong: payload", (write(P, b"data1234", flip=-6),), drops=1),
    R("P1-reth", "ICRC wrong: RETH", (write(P, b"data1234", flip=RETH),), drops=1),
    R("P1-psn", "ICRC wrong: PSN", (write(P, b"data1234", flip=BTH_PSN),), drops=1),
    R("P1-ip-id", "ICRC wrong: IP identification, header checksum right", (
        write(P, b"data1234", edits=((IP_ID, b"\0\1"), (IP_SUM, b"sum")), sealed=True),), drops=1),
    R("P1-udp-length", "ICRC wrong: UDP length", (write(P, b"data1234", flip=UDP_LENGTH + 1),), drops=1),
    R("P2-tos", "ToS changed on the way", (
        write(P, edits=((TOS, b"\x2a"), (IP_SUM, b"sum")), sealed=True),), "ACK 100"),
    R("P2-ttl", "TTL changed on the way", (
        write(P, edits=((TTL, b"\x01"), (IP_SUM, b"sum")), sealed=True),), "ACK 100"),
    R("P2-udp-checksum", "UDP checksum filled in", (
        write(P, edits=((UDP_SUM, b"udp"),), sealed=True),), "ACK 100"),
    R("P2-marks", "FECN, BECN and reserved bits set", (
        write(P, edits=((BTH_MARKS, b"\xff"),), sealed=True),), "ACK 100"),
    R("P2-v6-flow", "IPv6 flow label changed on the way", (
        write(P, edits=((V6_FLOW, b"\x0a\xbc\xde"),), sealed=True),), "ACK 100", setup=V6),
    R("P2-v6-hops", "IPv6 hop limit changed on the way", (
        write(P, edits=((V6_HOPS, b"\x02"),), sealed=True),), "ACK 100", setup=V6),
    R("P3", "ICRC byte order swapped", (write(P, swap_icrc=True),), drops=1),
    R("P4", "UDP length too short for the opcode", (
        Arrive(Op.SEND_ONLY, P, b"", b"", edits=((42, bytes([Op.WRITE_ONLY])),)),), drops=1),
    R("P5", "transport version 1", (write(P, edits=((BTH_FLAGS, b"\x41"),)),), drops=1),
    R("P6", "destination QP 0", (write(P, lies={"dest_qpn": 0}),), drops=1),
    R("P7-uc", "UC opcode", (Arrive(0x24, P, b"", b"x"),), drops=1),
    R("P7-ud", "UD opcode", (Arrive(UdOpcode.SEND_ONLY, P, bytes(8)),), drops=1),
    R("P8", "P_Key not in the table", (write(P, lies={"pkey": 0x1234}),), drops=1),
    R("P9", "two limited members", (write(P, lies={"pkey": 0x7FFF}),), drops=1, setup={"pkey": 0x7FFF}),
    R("P10", "source address not the peer's", (write(P, lies={"source_gid": OTHER_IP}),), drops=1),
    R("P11-init", "request in INIT", (Change(RESET), Change(INIT), GOOD), drops=1, state=INIT),
    R("P11-err", "request in ERR", (Change(ERR), GOOD), drops=1, state=ERR),
    R("P12", "Ethernet padding behind the ICRC", (
        Receive(0), send(P, 0, tail=bytes(2))), "ACK 100", "0 SUCCESS"),
    R("P13", "pad bytes not zero", (write(P, b"abcde", edits=((-7, b"\xaa\xbb\xcc"),)),), "ACK 100",
      memory=lambda m: m[:8] == b"abcde\0\0\0"),
    R("P14-0", "M bit 0", (write(P, b"data", edits=((BTH_FLAGS, b"\x00"),)),), "ACK 100"),
    R("P14-1", "M bit 1", (write(P, b"data", edits=((BTH_FLAGS, b"\x40"),)),), "ACK 100"),
    R("P15-fragment", "IPv4 fragment", (
        write(P, edits=((20, b"\x20\x00"), (IP_SUM, b"sum"))),), drops=1),
    R("P15-options", "IHL 6", (write(P, edits=((14, b"\x46"), (IP_SUM, b"sum"))),), drops=1),
    R("P16", "congestion notification", (Arrive(CNP, 0, b"", bytes(16)), GOOD), "ACK 100"),
    # Sequence and duplicates
    R("S1", "PSN one ahead", (send(P + 1),), "NAK60 100", drops=1),
    R("S2", "then two and three ahead", (send(P + 1), send(P + 2), send(P + 3)), "NAK60 100", drops=3),
    R("S3", "then the missing one, then a gap", (
        Receive(0), send(P + 1), send(P), send(P + 2)), "NAK60 100, ACK 100, NAK60 101", "0 SUCCESS"),
    R("S5-ahead", "half the circle ahead less one", (send(P + 0x7FFFFF),), "NAK60 100"),
    R("S5-behind", "half the circle ahead", (send(P + 0x800000),), "ACK 99"),
    R("S6", "duplicate SEND with AckReq", (Receive(0), Receive(1), send(P), send(P)),
      "ACK 100, ACK 100", "0 SUCCESS"),
    R("S7", "duplicate SEND without AckReq", (Receive(0), send(P), send(P, ask=False)),
      "ACK 100", "0 SUCCESS"),
    R("S8", "duplicate READ", (read(P, 2 * M), read(P, 2 * M)),
      "FIRST 100, LAST 101, FIRST 100, LAST 101"),
    R("S9", "READ restarted in its middle", (read(P, 3 * M), read(P + 1, 2 * M, va=BASE + M)),
      "FIRST 100, MIDDLE 101, LAST 102, FIRST 101, LAST 102"),
    R("S10-key", "duplicate READ with another key", (read(P), read(P, rkey=LKEY)), "ONLY 100", drops=1),
    R("S10-range", "duplicate READ of more", (read(P), read(P, 9)), "ONLY 100", drops=1),
    R("S11", "READ older than the ring", (read(P), read(P + 1), read(P)), "ONLY 100, ONLY 101", drops=1,
      setup={"max_dest_rd_atomic": 1}),
    R("S12", "duplicate FETCH ADD", (add(P, 5), add(P, 5)), "ATOMIC 100, ATOMIC 100", atomics=1,
      memory=lambda m: m[:8] == b"\5" + bytes(7)),
    R("S13", "COMPARE SWAP older than the ring", (cas(P), cas(P + 1, 7, 9), cas(P)),
      "ATOMIC 100, ATOMIC 101", drops=1, atomics=2, setup={"max_dest_rd_atomic": 1}),
    R("S15", "duplicate WRITE before a READ of the ring", (write(P), read(P + 1), write(P)),
      "ACK 100, ONLY 101, ACK 100"),
    # Opcode and length
    bad("O1-middle", "SEND MIDDLE without a message", send(P, M, Op.SEND_MIDDLE)),
    bad("O1-last", "SEND LAST without a message", send(P, 4, Op.SEND_LAST)),
    *(
        bad(f"O2-{name}", f"{name} inside a SEND", Receive(0), send(P, M, Op.SEND_FIRST, ask=False), inner,
            psn=P + 1, done="0 REM_INV_REQ_ERR", events="")
        for name, inner in (
            ("write-middle", write(P + 1, bytes(M), opcode=Op.WRITE_MIDDLE)),
            ("send-only", send(P + 1)),
            ("read", read(P + 1)),
        )
    ),
    *(
        bad(f"O3-{code:#04x}", "reserved opcode", Arrive(Op.SEND_ONLY, P, edits=((42, bytes([code])),)))
        for code in (0x15, 0x18)
    ),
    bad("O4-first", "FIRST short of the MTU", Receive(0), send(P, M - 4, Op.SEND_FIRST),
        done="0 REM_INV_REQ_ERR", events=""),
    bad("O4-middle", "MIDDLE short of the MTU",
        write(P, bytes(M), opcode=Op.WRITE_FIRST, length=3 * M, ask=False),
        write(P + 1, bytes(M - 4), opcode=Op.WRITE_MIDDLE), psn=P + 1),
    bad("O5", "LAST without payload", write(P, bytes(M), opcode=Op.WRITE_FIRST, length=M, ask=False)),
    bad("O5-send", "SEND LAST without payload", Receive(0), send(P, M, Op.SEND_FIRST, ask=False),
        send(P + 1, 0, Op.SEND_LAST), psn=P + 1, done="0 REM_INV_REQ_ERR", events=""),
    bad("O6", "ONLY longer than the MTU", Receive(0), send(P, M + 4), done="0 REM_INV_REQ_ERR", events=""),
    bad("O7-less", "WRITE shorter than its RETH says", write(P, bytes(8), length=12)),
    bad("O7-more", "WRITE longer than its RETH says", write(P, bytes(12), length=8)),
    bad("O8-write", "DMA length above 2^31",
        write(P, bytes(M), opcode=Op.WRITE_FIRST, length=0x80000001)),
    bad("O8-read", "READ of more than 2^31 bytes", read(P, 0x80000001)),
    bad("O9", "SEND longer than the receive element", Receive(5, 3), Receive(6), send(P, 4),
        done="5 LOC_LEN_ERR, 6 WR_FLUSH_ERR", events=""),
    R("O10-fits", "SEND of the receive element's size", (Receive(0, 4), send(P, 4)), "ACK 100", "0 SUCCESS"),
    R("O10-empty", "SEND without payload", (Receive(0), send(P, 0)), "ACK 100", "0 SUCCESS"),
    bad("O11", "atomic not 8-byte aligned", add(P, va=BASE + 4)),
    # Access
    refused("A1-write", "WRITE with an unknown key", write(P, rkey=0x99)),
    refused("A1-read", "READ with an unknown key", read(P, rkey=0x99)),
    refused("A1-atomic", "atomic with an unknown key", add(P, rkey=0x99)),
    refused("A2", "key of a region that is gone", Forget(RKEY), write(P), memory=None),
    refused("A4", "region without the right", write(P), rights=Access.LOCAL_WRITE | Access.REMOTE_READ),
    refused("A5-end", "last byte past the region", write(P, b"ab", va=BASE + 0xFFFF)),
    refused("A5-start", "below the region", write(P, b"ab", va=BASE - 1)),
    refused("A5-wrap", "address wraps", write(P, b"ab", va=(1 << 64) - 1)),
    refused("A5-first", "the whole length is checked at FIRST",
            write(P, bytes(M), opcode=Op.WRITE_FIRST, va=BASE + 0xF000, length=0x1001)),
    bad("A6-write", "QP without REMOTE_WRITE", write(P), setup={"access": Access.REMOTE_READ}),
    bad("A6-read", "QP without REMOTE_READ", read(P), setup={"access": Access.REMOTE_WRITE}),
    bad("A6-atomic", "QP without REMOTE_ATOMIC", add(P), setup={"access": Access.REMOTE_WRITE}),
    R("A7-write", "empty WRITE with garbage key", (write(P, b"", va=7, rkey=0x99),), "ACK 100"),
    R("A7-read", "empty READ with garbage key", (read(P, 0, va=7, rkey=0x99),), "ONLY 100"),
    refused("A8", "WRITE with immediate and a bad key", Receive(3),
            write(P, opcode=Op.WRITE_ONLY_IMM, rkey=0x99, extra=bytes(4)), done="3 REM_ACCESS_ERR",
            events=""),
    bad("A10", "READ with max_dest_rd_atomic 0", read(P), setup={"max_dest_rd_atomic": 0}),
    R("A12", "SEND with invalidate of an invalid key", (
        Receive(0), Receive(1), send(P, 4, Op.SEND_ONLY_INVALIDATE, extension=b"\0\0\0\x99")),
      "ACK 100", "0 LOC_PROT_ERR, 1 WR_FLUSH_ERR", state=ERR),
    # Receive resources
    R("R1", "SEND without receive element", (send(P),), "RNR 100"),
    R("R5", "WRITE with immediate without receive element", (
        write(P, b"1" * M, opcode=Op.WRITE_FIRST, length=3 * M, ask=False),
        write(P + 1, b"2" * M, opcode=Op.WRITE_MIDDLE, ask=False),
        write(P + 2, b"3" * M, opcode=Op.WRITE_LAST_IMM, extra=bytes(4)),
        Receive(0),
        write(P + 2, b"3" * M, opcode=Op.WRITE_LAST_IMM, extra=bytes(4))),
      "RNR 102, ACK 102", "0 SUCCESS", memory=lambda m: m[: 3 * M] == b"1" * M + b"2" * M + b"3" * M),
    R("R6", "receive element with a bad key", (Receive(0, 16, 0x99), Receive(1), send(P)),
      "NAK63 100", "0 LOC_PROT_ERR, 1 WR_FLUSH_ERR", state=ERR),
    R("R10", "packets behind an RNR NAK", (send(P), send(P + 1), send(P + 2)), "RNR 100", drops=2),
)  # fmt: skip

_FIRST = Op.READ_RESPONSE_FIRST
_MIDDLE, _LAST, _ONLY = Op.READ_RESPONSE_MIDDLE, Op.READ_RESPONSE_LAST, Op.READ_RESPONSE_ONLY
ONE = "SEND ONLY 100"

REQUESTER: tuple[RequesterRow, ...] = (
    *(
        Q(f"Q1-{retries}", "no answer", (post(SEND), post(SEND), Wait((retries + 2) * TIMEOUT)),
          ", ".join([ONE, "SEND ONLY 101"] * (retries + 1)), "0 RETRY_EXC_ERR, 1 WR_FLUSH_ERR", state=ERR,
          setup={"retry_cnt": retries})
        for retries in (0, 1, 3)
    ),
    Q("Q2", "no answer and no timeout", (post(SEND), Wait(1 << 50)), ONE, setup={"timeout": 0}),
    Q("Q3", "one ACK for three", (post(SEND), post(SEND), post(SEND), ack(P + 2)),
      "SEND ONLY 100, SEND ONLY 101, SEND ONLY 102", "0 SUCCESS, 1 SUCCESS, 2 SUCCESS"),
    Q("Q4", "ACK inside a message, then nothing", (post(SEND, 2 * M), ack(P), Wait(TIMEOUT)),
      "SEND FIRST 100, SEND LAST 101, SEND LAST 101"),
    Q("Q5", "ACK of what was never sent", (post(SEND), ack(P + 1)), ONE, drops=1),
    Q("Q6", "ACK of what is long acknowledged", (post(SEND), ack(P - 1)), ONE, drops=1),
    Q("Q7", "sequence NAK", (post(SEND), post(SEND), post(SEND), nak(P + 1, 0x60)),
      "SEND ONLY 100, SEND ONLY 101, SEND ONLY 102, SEND ONLY 101, SEND ONLY 102", "0 SUCCESS"),
    Q("Q8", "the same sequence NAK twice", (post(SEND), post(SEND), nak(P, 0x60), nak(P, 0x60)),
      "SEND ONLY 100, SEND ONLY 101, SEND ONLY 100, SEND ONLY 101"),
    *(
        Q(f"Q9-{code:#x}", f"NAK {code:#x}", (post(SEND), post(SEND), post(SEND), nak(P + 1, code)),
          "SEND ONLY 100, SEND ONLY 101, SEND ONLY 102", f"0 SUCCESS, 1 {status}, 2 WR_FLUSH_ERR", state=ERR)
        for code, status in ((0x61, "REM_INV_REQ_ERR"), (0x62, "REM_ACCESS_ERR"), (0x63, "REM_OP_ERR"))
    ),
    Q("Q10", "NAK behind an unanswered READ", (post(READ), post(SEND), nak(P + 1, 0x62)),
      "READ REQUEST 100, SEND ONLY 101, READ REQUEST 100, SEND ONLY 101"),
    Q("Q11", "a lost READ response", (
        post(READ, 3 * M), data(_FIRST, P, b"1" * M), data(_LAST, P + 2, b"3" * M),
        data(_FIRST, P + 1, b"2" * M), data(_LAST, P + 2, b"3" * M)),
      "READ REQUEST 100, READ REQUEST 101", "0 SUCCESS", memory=b"1" * M + b"2" * M + b"3" * M),
    Q("Q12", "READ response LAST before FIRST", (post(READ, 2 * M), data(_LAST, P, bytes(M))),
      "READ REQUEST 100", "0 BAD_RESP_ERR", state=ERR),
    Q("Q13", "READ response of the wrong length", (post(READ, 8), data(_ONLY, P, bytes(4))),
      "READ REQUEST 100", "0 LOC_LEN_ERR", state=ERR),
    Q("Q14", "atomic acknowledgement of a SEND", (post(SEND), old(P)), ONE, "0 BAD_RESP_ERR", state=ERR),
    Q("Q15", "ACK past an unanswered READ", (post(READ), post(SEND), ack(P + 1)),
      "READ REQUEST 100, SEND ONLY 101, READ REQUEST 100, SEND ONLY 101"),
    Q("Q16-45", "reserved syndrome", (post(SEND), ack(P, 0x45)), ONE, drops=1),
    Q("Q16-70", "reserved NAK code", (post(SEND), ack(P, 0x70)), ONE, drops=1),
    Q("Q17", "ACK without credits", (post(SEND), ack(P, 0x00), post(SEND)), "SEND ONLY 100, SEND ONLY 101",
      "0 SUCCESS"),
    Q("Q18", "restarted READ goes on with MIDDLE and LAST", (
        post(READ, 3 * M), data(_FIRST, P, b"1" * M), Wait(TIMEOUT), data(_MIDDLE, P + 1, b"2" * M),
        data(_LAST, P + 2, b"3" * M)),
      "READ REQUEST 100, READ REQUEST 101", "0 SUCCESS", memory=b"1" * M + b"2" * M + b"3" * M),
    Q("Q19", "payload with a bad key", (post(SEND, 4, lkey=0x99), post(SEND)), "",
      "0 LOC_PROT_ERR, 1 WR_FLUSH_ERR", state=ERR),
    Q("Q20", "READ into memory without LOCAL_WRITE", (
        post(READ, 4, lkey=0x33), data(_ONLY, P, b"data")), "READ REQUEST 100", "0 LOC_PROT_ERR", state=ERR),
    Q("Q21", "fence behind a READ", (post(READ), post(SEND, fence=True), data(_ONLY, P, b"data")),
      "READ REQUEST 100, SEND ONLY 101", "0 SUCCESS"),
    Q("Q22", "max_rd_atomic 1", (post(READ), post(READ), post(SEND), data(_ONLY, P, b"data")),
      "READ REQUEST 100, READ REQUEST 101, SEND ONLY 102", "0 SUCCESS", setup={"max_rd_atomic": 1}),
    Q("Q23", "unsignaled, then signaled", (
        post(SEND, signaled=False), post(SEND, signaled=False), post(SEND), ack(P + 2)),
      "SEND ONLY 100, SEND ONLY 101, SEND ONLY 102", "2 SUCCESS"),
    Q("Q24", "an unsignaled one fails", (post(SEND, signaled=False), nak(P, 0x61)), ONE, "0 REM_INV_REQ_ERR",
      state=ERR),
    Q("Q25", "post in ERR", (Change(ERR), post(SEND)), "", "0 WR_FLUSH_ERR", state=ERR),
    Q("Q26", "SQD with a message in flight and one queued", (
        post(SEND, 2 * M), Change(SQD), post(SEND), ack(P + 1), Change(RTS)),
      "SEND FIRST 100, SEND LAST 101, SEND ONLY 102", "0 SUCCESS", "SQ_DRAINED"),
    Q("Q27", "RESET with work queued", (post(SEND), post(SEND), Change(RESET)),
      "SEND ONLY 100, SEND ONLY 101", state=RESET),
    Q("Q28", "corrupt ACK", (post(SEND), ack(P, flip=-1), Wait(TIMEOUT), ack(P)), f"{ONE}, {ONE}",
      "0 SUCCESS"),
    Q("Q29", "response in RTR", (Change(RESET), Change(INIT), Change(RTR), ack(P)), "", drops=1, state=RTR),
    Q("R2", "RNR NAKs until the retries are used up", (
        post(SEND), nak(P, 0x2C), Wait(RNR_DELAYS[12]), nak(P, 0x2C), Wait(RNR_DELAYS[12]), nak(P, 0x2C)),
      f"{ONE}, {ONE}, {ONE}", "0 RNR_RETRY_EXC_ERR", state=ERR, setup={"rnr_retry": 2}),
    Q("R3", "RNR NAKs without limit, then an ACK", (
        post(SEND), *(step for _ in range(9) for step in (nak(P, 0x21), Wait(RNR_DELAYS[1]))), ack(P)),
      ", ".join([ONE] * 10), "0 SUCCESS", setup={"rnr_retry": 7}),
    Q("R4", "RNR NAK without retries", (post(SEND), nak(P, 0x2C)), ONE, "0 RNR_RETRY_EXC_ERR", state=ERR,
      setup={"rnr_retry": 0}),
    Q("R10-requester", "sequence NAK behind an RNR NAK", (
        post(SEND), post(SEND), nak(P, 0x2C), nak(P, 0x60), Wait(RNR_DELAYS[12])),
      "SEND ONLY 100, SEND ONLY 101, SEND ONLY 100, SEND ONLY 101", setup={"retry_cnt": 0}),
    Q("S4", "the last packet is lost", (post(SEND), Wait(TIMEOUT), ack(P)), f"{ONE}, {ONE}", "0 SUCCESS"),
    Q("S14", "PSN wraps inside a message", (post(SEND, 4 * M), ack(1)),
      "SEND FIRST 16777214, SEND MIDDLE 16777215, SEND MIDDLE 0, SEND LAST 1", "0 SUCCESS",
      setup={"psn": 0xFFFFFE}),
)  # fmt: skip

ROWS: dict[str, int] = {"P": 16, "S": 15, "O": 11, "A": 12, "R": 10, "Q": 29, "V": 9, "U": 8}
"""How many rows each part of the reference has, numbered from 1."""

ELSEWHERE: dict[str, str] = {
    "A3": "tests/nic/test_verbs_table.py::test_a_key_of_another_domain_is_refused",
    "A9": "tests/roce/test_responder.py::test_memory_that_goes_away_in_the_middle_of_a_read",
    "A11": "tests/roce/test_responder.py::test_more_reads_than_resources_before_any_is_answered",
    "R7": "tests/nic/test_srq.py::test_the_limit_raises_one_event_and_disarms",
    "R8": "tests/nic/test_srq.py::test_a_queue_pair_in_error_takes_no_more_and_says_so",
    "R9": "tests/nic/test_verbs_table.py::test_a_receive_completion_without_room_ends_the_queue_pair",
    **{f"V{row}": "tests/nic/test_verbs_table.py::test_verbs" for row in (1, 2, 3, 4, 5, 8, 9)},
    "V6": "tests/personality/test_formats.py::test_a_malformed_wqe_names_its_rule",
    "V7": "tests/nic/test_verbs_table.py::test_a_doorbell_past_the_ring_is_refused",
    "U1": "tests/roce/test_uc.py::test_a_message_that_lost_a_packet_leaves_its_receive_element_to_the_next",
    "U2": "tests/roce/test_uc.py::test_a_write_that_is_not_allowed_is_silent",
    "U3": "tests/roce/test_uc.py::test_a_message_without_receive_element_is_dropped_and_counted",
    "U4": "tests/roce/test_ud.py::test_a_wrong_q_key_is_dropped_and_counted",
    "U5": "tests/roce/test_ud.py::test_a_receive_element_that_is_too_small_waits_for_the_next",
    "U6": "tests/roce/test_ud.py::test_a_datagram_without_receive_element_is_dropped_and_counted",
    "U7": "tests/roce/test_ud.py::test_a_message_longer_than_the_mtu_sends_nothing",
    "U8": "tests/roce/test_ud.py::test_an_empty_datagram_has_only_the_area",
}
"""Rows that need more than one engine and a script, and the test that plays each."""
