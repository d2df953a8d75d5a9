# SPDX-License-Identifier: Apache-2.0
"""Every opcode: carried out, with a longer input, of objects that are not there, in a wrong state, in use.

Which opcodes there are comes from the device, so one without a row here fails.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.events import Kind
from emu.personality.mlx5.codes import CommandOpcode as Op
from emu.personality.mlx5.codes import CommandStatus, Register, WqeOpcode
from emu.personality.mlx5.commands import COMMANDS
from emu.personality.mlx5.identity import LOG_RQT_ENTRIES
from tests.personality.mlx5.machine import Machine, Reply, inline
from tests.personality.mlx5.test_commands import World

GID = bytes(10) + b"\xff\xff" + bytes((10, 77, 0, 2))
GROUP = int.from_bytes(bytes.fromhex("ff0e0000000000000000000000001234"), "big")
PEER_MAC = bytes.fromhex("020000000002")
NOBODY = 0xABCDE

OBJECTS = (
    "counter_set_id",
    "cqn",
    "eq_number",
    "mkey_index",
    "pd",
    "qpn",
    "rmpn",
    "rqn",
    "rqtn",
    "sqn",
    "srq_number",
    "table_id",
    "tirn",
    "tisn",
    "transport_domain",
    "uar",
    "uid",
    "umem_id",
    "xrc_srqn",
    "xrcd",
)
"""Fields of commands that name an object."""


class Recording(Machine):
    """Notes which commands succeeded."""

    def __init__(self) -> None:
        super().__init__()
        self.done: set[int] = set()

    def do(self, opcode: Op, op_mod: int = 0, tail: bytes = b"", **values: int) -> Reply:
        reply = super().do(opcode, op_mod, tail, **values)
        self.done.add(int(opcode))
        return reply


class Everything(World):
    """One object of each kind, also of those that only some drivers make."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        ring, record = machine.allocate(4096), machine.allocate(64)
        self.rmp = machine.do(
            Op.CREATE_RMP,
            0,
            machine.pages(ring, 4096),
            ctx__wq__pd=self.pd,
            ctx__wq__dbr_addr=record,
            ctx__wq__log_wq_stride=6,
            ctx__wq__log_wq_sz=3,
        )["rmpn"]
        self.xrc_srq = machine.do(
            Op.CREATE_XRC_SRQ,
            0,
            machine.pages(machine.allocate(4096), 4096),
            xrc_srq_context_entry__log_xrc_srq_size=3,
            xrc_srq_context_entry__log_rq_stride=2,
            xrc_srq_context_entry__xrcd=self.xrcd,
            xrc_srq_context_entry__cqn=self.cq.number,
            xrc_srq_context_entry__pd=self.pd,
            xrc_srq_context_entry__db_record_addr_l=record >> 2,
        )["xrc_srqn"]
        self.uctx = machine.do(Op.CREATE_UCTX)["uid"]
        self.umem = machine.do(
            Op.CREATE_UMEM, 0, machine.pages(machine.allocate(4096), 4096), umem__num_of_mtt=1
        )["umem_id"]
        self.table = machine.do(Op.CREATE_FLOW_TABLE)["table_id"]
        self.group = machine.do(Op.CREATE_FLOW_GROUP, table_id=self.table)["group_id"]
        machine.do(
            Op.SET_FLOW_TABLE_ENTRY,
            0,
            struct.pack(">I4x", 2 << 24 | self.tir),
            table_id=self.table,
            flow_context__group_id=self.group,
            flow_context__action=4,
            flow_context__destination_list_size=1,
        )
        self.datagram = machine.qp(self.pd, self.cq, self.uar, service=2)


@pytest.fixture
def machine() -> Machine:
    """A device whose driver polls for its commands."""
    return Machine()


@pytest.fixture
def everything(machine: Machine) -> Everything:
    """Its objects."""
    return Everything(machine)


