/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of the commands that a direct submitter's host side sends through DevX: bit offset from the start
 * of the command (or of its reply) and width. Names and places are those of include/linux/mlx5/mlx5_ifc.h;
 * those of user memory, which it leaves out, as the device has them.
 */
#ifndef DEVX_FIELDS_H
#define DEVX_FIELDS_H

struct devx_field {
	unsigned int offset;
	unsigned int width;
};

#define F(offset, width) ((struct devx_field){ offset, width })

#define DEVX_OPCODE F(0x000, 16)
#define DEVX_OP_MOD F(0x030, 16)
#define DEVX_STATUS F(0x000, 8)
#define DEVX_SYNDROME F(0x020, 32)

enum {
	DEVX_OP_QUERY_HCA_CAP = 0x100,
	DEVX_OP_CREATE_MKEY = 0x200,
	DEVX_OP_CREATE_CQ = 0x400,
	DEVX_OP_CREATE_QP = 0x500,
	DEVX_OP_RST2INIT_QP = 0x502,
	DEVX_OP_INIT2RTR_QP = 0x503,
	DEVX_OP_RTR2RTS_QP = 0x504,
	DEVX_OP_QUERY_QP = 0x50b,
};

/* CREATE_CQ; the context begins at 0x080. */
#define CREATE_CQ_BYTES (0x880 / 8)
#define CREATE_CQ_dbr_umem_valid F(0x080 + 0x006, 1)
#define CREATE_CQ_cc F(0x080 + 0x00b, 1)
#define CREATE_CQ_oi F(0x080 + 0x00e, 1)
#define CREATE_CQ_dbr_umem_id F(0x080 + 0x020, 32)
#define CREATE_CQ_log_cq_size F(0x080 + 0x063, 5)
#define CREATE_CQ_uar_page F(0x080 + 0x068, 24)
#define CREATE_CQ_c_eqn_or_apu_element F(0x080 + 0x0a0, 32)
#define CREATE_CQ_dbr_addr F(0x080 + 0x1c0, 64)
#define CREATE_CQ_cq_umem_offset F(0x280, 64)
#define CREATE_CQ_cq_umem_id F(0x2c0, 32)
#define CREATE_CQ_cq_umem_valid F(0x2e0, 1)
#define CREATE_CQ_OUT_cqn F(0x048, 24)

/* CREATE_QP and the steps between states; the context begins at 0x0c0. */
#define CREATE_QP_BYTES (0x880 / 8)
#define QPC_st F(0x0c0 + 0x008, 8)
#define QPC_pm_state F(0x0c0 + 0x013, 2)
#define QPC_pd F(0x0c0 + 0x028, 24)
#define QPC_mtu F(0x0c0 + 0x040, 3)
#define QPC_log_msg_max F(0x0c0 + 0x043, 5)
#define QPC_log_sq_size F(0x0c0 + 0x051, 4)
#define QPC_uar_page F(0x0c0 + 0x068, 24)
#define QPC_send_dbr_mode F(0x0c0 + 0x080, 2)
#define QPC_remote_qpn F(0x0c0 + 0x0a8, 24)
#define QPC_ack_timeout F(0x0c0 + 0x0c0 + 0x040, 5)
#define QPC_src_addr_index F(0x0c0 + 0x0c0 + 0x048, 8)
#define QPC_hop_limit F(0x0c0 + 0x0c0 + 0x058, 8)
#define QPC_rgid_rip F(0x0c0 + 0x0c0 + 0x080, 128)
#define QPC_udp_sport F(0x0c0 + 0x0c0 + 0x110, 16)
#define QPC_vhca_port_num F(0x0c0 + 0x0c0 + 0x128, 8)
#define QPC_rmac_47_32 F(0x0c0 + 0x0c0 + 0x130, 16)
#define QPC_rmac_31_0 F(0x0c0 + 0x0c0 + 0x140, 32)
#define QPC_log_sra_max F(0x0c0 + 0x388, 3)
#define QPC_retry_count F(0x0c0 + 0x38d, 3)
#define QPC_rnr_retry F(0x0c0 + 0x390, 3)
#define QPC_next_send_psn F(0x0c0 + 0x3c8, 24)
#define QPC_cqn_snd F(0x0c0 + 0x3e8, 24)
#define QPC_log_rra_max F(0x0c0 + 0x488, 3)
#define QPC_atomic_mode F(0x0c0 + 0x48c, 4)
#define QPC_rre F(0x0c0 + 0x490, 1)
#define QPC_rwe F(0x0c0 + 0x491, 1)
#define QPC_rae F(0x0c0 + 0x492, 1)
#define QPC_min_rnr_nak F(0x0c0 + 0x4a3, 5)
#define QPC_next_rcv_psn F(0x0c0 + 0x4a8, 24)
#define QPC_cqn_rcv F(0x0c0 + 0x4e8, 24)
#define QPC_dbr_addr F(0x0c0 + 0x500, 64)
#define QPC_rq_type F(0x0c0 + 0x565, 3)
#define QPC_hw_sq_wqebb_counter F(0x0c0 + 0x5a0, 16)
#define QPC_sw_sq_wqebb_counter F(0x0c0 + 0x5b0, 16)
#define QPC_dbr_umem_valid F(0x0c0 + 0x683, 1)
#define QPC_dbr_umem_id F(0x0c0 + 0x720, 32)
#define CREATE_QP_wq_umem_offset F(0x800, 64)
#define CREATE_QP_wq_umem_id F(0x840, 32)
#define CREATE_QP_wq_umem_valid F(0x860, 1)
#define CREATE_QP_OUT_qpn F(0x048, 24)
#define MODIFY_QP_qpn F(0x048, 24)

#define QUERY_QP_BYTES (0x80 / 8)
#define QUERY_QP_OUT_BYTES (0x880 / 8)
#define QUERY_QP_OUT_state F(0x0c0 + 0x000, 4)

/* CREATE_MKEY; the context begins at 0x080. */
#define CREATE_MKEY_BYTES (0x880 / 8)
#define CREATE_MKEY_mkey_umem_valid F(0x061, 1)
#define CREATE_MKEY_a F(0x080 + 0x011, 1)
#define CREATE_MKEY_rw F(0x080 + 0x012, 1)
#define CREATE_MKEY_rr F(0x080 + 0x013, 1)
#define CREATE_MKEY_lw F(0x080 + 0x014, 1)
#define CREATE_MKEY_lr F(0x080 + 0x015, 1)
#define CREATE_MKEY_access_mode_1_0 F(0x080 + 0x016, 2)
#define CREATE_MKEY_qpn F(0x080 + 0x020, 24)
#define CREATE_MKEY_mkey_7_0 F(0x080 + 0x038, 8)
#define CREATE_MKEY_pd F(0x080 + 0x068, 24)
#define CREATE_MKEY_start_addr F(0x080 + 0x080, 64)
#define CREATE_MKEY_len F(0x080 + 0x0c0, 64)
#define CREATE_MKEY_translations_octword_size F(0x080 + 0x1a0, 32)
#define CREATE_MKEY_log_page_size F(0x080 + 0x1da, 6)
#define CREATE_MKEY_translations_octword_actual_size F(0x300, 32)
#define CREATE_MKEY_mkey_umem_id F(0x320, 32)
#define CREATE_MKEY_mkey_umem_offset F(0x340, 64)
#define CREATE_MKEY_OUT_mkey_index F(0x048, 24)

#endif /* DEVX_FIELDS_H */
