# SPDX-License-Identifier: Apache-2.0
"""The command queue and every command: good, malformed, of unknown, busy and foreign objects."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.events import Kind
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, DeliveryStatus, Register
from emu.personality.mlx5.commands import COMMANDS
from emu.personality.mlx5.identity import FIRST_UAR, UAR_COUNT
from emu.personality.mlx5.layout.capabilities import CMD_HCA_CAP
from tests.personality.mlx5.machine import ALL_EVENTS, Cq, Machine, Qp

NOBODY = 0xABCDE
"""A number no object has."""


@pytest.fixture
def machine() -> Machine:
    """A device whose driver polls for its commands."""
    return Machine()


class World:
    """One object of each kind."""

    def __init__(self, machine: Machine) -> None:
        self.uar = machine.uar()
        self.pd = machine.pd()
        self.eq, self.eq_ring = machine.eq()
        self.cq: Cq = machine.cq(self.eq, self.uar)
        self.qp: Qp = machine.qp(self.pd, self.cq, self.uar)
        self.memory = machine.allocate(4096)
        self.key = machine.mkey(self.pd, self.memory, 4096)
        domain = machine.do(Op.ALLOC_TRANSPORT_DOMAIN)["transport_domain"]
        self.tis = machine.do(Op.CREATE_TIS, ctx__transport_domain=domain)["tisn"]
        ring, record = machine.allocate(4096), machine.allocate(64)
        work = {
            "ctx__cqn": self.cq.number,
            "ctx__wq__wq_type": 1,
            "ctx__wq__pd": self.pd,
            "ctx__wq__uar_page": self.uar,
            "ctx__wq__dbr_addr": record,
            "ctx__wq__log_wq_stride": 6,
            "ctx__wq__log_wq_sz": 4,
        }
        self.sq = machine.do(Op.CREATE_SQ, tail=machine.pages(ring, 4096), **work)["sqn"]
        self.rq = machine.do(Op.CREATE_RQ, tail=machine.pages(ring, 4096), **work)["rqn"]
        self.rqt = machine.do(Op.CREATE_RQT, tail=self.rq.to_bytes(4, "big"), rqt_context__rqt_actual_size=1)[
            "rqtn"
        ]
        self.tir = machine.do(Op.CREATE_TIR, ctx__disp_type=1, ctx__indirect_table=self.rqt)["tirn"]
        self.counters = machine.do(Op.ALLOC_Q_COUNTER)["counter_set_id"]
        self.xrcd = machine.do(Op.ALLOC_XRCD)["xrcd"]
        self.domain = domain


@pytest.fixture
def world(machine: Machine) -> World:
    """Its objects."""
    return World(machine)


# The queue


def test_an_unknown_opcode_is_answered_and_traced(machine: Machine) -> None:
    machine.submit(b"\x0b\xad" + bytes(14))
    reply = machine.result(0xBAD)
    assert reply.status is CommandStatus.BAD_OP
    assert machine.events.texts(Kind.COMMAND) == ["opcode 0xbad BAD_OP: this device has no such command"]


@pytest.mark.parametrize("opcode", sorted(COMMANDS))
def test_an_input_that_is_too_short_is_refused(machine: Machine, opcode: int) -> None:
    size = COMMANDS[opcode].takes.size
    machine.submit(machine.input(opcode, {})[: size - 4].ljust(16, b"\0") if size > 16 else b"\0" * 8)
    reply = machine.result(opcode)
    if size > 16:
        assert reply.status is CommandStatus.BAD_INPUT_LEN
    else:
        assert reply.delivery == DeliveryStatus.BAD_INPUT_LENGTH


@pytest.mark.parametrize("opcode", sorted(COMMANDS))
def test_zeros_never_raise(machine: Machine, opcode: int) -> None:
    machine.submit(machine.input(opcode, {}))
    assert machine.result(opcode).delivery == 0


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    opcode=st.sampled_from(sorted(COMMANDS)),
    noise=st.binary(min_size=0, max_size=600),
    at=st.integers(8, 400),
    op_mod=st.integers(0, 15),
)
def test_any_bytes_get_a_status(opcode: int, noise: bytes, at: int, op_mod: int) -> None:
    machine = Machine()
    World(machine)
    data = bytearray(machine.input(opcode, {}, op_mod))
    data[at : at + len(noise)] = noise
    machine.submit(bytes(data[:5000]).ljust(16, b"\0"))
    reply = machine.result(opcode)
    assert reply.delivery == 0
    # Whatever it did, the device still answers.
    assert machine.command(Op.QUERY_ISSI).status is CommandStatus.OK


@pytest.mark.parametrize(
    ("change", "delivery"),
    [
        ({"kind": 5}, DeliveryStatus.BAD_DESCRIPTOR),
        ({"inbox": 0x123}, DeliveryStatus.BAD_INPUT_POINTER),
        ({"inbox": 0x7000_0000}, DeliveryStatus.BAD_INPUT_POINTER),
    ],
)
def test_an_entry_that_cannot_be_taken(
    machine: Machine, change: dict[str, int], delivery: DeliveryStatus
) -> None:
    machine.submit(bytes(16) + bytes(100), **change)
    assert machine.result(Op.QUERY_ISSI).delivery == delivery


def test_an_entry_that_software_owns_is_left_alone(machine: Machine) -> None:
    machine.registers.write(0x18, b"\0\0\0\1")
    machine.settle()
    assert "software owns" in machine.events.texts(Kind.COMMAND)[-1]


def test_several_slots_in_one_doorbell(machine: Machine) -> None:
    for slot in (3, 9):
        machine.submit(machine.input(Op.QUERY_ISSI, {}), slot=slot)
        assert machine.result(Op.QUERY_ISSI, slot)["supported_issi_dw0"] == 2


def test_a_long_input_crosses_mailboxes(machine: Machine, world: World) -> None:
    memory = machine.allocate(400 * 4096)
    key = machine.mkey(world.pd, memory, 400 * 4096)
    assert machine.nic.keys.get(key, "key").length == 400 * 4096


def test_a_finished_command_raises_an_event_once_its_queue_exists(machine: Machine) -> None:
    _, ring = machine.eq(vector=3, mask=1 << 0x0A)
    machine.do(Op.QUERY_ISSI)
    entry = machine.load(ring, 64)
    assert entry[1] == 0x0A
    assert int.from_bytes(entry[32:36], "big") == 1 << 0
    assert entry[63] == 0
    assert machine.interrupts.fired == [3]


# Start, capabilities, numbers


def test_capabilities_are_what_their_table_says(machine: Machine) -> None:
    reply = machine.do(Op.QUERY_HCA_CAP, op_mod=1)
    caps = CMD_HCA_CAP.unpack(reply.data[16:])
    assert (caps["port_type"], caps["num_ports"], caps["roce"]) == (1, 1, 1)


def test_unknown_capabilities_are_refused(machine: Machine) -> None:
    assert machine.command(Op.QUERY_HCA_CAP, op_mod=0x40 << 1).status is CommandStatus.BAD_PARAM


def test_the_device_wants_no_pages(machine: Machine) -> None:
    assert machine.do(Op.QUERY_PAGES)["num_pages"] == 0


def test_doorbell_pages_lie_behind_the_registers_and_run_out(machine: Machine) -> None:
    assert machine.uar() == FIRST_UAR
    for _ in range(UAR_COUNT - FIRST_UAR - 1):
        machine.device.objects.uars.items[machine.device.objects.uars.reserve()] = 0
    assert machine.command(Op.ALLOC_UAR).status is CommandStatus.NO_RESOURCES


# Unknown objects

UNKNOWN = [
    (Op.DEALLOC_UAR, "uar"),
    (Op.DEALLOC_PD, "pd"),
    (Op.DEALLOC_TRANSPORT_DOMAIN, "transport_domain"),
    (Op.DEALLOC_XRCD, "xrcd"),
    (Op.DESTROY_MKEY, "mkey_index"),
    (Op.QUERY_MKEY, "mkey_index"),
    (Op.DESTROY_CQ, "cqn"),
    (Op.QUERY_CQ, "cqn"),
    (Op.MODIFY_CQ, "cqn"),
    (Op.DESTROY_QP, "qpn"),
    (Op.QUERY_QP, "qpn"),
    (Op.RST2INIT_QP, "qpn"),
    (Op.INIT2RTR_QP, "qpn"),
    (Op.RTR2RTS_QP, "qpn"),
    (Op.RTS2RTS_QP, "qpn"),
    (Op.QP_2ERR, "qpn"),
    (Op.QP_2RST, "qpn"),
    (Op.DESTROY_TIS, "tisn"),
    (Op.MODIFY_TIS, "tisn"),
    (Op.DESTROY_TIR, "tirn"),
    (Op.MODIFY_TIR, "tirn"),
    (Op.DESTROY_RQT, "rqtn"),
    (Op.MODIFY_RQT, "rqtn"),
    (Op.DESTROY_SQ, "sqn"),
    (Op.MODIFY_SQ, "sqn"),
    (Op.QUERY_SQ, "sqn"),
    (Op.DESTROY_RQ, "rqn"),
    (Op.MODIFY_RQ, "rqn"),
    (Op.QUERY_RQ, "rqn"),
    (Op.DESTROY_FLOW_TABLE, "table_id"),
    (Op.SET_FLOW_TABLE_ROOT, "table_id"),
    (Op.CREATE_FLOW_GROUP, "table_id"),
    (Op.SET_FLOW_TABLE_ENTRY, "table_id"),
    (Op.DELETE_FLOW_TABLE_ENTRY, "table_id"),
    (Op.DESTROY_XRC_SRQ, "xrc_srqn"),
    (Op.DESTROY_RMP, "rmpn"),
]


@pytest.mark.parametrize(("opcode", "field"), UNKNOWN, ids=[opcode.name for opcode, _ in UNKNOWN])
def test_an_unknown_object_is_named(machine: Machine, opcode: Op, field: str) -> None:
    reply = machine.command(opcode, 0, b"", **{field: NOBODY & 0xFFFF})
    assert reply.status is CommandStatus.BAD_RESOURCE
    assert field in machine.events.texts(Kind.COMMAND)[-1]


@pytest.mark.parametrize("opcode", [Op.DESTROY_EQ, Op.QUERY_EQ])
def test_an_unknown_event_queue(machine: Machine, opcode: Op) -> None:
    assert machine.command(opcode, eq_number=33).status is CommandStatus.BAD_RESOURCE


@pytest.mark.parametrize("opcode", [Op.DEALLOC_Q_COUNTER, Op.QUERY_Q_COUNTER])
def test_an_unknown_counter_set(machine: Machine, opcode: Op) -> None:
    assert machine.command(opcode, counter_set_id=33).status is CommandStatus.BAD_RESOURCE


# Busy objects


def test_objects_in_use_stay(machine: Machine, world: World) -> None:
    assert machine.command(Op.DEALLOC_PD, pd=world.pd).status is CommandStatus.RESOURCE_BUSY
    assert machine.command(Op.DESTROY_CQ, cqn=world.cq.number).status is CommandStatus.RESOURCE_BUSY
    assert machine.command(Op.DESTROY_EQ, eq_number=world.eq).status is CommandStatus.RESOURCE_BUSY
    assert machine.command(Op.DEALLOC_UAR, uar=world.uar).status is CommandStatus.RESOURCE_BUSY
    assert machine.command(Op.DESTROY_RQT, rqtn=world.rqt).status is CommandStatus.RESOURCE_BUSY


def test_everything_can_be_taken_down(machine: Machine, world: World) -> None:
    machine.do(Op.DESTROY_QP, qpn=world.qp.number)
    machine.do(Op.DESTROY_SQ, sqn=world.sq)
    machine.do(Op.DESTROY_TIR, tirn=world.tir)
    machine.do(Op.DESTROY_RQT, rqtn=world.rqt)
    machine.do(Op.DESTROY_RQ, rqn=world.rq)
    machine.do(Op.DESTROY_TIS, tisn=world.tis)
    machine.do(Op.DEALLOC_TRANSPORT_DOMAIN, transport_domain=world.domain)
    machine.do(Op.DESTROY_MKEY, mkey_index=world.key >> 8)
    machine.do(Op.DESTROY_CQ, cqn=world.cq.number)
    machine.do(Op.DESTROY_EQ, eq_number=world.eq)
    machine.do(Op.DEALLOC_PD, pd=world.pd)
    machine.do(Op.DEALLOC_UAR, uar=world.uar)
    machine.do(Op.DEALLOC_XRCD, xrcd=world.xrcd)
    machine.do(Op.DEALLOC_Q_COUNTER, counter_set_id=world.counters)
    left = machine.nic.objects()
    assert (left.pds, left.mrs, left.eqs, left.cqs, left.qps) == (0, 0, 0, 0, 0)
    assert not machine.device.doors


def test_disabling_the_device_takes_everything_down(machine: Machine, world: World) -> None:
    machine.do(Op.DISABLE_HCA)
    left = machine.nic.objects()
    assert (left.pds, left.mrs, left.eqs, left.cqs, left.qps) == (0, 0, 0, 0, 0)
    assert not len(machine.device.sqs) and not machine.device.doors
    assert World(machine).qp.number


# Keys


def test_the_driver_chooses_the_low_bits_of_a_key(machine: Machine, world: World) -> None:
    key = machine.mkey(world.pd, world.memory, 4096, variant=0x7F)
    assert machine.nic.keys.get(key, "key").address == world.memory


def test_no_key_is_the_one_that_ends_scatter_lists(machine: Machine, world: World) -> None:
    assert world.key >> 8 >= 0x100


def test_a_key_without_translation_allows_nothing(machine: Machine, world: World) -> None:
    reply = machine.do(
        Op.CREATE_MKEY,
        memory_key_mkey_entry__access_mode_1_0=1,
        memory_key_mkey_entry__free=1,
        memory_key_mkey_entry__lw=1,
        memory_key_mkey_entry__pd=world.pd,
        memory_key_mkey_entry__log_page_size=12,
    )
    region = machine.nic.keys.at(reply["mkey_index"], "index")
    assert (region.enabled, region.length) == (False, 0)
    assert machine.do(Op.QUERY_MKEY, mkey_index=reply["mkey_index"])["memory_key_mkey_entry.free"] == 1


def test_a_key_over_all_memory(machine: Machine, world: World) -> None:
    reply = machine.do(
        Op.CREATE_MKEY,
        memory_key_mkey_entry__length64=1,
        memory_key_mkey_entry__lw=1,
        memory_key_mkey_entry__pd=world.pd,
    )
    region = machine.nic.keys.at(reply["mkey_index"], "index")
    assert region.translate(world.memory, 64) == [(world.memory, 64)]
    shown = machine.do(Op.QUERY_MKEY, mkey_index=reply["mkey_index"])
    assert shown["memory_key_mkey_entry.length64"] == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("access_mode_1_0", 3), ("log_page_size", 60), ("len", 1 << 30), ("pd", NOBODY)],
)
def test_a_bad_key_is_refused(machine: Machine, world: World, field: str, value: int) -> None:
    values = {
        "access_mode_1_0": 1,
        "pd": world.pd,
        "start_addr": world.memory,
        "len": 4096,
        "log_page_size": 12,
        "translations_octword_size": 1,
        field: value,
    }
    named = {f"memory_key_mkey_entry__{name}": each for name, each in values.items()}
    reply = machine.command(Op.CREATE_MKEY, tail=machine.pages(world.memory, 4096), **named)
    assert reply.status in (CommandStatus.BAD_PARAM, CommandStatus.BAD_RESOURCE)


# Queues


@pytest.mark.parametrize(
    ("field", "value"), [("log_eq_size", 30), ("intr", 32), ("page_offset", 63), ("log_eq_size", 8)]
)
def test_a_bad_event_queue_is_refused(machine: Machine, field: str, value: int) -> None:
    values = {"eq_context_entry__log_eq_size": 4, f"eq_context_entry__{field}": value}
    reply = machine.command(Op.CREATE_EQ, tail=machine.pages(machine.allocate(4096), 4096), **values)
    assert reply.status is CommandStatus.BAD_PARAM
    assert len(machine.nic.eqs) == 0


@pytest.mark.parametrize(
    ("field", "value"), [("log_cq_size", 31), ("cqe_sz", 5), ("c_eqn_or_apu_element", 40), ("uar_page", 3)]
)
def test_a_bad_completion_queue_is_refused(machine: Machine, world: World, field: str, value: int) -> None:
    values = {
        "cq_context__log_cq_size": 4,
        "cq_context__c_eqn_or_apu_element": world.eq,
        "cq_context__uar_page": world.uar,
        f"cq_context__{field}": value,
    }
    reply = machine.command(Op.CREATE_CQ, tail=machine.pages(machine.allocate(4096), 4096), **values)
    assert reply.status in (CommandStatus.BAD_PARAM, CommandStatus.BAD_RESOURCE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("modify_field_select_resize_field_select", 3),
        ("cq_context__log_cq_size", 9),
        ("cq_context__log_cq_size", 31),
        ("cq_context__cqe_sz", 5),
    ],
)
def test_another_ring_that_cannot_be_is_refused(
    machine: Machine, world: World, field: str, value: int
) -> None:
    values = {
        "cqn": world.cq.number,
        "modify_field_select_resize_field_select": 7,
        "cq_context__log_cq_size": 4,
        field: value,
    }
    pages = machine.pages(machine.allocate(4096), 4096)
    assert machine.command(Op.MODIFY_CQ, 1, pages, **values).status is CommandStatus.BAD_PARAM
    assert machine.nic.cqs.get(world.cq.number, "cqn").ring.size == 16


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("st", 7),
        ("rq_type", 1),
        ("rq_type", 2),
        ("cqn_snd", NOBODY),
        ("pd", NOBODY),
        ("uar_page", 3),
        ("log_sq_size", 15),
        ("log_rq_size", 15),
    ],
)
def test_a_bad_queue_pair_is_refused(machine: Machine, world: World, field: str, value: int) -> None:
    values = {
        "qpc__pd": world.pd,
        "qpc__uar_page": world.uar,
        "qpc__cqn_snd": world.cq.number,
        "qpc__cqn_rcv": world.cq.number,
        "qpc__log_sq_size": 4,
        "qpc__rq_type": 3,
        f"qpc__{field}": value,
    }
    if field == "log_rq_size":
        values["qpc__rq_type"] = 0
    reply = machine.command(Op.CREATE_QP, tail=machine.pages(machine.allocate(4096), 4096), **values)
    assert reply.status in (CommandStatus.BAD_PARAM, CommandStatus.BAD_RESOURCE)
    assert len(machine.nic.qps) == 1


def test_a_step_from_the_wrong_state_is_refused(machine: Machine, world: World) -> None:
    number = world.qp.number
    for opcode in (Op.INIT2RTR_QP, Op.RTR2RTS_QP, Op.RTS2RTS_QP, Op.INIT2INIT_QP):
        assert machine.command(opcode, qpn=number).status is CommandStatus.BAD_QP_STATE
    machine.do(Op.RST2INIT_QP, qpn=number)
    assert machine.command(Op.RST2INIT_QP, qpn=number).status is CommandStatus.BAD_QP_STATE
    assert machine.do(Op.QUERY_QP, qpn=number)["qpc.state"] == 1


def test_a_path_without_an_address_is_refused(machine: Machine, world: World) -> None:
    machine.do(Op.RST2INIT_QP, qpn=world.qp.number)
    reply = machine.command(Op.INIT2RTR_QP, qpn=world.qp.number, qpc__mtu=3)
    assert reply.status is CommandStatus.BAD_PARAM
    assert "dest_gid" in machine.events.texts(Kind.COMMAND)[-1]


def test_a_query_shows_what_the_driver_set(machine: Machine, world: World) -> None:
    gid = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, 2))
    machine.connect(world.qp, 0x234, gid, bytes.fromhex("020000000002"))
    shown = machine.do(Op.QUERY_QP, qpn=world.qp.number)
    assert shown["qpc.state"] == 3
    assert shown["qpc.remote_qpn"] == 0x234
    assert shown["qpc.primary_address_path.rgid_rip"] == int.from_bytes(gid, "big")
    assert (shown["qpc.rre"], shown["qpc.retry_count"]) == (1, 7)
    machine.do(Op.QP_2ERR, qpn=world.qp.number)
    assert machine.do(Op.QUERY_QP, qpn=world.qp.number)["qpc.state"] == 6
    machine.do(Op.QP_2RST, qpn=world.qp.number)
    assert machine.do(Op.QUERY_QP, qpn=world.qp.number)["qpc.state"] == 0


# The port


def test_the_vport_tells_its_addresses(machine: Machine) -> None:
    context = machine.do(Op.QUERY_NIC_VPORT_CONTEXT)
    assert context["nic_vport_context.permanent_address.mac_addr_47_32"] == 0x0200
    assert context["nic_vport_context.permanent_address.mac_addr_31_0"] == 1
    assert context["nic_vport_context.mtu"] == 1500
    assert context["nic_vport_context.port_guid"] == 0x000000FFFE000001


def test_only_what_is_selected_changes(machine: Machine) -> None:
    machine.do(
        Op.MODIFY_NIC_VPORT_CONTEXT,
        field_select__mtu=1,
        nic_vport_context__mtu=9000,
        nic_vport_context__roce_en=0,
    )
    context = machine.do(Op.QUERY_NIC_VPORT_CONTEXT)
    assert (context["nic_vport_context.mtu"], context["nic_vport_context.roce_en"]) == (9000, 1)


def test_an_impossible_mtu_is_refused(machine: Machine) -> None:
    reply = machine.command(Op.MODIFY_NIC_VPORT_CONTEXT, field_select__mtu=1, nic_vport_context__mtu=10)
    assert reply.status is CommandStatus.BAD_PARAM


def test_the_port_answers_to_the_drivers_addresses(machine: Machine) -> None:
    extra = bytes.fromhex("020000000099")
    data = bytearray(machine.input(Op.MODIFY_NIC_VPORT_CONTEXT, {}))
    named = {
        "field_select.addresses_list": 1,
        "nic_vport_context.allowed_list_size": 1,
    }
    COMMANDS[Op.MODIFY_NIC_VPORT_CONTEXT].takes.write(data, named)
    data[512:520] = b"\0\0" + extra
    machine.submit(bytes(data))
    assert machine.result(Op.MODIFY_NIC_VPORT_CONTEXT).status is CommandStatus.OK
    assert machine.nic.addresses == {machine.mac, extra}


def test_roce_addresses(machine: Machine) -> None:
    gid = bytes.fromhex("fe800000000000000000000000000001")
    machine.address(3, gid)
    shown = machine.do(Op.QUERY_ROCE_ADDRESS, roce_address_index=3)
    assert shown["roce_address.source_l3_address"] == int.from_bytes(gid, "big")
    machine.do(Op.SET_ROCE_ADDRESS, roce_address_index=3)
    assert machine.do(Op.QUERY_ROCE_ADDRESS, roce_address_index=3)["roce_address.source_l3_address"] == 0
    for index, first in ((16, 0xFE), (1, 0xFF)):
        reply = machine.command(
            Op.SET_ROCE_ADDRESS, roce_address_index=index, roce_address__source_l3_address=first << 120
        )
        assert reply.status is CommandStatus.BAD_PARAM


def test_pkeys(machine: Machine) -> None:
    assert machine.do(Op.QUERY_HCA_VPORT_PKEY, pkey_index=0)["first"] == 0xFFFF
    assert machine.do(Op.QUERY_HCA_VPORT_PKEY, pkey_index=5)["first"] == 0
    assert machine.command(Op.QUERY_HCA_VPORT_PKEY, pkey_index=128).status is CommandStatus.BAD_PARAM


@pytest.mark.parametrize("register", list(Register))
def test_registers_can_be_read(machine: Machine, register: Register) -> None:
    machine.do(Op.ACCESS_REG, op_mod=1, tail=bytes(256), register_id=register)


def test_an_unknown_register_is_refused(machine: Machine) -> None:
    assert machine.command(Op.ACCESS_REG, op_mod=1, register_id=0x9999).status is CommandStatus.BAD_PARAM


def test_the_link_is_what_the_port_says(machine: Machine) -> None:
    assert machine.do(Op.QUERY_VPORT_STATE)["state"] == 1
    machine.own_port.set_link(False)
    assert machine.do(Op.QUERY_VPORT_STATE)["state"] == 0


def test_a_change_of_the_link_raises_an_event_where_it_was_subscribed(machine: Machine) -> None:
    _, quiet = machine.eq(vector=1)
    _, ring = machine.eq(vector=0, mask=1 << 9)
    machine.own_port.set_link(False)
    machine.own_port.set_link(True)
    first, second = machine.load(ring, 64), machine.load(ring + 64, 64)
    assert (first[1], first[3], first[40] >> 4) == (9, 1, 1)
    assert (second[1], second[3]) == (9, 4)
    assert machine.load(quiet, 64)[63] == 1


def test_an_event_queue_subscribes_by_kind(machine: Machine, world: World) -> None:
    machine.eq(vector=2, mask=ALL_EVENTS & ~(1 << 0x0A))
    machine.own_port.set_link(False)
    assert machine.interrupts.fired == [2]


# Steering


def test_tables_of_other_directions_are_not_offered(machine: Machine) -> None:
    assert machine.command(Op.CREATE_FLOW_TABLE, table_type=1).status is CommandStatus.BAD_PARAM


def test_a_rule_needs_a_group_and_known_destinations(machine: Machine) -> None:
    table = machine.do(Op.CREATE_FLOW_TABLE)["table_id"]
    reply = machine.command(Op.SET_FLOW_TABLE_ENTRY, table_id=table, flow_context__group_id=99)
    assert reply.status is CommandStatus.BAD_RESOURCE
    group = machine.do(Op.CREATE_FLOW_GROUP, table_id=table)["group_id"]
    reply = machine.command(
        Op.SET_FLOW_TABLE_ENTRY,
        tail=bytes((9, 0, 0, 1, 0, 0, 0, 0)),
        table_id=table,
        flow_context__group_id=group,
        flow_context__action=4,
        flow_context__destination_list_size=1,
    )
    assert reply.status is CommandStatus.BAD_PARAM
    assert "destination type 9" in machine.events.texts(Kind.COMMAND)[-1]
