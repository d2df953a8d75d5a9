# SPDX-License-Identifier: Apache-2.0
"""Capabilities as a driver finds and uses them. Offsets and bits are those of linux/pci_regs.h."""

from __future__ import annotations

import pytest

from emu.pcie.caps.aer import AdvancedErrors, Uncorrectable
from emu.pcie.caps.express import Express, LinkSpeed
from emu.pcie.caps.pm import PowerState
from emu.pcie.caps.serial import eui64
from emu.pcie.config import ConfigSpace
from emu.transport.model import ResetKind
from tests.pcie.parts import REGISTER_SIZE, SERIAL, VECTORS, Device

PM, EXPRESS, MSIX = 0x01, 0x10, 0x11
AER, DSN = 0x0001, 0x0003


def test_every_capability_is_on_the_chain() -> None:
    device = Device()
    for identity in (PM, EXPRESS, MSIX):
        assert device.capability(identity) % 4 == 0
    assert device.extended_capability(AER) == 0x100
    assert device.extended_capability(DSN) > 0x100


def test_express_says_endpoint_flr_and_link() -> None:
    device = Device()
    at = device.capability(EXPRESS)
    assert device.read_config(at + 2, 2) == 0x0002
    assert device.read_config(at + 4, 4) & 1 << 28
    assert device.read_config(at + 0x0C, 4) & 0x3FF == 16 << 4 | 5
    assert device.read_config(at + 0x12, 2) & 0x3FF == 16 << 4 | 5
    assert device.read_config(at + 0x2C, 4) == 0b111110


def test_a_link_has_a_width_that_exists() -> None:
    with pytest.raises(ValueError, match="3 lanes"):
        Express(ConfigSpace(), speed=LinkSpeed.GT8, width=3, initiate_flr=lambda: None)


def test_setting_initiate_flr_resets_the_function_and_reads_zero() -> None:
    device = Device()
    kinds: list[ResetKind] = []
    device.function.on_reset(kinds.append)
    control = device.capability(EXPRESS) + 8
    device.write_config(control, 2, device.read_config(control, 2) | 0x8000)
    assert kinds == [ResetKind.FLR]
    assert device.read_config(control, 2) & 0x8000 == 0


def test_device_control_without_flr_resets_nothing() -> None:
    device = Device()
    kinds: list[ResetKind] = []
    device.function.on_reset(kinds.append)
    control = device.capability(EXPRESS) + 8
    device.write_config(control, 2, 0x2810 | 1 << 5)
    assert kinds == []
    assert device.read_config(control, 2) == 0x2830


def test_an_flr_keeps_the_payload_size_and_forgets_the_rest_of_device_control() -> None:
    device = Device()
    control = device.capability(EXPRESS) + 8
    device.write_config(control, 2, 0x0020)
    device.write_config(control, 2, 0x8020)
    assert device.read_config(control, 2) == 0x2810 & ~0xE0 | 0x0020


def test_d3hot_stops_memory_and_bus_mastering_and_d0_brings_them_back() -> None:
    device = Device()
    device.set_command()
    power = device.capability(PM) + 4
    device.write_config(power, 2, 3)
    states = [device.function.power_state]
    assert device.function.region_read(0, 0, 4) == b"\xff" * 4
    assert not device.function.bus.mastering
    device.write_config(power, 2, 0)
    states.append(device.function.power_state)
    assert states == [PowerState.D3HOT, PowerState.D0]
    assert device.function.region_read(0, 0, 4) == b"\0\1\2\3"
    assert device.function.bus.mastering


@pytest.mark.parametrize("state", [1, 2])
def test_power_states_the_function_lacks_are_discarded(state: int) -> None:
    device = Device()
    power = device.capability(PM) + 4
    device.write_config(power, 2, state)
    assert device.read_config(power, 2) & 3 == 0
    device.write_config(power, 2, 3)
    device.write_config(power, 2, state)
    assert device.read_config(power, 2) & 3 == 3


def test_a_reset_in_d3hot_wakes_the_function() -> None:
    device = Device()
    device.write_config(device.capability(PM) + 4, 2, 3)
    device.function.reset(ResetKind.DEVICE)
    assert device.function.power_state is PowerState.D0


def test_msix_says_size_and_place() -> None:
    device = Device()
    at = device.capability(MSIX)
    assert device.read_config(at + 2, 2) == VECTORS - 1
    assert device.read_config(at + 4, 4) == 4
    assert device.read_config(at + 8, 4) == 0x1000 | 4


def test_an_unanswered_request_shows_in_aer_and_device_status() -> None:
    device = Device()
    aer, status = device.extended_capability(AER), device.capability(EXPRESS) + 0x0A
    device.function.region_write(0, 0, b"\0\0\0\0")
    assert device.read_config(aer + 4, 4) == 1 << 20
    assert device.read_config(aer + 0x18, 4) & 0x1F == 20
    assert device.read_config(status, 2) & 0xF == 0xA
    device.write_config(aer + 4, 4, 1 << 20)
    device.write_config(status, 2, 0xA)
    assert device.read_config(aer + 4, 4) == 0
    assert device.read_config(status, 2) & 0xF == 0


def test_aer_status_lives_through_an_flr_but_not_through_power_off() -> None:
    device = Device()
    aer = device.extended_capability(AER)
    device.function.region_read(0, REGISTER_SIZE - 4, 4)
    device.function.reset(ResetKind.FLR)
    assert device.read_config(aer + 4, 4) == 1 << 20
    device.function.reset(ResetKind.LOST)
    assert device.read_config(aer + 4, 4) == 0


def test_only_an_unmasked_first_error_is_pointed_at() -> None:
    config = ConfigSpace()
    errors = AdvancedErrors(config)
    config.write(errors.offset + 8, (1 << 20).to_bytes(4, "little"))
    errors.record(Uncorrectable.UNSUPPORTED_REQUEST)
    assert config.get(errors.offset + 0x18, 4) == 0
    assert config.get(errors.offset + 4, 4) == 1 << 20


def test_the_serial_number_is_the_mac_as_eui64() -> None:
    assert eui64(bytes.fromhex("027672000001")) == SERIAL
    device = Device()
    assert device.read_config(device.extended_capability(DSN) + 4, 8) == SERIAL