def queries(machine: Machine, made: Everything) -> None:
    """Everything that can be asked or changed."""
    do = machine.do
    for opcode in (
        Op.QUERY_HCA_CAP,
        Op.QUERY_ADAPTER,
        Op.INIT_HCA,
        Op.ENABLE_HCA,
        Op.QUERY_PAGES,
        Op.MANAGE_PAGES,
        Op.SET_HCA_CAP,
        Op.QUERY_ISSI,
        Op.SET_ISSI,
        Op.QUERY_VPORT_STATE,
        Op.MODIFY_VPORT_STATE,
        Op.QUERY_NIC_VPORT_CONTEXT,
        Op.MODIFY_NIC_VPORT_CONTEXT,
        Op.QUERY_ROCE_ADDRESS,
        Op.SET_ROCE_ADDRESS,
        Op.QUERY_HCA_VPORT_PKEY,
        Op.QUERY_VPORT_COUNTER,
        Op.QUERY_CONG_STATISTICS,
        Op.QUERY_LAG,
    ):
        do(opcode)
    do(Op.ACCESS_REG, 1, bytes(64), register_id=Register.PTYS)
    do(Op.QUERY_MKEY, mkey_index=made.key >> 8)
    do(Op.QUERY_EQ, eq_number=made.eq)
    do(Op.QUERY_CQ, cqn=made.cq.number)
    do(Op.MODIFY_CQ, cqn=made.cq.number, modify_field_select_resize_field_select=3, cq_context__cq_period=1)
    do(Op.QUERY_Q_COUNTER, counter_set_id=made.counters)
    do(Op.QUERY_RMP, rmpn=made.rmp)
    do(Op.MODIFY_RMP, rmpn=made.rmp)
    do(Op.ARM_RQ, srq_number=made.rmp)
    do(Op.QUERY_XRC_SRQ, xrc_srqn=made.xrc_srq)
    do(Op.ARM_XRC_SRQ, xrc_srqn=made.xrc_srq)
    do(Op.MODIFY_TIS, tisn=made.tis)
    do(Op.MODIFY_TIR, tirn=made.tir)
    do(Op.MODIFY_RQT, 0, made.rq.to_bytes(4, "big"), rqtn=made.rqt, ctx__rqt_actual_size=1)
    do(Op.MODIFY_SQ, sqn=made.sq, ctx__state=1)
    do(Op.QUERY_SQ, sqn=made.sq)
    do(Op.MODIFY_RQ, rqn=made.rq, ctx__state=1)
    do(Op.QUERY_RQ, rqn=made.rq)
    do(Op.SET_FLOW_TABLE_ROOT, table_id=made.table)
    do(Op.MODIFY_FLOW_TABLE, table_id=made.table)
    do(Op.ATTACH_TO_MCG, qpn=made.datagram.number, multicast_gid=GROUP)
    do(Op.DETACH_FROM_MCG, qpn=made.datagram.number, multicast_gid=GROUP)


def steps(machine: Machine, made: Everything) -> None:
    """Every step between states of queue pairs."""
    do, number = machine.do, made.qp.number
    machine.address(0, GID)
    machine.connect(made.qp, 0x234, GID, PEER_MAC)
    do(Op.RTS2RTS_QP, qpn=number)
    do(Op.QUERY_QP, qpn=number)
    do(Op.QP_2ERR, qpn=number)
    do(Op.QP_2RST, qpn=number)
    datagram = made.datagram
    for opcode in (Op.RST2INIT_QP, Op.INIT2INIT_QP, Op.INIT2RTR_QP, Op.RTR2RTS_QP):
        do(opcode, qpn=datagram.number)
    # A bad descriptor stops the sends of a datagram queue pair, and a step takes it back.
    datagram.post(0x3F)
    machine.settle()
    assert do(Op.QUERY_QP, qpn=datagram.number)["qpc.state"] == 4
    do(Op.SQERR2RTS_QP, qpn=datagram.number)
    assert do(Op.QUERY_QP, qpn=datagram.number)["qpc.state"] == 3
    datagram.post(WqeOpcode.NOP)
    machine.settle()
    assert made.cq.poll() is not None
    done = made.cq.poll()
    assert done is not None and done.opcode == 0


def ends(machine: Machine, made: Everything) -> None:
    """Everything is taken down."""
    do = machine.do
    do(Op.DELETE_FLOW_TABLE_ENTRY, table_id=made.table)
    do(Op.DESTROY_FLOW_GROUP, table_id=made.table, group_id=made.group)
    do(Op.DESTROY_FLOW_TABLE, table_id=made.table)
    do(Op.DESTROY_QP, qpn=made.qp.number)
    do(Op.DESTROY_QP, qpn=made.datagram.number)
    do(Op.DESTROY_SQ, sqn=made.sq)
    do(Op.DESTROY_TIR, tirn=made.tir)
    do(Op.DESTROY_RQT, rqtn=made.rqt)
    do(Op.DESTROY_RQ, rqn=made.rq)
    do(Op.DESTROY_TIS, tisn=made.tis)
    do(Op.DESTROY_RMP, rmpn=made.rmp)
    do(Op.DESTROY_XRC_SRQ, xrc_srqn=made.xrc_srq)
    do(Op.DEALLOC_TRANSPORT_DOMAIN, transport_domain=made.domain)
    do(Op.DESTROY_MKEY, mkey_index=made.key >> 8)
    do(Op.DESTROY_CQ, cqn=made.cq.number)
    do(Op.DESTROY_EQ, eq_number=made.eq)
    do(Op.DEALLOC_PD, pd=made.pd)
    do(Op.DEALLOC_UAR, uar=made.uar)
    do(Op.DEALLOC_XRCD, xrcd=made.xrcd)
    do(Op.DEALLOC_Q_COUNTER, counter_set_id=made.counters)
    do(Op.DESTROY_UMEM, umem_id=made.umem)
    do(Op.DESTROY_UCTX, uid=made.uctx)
    do(Op.TEARDOWN_HCA)
    do(Op.DISABLE_HCA)


