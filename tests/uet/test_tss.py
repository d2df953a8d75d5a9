# SPDX-License-Identifier: Apache-2.0
"""Security: keys, bytes on the wire, what is refused, and endpoints that use it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether

from emu.clock import MS
from emu.nic.engine import Drop
from emu.nic.work import Opcode, Status, Transport
from emu.uet import Parameters
from emu.uet.packet import Parser, UetPacket
from emu.uet.path import PeerPath
from emu.uet.tss import Tss
from emu.uet.tss_keys import REKEY_MASK, KeyMode, KeyStore, SecureDomain, derive, kdf_context, rekey_of
from emu.uet.tss_replay import WINDOW, ReplayWindow
from emu.wire import uet
from emu.wire.congestion import mark, trim
from emu.wire.uet_names import PdsType
from emu.wire.uet_profile import DEFAULT, Profile, Trailer
from tests.roce.bench import LKEY, RKEY
from tests.uet.bench import LATENCY, Nic, connect, losing, pair
from tests.uet.bench import Net as Bench
from tests.wire.uet_vectors import FRAMES

SECRET = bytes(range(32))
OTHER = bytes(range(32, 64))
DOMAIN = SecureDomain((SECRET,), sdi=0xABCDEF)
E1 = FRAMES["E1"]
UDP_UET = 42
"""Where UET starts in a frame over IPv4 and UDP."""

SEALED = bytes.fromhex(
    "02000000000202000000000108004522008000004000401126490a0000010a000002c00112b9006c000008abcdef0000"
    "000000000000fea6eb827e02f555e0c5312650db5efcecbe6db18523c33d3e81bb3b9369437a2e628c5efd08ad0778b6"
    "2be0855a849fe30c166f96126478dc58d1884e86001345eae779456f5eeda9dc849fab96445225467328d516a62b"
)
"""E1 with :data:`DOMAIN`, first packet: DSCP 8, security header, ciphertext, ICV."""


def by_hand(secret: bytes, label: bytes, context: bytes) -> bytes:
    """SP 800-108 in counter mode over AES-CMAC, 44 bytes, one block after the other."""
    blocks = b""
    for counter in (1, 2, 3):
        mac = CMAC(AES(secret))
        mac.update(bytes((counter,)) + label + b"\0" + context + (44 * 8).to_bytes(2, "big"))
        blocks += mac.finalize()
    return blocks[:44]


def plain() -> bytes:
    """E1 without its CRC, lengths as they are then."""
    whole = Ether(E1)
    packet = whole.copy()
    packet["UET PDS request"].crc = None
    for layer, names in (("IP", ("len", "chksum")), ("UDP", ("len",))):
        for name in names:
            delattr(packet[layer], name)
    return bytes(Ether(bytes(packet)[:14] + bytes(packet["IP"])))


def tss(domain: SecureDomain = DOMAIN, profile: Profile = DEFAULT) -> Tss:
    return Tss(domain, profile)


def refused(found: bytes | Drop) -> str:
    assert isinstance(found, Drop), "a packet passed that should not"
    assert found.reason
    return found.counter


def test_the_key_derivation_is_sp_800_108() -> None:
    context = kdf_context(KeyMode.CLUSTER, 1, 2, bytes((10, 0, 0, 1)))
    assert context.hex() == "0001000000020a000001"
    key, mask = derive(SECRET, KeyMode.CLUSTER.value, context)
    assert key + mask == by_hand(SECRET, b"U1", context)
    assert (key + mask).hex() == (
        "340330c89300d1fc72ce857aeeb559152e98ac10aa2950582981fb967ae1f3e65a55de51ee4fd25ad58073fa"
    )


def test_contexts() -> None:
    v6 = bytes(range(16))
    assert len(kdf_context(KeyMode.CLUSTER, 1, 2, v6)) == 26
    assert kdf_context(KeyMode.CLUSTER, 1, 2, v6).hex() == "00000000000100000002" + v6.hex()
    assert kdf_context(KeyMode.SERVER, 1, 2, v6[:4]).hex() == "00010000000000010203"
    assert rekey_of(0x1234_5678_9ABC_DEF0, REKEY_MASK) == 0x5678
    assert rekey_of(0x1234_5678_9ABC_DEF0, 0) == 0


def test_a_new_key_for_each_source_epoch_and_rekey_period() -> None:
    store = KeyStore(DOMAIN)
    address = bytes((10, 0, 0, 1))
    first = store.find(0, address, 0)
    assert first is store.find(0, address, (1 << 32) - 1)
    others = [
        store.find(0, address, 1 << 32),
        store.find(0, address, 1 << 48),
        store.find(0, b"\x0a\0\0\2", 0),
    ]
    assert None not in others
    assert len({first, *others}) == 4
    assert store.find(1, address, 0) is None


def test_the_golden_packet() -> None:
    sealed = tss().seal(plain())
    assert sealed.hex() == SEALED.hex()
    opened = tss().open(sealed)
    assert isinstance(opened, bytes)
    assert opened[UDP_UET:] == plain()[UDP_UET:]


def test_the_golden_packet_by_hand() -> None:
    """Decrypted with nothing of the code under test, and shown by scapy."""
    keys = by_hand(SECRET, b"U1", bytes(6) + bytes((10, 0, 0, 1)))
    iv = bytes(a ^ b for a, b in zip(bytes((10, 0, 0, 1)) + bytes(8), keys[32:], strict=True))
    at = UDP_UET + 12
    assert AESGCM(keys[:32]).decrypt(iv, SEALED[at:], SEALED[26:at]) == plain()[UDP_UET:]
    shown = Ether(SEALED)
    security = shown[uet.Security]
    assert (security.type, security.sp, security.an, security.sdi) == (PdsType.TSS, 0, 0, 0xABCDEF)
    assert (security.tsc_epoch, security.tsc_counter) == (0, 0)
    assert security.icv == SEALED[-16:]
    assert shown["IP"].tos >> 2 == DEFAULT.dscp_no_trim
    assert shown["IP"].len == len(SEALED) - 14
    assert shown["UDP"].len == len(SEALED) - 34
    good = shown["IP"].copy()
    del good.chksum
    assert bytes(good)[10:12] == SEALED[24:26]


ADDRESSES = {4: (bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))), 16: (bytes(15) + b"\1", bytes(15) + b"\2")}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("ssi", [None, 0x01020304])
@pytest.mark.parametrize("mode", list(KeyMode))
@pytest.mark.parametrize("clear", [0, 12])
def test_every_form_opens_again(native: bool, size: int, ssi: int | None, mode: KeyMode, clear: int) -> None:
    profile = Profile(over_udp=not native, tss_crypt_offset=clear)
    domain = SecureDomain((SECRET, OTHER), an=1, ssi=ssi, mode=mode)
    there = PeerPath(bytes(6), bytes(6), *ADDRESSES[size], profile)
    body = random.Random(1).randbytes(300)
    frame = there.frame(DEFAULT.dscp_data << 2 | 2, 0xC001, bytes.fromhex("1188ffff0001000012344321"), body)
    source, target = tss(domain, profile), tss(domain, profile)
    for number in range(3):
        sealed = source.seal(frame)
        assert len(sealed) == len(frame) + (28 if ssi is None else 32)
        at = len(frame) - 312
        assert sealed[at] >> 3 == PdsType.TSS
        assert (frame[at : at + 12] in sealed) == (clear == 12)
        assert body not in sealed
        assert int.from_bytes(sealed[at + (4 if ssi is None else 8) :][:8], "big") == number
        # Switches mark, and Ethernet pads.
        opened = target.open((mark(sealed) or sealed) + bytes(7))
        assert isinstance(opened, bytes)
        packet = Parser(profile).parse(opened)
        assert isinstance(packet, UetPacket)
        assert packet.frame[packet.ses : packet.end] == body
        assert (packet.ev, packet.head.ecn) == (0xC001, 3)


def test_secured_data_is_not_trimmed() -> None:
    sealed = tss().seal(plain())
    assert trim(plain()) is not None
    assert trim(sealed) is None


@given(st.integers(8 * 26, 8 * (len(plain()) + 28) - 1))
def test_a_changed_bit_is_noticed(bit: int) -> None:
    """Any bit from the IP source address on."""
    sealed = bytearray(tss().seal(plain()))
    sealed[bit >> 3] ^= 1 << (bit & 7)
    found = tss().open(bytes(sealed))
    if bit >> 3 in (36, 37):
        # Another UDP port: no UET any more.
        assert found == bytes(sealed)
    else:
        assert refused(found).startswith("tss_")


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_behind_udp_are_refused_and_named(body: bytes, secured: bool) -> None:
    if secured:
        body = bytes((PdsType.TSS << 3,)) + DOMAIN.sdi.to_bytes(3, "big") + body
    frame = PeerPath(bytes(6), bytes(6), *ADDRESSES[4]).frame(0, 1, body)
    found = tss().open(frame)
    if body:
        assert refused(found) in ("tss_unsecured", "tss_auth_failures", "tss_unknown_domain")
    else:
        assert found == frame


def test_refusals_have_names() -> None:
    sealed = tss().seal(plain())
    assert refused(tss(replace(DOMAIN, secrets=(OTHER,))).open(sealed)) == "tss_auth_failures"
    assert refused(tss(replace(DOMAIN, sdi=5)).open(sealed)) == "tss_unknown_domain"
    second = tss(replace(DOMAIN, secrets=(OTHER, SECRET), an=1)).seal(plain())
    assert refused(tss().open(second)) == "tss_unknown_domain"
    assert refused(tss().open(plain())) == "tss_unsecured"
    target = tss()
    assert isinstance(target.open(sealed), bytes)
    assert refused(target.open(sealed)) == "tss_replays"
    dropped = Parser().parse(sealed)
    assert isinstance(dropped, Drop)
    assert dropped.counter == "tss_unknown_domain"


def test_a_forged_packet_moves_no_window() -> None:
    target, source = tss(), tss()
    first, second = source.seal(plain()), source.seal(plain())
    forged = bytearray(first)
    forged[UDP_UET + 4 : UDP_UET + 12] = b"\xff" * 8
    assert refused(target.open(bytes(forged))) == "tss_auth_failures"
    assert isinstance(target.open(second), bytes)
    assert isinstance(target.open(first), bytes)


def test_both_secrets_of_a_domain_open() -> None:
    old = SecureDomain((SECRET, OTHER))
    target = tss(old)
    assert isinstance(target.open(tss(old).seal(plain())), bytes)
    assert isinstance(target.open(tss(replace(old, an=1)).seal(plain())), bytes)


def test_a_source_that_starts_anew_is_in_the_next_epoch() -> None:
    source, target = tss(), tss()
    before = source.seal(plain())
    assert isinstance(target.open(before), bytes)
    source.restart()
    after = source.seal(plain())
    assert after[UDP_UET + 4 : UDP_UET + 6] == b"\0\1"
    assert isinstance(target.open(after), bytes)
    assert refused(target.open(before)) == "tss_replays"


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=60))
def test_a_window_takes_each_counter_once_and_none_too_old(counters: list[int]) -> None:
    window = ReplayWindow()
    seen: set[int] = set()
    for tsc in counters:
        newest = max(seen, default=-1)
        assert window.fresh(tsc) == (tsc not in seen and tsc > newest - WINDOW)
        if window.fresh(tsc):
            window.note(tsc)
            seen.add(tsc)


@pytest.mark.parametrize(
    "change",
    [
        {"secrets": ()},
        {"secrets": (SECRET, SECRET, SECRET)},
        {"secrets": (SECRET[:16],)},
        {"an": 1},
        {"sdi": 1 << 24},
        {"ssi": -1},
        {"rekey_mask": 1 << 64},
    ],
)
def test_a_domain_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        replace(DOMAIN, **change)  # type: ignore[arg-type]


def test_a_crc_and_an_icv_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="choose one"):
        Parameters(wire=Profile(trailer=Trailer.CRC), security=DOMAIN)


SECURED = Parameters(security=DOMAIN)


@pytest.mark.parametrize("transport", [Transport.UET_RUD, Transport.UET_ROD, Transport.UET_RUDI])
def test_endpoints_that_share_a_secret_work_as_without(transport: Transport) -> None:
    draw = random.Random(2)

    def impair(sender: Nic, number: int, frame: bytes) -> list[tuple[int, bytes]]:
        copies = (draw.random() > 0.05) + (draw.random() < 0.3)
        return [(LATENCY + draw.randrange(5000), frame) for _ in range(copies)]

    net, a, b = pair(transport, impair, SECURED)
    size = 1 << 16
    payload = random.Random(1).randbytes(size)
    a.host.regions[LKEY].data[:] = payload
    a.post(Opcode.WRITE, size)
    a.post(Opcode.READ, 512)
    net.scheduler.run(until=20_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    assert b.host.regions[RKEY].data == payload
    for nic in (a.nic, b.nic):
        assert nic.sent
        assert all(frame[UDP_UET] >> 3 == PdsType.TSS for frame in nic.sent)
        assert payload[:64] not in b"".join(nic.sent)
        # Copies came a second time, and nothing else was wrong.
        assert nic.drops
        assert {drop.counter for drop in nic.drops} == {"tss_replays"}


@pytest.mark.parametrize(
    ("other", "counter", "answer"),
    [
        (Parameters(security=replace(DOMAIN, secrets=(OTHER,))), "tss_auth_failures", None),
        (Parameters(security=replace(DOMAIN, sdi=7)), "tss_unknown_domain", None),
        (Parameters(), "tss_unknown_domain", None),
    ],
)
def test_endpoints_that_do_not_share_a_secret_hear_nothing(
    other: Parameters, counter: str, answer: None
) -> None:
    net = Bench()
    a, b = net.nic("a", SECURED), net.nic("b", other)
    left, right = connect(a, b)
    left.post(Opcode.WRITE, 64)
    net.scheduler.run(until=60_000 * MS)
    assert left.host.statuses == [(0, Status.RETRY_EXC_ERR)]
    assert {drop.counter for drop in b.drops} == {counter}
    assert not b.sent
    assert not b.fep.pdcs
    assert bytes(right.host.regions[RKEY].data) == bytes(1 << 16)


def test_an_endpoint_with_a_secret_takes_nothing_in_the_clear() -> None:
    net = Bench()
    a, b = net.nic("a"), net.nic("b", SECURED)
    left, _ = connect(a, b)
    left.post(Opcode.WRITE, 64)
    net.scheduler.run(until=60_000 * MS)
    assert left.host.statuses == [(0, Status.RETRY_EXC_ERR)]
    assert {drop.counter for drop in b.drops} == {"tss_unsecured"}
    assert not b.sent


def test_what_was_recorded_and_is_played_again_changes_nothing() -> None:
    net, a, b = pair(parameters=SECURED)
    a.post(Opcode.ATOMIC_ADD, 8, swap_add=1)
    a.post(Opcode.WRITE, 3000)
    net.scheduler.run(until=1000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS), (1, Status.SUCCESS)]
    sent, atomics, answers = list(a.nic.sent), b.host.atomics, len(b.nic.sent)
    for frame in sent:
        b.nic.deliver(frame)
    net.scheduler.run(until=2000 * MS)
    assert [drop.counter for drop in b.nic.drops] == ["tss_replays"] * len(sent)
    assert b.host.atomics == atomics == 1
    assert len(b.nic.sent) == answers


def test_a_packet_sent_again_has_a_counter_of_its_own() -> None:
    net, a, _ = pair(impairment=losing(("a", 2)), parameters=SECURED)
    a.post(Opcode.WRITE, 8192)
    net.scheduler.run(until=20_000 * MS)
    assert a.host.statuses == [(0, Status.SUCCESS)]
    assert a.nic.retransmitted
    counters = [frame[UDP_UET + 4 : UDP_UET + 12] for frame in a.nic.sent]
    assert len(set(counters)) == len(counters)


def test_a_reset_of_one_end_is_no_replay_at_the_other() -> None:
    net = Bench()
    a, b = net.nic("a", SECURED), net.nic("b", SECURED)
    for _ in range(2):
        left, right = connect(a, b)
        left.post(Opcode.WRITE, 4096)
        net.scheduler.run(until=net.scheduler.now() + 1000 * MS)
        assert left.host.statuses == [(0, Status.SUCCESS)]
        a.fep.reset()
        a.qps.clear()
        b.qps.pop(right.host.qpn)
        b.fep.forget_engine(right.host.qpn)
    assert not b.drops
