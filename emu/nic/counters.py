# SPDX-License-Identifier: Apache-2.0
"""What one NIC counts. A personality decides which of these its guest can read."""

from __future__ import annotations

from dataclasses import dataclass, fields

from emu.nic.work import Status

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Running totals since reset; plain integers so that the data path pays one addition each."""

    mmio_reads: int = 0
    mmio_writes: int = 0
    bad_mmio: int = 0
    admin_commands: int = 0
    admin_errors: int = 0
    doorbells: int = 0
    doorbells_ignored: int = 0
    wqe_fetches: int = 0
    wqes: int = 0
    cqes: int = 0
    cqe_errors: int = 0
    cq_overruns: int = 0
    eqes: int = 0
    eq_overruns: int = 0
    msix: int = 0
    dma_read_bytes: int = 0
    dma_write_bytes: int = 0
    dma_errors: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0
    rx_packets: int = 0
    rx_bytes: int = 0
    rx_dropped: int = 0
    rx_icrc_encapsulated: int = 0
    retransmitted_packets: int = 0
    retransmitted_bytes: int = 0
    local_ack_timeout_err: int = 0
    packet_seq_err: int = 0
    out_of_sequence: int = 0
    duplicate_request: int = 0
    send_rnr_err: int = 0
    rnr_nak_retry_err: int = 0
    protection_errors: int = 0
    out_of_buffer: int = 0
    bad_pkey_cntr: int = 0
    qkey_viol_cntr: int = 0
    implied_nak_seq_err: int = 0
    np_ecn_marked_roce_packets: int = 0
    np_cnp_sent: int = 0
    rp_cnp_handled: int = 0
    rp_cnp_ignored: int = 0
    pdcs_opened: int = 0
    unknown_pdc: int = 0
    nacks_sent: int = 0
    nacks_received: int = 0
    check_violations: int = 0
    pushed_wqes: int = 0
    tss_unsecured: int = 0
    tss_unknown_domain: int = 0
    tss_replays: int = 0
    tss_auth_failures: int = 0
    link_downed: int = 0
    rx_write_requests: int = 0
    rx_read_requests: int = 0
    rx_atomic_requests: int = 0
    resp_remote_access_errors: int = 0
    resp_local_length_error: int = 0
    resp_cqe_error: int = 0
    resp_cqe_flush_error: int = 0
    req_cqe_error: int = 0
    req_cqe_flush_error: int = 0
    req_remote_invalid_request: int = 0
    req_remote_access_errors: int = 0
    req_transport_retries_exceeded: int = 0
    req_rnr_retries_exceeded: int = 0
    rx_drop_foreign: int = 0
    rx_drop_length: int = 0
    rx_drop_checksum: int = 0
    rx_drop_version: int = 0
    rx_drop_qpn: int = 0
    rx_drop_opcode: int = 0
    rx_drop_state: int = 0
    rx_drop_address: int = 0
    rx_drop_response: int = 0
    rx_drop_repeat: int = 0
    rx_drop_refused: int = 0

    def note_failure(self, status: Status, *, received: bool) -> None:
        """Count a completion in error of a receive (``received``) or send element."""
        self.bump("resp_cqe_error" if received else "req_cqe_error")
        name = (_RECEIVE_FAILURES if received else _SEND_FAILURES).get(status)
        if name is not None:
            self.bump(name)

    def bump(self, name: str, amount: int = 1) -> None:
        """Add to the counter called ``name``. :raises AttributeError: there is no such counter."""
        setattr(self, name, getattr(self, name) + amount)

    def snapshot(self) -> dict[str, int]:
        """All counters by name."""
        return {name: getattr(self, name) for name in _NAMES}

    def clear(self) -> None:
        """Everything back to zero."""
        for name in _NAMES:
            setattr(self, name, 0)


_RECEIVE_FAILURES = {
    Status.LOC_LEN_ERR: "resp_local_length_error",
    Status.WR_FLUSH_ERR: "resp_cqe_flush_error",
}
_SEND_FAILURES = {
    Status.WR_FLUSH_ERR: "req_cqe_flush_error",
    Status.REM_INV_REQ_ERR: "req_remote_invalid_request",
    Status.REM_ACCESS_ERR: "req_remote_access_errors",
    Status.RETRY_EXC_ERR: "req_transport_retries_exceeded",
    Status.RNR_RETRY_EXC_ERR: "req_rnr_retries_exceeded",
}
_NAMES = tuple(field.name for field in fields(Counters))
