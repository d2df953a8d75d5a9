// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What datagrams need beside a queue pair: address handles, and groups to listen to. */

#include "vrnic.h"

int vrnic_create_ah(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_create_ah *ah = arg;
	struct vrnic_cmd_create_ah command = {
		.opcode = cpu_to_le16(VRNIC_CMD_CREATE_AH),
		.pd = cpu_to_le32(ah->pd),
		.traffic_class = ah->traffic_class,
		.hop_limit = ah->hop_limit,
		.gid_index = ah->gid_index,
		.udp_source_port = cpu_to_le16(ah->udp_source_port),
	};
	struct vrnic_reply_object reply;

	if (ah->reserved || ah->ahn)
		return -EINVAL;
	if (!xa_load(&ctx->pds, ah->pd))
		return -ENOENT;
	memcpy(command.dest_gid, ah->dest_gid, sizeof(command.dest_gid));
	memcpy(command.dest_mac, ah->dest_mac, sizeof(command.dest_mac));
	return vrnic_number_make(ctx, &command, &reply, &ctx->ahs, NULL, VRNIC_CMD_DESTROY_AH,
				 &ah->verdict, &ah->ahn);
}

int vrnic_destroy_ah(struct vrnic_context *ctx, void *arg)
{
	struct vrnic_object *object = arg;

	if (object->reserved)
		return -EINVAL;
	return vrnic_number_destroy(ctx, VRNIC_CMD_DESTROY_AH, &ctx->ahs, NULL, object->number,
				    &object->verdict);
}

static int vrnic_multicast_call(struct vrnic_context *ctx, struct vrnic_multicast *group,
				enum vrnic_admin_opcode opcode)
{
	struct vrnic_cmd_multicast command = {
		.opcode = cpu_to_le16(opcode),
		.qpn = cpu_to_le32(group->qpn),
	};
	struct vrnic_reply reply;

	if (group->reserved)
		return -EINVAL;
	if (!xa_load(&ctx->qps, group->qpn))
		return -ENOENT;
	memcpy(command.gid, group->gid, sizeof(command.gid));
	return vrnic_context_call(ctx, &command, &reply, &group->verdict);
}

int vrnic_attach_multicast(struct vrnic_context *ctx, void *arg)
{
	return vrnic_multicast_call(ctx, arg, VRNIC_CMD_ATTACH_MULTICAST);
}

int vrnic_detach_multicast(struct vrnic_context *ctx, void *arg)
{
	return vrnic_multicast_call(ctx, arg, VRNIC_CMD_DETACH_MULTICAST);
}