def test_every_opcode_is_carried_out() -> None:
    machine = Recording()
    made = Everything(machine)
    queries(machine, made)
    steps(machine, made)
    ends(machine, made)
    missing = {Op(opcode).name for opcode in set(COMMANDS) - machine.done}
    assert missing == set()
    left = machine.nic.objects()
    assert (left.pds, left.mrs, left.eqs, left.cqs, left.qps) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("opcode", sorted(COMMANDS), ids=lambda number: Op(number).name)
def test_an_input_that_is_longer_is_taken_as_what_it_starts_with(machine: Machine, opcode: int) -> None:
    plain = machine.input(opcode, {})
    machine.submit(plain)
    before = machine.result(opcode)
    fresh = Machine()
    fresh.submit(plain + bytes(3000))
    after = fresh.result(opcode)
    assert after.delivery == before.delivery == 0
    assert after.status is not CommandStatus.BAD_INPUT_LEN
    # A longer page list may hold what a shorter one did not.
    assert after.status == before.status or after.status is CommandStatus.OK


NAMED = [
    (opcode, field)
    for opcode, command in sorted(COMMANDS.items())
    for field in OBJECTS
    if field in command.takes.fields
]


@pytest.mark.parametrize(
    ("opcode", "field"), NAMED, ids=[f"{Op(opcode).name}-{field}" for opcode, field in NAMED]
)
def test_an_object_that_is_not_there_is_named(
    machine: Machine, everything: Everything, opcode: int, field: str
) -> None:
    width = COMMANDS[opcode].takes.fields[field].width
    before = machine.nic.objects()
    reply = machine.command(Op(opcode), 0, b"", **{field: NOBODY & (1 << width) - 1})
    assert reply.status is CommandStatus.BAD_RESOURCE
    # One trace line says which opcode, field and object.
    line = machine.events.texts(Kind.COMMAND)[-1]
    assert line.startswith(Op(opcode).name) and field in line
    assert machine.nic.objects() == before


def test_every_field_that_names_an_object_is_tried() -> None:
    """A command that destroys, queries, arms or modifies has one."""
    kinds = ("DESTROY_", "DEALLOC_", "ARM_")
    without = {
        Op(opcode).name
        for opcode in COMMANDS
        if Op(opcode).name.startswith(kinds) and opcode not in {each for each, _ in NAMED}
    }
    assert without == set()


REFERENCES: list[tuple[Op, str]] = [
    (Op.CREATE_MKEY, "memory_key_mkey_entry__pd"),
    (Op.CREATE_CQ, "cq_context__c_eqn_or_apu_element"),
    (Op.CREATE_CQ, "cq_context__uar_page"),
    (Op.CREATE_QP, "qpc__pd"),
    (Op.CREATE_QP, "qpc__uar_page"),
    (Op.CREATE_QP, "qpc__cqn_snd"),
    (Op.CREATE_QP, "qpc__cqn_rcv"),
    (Op.CREATE_SQ, "ctx__cqn"),
    (Op.CREATE_SQ, "ctx__wq__pd"),
    (Op.CREATE_SQ, "ctx__wq__uar_page"),
    (Op.CREATE_RQ, "ctx__cqn"),
    (Op.CREATE_RQ, "ctx__wq__pd"),
    (Op.CREATE_RMP, "ctx__wq__pd"),
    (Op.CREATE_XRC_SRQ, "xrc_srq_context_entry__xrcd"),
    (Op.CREATE_XRC_SRQ, "xrc_srq_context_entry__cqn"),
    (Op.CREATE_XRC_SRQ, "xrc_srq_context_entry__pd"),
    (Op.CREATE_TIS, "ctx__transport_domain"),
    (Op.CREATE_TIR, "ctx__inline_rqn"),
    (Op.SET_FLOW_TABLE_ENTRY, "flow_context__group_id"),
]
"""What a new object is made of, beside memory."""


