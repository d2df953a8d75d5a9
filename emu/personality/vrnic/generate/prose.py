# SPDX-License-Identifier: Apache-2.0
"""The sentences of the register document that no table of the contract holds."""

from __future__ import annotations

from emu.personality.vrnic.contract.codes import AdminOpcode

__all__ = [
    "ADMIN_QUEUE",
    "BRING_UP",
    "CHECKS",
    "COMMAND_NOTES",
    "COMPLETION",
    "DOORBELL_RECORD",
    "DOORBELL_RULES",
    "EVENTS",
    "FUNCTIONS",
    "HINTS",
    "INTRODUCTION",
    "REGISTER_RULES",
    "SUBMISSION",
    "VGPU",
]

INTRODUCTION = """\
What a guest driver and a submission kernel may rely on, and what happens when they break a rule.
Generated from the data in `contract/`; do not edit it, run `python -m emu.personality.vrnic.generate`.
The same data is the C header `guest/include/vrnic_contract.h`.

All fields of several bytes are little-endian, in registers and in memory. Offsets, widths and sizes are
bytes unless something else is said. Every *running index* is 32 bits, counts up for ever and wraps; the
slot of a ring is the index modulo the number of slots. "Bus address" is what the guest's DMA API returns,
for a page of RAM or for a BAR of another function of the same guest."""

FUNCTIONS = """\
The NIC maps nothing: every access is trapped, and writes are posted. BARs answer only while memory
decoding is on in the command register and the function is in D0, else reads give all ones and writes are
dropped. DMA and MSI-X also need bus mastering.

A function level reset (Device Control, bit 15) destroys every object and clears every register; BAR
addresses stay. MSI-X: a vector that cannot be delivered becomes pending and is delivered when it can be."""

REGISTER_RULES = """\
An access that breaks a rule never has an effect beyond the one in the table's last column: a read of
nothing gives 0, a write is ignored, and either adds one to `bad_mmio` and one line to the trace. Rules:
accesses are 4 bytes wide, or 8 for an 8-byte register; they are aligned to their width; read-only
registers are not written; a value is one of those given. An 8-byte register may be read and written in
two halves; write the low one first."""

BRING_UP = """\
1. Read `MAGIC` and `ABI_VERSION`. Refuse another major number; a greater minor number is compatible.
2. Write `CONTROL` = RESET and read it until the bit is 0; `STATUS` is READY then.
3. Enable bus mastering and MSI-X (vector 0 is the admin queue's).
4. Write `ADMIN_SQ_BASE`, `ADMIN_RQ_BASE` and `ADMIN_LOG_SIZE`, then `CONTROL` = ENABLE, and check
   `STATUS`: ENABLED, or FATAL with the reason in `FATAL_CAUSE`.
5. `CREATE_EQ`; then for each process `ALLOC_CTX`, `ALLOC_PD`, `REG_MR`, `CREATE_CQ`, `CREATE_QP`,
   `MODIFY_QP` to INIT, RTR and RTS.

When a read gives all ones the device is gone: unplugged, in reset, or its memory decoding is off."""

ADMIN_QUEUE = """\
Two rings of `1 << ADMIN_LOG_SIZE` entries of 64 bytes: commands at `ADMIN_SQ_BASE`, replies at
`ADMIN_RQ_BASE`.

1. The driver writes command *n* into slot *n* modulo the ring's size and stores *n* + 1 to
   `ADMIN_DOORBELL`. It may have as many commands outstanding as the ring has slots.
2. The device carries commands out in order. It writes the reply into the same slot of the reply ring, its
   first 8 bytes last, advances `ADMIN_HEAD` and raises vector 0.
3. The reply is there when its `sequence` is *n* + 1. Slots need not be cleared in between, but zero the
   reply ring once.

A command that is refused changes nothing. Its reply says why in `status`; `refused` is the byte offset,
in the command, of the field that was at fault, and 0 when it is none in particular. Reserved fields and
`command_flags` are zero; another value is refused with BAD_FIELD.

A ring that cannot be read or written, and a doorbell more than a ring ahead of `ADMIN_HEAD`, set
STATUS.FATAL: the device takes no more commands until it is reset."""

