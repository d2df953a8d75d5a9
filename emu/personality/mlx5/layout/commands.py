# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of commands.

Names, bit offsets and widths are those of ``mlx5_ifc.h``. The fields that all share are in COMMAND and REPLY.
"""

from __future__ import annotations

from emu.personality.mlx5.layout.contexts import (
    CQC,
    EQC,
    MKC,
    QPC,
    RMPC,
    RQC,
    RQTC,
    SQC,
    TIRC,
    TISC,
    XRC_SRQC,
)
from emu.personality.mlx5.layout.structure import Structure

__all__ = [
    "ALLOC_PD_OUT",
    "ALLOC_TRANSPORT_DOMAIN_OUT",
    "ALLOC_UAR_OUT",
    "ALLOC_XRCD_OUT",
    "ARM_RQ_IN",
    "ARM_XRC_SRQ_IN",
    "ATTACH_TO_MCG_IN",
    "CREATE_CQ_IN",
    "CREATE_CQ_OUT",
    "CREATE_EQ_IN",
    "CREATE_EQ_OUT",
    "CREATE_MKEY_IN",
    "CREATE_MKEY_OUT",
    "CREATE_QP_IN",
    "CREATE_QP_OUT",
    "CREATE_RMP_IN",
    "CREATE_RMP_OUT",
    "CREATE_RQT_IN",
    "CREATE_RQT_OUT",
    "CREATE_RQ_IN",
    "CREATE_RQ_OUT",
    "CREATE_SQ_IN",
    "CREATE_SQ_OUT",
    "CREATE_TIR_IN",
    "CREATE_TIR_OUT",
    "CREATE_TIS_IN",
    "CREATE_TIS_OUT",
    "CREATE_UCTX_IN",
    "CREATE_UCTX_OUT",
    "CREATE_UMEM_IN",
    "CREATE_UMEM_OUT",
    "CREATE_XRC_SRQ_IN",
    "CREATE_XRC_SRQ_OUT",
    "DEALLOC_PD_IN",
    "DEALLOC_TRANSPORT_DOMAIN_IN",
    "DEALLOC_UAR_IN",
    "DEALLOC_XRCD_IN",
    "DESTROY_CQ_IN",
    "DESTROY_EQ_IN",
    "DESTROY_MKEY_IN",
    "DESTROY_QP_IN",
    "DESTROY_RMP_IN",
    "DESTROY_RQT_IN",
    "DESTROY_RQ_IN",
    "DESTROY_SQ_IN",
    "DESTROY_TIR_IN",
    "DESTROY_TIS_IN",
    "DESTROY_UCTX_IN",
    "DESTROY_UMEM_IN",
    "DESTROY_XRC_SRQ_IN",
    "DETACH_FROM_MCG_IN",
    "INIT2INIT_QP_IN",
    "INIT2RTR_QP_IN",
    "MANAGE_PAGES_IN",
    "MANAGE_PAGES_OUT",
    "MODIFY_CQ_IN",
    "MODIFY_RMP_IN",
    "MODIFY_RQT_IN",
    "MODIFY_RQ_IN",
    "MODIFY_SQ_IN",
    "MODIFY_TIR_IN",
    "MODIFY_TIS_IN",
    "QP_2ERR_IN",
    "QP_2RST_IN",
    "QUERY_ADAPTER_OUT",
    "QUERY_CQ_IN",
    "QUERY_CQ_OUT",
    "QUERY_EQ_IN",
    "QUERY_EQ_OUT",
    "QUERY_HCA_CAP_IN",
    "QUERY_HCA_CAP_OUT",
    "QUERY_ISSI_OUT",
    "QUERY_LAG_OUT",
    "QUERY_MKEY_IN",
    "QUERY_MKEY_OUT",
    "QUERY_PAGES_OUT",
    "QUERY_QP_IN",
    "QUERY_QP_OUT",
    "QUERY_RMP_IN",
    "QUERY_RMP_OUT",
    "QUERY_RQ_IN",
    "QUERY_RQ_OUT",
    "QUERY_SPECIAL_CONTEXTS_OUT",
    "QUERY_SQ_IN",
    "QUERY_SQ_OUT",
    "QUERY_XRC_SRQ_IN",
    "QUERY_XRC_SRQ_OUT",
    "RST2INIT_QP_IN",
    "RTR2RTS_QP_IN",
    "RTS2RTS_QP_IN",
    "SET_HCA_CAP_IN",
    "SET_ISSI_IN",
    "SQERR2RTS_QP_IN",
    "UCTX",
    "UMEM",
]

QUERY_HCA_CAP_IN = Structure("query_hca_cap_in", 0x80, {"op_mod": (0x030, 16)})

QUERY_HCA_CAP_OUT = Structure("query_hca_cap_out", 0x8080, {"capability": (0x080, 32768)})

SET_HCA_CAP_IN = Structure("set_hca_cap_in", 0x8080, {"op_mod": (0x030, 16)})

QUERY_ISSI_OUT = Structure(
    "query_issi_out",
    0x380,
    {
        "current_issi": (0x050, 16),
        "supported_issi_dw0": (0x360, 32),
    },
)

SET_ISSI_IN = Structure("set_issi_in", 0x80, {"current_issi": (0x050, 16)})

QUERY_PAGES_OUT = Structure("query_pages_out", 0x80, {"num_pages": (0x060, 32)})

MANAGE_PAGES_IN = Structure("manage_pages_in", 0x80, {"input_num_entries": (0x060, 32)})

MANAGE_PAGES_OUT = Structure("manage_pages_out", 0x80, {"output_num_entries": (0x040, 32)})

QUERY_ADAPTER_OUT = Structure("query_adapter_out", 0x880, {"query_adapter_struct": (0x080, 2048)})

QUERY_SPECIAL_CONTEXTS_OUT = Structure("query_special_contexts_out", 0x100, {"resd_lkey": (0x060, 32)})

ALLOC_UAR_OUT = Structure("alloc_uar_out", 0x80, {"uar": (0x048, 24)})

DEALLOC_UAR_IN = Structure("dealloc_uar_in", 0x80, {"uar": (0x048, 24)})

ALLOC_PD_OUT = Structure("alloc_pd_out", 0x80, {"pd": (0x048, 24)})

DEALLOC_PD_IN = Structure("dealloc_pd_in", 0x80, {"pd": (0x048, 24)})

ALLOC_TRANSPORT_DOMAIN_OUT = Structure("alloc_transport_domain_out", 0x80, {"transport_domain": (0x048, 24)})

DEALLOC_TRANSPORT_DOMAIN_IN = Structure(
    "dealloc_transport_domain_in",
    0x80,
    {
        "transport_domain": (0x048, 24),
    },
)

ALLOC_XRCD_OUT = Structure("alloc_xrcd_out", 0x80, {"xrcd": (0x048, 24)})

DEALLOC_XRCD_IN = Structure("dealloc_xrcd_in", 0x80, {"xrcd": (0x048, 24)})

CREATE_MKEY_IN = Structure(
    "create_mkey_in",
    0x880,
    {
        "pg_access": (0x060, 1),
        "mkey_umem_valid": (0x061, 1),
        "memory_key_mkey_entry": (0x080, MKC),
        "translations_octword_actual_size": (0x300, 32),
        "mkey_umem_id": (0x320, 32),
        "mkey_umem_offset": (0x340, 64),
        "klm_pas_mtt": (0x880, 32),
    },
)

CREATE_MKEY_OUT = Structure("create_mkey_out", 0x80, {"mkey_index": (0x048, 24)})

DESTROY_MKEY_IN = Structure("destroy_mkey_in", 0x80, {"mkey_index": (0x048, 24)})

QUERY_MKEY_IN = Structure("query_mkey_in", 0x80, {"mkey_index": (0x048, 24)})

QUERY_MKEY_OUT = Structure("query_mkey_out", 0x980, {"memory_key_mkey_entry": (0x080, MKC)})

CREATE_EQ_IN = Structure(
    "create_eq_in",
    0x880,
    {
        "eq_context_entry": (0x080, EQC),
        "event_bitmask": (0x2C0, 64),
        "pas": (0x880, 64),
    },
)

CREATE_EQ_OUT = Structure("create_eq_out", 0x80, {"eq_number": (0x058, 8)})

DESTROY_EQ_IN = Structure("destroy_eq_in", 0x80, {"eq_number": (0x058, 8)})

QUERY_EQ_IN = Structure("query_eq_in", 0x80, {"eq_number": (0x058, 8)})

QUERY_EQ_OUT = Structure("query_eq_out", 0x880, {"eq_context_entry": (0x080, EQC)})

CREATE_CQ_IN = Structure(
    "create_cq_in",
    0x880,
    {
        "cq_context": (0x080, CQC),
        "cq_umem_offset": (0x280, 64),
        "cq_umem_id": (0x2C0, 32),
        "cq_umem_valid": (0x2E0, 1),
        "pas": (0x880, 64),
    },
)

CREATE_CQ_OUT = Structure("create_cq_out", 0x80, {"cqn": (0x048, 24)})

DESTROY_CQ_IN = Structure("destroy_cq_in", 0x80, {"cqn": (0x048, 24)})

QUERY_CQ_IN = Structure("query_cq_in", 0x80, {"cqn": (0x048, 24)})

QUERY_CQ_OUT = Structure("query_cq_out", 0x880, {"cq_context": (0x080, CQC)})

MODIFY_CQ_IN = Structure(
    "modify_cq_in",
    0x880,
    {
        "cqn": (0x048, 24),
        "modify_field_select_resize_field_select": (0x060, 32),
        "cq_context": (0x080, CQC),
        "pas": (0x880, 64),
    },
)

CREATE_QP_IN = Structure(
    "create_qp_in",
    0x880,
    {
        "opt_param_mask": (0x080, 32),
        "qpc": (0x0C0, QPC),
        "wq_umem_offset": (0x800, 64),
        "wq_umem_id": (0x840, 32),
        "wq_umem_valid": (0x860, 1),
        "pas": (0x880, 64),
    },
)

CREATE_QP_OUT = Structure("create_qp_out", 0x80, {"qpn": (0x048, 24)})

DESTROY_QP_IN = Structure("destroy_qp_in", 0x80, {"qpn": (0x048, 24)})

RST2INIT_QP_IN = Structure(
    "rst2init_qp_in",
    0x880,
    {
        "qpn": (0x048, 24),
        "opt_param_mask": (0x080, 32),
        "qpc": (0x0C0, QPC),
    },
)

INIT2INIT_QP_IN = Structure(
    "init2init_qp_in",
    0x880,
    {
        "qpn": (0x048, 24),
        "opt_param_mask": (0x080, 32),
        "qpc": (0x0C0, QPC),
    },
)

INIT2RTR_QP_IN = Structure(
    "init2rtr_qp_in",
    0x880,
    {
        "qpn": (0x048, 24),
        "opt_param_mask": (0x080, 32),
        "qpc": (0x0C0, QPC),
    },
)

RTR2RTS_QP_IN = Structure(
    "rtr2rts_qp_in",
    0x880,
    {
        "qpn": (0x048, 24),
        "opt_param_mask": (0x080, 32),
        "qpc": (0x0C0, QPC),
    },
)

RTS2RTS_QP_IN = Structure(
    "rts2rts_qp_in",
    0x880,
    {
        "qpn": (0x048, 24),
        "opt_param_mask": (0x080, 32),
        "qpc": (0x0C0, QPC),
    },
)

SQERR2RTS_QP_IN = Structure(
    "sqerr2rts_qp_in",
    0x880,
    {
        "qpn": (0x048, 24),
        "opt_param_mask": (0x080, 32),
        "qpc": (0x0C0, QPC),
    },
)

QP_2ERR_IN = Structure("qp_2err_in", 0x80, {"qpn": (0x048, 24)})

QP_2RST_IN = Structure("qp_2rst_in", 0x80, {"qpn": (0x048, 24)})

QUERY_QP_IN = Structure("query_qp_in", 0x80, {"qpn": (0x048, 24)})

QUERY_QP_OUT = Structure("query_qp_out", 0x880, {"opt_param_mask": (0x080, 32), "qpc": (0x0C0, QPC)})

CREATE_XRC_SRQ_IN = Structure("create_xrc_srq_in", 0x880, {"xrc_srq_context_entry": (0x080, XRC_SRQC)})

CREATE_XRC_SRQ_OUT = Structure("create_xrc_srq_out", 0x80, {"xrc_srqn": (0x048, 24)})

DESTROY_XRC_SRQ_IN = Structure("destroy_xrc_srq_in", 0x80, {"xrc_srqn": (0x048, 24)})

CREATE_RMP_IN = Structure("create_rmp_in", 0x880, {"ctx": (0x100, RMPC)})

CREATE_RMP_OUT = Structure("create_rmp_out", 0x80, {"rmpn": (0x048, 24)})

DESTROY_RMP_IN = Structure("destroy_rmp_in", 0x80, {"rmpn": (0x048, 24)})

UCTX = Structure("uctx", 0x180, {"cap": (0x000, 32)})
"""A user context of direct verbs."""

CREATE_UCTX_IN = Structure("create_uctx_in", 0x200, {"uctx": (0x080, UCTX)})

CREATE_UCTX_OUT = Structure("create_uctx_out", 0x80, {"uid": (0x050, 16)})

DESTROY_UCTX_IN = Structure("destroy_uctx_in", 0x80, {"uid": (0x050, 16)})

UMEM = Structure(
    "umem", 0x100, {"log_page_size": (0x09B, 5), "page_offset": (0x0A0, 32), "num_of_mtt": (0x0C0, 64)}
)
"""User memory; its page list follows."""

CREATE_UMEM_IN = Structure("create_umem_in", 0x180, {"umem": (0x080, UMEM)})

CREATE_UMEM_OUT = Structure("create_umem_out", 0x80, {"umem_id": (0x048, 24)})

DESTROY_UMEM_IN = Structure("destroy_umem_in", 0x80, {"umem_id": (0x048, 24)})

QUERY_LAG_OUT = Structure("query_lag_out", 0x80, {"ctx": (0x040, 64)})

QUERY_XRC_SRQ_IN = Structure("query_xrc_srq_in", 0x80, {"xrc_srqn": (0x048, 24)})

QUERY_XRC_SRQ_OUT = Structure("query_xrc_srq_out", 0x880, {"xrc_srq_context_entry": (0x080, XRC_SRQC)})

ARM_XRC_SRQ_IN = Structure("arm_xrc_srq_in", 0x80, {"xrc_srqn": (0x048, 24), "lwm": (0x070, 16)})

ARM_RQ_IN = Structure("arm_rq_in", 0x80, {"srq_number": (0x048, 24), "lwm": (0x070, 16)})

MODIFY_RMP_IN = Structure(
    "modify_rmp_in",
    0x880,
    {"rmp_state": (0x040, 4), "rmpn": (0x048, 24), "bitmask": (0x080, 64), "ctx": (0x100, RMPC)},
)

QUERY_RMP_IN = Structure("query_rmp_in", 0x80, {"rmpn": (0x048, 24)})

QUERY_RMP_OUT = Structure("query_rmp_out", 0x880, {"rmp_context": (0x100, RMPC)})

CREATE_TIS_IN = Structure("create_tis_in", 0x600, {"ctx": (0x100, TISC)})

CREATE_TIS_OUT = Structure("create_tis_out", 0x80, {"tisn": (0x048, 24)})

MODIFY_TIS_IN = Structure("modify_tis_in", 0x600, {"tisn": (0x048, 24)})

DESTROY_TIS_IN = Structure("destroy_tis_in", 0x80, {"tisn": (0x048, 24)})

CREATE_TIR_IN = Structure("create_tir_in", 0x880, {"ctx": (0x100, TIRC)})

CREATE_TIR_OUT = Structure("create_tir_out", 0x80, {"tirn": (0x048, 24)})

MODIFY_TIR_IN = Structure(
    "modify_tir_in",
    0x880,
    {
        "tirn": (0x048, 24),
        "bitmask": (0x080, 64),
        "ctx": (0x100, TIRC),
    },
)

DESTROY_TIR_IN = Structure("destroy_tir_in", 0x80, {"tirn": (0x048, 24)})

CREATE_RQT_IN = Structure("create_rqt_in", 0x880, {"rqt_context": (0x100, RQTC)})

CREATE_RQT_OUT = Structure("create_rqt_out", 0x80, {"rqtn": (0x048, 24)})

MODIFY_RQT_IN = Structure(
    "modify_rqt_in",
    0x880,
    {
        "rqtn": (0x048, 24),
        "bitmask": (0x080, 64),
        "ctx": (0x100, RQTC),
    },
)

DESTROY_RQT_IN = Structure("destroy_rqt_in", 0x80, {"rqtn": (0x048, 24)})

CREATE_SQ_IN = Structure("create_sq_in", 0x880, {"ctx": (0x100, SQC)})

CREATE_SQ_OUT = Structure("create_sq_out", 0x80, {"sqn": (0x048, 24)})

MODIFY_SQ_IN = Structure(
    "modify_sq_in",
    0x880,
    {
        "sq_state": (0x040, 4),
        "sqn": (0x048, 24),
        "ctx": (0x100, SQC),
    },
)

DESTROY_SQ_IN = Structure("destroy_sq_in", 0x80, {"sqn": (0x048, 24)})

QUERY_SQ_IN = Structure("query_sq_in", 0x80, {"sqn": (0x048, 24)})

QUERY_SQ_OUT = Structure("query_sq_out", 0x880, {"sq_context": (0x100, SQC)})

CREATE_RQ_IN = Structure("create_rq_in", 0x880, {"ctx": (0x100, RQC)})

CREATE_RQ_OUT = Structure("create_rq_out", 0x80, {"rqn": (0x048, 24)})

MODIFY_RQ_IN = Structure(
    "modify_rq_in",
    0x880,
    {
        "rq_state": (0x040, 4),
        "rqn": (0x048, 24),
        "modify_bitmask": (0x080, 64),
        "ctx": (0x100, RQC),
    },
)

DESTROY_RQ_IN = Structure("destroy_rq_in", 0x80, {"rqn": (0x048, 24)})

QUERY_RQ_IN = Structure("query_rq_in", 0x80, {"rqn": (0x048, 24)})

QUERY_RQ_OUT = Structure("query_rq_out", 0x880, {"rq_context": (0x100, RQC)})

ATTACH_TO_MCG_IN = Structure("attach_to_mcg_in", 0x100, {"qpn": (0x048, 24), "multicast_gid": (0x080, 128)})

DETACH_FROM_MCG_IN = Structure(
    "detach_from_mcg_in", 0x100, {"qpn": (0x048, 24), "multicast_gid": (0x080, 128)}
)