def parts(made: Everything) -> dict[Op, dict[str, int]]:
    """Values that make an object of each kind."""
    work = {
        "ctx__cqn": made.cq.number,
        "ctx__wq__wq_type": 1,
        "ctx__wq__pd": made.pd,
        "ctx__wq__uar_page": made.uar,
        "ctx__wq__log_wq_stride": 6,
        "ctx__wq__log_wq_sz": 4,
    }
    return {
        Op.CREATE_MKEY: {
            "memory_key_mkey_entry__pd": made.pd,
            "memory_key_mkey_entry__free": 1,
            "memory_key_mkey_entry__access_mode_1_0": 1,
        },
        Op.CREATE_CQ: {
            "cq_context__c_eqn_or_apu_element": made.eq,
            "cq_context__uar_page": made.uar,
            "cq_context__log_cq_size": 4,
        },
        Op.CREATE_QP: {
            "qpc__pd": made.pd,
            "qpc__uar_page": made.uar,
            "qpc__cqn_snd": made.cq.number,
            "qpc__cqn_rcv": made.cq.number,
            "qpc__log_sq_size": 4,
            "qpc__log_rq_size": 4,
        },
        Op.CREATE_SQ: work,
        Op.CREATE_RQ: work,
        Op.CREATE_RMP: {"ctx__wq__pd": made.pd, "ctx__wq__log_wq_stride": 6, "ctx__wq__log_wq_sz": 3},
        Op.CREATE_XRC_SRQ: {
            "xrc_srq_context_entry__log_xrc_srq_size": 3,
            "xrc_srq_context_entry__log_rq_stride": 2,
            "xrc_srq_context_entry__xrcd": made.xrcd,
            "xrc_srq_context_entry__cqn": made.cq.number,
            "xrc_srq_context_entry__pd": made.pd,
        },
        Op.CREATE_TIS: {"ctx__transport_domain": made.domain},
        Op.CREATE_TIR: {"ctx__inline_rqn": made.rq},
        Op.SET_FLOW_TABLE_ENTRY: {"table_id": made.table, "flow_context__group_id": made.group},
    }


@pytest.mark.parametrize(
    ("opcode", "field"), REFERENCES, ids=[f"{opcode.name}-{field}" for opcode, field in REFERENCES]
)
def test_an_object_of_what_is_not_there_is_not_made(
    machine: Machine, everything: Everything, opcode: Op, field: str
) -> None:
    values: Mapping[str, int] = parts(everything)[opcode]
    pages = machine.pages(machine.allocate(4096), 4096)
    assert machine.command(opcode, 0, pages, **values).status is CommandStatus.OK
    before = machine.nic.objects()
    reply = machine.command(opcode, 0, pages, **{**values, field: NOBODY})
    assert reply.status is CommandStatus.BAD_RESOURCE
    assert machine.nic.objects() == before


BUSY = {
    Op.DEALLOC_PD: ("pd", "pd"),
    Op.DEALLOC_UAR: ("uar", "uar"),
    Op.DEALLOC_XRCD: ("xrcd", "xrcd"),
    Op.DEALLOC_TRANSPORT_DOMAIN: ("transport_domain", "domain"),
    Op.DESTROY_EQ: ("eq_number", "eq"),
    Op.DESTROY_RQT: ("rqtn", "rqt"),
}


@pytest.mark.parametrize("opcode", BUSY, ids=lambda opcode: str(opcode.name))
def test_an_object_in_use_stays(machine: Machine, everything: Everything, opcode: Op) -> None:
    field, attribute = BUSY[opcode]
    for _ in range(2):
        reply = machine.command(opcode, **{field: getattr(everything, attribute)})
        assert reply.status is CommandStatus.RESOURCE_BUSY
    ends(machine, everything)


def test_a_pool_and_a_cq_in_use_stay(machine: Machine, everything: Everything) -> None:
    qp = machine.qp(everything.pd, everything.cq, everything.uar, rq_type=1, srqn_rmpn_xrqn=everything.rmp)
    assert machine.command(Op.DESTROY_RMP, rmpn=everything.rmp).status is CommandStatus.RESOURCE_BUSY
    assert machine.command(Op.DESTROY_CQ, cqn=everything.cq.number).status is CommandStatus.RESOURCE_BUSY
    machine.do(Op.DESTROY_QP, qpn=qp.number)
    ends(machine, everything)


