# SPDX-License-Identifier: Apache-2.0
"""The header tables decode the worked examples and keep to their own rules."""

from __future__ import annotations

import pytest

from emu.wire import uet_pds, uet_ses, uet_tss
from emu.wire.crc32c import crc32c
from emu.wire.uet_format import Field, HeaderFormat, Truncated
from tests.wire.uet_vectors import FRAMES, HEADERS

# Sizes in bytes by packet type and by next header, as the reference has them.
PDS_SIZE = {2: 12, 3: 12, 4: 8, 5: 8, 6: 4, 7: 12, 8: 32, 9: 40, 10: 16, 11: 16, 12: 32, 13: 16, 14: 16}
SES_SIZE = {1: 20, 2: 32, 3: 44, 4: 12, 5: 20, 6: 12}

FORMATS = [
    uet_pds.PROLOGUE,
    uet_pds.REQUEST,
    uet_pds.RUDI,
    uet_pds.UUD,
    uet_pds.ACK,
    uet_pds.NACK,
    uet_pds.CONTROL,
    uet_pds.ENTROPY,
    uet_tss.SECURITY,
    *uet_ses.BY_NEXT_HEADER.values(),
    uet_ses.RENDEZVOUS,
    uet_ses.ATOMIC,
    uet_ses.COMPARE_SWAP,
]


def bit(offset: str) -> int:
    """The reference's "byte.bit" as a bit offset, bit 7 being the first of a byte."""
    byte, position = offset.split(".")
    return int(byte) * 8 + 7 - int(position)


