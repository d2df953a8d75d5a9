# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes a client sends, the server answers or drops that client, and serves the next."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct

import pytest

from emu.transport.context import Endpoint
from emu.transport.loop import Loop
from emu.transport.model import CONFIG_REGION
from tests.conftest import Serve
from tests.transport.recorder import BAR, Recorder
from tests.vfio_user import Client, ClientError, Disconnected
from tests.vfio_user import protocol as p
from tests.vfio_user.protocol import Command, Flags, Irq, IrqAction


def still_serves(endpoint: Endpoint, loop: Loop, client: Client | None = None) -> None:
    """A fresh client is served as ever."""
    if client is not None:
        client.close()
        client.until_lost(endpoint)
    fresh = Client(endpoint.path, loop)
    fresh.write(BAR, 0, b"alive")
    assert fresh.read(BAR, 0, 5) == b"alive"
    fresh.close()
    fresh.until_lost(endpoint)
    assert endpoint.counters.faults == 0


ACCESS = p.REGION_ACCESS.pack
REFUSED = {
    "unknown command": (200, bytes(16)),
    "command zero": (0, bytes(16)),
    "server's own command": (Command.DMA_READ, bytes(16)),
    "second version": (Command.VERSION, p.VERSION.pack(0, 1)),
    "short read": (Command.REGION_READ, bytes(8)),
    "read of 4 GiB": (Command.REGION_READ, ACCESS(0, BAR, 0xFFFFFFFF)),
    "read beyond the region": (Command.REGION_READ, ACCESS(0xFFFC, BAR, 8)),
    "read that wraps": (Command.REGION_READ, ACCESS((1 << 64) - 4, BAR, 8)),
    "read of no region": (Command.REGION_READ, ACCESS(0, 0xFFFFFFFF, 4)),
    "write with less data": (Command.REGION_WRITE, ACCESS(0, BAR, 8) + b"1234"),
    "write with more data": (Command.REGION_WRITE, ACCESS(0, BAR, 4) + b"12345678"),
    "short device info": (Command.DEVICE_GET_INFO, bytes(8)),
    "device info without room": (Command.DEVICE_GET_INFO, p.DEVICE_INFO.pack(0, 0, 0, 0)),
    "short region info": (Command.DEVICE_GET_REGION_INFO, bytes(8)),
    "region info of no region": (
        Command.DEVICE_GET_REGION_INFO,
        p.REGION_INFO.pack(4096, 0, 0xFFFF, 0, 0, 0),
    ),
    "short DMA map": (Command.DMA_MAP, bytes(8)),
    "DMA map with odd flags": (Command.DMA_MAP, p.DMA_MAP.pack(32, 0xF0, 0, 0x1000, 0x1000)),
    "short DMA unmap": (Command.DMA_UNMAP, p.DMA_UNMAP.pack(24, 0, 0, 0)[:12]),
    "DMA unmap of nothing": (Command.DMA_UNMAP, p.DMA_UNMAP.pack(24, 0, 0x1000, 0x1000)),
    "DMA unmap with odd flags": (Command.DMA_UNMAP, p.DMA_UNMAP.pack(24, 0xFFFFFFFF, 0x1000, 0x1000)),
    "short interrupt info": (Command.DEVICE_GET_IRQ_INFO, bytes(4)),
    "interrupt info of no type": (Command.DEVICE_GET_IRQ_INFO, p.IRQ_INFO.pack(16, 0, 77, 0)),
    "short interrupt set-up": (Command.DEVICE_SET_IRQS, bytes(8)),
    "interrupt set-up of no type": (
        Command.DEVICE_SET_IRQS,
        p.IRQ_SET.pack(20, IrqAction.TRIGGER | IrqAction.DATA_NONE, 77, 0, 1),
    ),
    "more vectors than there are": (
        Command.DEVICE_SET_IRQS,
        p.IRQ_SET.pack(20, IrqAction.TRIGGER | IrqAction.DATA_EVENTFD, Irq.MSIX, 0, 13),
    ),
    "vectors that wrap": (
        Command.DEVICE_SET_IRQS,
        p.IRQ_SET.pack(20, IrqAction.TRIGGER | IrqAction.DATA_EVENTFD, Irq.MSIX, 1, 0xFFFFFFFF),
    ),
    "all actions at once": (Command.DEVICE_SET_IRQS, p.IRQ_SET.pack(20, 0xFF, Irq.MSIX, 0, 1)),
    "flags without data for them": (
        Command.DEVICE_SET_IRQS,
        p.IRQ_SET.pack(20, IrqAction.TRIGGER | IrqAction.DATA_BOOL, Irq.MSIX, 0, 12),
    ),
    "no payload": (Command.REGION_READ, b""),
}


@pytest.mark.parametrize("command, payload", REFUSED.values(), ids=REFUSED.keys())
def test_a_malformed_command_is_an_error_and_the_client_goes_on(
    serve: Serve, loop: Loop, command: int, payload: bytes
) -> None:
    model = Recorder()
    endpoint = serve(model)
    client = Client(endpoint.path, loop)
    with pytest.raises(ClientError):
        client.request(command, payload)
    assert client.read(BAR, 0, 4) == bytes(4)
    assert [entry[0] for entry in model.log] == ["attached", "read"]
    still_serves(endpoint, loop, client)


def test_an_error_to_a_posted_message_is_not_answered(serve: Serve, loop: Loop) -> None:
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop)
    client.send(Command.REGION_WRITE, ACCESS(0x10000, BAR, 4) + b"1234", flags=Flags.NO_REPLY)
    client.send(200, bytes(8), flags=Flags.NO_REPLY)
    assert client.read(BAR, 0, 4) == bytes(4)
    still_serves(endpoint, loop, client)