STEPS = {
    Op.RST2INIT_QP: "RESET",
    Op.INIT2INIT_QP: "INIT",
    Op.INIT2RTR_QP: "INIT",
    Op.RTR2RTS_QP: "RTR",
    Op.RTS2RTS_QP: "RTS",
    Op.SQERR2RTS_QP: "SQE",
}


@pytest.mark.parametrize("state", ["RESET", "INIT", "RTR", "RTS", "ERR"])
@pytest.mark.parametrize("opcode", STEPS, ids=lambda opcode: str(opcode.name))
def test_a_step_from_another_state_is_refused(machine: Machine, opcode: Op, state: str) -> None:
    made = World(machine)
    number = made.qp.number
    if state != "RESET":
        machine.do(Op.RST2INIT_QP, qpn=number)
    if state in ("RTR", "RTS"):
        machine.do(Op.QP_2RST, qpn=number)
        machine.connect(made.qp, 0x234, GID, PEER_MAC, until=state)
    if state == "ERR":
        machine.do(Op.QP_2ERR, qpn=number)
    before = machine.do(Op.QUERY_QP, qpn=number)["qpc.state"]
    reply = machine.command(opcode, qpn=number)
    if STEPS[opcode] != state:
        assert reply.status is CommandStatus.BAD_QP_STATE
        assert machine.do(Op.QUERY_QP, qpn=number)["qpc.state"] == before


@pytest.mark.parametrize(("opcode", "name"), [(Op.MODIFY_SQ, "sq"), (Op.MODIFY_RQ, "rq")])
def test_a_queue_in_another_state_than_its_driver_thinks(
    machine: Machine, everything: Everything, opcode: Op, name: str
) -> None:
    values = {f"{name}n": getattr(everything, name), f"{name}_state": 1, "ctx__state": 1}
    assert machine.command(opcode, **values).status is CommandStatus.BAD_QP_STATE
    values = {f"{name}n": getattr(everything, name), "ctx__state": 2}
    assert machine.command(opcode, **values).status is CommandStatus.BAD_QP_STATE


@pytest.mark.parametrize("count", [0, 2, (1 << LOG_RQT_ENTRIES) + 1])
def test_a_table_of_queues_has_a_sane_size(machine: Machine, everything: Everything, count: int) -> None:
    """None, more than the command lists, more than a table holds."""
    tail = everything.rq.to_bytes(4, "big") * (1 if count == 2 else count)
    values = {"rqtn": everything.rqt, "ctx__rqt_actual_size": count}
    assert machine.command(Op.MODIFY_RQT, 0, tail, **values).status is CommandStatus.BAD_PARAM
    assert machine.device.rqts.items[everything.rqt] == [everything.rq]


def test_a_table_names_queues_that_are_there(machine: Machine, everything: Everything) -> None:
    tail = NOBODY.to_bytes(4, "big")
    values = {"rqtn": everything.rqt, "ctx__rqt_actual_size": 1}
    assert machine.command(Op.MODIFY_RQT, 0, tail, **values).status is CommandStatus.BAD_RESOURCE


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    commands=st.lists(
        st.tuples(
            st.sampled_from(sorted(set(COMMANDS) - {int(Op.DISABLE_HCA)})),
            st.integers(0, 3),
            st.lists(st.tuples(st.integers(4, 300), st.binary(min_size=1, max_size=8)), max_size=6),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_mailboxes_change_statuses_and_counters_only(
    commands: list[tuple[int, int, list[tuple[int, bytes]]]],
) -> None:
    """Objects that the driver made keep working, whatever else it asks for (but to destroy them)."""
    machine = Machine()
    made = Everything(machine)
    machine.address(0, GID)
    fine = machine.qp(made.pd, made.cq, made.uar)
    machine.connect(fine, fine.number, GID, machine.mac)
    touched = {made.key >> 8, fine.number, made.cq.number, made.eq}
    for opcode, op_mod, changes in commands:
        data = bytearray(machine.input(opcode, {}, op_mod))
        for at, octets in changes:
            data[at : at + len(octets)] = octets
        number = int.from_bytes(data[9:12], "big")
        if number in touched or number & 0xFF == made.eq or opcode in (Op.SET_ROCE_ADDRESS, Op.MODIFY_CQ):
            continue
        data[6:8] = op_mod.to_bytes(2, "big")
        machine.submit(bytes(data[:4000]))
        assert machine.result(opcode).delivery == 0
    fine.post(WqeOpcode.RDMA_WRITE, struct.pack(">QI4x", made.memory, made.key), inline(b"fine"))
    machine.clock.run(until=machine.clock.now() + 1_000_000)
    assert machine.load(made.memory, 4) == b"fine"