COMMAND_NOTES: dict[AdminOpcode, str] = {
    AdminOpcode.NOP: "Does nothing. Shows that rings and interrupt work.",
    AdminOpcode.ALLOC_CTX: (
        "Makes a context: one process of the guest, with a doorbell page of its own in BAR2. "
        "NO_RESOURCE when every page is taken."
    ),
    AdminOpcode.FREE_CTX: (
        "Ends a context. BUSY while it owns objects, unless `force` is 1: then its QPs, CQs, regions "
        "and domains are destroyed first, in that order, without completions. It is what a driver sends "
        "for a process that died."
    ),
    AdminOpcode.ALLOC_PD: (
        "Makes a protection domain. Keys and QPs of one domain work together, never with another's."
    ),
    AdminOpcode.FREE_PD: "Ends a domain. BUSY while it has regions, QPs or address handles.",
    AdminOpcode.REG_MR: (
        "Makes a memory region and returns its key, which serves as lkey and rkey. The key's low 8 bits "
        "change at each reuse, so a freed key is recognised. The page list is read once, now. "
        "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too (BAD_FIELD `access`). Whether the pages "
        "answer is found out at each access. DMA_ERROR when the list itself cannot be read, NO_RESOURCE "
        "when all regions together would hold more than 4194304 runs of pages that are not neighbours."
    ),
    AdminOpcode.DEREG_MR: (
        "Frees a key. BUSY while a ring or a doorbell record lives in the region. Work that still names "
        "the key fails with LOC_PROT_ERR, a peer's with REM_ACCESS_ERR."
    ),
    AdminOpcode.CREATE_EQ: (
        "Makes an event queue on an MSI-X vector other than 0. The ring is contiguous in bus addresses; "
        "zero it first, since phase 0 means not written."
    ),
    AdminOpcode.DESTROY_EQ: "Ends an event queue. BUSY while CQs report to it.",
    AdminOpcode.CREATE_CQ: (
        "Makes a completion queue at any address of a region of the same context. Zero its memory "
        "first. `log_size` counts for RING only."
    ),
    AdminOpcode.DESTROY_CQ: "Ends a CQ. BUSY while QPs complete to it.",
    AdminOpcode.CREATE_QP: (
        "Makes a queue pair in RESET, with rings and doorbell record at any address of a region of the "
        "same domain. NOT_OWNER when a CQ belongs to another context or the region to another domain. "
        "UNSUPPORTED for a transport this device does not offer. It may move memory to other addresses "
        "only by destroying the QP."
    ),
    AdminOpcode.MODIFY_QP: (
        "Changes the attributes that `mask` names. State changes and the attributes each one needs and "
        "allows are those of verbs for reliable connections: RESET to INIT needs ACCESS_FLAGS, "
        "PKEY_INDEX and PORT; INIT to RTR needs AV, PATH_MTU, DEST_QPN, RQ_PSN, MAX_DEST_RD_ATOMIC and "
        "MIN_RNR_TIMER; RTR to RTS needs TIMEOUT, RETRY_CNT, RNR_RETRY, SQ_PSN and MAX_RD_ATOMIC. An "
        "unreliable connection (ROCE_UC) takes none of MAX_DEST_RD_ATOMIC, MIN_RNR_TIMER, TIMEOUT, "
        "RETRY_CNT, RNR_RETRY and MAX_RD_ATOMIC; a send WQE that fails stops its send queue alone (SQE), "
        "and SQE to RTS lets it go on. Datagrams (ROCE_UD, UET_UUD) need QKEY instead of ACCESS_FLAGS for "
        "INIT, nothing for RTR, SQ_PSN for RTS. RTS to SQD stops the send queue after what has begun; "
        "EN_SQD_ASYNC_NOTIFY asks for SQ_DRAINED then, and until then only ERR and RESET are taken. "
        "CUR_STATE refuses the command when the QP is in another state than expected (BAD_STATE `state`). "
        "ALT_PATH is UNSUPPORTED `mask`: paths do not migrate; PATH_MIG_STATE changes nothing. A "
        "missing attribute is BAD_STATE `mask`, one too many BAD_FIELD `mask`, a step that does not "
        "exist BAD_STATE `state`. RESET is always allowed, forgets everything and rewinds both rings to "
        "`start_index`; ERR is allowed from every state but RESET and flushes."
    ),
    AdminOpcode.QUERY_QP: "Says what the device knows of a QP: state, indices, PSNs and the first failure.",
    AdminOpcode.DESTROY_QP: (
        "Ends a QP in any state, at once, without completions for what it still had to do."
    ),
    AdminOpcode.QUERY_GID: (
        "Reads an entry of the GID table and the port's MAC address. An empty entry is all zero."
    ),
    AdminOpcode.SET_GID: (
        "Writes an entry of the GID table; all zero empties it. QPs keep the address they were given."
    ),
    AdminOpcode.CREATE_AH: (
        "Makes an address handle: where a datagram goes and the address it comes from. Send WQEs of the "
        "domain's QPs name it. BAD_FIELD `dest_mac` when GID and MAC are not both of a multicast "
        "group or both of one port."
    ),
    AdminOpcode.DESTROY_AH: (
        "Ends an address handle. Send WQEs fetched later that name it fail with LOC_QP_OP_ERR, cause "
        "HANDLE_UNKNOWN."
    ),
    AdminOpcode.ATTACH_MULTICAST: (
        "Has a datagram QP receive a copy of every datagram to the group's GID and QPN 0xffffff, if the "
        "Q_Key is right; its own come to the others only. Doing so again changes nothing. BAD_STATE `qpn` "
        "for another transport, BAD_FIELD `gid` when it is no multicast address."
    ),
    AdminOpcode.DETACH_MULTICAST: (
        "Ends that. BAD_OBJECT `gid` when the QP is not attached. Destroying the QP does it too."
    ),
    AdminOpcode.SET_HINTS: (
        "Names the process's hint ring, or with `log_size` 255 ends it. NOT_OWNER when the region belongs to "
        "another context. The region is pinned until the ring or the context ends."
    ),
    AdminOpcode.QUERY_OBJECTS: (
        "Counts the objects that exist. A driver that unloads can show that it leaves none."
    ),
}