def test_unasked_descriptors_are_closed(serve: Serve, loop: Loop) -> None:
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop)
    client.read(BAR, 0, 4)
    before = len(os.listdir("/proc/self/fd"))
    with open(os.devnull) as file:
        client.request(Command.REGION_READ, ACCESS(0, BAR, 4), [file.fileno()] * 8)
    assert len(os.listdir("/proc/self/fd")) == before
    still_serves(endpoint, loop, client)


BROKEN = {
    "size below the header": p.HEADER.pack(1, Command.REGION_READ, 3, 0, 0),
    "size of 4 GiB": p.HEADER.pack(1, Command.REGION_WRITE, 0xFFFFFFFF, 0, 0),
    "half a header": p.HEADER.pack(1, Command.REGION_READ, 32, 0, 0)[:7],
    "a reply nobody asked for": p.HEADER.pack(9, Command.DMA_READ, 16, Flags.REPLY, 0),
    "half a body": p.HEADER.pack(1, Command.REGION_READ, 32, 0, 0) + bytes(5),
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_stream_ends_at_worst_its_client(serve: Serve, loop: Loop, data: bytes) -> None:
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop)
    client.send_raw(data)
    client.socket.shutdown(socket.SHUT_WR)
    client.until_lost(endpoint)
    still_serves(endpoint, loop, client)


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_greeting_is_refused(serve: Serve, loop: Loop, data: bytes) -> None:
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop, greet=False)
    client.send_raw(data)
    client.close()
    for _ in range(5):
        loop.step(0.03)
    assert not endpoint.attached
    assert endpoint.counters.refused == 1
    still_serves(endpoint, loop)


GREETINGS = {
    "another major version": p.VERSION.pack(9, 0),
    "no version": b"\0",
    "unterminated text": p.VERSION.pack(0, 1) + b'{"capabilities":{}}',
    "no JSON": p.VERSION.pack(0, 1) + b"{{{{\0",
    "descriptors below zero": p.VERSION.pack(0, 1) + b'{"capabilities":{"max_msg_fds":-1}}\0',
    "capabilities of another type": p.VERSION.pack(0, 1) + b'{"capabilities":7}\0',
}


@pytest.mark.parametrize("payload", GREETINGS.values(), ids=GREETINGS.keys())
def test_a_greeting_the_server_does_not_take_is_an_error(serve: Serve, loop: Loop, payload: bytes) -> None:
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop, greet=False)
    with pytest.raises((ClientError, Disconnected)):
        client.request(Command.VERSION, payload)
    client.close()
    assert not endpoint.attached
    still_serves(endpoint, loop)


def test_a_silent_client_does_not_stop_the_server_and_may_greet_late(serve: Serve, loop: Loop) -> None:
    endpoint, other = serve(Recorder()), serve(Recorder())
    silent = Client(endpoint.path, loop, greet=False)
    loop.step(0)
    busy = Client(other.path, loop)
    assert busy.read(BAR, 0, 4) == bytes(4)
    greeting = p.VERSION.pack(0, 1) + b"{}\0"
    message = p.HEADER.pack(1, Command.VERSION, p.HEADER.size + len(greeting), 0, 0) + greeting
    for byte in range(len(message)):
        silent.send_raw(message[byte : byte + 1])
        if byte % 8 == 0:
            assert busy.read(BAR, 0, 4) == bytes(4)
    silent.reply(1)
    assert silent.read(CONFIG_REGION, 0, 4) == bytes(4)
    busy.close()
    still_serves(endpoint, loop, silent)


def test_a_client_that_stalls_inside_a_message_is_dropped(serve: Serve, loop: Loop) -> None:
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop)
    client.send_raw(p.HEADER.pack(1, Command.REGION_READ, 32, 0, 0) + bytes(5))
    client.until_lost(endpoint)
    still_serves(endpoint, loop)
    client.close()


def test_a_client_that_reads_no_replies_is_dropped(serve: Serve, loop: Loop) -> None:
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop)
    with contextlib.suppress(Disconnected):
        while endpoint.attached:
            client.send(Command.REGION_READ, ACCESS(0, BAR, 0x10000))
            loop.step(0)
    still_serves(endpoint, loop)
    client.close()


@pytest.mark.parametrize("seed", range(30))
def test_random_messages_never_end_the_server(serve: Serve, loop: Loop, seed: int) -> None:
    rng = random.Random(seed)
    endpoint = serve(Recorder())
    client = Client(endpoint.path, loop, patience=3)
    client.map_ram(0x10000, 0x10000)
    with open(os.devnull, "r+b") as file, contextlib.suppress(Disconnected):
        for _ in range(60):
            command = rng.choice([*Command, 14, 16, rng.randrange(65536)])
            words = [
                rng.choice([0, 1, 4, 7, 8, 16, 24, 32, 0x1000, 0x10000, rng.randrange(1 << 32), 0xFFFFFFFF])
                for _ in range(rng.randrange(1, 14))
            ]
            payload = struct.pack(f"<{len(words)}I", *words)[: rng.randrange(1, 4 * len(words) + 1)]
            fds = [file.fileno()] * rng.choice([0, 0, 0, 1, 2, 8])
            client.send(command, payload, fds, flags=rng.choice([0, Flags.NO_REPLY, Flags.NO_REPLY]))
            loop.step(0)
            client.drop_input()
    still_serves(endpoint, loop, client)