# Offsets and values as the reference lists them below each example.
EXAMPLES = {
    "E1": (
        uet_pds.REQUEST,
        0,
        {
            "type": ("0.7", 2),
            "next_hdr": ("0.2", 3),
            "clear_psn_offset": ("2.7", -1),
            "psn": ("4.7", 0x10000),
            "spdcid": ("8.7", 0x1234),
            "use_rsv_pdc": ("10.7", 0),
            "pdc_info_rsvd": ("10.6", 0),
            "psn_offset": ("10.3", 0),
            "ar": ("1.3", 1),
            "syn": ("1.2", 1),
            "retx": ("1.4", 0),
        },
    ),
    "E1 SES": (
        uet_ses.STANDARD,
        12,
        {
            "opcode": ("0.5", 1),
            "ver": ("1.7", 0),
            "dc": ("1.5", 0),
            "ie": ("1.4", 0),
            "rel": ("1.3", 1),
            "hd": ("1.2", 0),
            "eom": ("1.1", 1),
            "som": ("1.0", 1),
            "message_id": ("2.7", 1),
            "ri_generation": ("4.7", 0),
            "job_id": ("5.7", 0xABCD),
            "pid_on_fep": ("8.3", 5),
            "resource_index": ("10.3", 10),
            "buffer_offset": ("12.7", 0x1000),
            "initiator": ("20.7", 7),
            "memory_key": ("24.7", 0x1122334455667788),
            "header_data": ("32.7", 0),
            "request_length": ("40.7", 16),
        },
    ),
    "E2": (
        uet_pds.ACK,
        0,
        {
            "type": ("0.7", 7),
            "next_hdr": ("0.2", 4),
            "ack_psn_offset": ("2.7", 0),
            "cack_psn": ("4.7", 0x10000),
            "spdcid": ("8.7", 0x4321),
            "dpdcid": ("10.7", 0x1234),
        },
    ),
    "E2 SES": (
        uet_ses.RESPONSE,
        12,
        {
            "list": ("0.7", 0),
            "opcode": ("0.5", 1),
            "return_code": ("1.5", 1),
            "message_id": ("2.7", 1),
            "job_id": ("5.7", 0xABCD),
            "modified_length": ("8.7", 16),
        },
    ),
    "E3": (
        uet_pds.ACK,
        0,
        {
            "m": ("1.5", 1),
            "ack_psn_offset": ("2.7", 6),
            "cack_psn": ("4.7", 0x10001),
            "cc_type": ("12.7", 0),
            "cc_flags": ("12.3", 0),
            "mpr": ("13.7", 8),
            "sack_psn_offset": ("14.7", 1),
            "sack_bitmap": ("16.7", 0x26),
            "service_time": ("24.7", 5),
            "rc": ("26.7", 0),
            "rcv_cwnd_pend": ("26.6", 0),
            "rcvd_bytes": ("27.7", 0x13),
            "ooo_count": ("30.7", 3),
        },
    ),
    "E4": (
        uet_pds.NACK,
        0,
        {
            "nack_code": ("2.7", 1),
            "vendor_code": ("3.7", 0),
            "nack_psn": ("4.7", 0x10002),
            "nack_payload": ("12.7", 0),
        },
    ),
    "E5": (
        uet_pds.NACK,
        0,
        {"nack_code": ("2.7", 13), "nack_psn": ("4.7", 0x20007), "nack_payload": ("12.7", 0x20006)},
    ),
    "E6": (
        uet_pds.REQUEST,
        0,
        {"type": ("0.7", 3), "clear_psn_offset": ("2.7", -2), "dpdcid": ("10.7", 0x42)},
    ),
    "E7": (
        uet_pds.CONTROL,
        0,
        {"ctl_type": ("0.2", 4), "ar": ("1.3", 1), "rsvd": ("2.7", 0), "psn": ("4.7", 0x10008)},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_fields_stand_where_the_reference_has_them(name: str) -> None:
    header, start, expected = EXAMPLES[name]
    octets = FRAMES[name.split()[0]][42 + start :]
    found = {item.name: (position, value) for item, position, value in header.walk(octets)}
    for field, (offset, value) in expected.items():
        assert found[field] == (bit(offset), value), field


def test_derived_numbers_of_the_examples() -> None:
    request = uet_pds.REQUEST.decode(HEADERS["U17"])
    clear, start = (derived.of(request) for derived in uet_pds.REQUEST.derived)
    assert (clear, start) == (0x2FFFF, 0x30000)
    ack = uet_pds.ACK.decode(FRAMES["E3"][42:])
    assert [derived.of(ack) for derived in uet_pds.ACK.derived] == [0x10007, 0x10002]
    established = uet_pds.REQUEST.decode(FRAMES["E6"][42:])
    assert uet_pds.REQUEST.derived[1].of(established) is None


@pytest.mark.parametrize("kind", uet_pds.BY_TYPE)
def test_delivery_headers_have_their_sizes(kind: int) -> None:
    octets = bytes([kind << 3]) + bytes(63)
    assert uet_pds.BY_TYPE[kind].size(octets) == PDS_SIZE[kind]
    with pytest.raises(Truncated):
        uet_pds.BY_TYPE[kind].size(octets[: PDS_SIZE[kind] - 1])


@pytest.mark.parametrize("following", uet_ses.BY_NEXT_HEADER)
def test_semantic_headers_have_their_sizes(following: int) -> None:
    header = uet_ses.BY_NEXT_HEADER[following]
    for flags in range(4):
        for opcode in (0, 8, 12):
            assert header.size(bytes([opcode, flags]) + bytes(62)) == SES_SIZE[following]


def test_headers_of_variable_size() -> None:
    assert uet_pds.ACK.size(bytes([0x38, 0x40]) + bytes(30)) == 16
    assert uet_pds.CONTROL.size(bytes([0x5C, 0x80]) + bytes(30)) == 20
    assert uet_tss.SECURITY.size(bytes([0x08]) + bytes(30)) == 12
    assert uet_tss.SECURITY.size(bytes([0x0C]) + bytes(30)) == 16
    assert [f.size(bytes(64)) for f in (uet_ses.RENDEZVOUS, uet_ses.ATOMIC, uet_ses.COMPARE_SWAP)] == [
        24,
        4,
        36,
    ]


@pytest.mark.parametrize("header", FORMATS, ids=lambda header: header.name)
def test_a_field_keeps_its_alignment_whatever_the_conditions(header: HeaderFormat) -> None:
    run: list[Field] = []
    for item in (*header.fields, Field("end", 0, "", "")):
        if run and item.conditions != run[-1].conditions:
            assert not run[-1].conditions or sum(f.bits for f in run) % 8 == 0
            run = []
        run.append(item)
    for pattern in (bytes(64), b"\xff" * 64, *(bytes([kind << 3, 0x0C]) + bytes(62) for kind in range(16))):
        for item, position, _ in header.walk(pattern):
            assert position % 8 == header.alignment(item.name)


def test_names_are_unique_and_filters_belong_to_the_protocol() -> None:
    for header in FORMATS:
        names = [item.name for item in header.fields]
        assert len({*names}) == len(names)
        assert all(item.filter.startswith("uet.") for item in header.fields)


def test_examples_have_no_complaints_and_impossible_values_have() -> None:
    for name, octets in HEADERS.items():
        header = uet_pds.BY_TYPE[octets[0] >> 3]
        assert header.complaints(header.decode(octets)) == [], name
    request = uet_pds.REQUEST.decode(HEADERS["U2"])
    request |= {"clear_psn_offset": 1, "spdcid": 0, "next_hdr": 12, "flags_rsvd1": 3}
    assert uet_pds.REQUEST.complaints(request) == [
        "Next Hdr 0xc is reserved",
        "reserved bits are 0x3, not 0",
        "Clear PSN offset is 1, must be -32768 to 0",
        "Source PDC ID is 0, must be 1 to 65535",
    ]
    small = uet_ses.SMALL.decode(HEADERS["U1"][16:])
    assert uet_ses.SMALL.complaints(small) == []
    assert uet_ses.SMALL.complaints(small | {"som": 0, "opcode": 0x30}) == [
        "Start of Msg (SOM) is 0, must be 1"
    ]


def test_crc32c_check_value_and_continuation() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    for cut in range(10):
        assert crc32c(b"123456789"[cut:], crc32c(b"123456789"[:cut])) == 0xE3069283