SUBMISSION = """\
1. Take the next running index, wait until its slot is free: a slot may be written again when the WQE a
   ring's length earlier, or any later one of the QP, has completed.
2. Write the WQE, its first 8 bytes last. With the PHASE flag they carry the phase bit, and a slot without
   the right one counts as not written.
3. Store the index of the next free slot to the doorbell record, if the QP has one.
4. Make all of it visible (a release fence at system scope), then store the doorbell.

The device reads the slots a doorbell covers in bursts, possibly late, never beyond the doorbell. It
carries WQEs of a QP out in order. A completion for index *n* means that every earlier WQE of the QP is
complete too, signaled or not. The result of a READ or an atomic is in memory before its completion. Data
of a WRITE is visible at the target before any later message of the same QP.

A WQE that fails gives a completion with an error, signaled or not; the QP goes to ERR, and what follows
is flushed with WR_FLUSH_ERR. RESET is the way back.

A datagram is a SEND or SEND_IMM of at most the port's MTU that names an address handle, the peer's QP and
its Q_Key. QPN 0xffffff stands for every QP attached to the handle's multicast group. What comes without a
posted receive, with another Q_Key, or longer than the receive WQE less 40 bytes, is dropped and counted."""

DOORBELL_RULES = """\
One aligned 64-bit store. A doorbell carries all it needs, so a repeated one is harmless. It is accepted
only through the page of the context that owns the queue; page 0 belongs to nobody. A doorbell that breaks
a rule is ignored, adds to `doorbells_ignored`, and where it has a check number also to
`check_violations`."""

DOORBELL_RECORD = """\
Two producer indices that software keeps beside the ring, for devices whose doorbells may be lost or
merged. What it is worth is the QP's `dbr_policy`."""

COMPLETION = """\
An entry is valid when its phase bit is that of the pass: 1 in the first pass of the ring, then
alternating. Read the last 8 bytes first (one 64-bit load), then fence, then the rest. Tell the device
what was read with a CQ_CONSUMER doorbell: a full RING CQ with the ERROR policy stops and takes its QPs
with it.

Mode COLLAPSED writes every entry to slot 0, with phase 1 always: compare `index16` or `producer` with the
one before. Mode COUNTER writes no entries, but a u64 success count at the ring's address and a u64 error
count 8 bytes behind it.

CQ_ARM and CQ_ARM_SOLICITED ask for one COMPLETION event at the next completion beyond the given consumer
index; one that is there already raises it at once. CQ_ARM_SOLICITED waits for a solicited or failed one."""

EVENTS = """\
An event is valid when bit 0 of `phase` is that of the pass (first pass 1). The queue's vector is raised
once for any number of events; writing `EQ_CONSUMER[n]` arms it again, and raises it at once when events
came in between. Events that find the queue full are lost and counted as `eq_overruns`: make it deep
enough for the CQs and QPs that report to it."""

HINTS = """\
What the device cannot see, a submitter may tell it: who stored what before which fence, which lane holds a
lock, that every lane waits. SET_HINTS names a ring in the process's memory; without one the rules that need
hints are silent. Software writes an entry, its `sequence` included, then `producer`; when the ring is full it
rings the HINTS doorbell and waits for `consumer`. The device reads the ring when a send doorbell or a HINTS
doorbell of the process arrives. A malformed hint is C34 and is ignored."""

CHECKS = """\
Each violation adds to `CHECK_COUNT` and `check_violations`, is kept in `CHECK_ID`, `CHECK_QPN` and
`CHECK_INDEX` until the next one, and gives one trace line that names the object and what to do. What the
device does anyway is in the table. What it does besides is the rule's action: store the rule's number to
`CHECK_SELECT`, and read or store `CHECK_ACTION`; `CHECK_SELECTED` counts that rule alone. A reset brings
back the actions that the lab began with. What each rule needs, and what it misses, is in
`emu/checks/CHECKS.md` and `emu/checks/LIMITS.md`."""

VGPU = """\
A 3D controller with memory behind BAR2 that the guest maps and the NIC reaches by bus address. It has no
interrupts and does no work. Every reset clears its memory."""
